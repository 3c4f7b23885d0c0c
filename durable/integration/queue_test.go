package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
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

// What the end of a run costs must not grow with the queue behind it.
func BenchmarkAnEndBeforeAQueue(b *testing.B) {
	for _, d := range databases {
		sizes := []int{20, 20_000}
		if testing.Short() {
			sizes = []int{20}
		}
		for _, queue := range sizes {
			b.Run(fmt.Sprintf("%s/blocked=%d", d.name, queue), func(b *testing.B) {
				s, db := d.store(b, 2)
				blocked(b, s, db, queue)
				for n := 1; b.Loop(); n++ {
					b.StopTimer()
					enqueueMany(b, s, "a", queue+n, queue+n)
					running := claimAs(b, s, "n", 10, planOrBlock)
					wantClaimed(b, running, idOf(n))
					b.StartTimer()
					finishAll(b, s, endsOf(running))
				}
			})
		}
	}
}

// blocked makes a job without concurrency, with that many triggers, of which all but the
// first are blocked.
func blocked(t testing.TB, s *sqlstore.Store, db *sql.DB, queue int) {
	t.Helper()
	jobOf(t, s, "a", false)
	enqueueMany(t, s, "a", 1, queue)
	do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET state = %d WHERE id > '%s'", durable.StateBlocked, idOf(1)))
}
