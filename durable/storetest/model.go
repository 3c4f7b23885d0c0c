package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/taskmanager-go/taskmanager/durable"
)

// The size of the model test; the environment's STORETEST_SEEDS has it try more seeds.
const (
	modelSeeds = 8
	modelSteps = 150
	modelDumps = 3 // steps from one comparison of all rows to the next
)

// modelTest does random things to the store under test and to a memory store side by
// side. All answers must be the same, and all rows.
func modelTest(t *testing.T, open Open) {
	seeds := modelSeeds
	if n, err := strconv.Atoi(os.Getenv("STORETEST_SEEDS")); err == nil && n > 0 {
		seeds = n
	}
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			m := newModel(t, open, uint64(seed))
			for step := range modelSteps {
				m.step()
				if step%modelDumps == 0 || step == modelSteps-1 {
					m.compareAll()
				}
				if t.Failed() {
					t.Fatalf("seed %d, after these steps:\n%s", seed, strings.Join(m.steps, "\n"))
				}
			}
		})
	}
}

// A model is two stores of one clock.
type model struct {
	*world        // the store under test
	oracle *world // of the same clock
	random *rand.Rand
	seed   uint64
	steps  []string
	known  dump // the oracle's, as of the last step
	seen   map[*world]map[string]durable.TriggerRow
	ids    int64
}

func newModel(t *testing.T, open Open, seed uint64) *model {
	w := newWorld(t, open)
	oracle := &world{TB: t, clock: w.clock, ctx: w.ctx, store: durable.NewMemory(durable.MemoryNow(w.clock.now))}
	return &model{
		world: w, oracle: oracle, random: rand.New(rand.NewPCG(seed, 1)), seed: seed,
		seen: map[*world]map[string]durable.TriggerRow{w: {}, oracle: {}},
	}
}

// An operation does the same to either store, and gives the answer: rows and values
// that compare can read.
type operation func(w *world) any

// step does one thing to both stores and compares the answers.
func (m *model) step() {
	m.Helper()
	m.known = m.oracle.dump()
	var what string
	var do operation
	switch n := m.random.IntN(100); {
	case n < 10:
		what, do = m.pass()
	case n < 18:
		what, do = m.beatNode()
	case n < 42:
		what, do = m.claimSome()
	case n < 62:
		what, do = m.finishSome()
	case n < 68:
		what, do = m.expireSome()
	case n < 86:
		what, do = m.editJob()
	case n < 92:
		what, do = m.enqueueSome()
	case n < 95:
		what, do = m.purgeSome()
	case n < 97:
		what, do = m.leaseOne()
	default:
		what, do = m.query()
	}
	m.steps = append(m.steps, fmt.Sprintf("%3d %s", len(m.steps), what))
	if d := differences(do(m.world), do(m.oracle)); d != "" {
		m.Errorf("%s:%s", what, d)
	}
}

// compareAll compares all rows, and each store's versions with what they were.
func (m *model) compareAll() {
	m.Helper()
	got, want := m.world.dump(), m.oracle.dump()
	m.versionsRise(m.world, got)
	m.versionsRise(m.oracle, want)
	if d := differences(plainDump(got), plainDump(want)); d != "" {
		m.Errorf("the store:%s", d)
	}
}

// versionsRise checks that a trigger's version never falls, and rises with a change.
// How far is the store's business.
func (m *model) versionsRise(w *world, d dump) {
	m.Helper()
	for _, s := range d.Jobs {
		for _, t := range s.Triggers {
			was, ok := m.seen[w][t.ID]
			m.seen[w][t.ID] = t
			if !ok {
				continue
			}
			changed := differences(plainTrigger(t), plainTrigger(was)) != ""
			if t.Version < was.Version || changed && t.Version == was.Version {
				m.Errorf("trigger %q became %+v, version %d after %d", t.ID, t, t.Version, was.Version)
			}
		}
	}
}

// The plain functions take out what two stores may have differently: versions of
// triggers, and fences.

func plainTrigger(t durable.TriggerRow) durable.TriggerRow {
	t.Version = 0
	return t
}

func plainRun(r durable.RunRow) durable.RunRow {
	r.Fence = 0
	return r
}

func plainTriggers(rows []durable.TriggerRow) []durable.TriggerRow { return each(rows, plainTrigger) }

func plainRuns(rows []durable.RunRow) []durable.RunRow { return each(rows, plainRun) }

func plainState(s durable.JobState) durable.JobState {
	s.Triggers, s.Running = plainTriggers(s.Triggers), plainRuns(s.Running)
	return s
}

func plainDump(d dump) dump {
	d.Jobs, d.Runs = each(d.Jobs, plainState), plainRuns(d.Runs)
	return d
}

func plainClaim(res durable.ClaimResult) durable.ClaimResult {
	res.Next = nextOf(res)
	res.Skipped, res.Parked = plainRuns(res.Skipped), plainTriggers(res.Parked)
	res.Claimed = each(res.Claimed, func(c durable.Claimed) durable.Claimed {
		run := plainRun(*c.Run)
		return durable.Claimed{Run: &run, Job: c.Job}
	})
	return res
}

func plainExpiry(res durable.ExpireResult) durable.ExpireResult {
	res.Runs, res.Undue = plainRuns(res.Runs), plainTriggers(res.Undue)
	slices.SortFunc(res.Dead, func(a, b durable.NodeRow) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(res.Runs, func(a, b durable.RunRow) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(res.Undue, func(a, b durable.TriggerRow) int { return strings.Compare(a.ID, b.ID) })
	return res
}

func each[T any](rows []T, f func(T) T) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
