package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// Queues of runs of a job that does not allow concurrency.

// states counts a job's triggers by state.
func states(t testing.TB, s durable.Store, job string) map[durable.TriggerState]int {
	t.Helper()
	jobs, err := s.Jobs(t.Context(), durable.JobQuery{Names: []string{job}})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("Jobs = %d, %v, want one", len(jobs), err)
	}
	n := map[durable.TriggerState]int{}
	for _, row := range jobs[0].Triggers {
		n[row.State]++
	}
	return n
}

// The end of a run wakes a few of those that wait for it, whatever their number, and all
// run in the end, in order.
func TestAQueueOfRunsIsWorkedOffInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := d.store(t, pool)
		jobOf(t, s, "a", false)
		jobOf(t, s, "b", false)
		enqueueMany(t, s, "a", 1, 30)
		enqueueMany(t, s, "b", 31, 60)
		var order []string
		running := claimAs(t, s, "n", 100, planOrBlock)
		if got := states(t, s, "a"); got[durable.StateBlocked] != 29 {
			t.Fatalf("states of triggers are %v, want 29 blocked", got)
		}
		for len(running) > 0 {
			for _, c := range running {
				order = append(order, c.Run.ID)
			}
			finishAll(t, s, endsOf(running))
			if woken := states(t, s, "a")[durable.StateWaiting]; woken > 2 {
				t.Fatalf("an end has woken %d triggers, want 2 at most", woken)
			}
			running = claimAs(t, s, "n", 100, planOrBlock)
		}
		a := slices.DeleteFunc(slices.Clone(order), func(id string) bool { return id > idOf(30) })
		b := slices.DeleteFunc(slices.Clone(order), func(id string) bool { return id <= idOf(30) })
		if !slices.Equal(a, idsOf(1, 30)) || !slices.Equal(b, idsOf(31, 60)) {
			t.Errorf("runs were %v and %v, want each of both jobs, in order", a, b)
		}
	})
}

// Those that are woken do not run: what waits behind them has its turn at once.
func TestAQueueGoesOnBehindWhatDoesNotRun(t *testing.T) {
	verdicts := map[string]func(durable.Due) durable.Verdict{
		"skipped": func(due durable.Due) durable.Verdict {
			run := runIt(due).Run
			run.State = durable.RunSkipped
			return durable.Verdict{Delete: true, Skipped: run}
		},
		"in error": func(due durable.Due) durable.Verdict {
			due.Trigger.State = durable.StateError
			return durable.Verdict{Trigger: due.Trigger}
		},
		"left": func(durable.Due) durable.Verdict { return durable.Verdict{Leave: true} },
	}
	for _, d := range databases {
		for name, verdict := range verdicts {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				s, _ := d.store(t, 2)
				jobOf(t, s, "a", false)
				enqueueMany(t, s, "a", 1, 300)
				first := claimAs(t, s, "n", 400, planOrBlock)
				wantClaimed(t, first, idOf(1))
				finishAll(t, s, endsOf(first))
				onlyLast := func(due durable.Due) durable.Verdict {
					if due.Trigger.ID < idOf(300) {
						return verdict(due)
					}
					return planOrBlock(due)
				}
				for range 5 {
					if claimed := claimAs(t, s, "n", 400, onlyLast); len(claimed) > 0 {
						wantClaimed(t, claimed, idOf(300))
						return
					}
				}
				t.Errorf("the last one has not run, states are %v", states(t, s, "a"))
			})
		}
	}
}

// What the end of a run costs does not grow with the queue behind it. The best of some ends
// is compared, since others use the machine, too.
func TestAnEndOfALongQueueCostsWhatThatOfAShortOneDoes(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			best := func(queue int) time.Duration {
				s, db := d.store(t, 2)
				jobOf(t, s, "a", false)
				enqueueMany(t, s, "a", 1, queue)
				do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET state = %d WHERE id > '%s'", durable.StateBlocked, idOf(1)))
				best := time.Hour
				for n := range 12 {
					running := claimAs(t, s, "n", 10, planOrBlock)
					wantClaimed(t, running, idOf(n+1))
					start := time.Now()
					finishAll(t, s, endsOf(running))
					best = min(best, time.Since(start))
				}
				return best
			}
			short, long := best(20), best(20_000)
			t.Logf("an end before 20 blocked triggers takes %v, before 20,000 %v", short, long)
			if long > 4*short+time.Millisecond {
				t.Errorf("an end before 20,000 blocked triggers takes %v, before 20 %v, want about the same", long, short)
			}
		})
	}
}
