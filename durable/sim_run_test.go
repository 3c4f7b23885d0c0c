package durable_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var simSeed = flag.Int64("sim.seed", -1, "run the simulation with this seed alone, and print its trace")

// A simResult is what is left of a simulation.
type simResult struct {
	seed   uint64
	bad    *violation
	tail   string
	trace  string
	counts [faults]int
	events map[string]int
	runs   int
}

// simulate runs one seed in a bubble, where nothing depends on the machine.
func simulate(t *testing.T, seed uint64, p plant, whole bool) (res simResult) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, seed, p)
		res.bad = s.run()
		res.seed, res.counts, res.events, res.runs = seed, s.counts, s.events, len(s.audit.runs)
		if res.bad != nil {
			res.tail = s.tail(60)
		}
		if whole {
			res.trace = s.tail(1 << 30)
		}
	})
	return res
}

// simSeeds is how many seeds a run of the tests has.
func simSeeds(t *testing.T) int {
	if text := os.Getenv("SIM_SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("SIM_SEEDS: %v", err)
		}
		return n
	}
	switch {
	case simRace:
		return 15 // each takes many times as long
	case testing.Short():
		return 300
	}
	return 2000
}

// TestSimulation is the whole: many seeds, no violation, and no kind of fault that
// never occurred. SIM_SEEDS says how many, SIM_FROM from which on; -sim.seed runs a
// single one.
func TestSimulation(t *testing.T) {
	if *simSeed >= 0 {
		res := simulate(t, uint64(*simSeed), nil, true)
		t.Logf("%s\n%v", res.trace, res.bad)
		if res.bad != nil {
			t.Fail()
		}
		return
	}
	seeds := simSeeds(t)
	from, _ := strconv.Atoi(os.Getenv("SIM_FROM"))
	began := time.Now()
	var mu sync.Mutex
	var counts [faults]int
	events := map[string]int{}
	runs, done := 0, 0
	var next, failures atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					seed := next.Add(1) - 1
					if seed >= int64(seeds) || failures.Load() >= 3 {
						return
					}
					res := simulate(t, uint64(from)+uint64(seed), nil, false)
					mu.Lock()
					for i, n := range res.counts {
						counts[i] += n
					}
					for what, n := range res.events {
						events[what] += n
					}
					runs += res.runs
					done++
					mu.Unlock()
					if res.bad != nil {
						t.Errorf("seed %d: %v\nreproduce with: go test ./durable -run '^TestSimulation$' -sim.seed=%d\n%s", res.seed, res.bad, res.seed, res.tail)
						failures.Add(1)
					}
				}
			})
		}
	})
	var b strings.Builder
	for f, n := range counts {
		fmt.Fprintf(&b, "\n%10d  %v", n, fault(f))
		if n == 0 && seeds >= 200 {
			t.Errorf("the fault %q never occurred", fault(f))
		}
	}
	t.Logf("%d seeds, %d runs, %v a seed; faults:%s", done, runs, time.Since(began)/time.Duration(max(done, 1)), b.String())
	var names []string
	for what := range events {
		names = append(names, what)
	}
	sort.Strings(names)
	b.Reset()
	for _, what := range names {
		fmt.Fprintf(&b, "\n%10d  %s", events[what], what)
	}
	t.Logf("what the nodes told of:%s", b.String())
	if seeds >= 1000 {
		for _, what := range []string{
			"started", "ended", "skipped", "blocked", "parked", "followed", "overdue", "refused", "lost", "node dead", "node lost",
			"fenced", "leading", "following", "outage", "restored", "skew", "changed",
			"durable: run adopted whose claim got lost on the way", "durable: trigger had no due time, it was computed",
			"durable: run interrupted, its handler goes on",
		} {
			if events[what] == 0 {
				t.Errorf("the nodes never told of %q", what)
			}
		}
	}
}

// TestSimulationIsDeterministic: a seed gives the same trace, byte by byte, each time.
func TestSimulationIsDeterministic(t *testing.T) {
	for seed := range uint64(12) {
		a, b := simulate(t, seed, nil, true), simulate(t, seed, nil, true)
		if a.trace == b.trace {
			continue
		}
		la, lb := strings.Split(a.trace, "\n"), strings.Split(b.trace, "\n")
		for i := range min(len(la), len(lb)) {
			if la[i] != lb[i] {
				t.Fatalf("seed %d: line %d differs:\n%s\n%s", seed, i, strings.Join(la[max(0, i-8):i+1], "\n"), lb[i])
			}
		}
		t.Fatalf("seed %d: %d and %d lines", seed, len(la), len(lb))
	}
}
