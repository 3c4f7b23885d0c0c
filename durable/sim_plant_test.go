package durable_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A plant puts a bug between the auditor and the store.
type plant func(store durable.Store) durable.Store

// A plantedStore is a store with a bug. Calls come one at a time.
type plantedStore struct {
	durable.Store

	unfenced      bool // ends are accepted whoever the run belongs to
	recoverTwice  bool // a refused end still asks for the recovery run
	forgetBlocked bool // nothing sets blocked triggers free
	misfireRetry  bool // a late retry is run as of now

	active map[string]int // by job: a count that every end takes from, if not nil

	stale     map[string]durable.TriggerRow // claimed rows as they were before, if not nil
	staleNode string
	claims    int
}

func (p *plantedStore) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	plan := r.Plan
	if p.stale != nil && r.Node != p.staleNode {
		if p.claims++; p.claims%3 == 0 {
			p.goStale(ctx)
		}
		p.staleNode = r.Node
		clear(p.stale)
	}
	r.Plan = func(d durable.Due) durable.Verdict {
		if p.active != nil {
			d.Busy = !d.Job.AllowConcurrent && p.active[d.Job.Name] > 0
		}
		v := plan(d)
		if v.Run == nil {
			return v
		}
		if p.active != nil {
			p.active[d.Job.Name]++
		}
		if p.stale != nil && d.Trigger.Kind == durable.KindSchedule {
			p.stale[d.Trigger.ID] = d.Trigger
		}
		if p.misfireRetry && d.Trigger.Kind == durable.KindRetry && d.Now.Sub(d.Trigger.DueAt) > simMisfire {
			v.Run.ScheduledAt = d.Now
		}
		return v
	}
	return p.Store.Claim(ctx, r)
}

// goStale makes rows what they were before another node's claim: this node has read
// them then, and nothing will compare their versions.
func (p *plantedStore) goStale(ctx context.Context) {
	for id, old := range p.stale {
		_ = p.Store.Edit(ctx, old.Job, durable.EditJob, func(e *durable.Edit) error {
			if i := slices.IndexFunc(e.Triggers, func(t durable.TriggerRow) bool { return t.ID == id }); i >= 0 && e.Job != nil {
				e.Triggers[i] = old
			}
			return nil
		})
	}
}

func (p *plantedStore) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	ends := slices.Clone(r.Ends)
	for i := range ends {
		if p.forgetBlocked {
			ends[i].Run.Exclusive = false
		}
		if e := &ends[i]; p.active != nil && !e.Local && !e.Keep {
			p.active[e.Run.Job] = max(0, p.active[e.Run.Job]-1)
		}
	}
	ok, err := p.Store.Finish(ctx, durable.FinishRequest{Ends: ends, Resume: r.Resume})
	if err != nil {
		return ok, err
	}
	for i, e := range ends {
		if ok[i] {
			continue
		}
		if p.unfenced {
			_, _ = p.Store.Finish(ctx, durable.FinishRequest{Ends: []durable.End{{Run: e.Run, Local: true, Follow: e.Follow, FollowIn: e.FollowIn}}})
			ok[i] = true
		}
		if p.recoverTwice && e.Follow != nil && e.Follow.Kind == durable.KindRecovery {
			_ = p.Store.Edit(ctx, e.Run.Job, durable.EnqueueOnly, func(d *durable.Edit) error {
				row := *e.Follow
				row.DueAt = d.Now
				d.Add = []durable.TriggerRow{row}
				return nil
			})
		}
	}
	return ok, nil
}

func (p *plantedStore) Expire(ctx context.Context, r durable.ExpireRequest) (durable.ExpireResult, error) {
	if !p.forgetBlocked {
		return p.Store.Expire(ctx, r)
	}
	before, err := p.Jobs(ctx, durable.JobQuery{})
	if err != nil {
		return durable.ExpireResult{}, err
	}
	res, err := p.Store.Expire(ctx, r)
	for _, st := range before {
		blocked := slices.ContainsFunc(st.Triggers, func(t durable.TriggerRow) bool { return t.State == durable.StateBlocked && !t.OneShot() })
		if !blocked {
			continue
		}
		_ = p.Store.Edit(ctx, st.Job.Name, durable.EditJob, func(e *durable.Edit) error {
			for _, t := range st.Triggers {
				if i := slices.IndexFunc(e.Triggers, func(o durable.TriggerRow) bool { return o.ID == t.ID }); i >= 0 && t.State == durable.StateBlocked {
					e.Triggers[i].State, e.Triggers[i].Reason = t.State, t.Reason
				}
			}
			return nil
		})
	}
	return res, err
}

// TestSimulationCatchesPlantedBugs: a simulation that finds nothing proves something
// only if it finds what is there.
func TestSimulationCatchesPlantedBugs(t *testing.T) {
	const within = 1000 // seeds
	for _, c := range []struct {
		name  string
		plant func(p *plantedStore)
		kinds []string // of violations that tell of the bug
	}{
		{"no fencing check", func(p *plantedStore) { p.unfenced = true }, []string{"fence"}},
		{"slot freed twice", func(p *plantedStore) { p.active = map[string]int{} }, []string{"concurrency"}},
		{"claim without version", func(p *plantedStore) { p.stale = map[string]durable.TriggerRow{} }, []string{"chain"}},
		{"misfire applied to a retry", func(p *plantedStore) { p.misfireRetry = true }, []string{"misfire"}},
		{"recovery run twice", func(p *plantedStore) { p.recoverTwice = true }, []string{"follow", "chain"}},
		{"blocked trigger forgotten", func(p *plantedStore) { p.forgetBlocked = true }, []string{"blocked"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			for seed := range uint64(within) {
				res := simulate(t, seed, func(store durable.Store) durable.Store {
					p := &plantedStore{Store: store}
					c.plant(p)
					return p
				}, false)
				if res.bad == nil {
					continue
				}
				if !slices.Contains(c.kinds, res.bad.kind) {
					t.Errorf("seed %d: %v; want a violation of kind %v\n%s", seed, res.bad, c.kinds, res.tail)
				}
				if clean := simulate(t, seed, nil, false); clean.bad != nil {
					t.Errorf("seed %d: violation without the bug: %v", seed, clean.bad)
				}
				t.Logf("caught with seed %d after %v: %v", seed, time.Since(began).Round(time.Millisecond), res.bad)
				return
			}
			t.Errorf("not caught within %d seeds", within)
		})
	}
}
