package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// What becomes of claims while jobs are edited.

// editing has job "a" edited by a transaction that is still open.
func editing(t testing.TB, db *sql.DB, s durable.Store, change func(*durable.Edit)) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	editor, err := sqlstore.Tx(tx).Join(s)
	if err == nil {
		err = editor.Edit(t.Context(), "a", durable.EditJob, func(e *durable.Edit) error {
			change(e)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func endConcurrency(e *durable.Edit) { e.Job.AllowConcurrent = false }

// standing is a claim of one trigger that stands still in its plan until goOn is called,
// which gives what was claimed.
func standing(t testing.TB, s durable.Store, node string, plan func(durable.Due) durable.Verdict) (goOn func() []durable.Claimed) {
	t.Helper()
	planning, leave := make(chan bool, 1), make(chan bool)
	var res durable.ClaimResult
	done := async(func() (err error) {
		res, err = s.Claim(t.Context(), durable.ClaimRequest{Node: node, Limit: 1, Handlers: []string{"h"}, Plan: func(due durable.Due) durable.Verdict {
			select {
			case planning <- true:
			default:
			}
			<-leave
			return plan(due)
		}})
		return err
	})
	select {
	case <-planning:
	case err := <-done:
		t.Fatalf("a claim ended without a plan: %v", err)
	}
	end := sync.OnceValues(func() ([]durable.Claimed, error) {
		close(leave)
		err := <-done
		return res.Claimed, err
	})
	t.Cleanup(func() { _, _ = end() })
	return func() []durable.Claimed {
		claimed, err := end()
		if err != nil {
			t.Errorf("Claim = %v, want nil", err)
		}
		return claimed
	}
}

// idsOf are the IDs from one to another.
func idsOf(from, to int) []string {
	var ids []string
	for n := from; n <= to; n++ {
		ids = append(ids, idOf(n))
	}
	return ids
}

func enqueueMany(t testing.TB, s durable.Store, job string, from, to int) {
	t.Helper()
	var rows []durable.TriggerRow
	for n := from; n <= to; n++ {
		rows = append(rows, oneShot(job, n))
	}
	enqueue(t, s, durable.EnqueueOnly, job, rows...)
}

func wantRunning(t testing.TB, s durable.Store, want int) {
	t.Helper()
	states, err := s.Jobs(t.Context(), durable.JobQuery{Names: []string{"a"}})
	if err != nil || len(states) != 1 || len(states[0].Running) != want {
		t.Errorf("Jobs = %+v, %v, want one with %d active runs", states, err, want)
	}
}

func TestTablesOfTheSameNamesElsewhereAreAnotherStores(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 6)
			other, otherDB := d.store(t, 6)
			jobOf(t, s, "a", true)
			jobOf(t, other, "a", true)
			enqueueMany(t, other, "a", 1, 3)

			// Neither an edit nor a claim of one holds up the other's.
			editing(t, db, s, endConcurrency)
			wantClaimed(t, claimAs(t, other, "m", 1, planOrBlock), idOf(1))
			goOn := standing(t, other, "m", planOrBlock)
			jobOf(t, s, "b", false)
			enqueue(t, s, durable.EnqueueOnly, "b", oneShot("b", 1))
			wantClaimed(t, claimAs(t, s, "m", 1, planOrBlock), idOf(1))
			wantClaimed(t, goOn(), idOf(2))
			editing(t, otherDB, other, endConcurrency)
			wantClaimed(t, claimAs(t, other, "m", 1, planOrBlock))
		})
	}
}

// One store finds its tables by the connection, the other by the schema's name.
func TestTablesFoundInTwoWaysAreTheSame(t *testing.T) {
	for _, d := range databases[1:] {
		for _, name := range []string{"claimed by the connection's", "claimed by WithSchema"} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				claimer, db := d.store(t, 6)
				var schema string
				query := map[string]string{"postgres": "SELECT current_schema()", "mysql": "SELECT DATABASE()"}[d.name]
				if err := db.QueryRow(query).Scan(&schema); err != nil {
					t.Fatal(err)
				}
				editor, err := sqlstore.Open(db, d.dialect, sqlstore.WithSchema(schema))
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(name, "WithSchema") {
					claimer, editor = editor, claimer
				}
				jobOf(t, claimer, "a", true)
				enqueueMany(t, claimer, "a", 1, 2)

				// The edit waits for the claim.
				goOn := standing(t, claimer, "m", planOrBlock)
				edited := async(func() error { return makeExclusive(t.Context(), editor) })
				waitForLocks(t, d, db, 1)
				active := goOn()
				wantClaimed(t, active, idOf(1))
				if err := <-edited; err != nil {
					t.Fatal(err)
				}
				wantClaimed(t, claimAs(t, editor, "n", 1, planOrBlock))
				wantRunning(t, editor, 1)

				// The claim leaves the job to the edit.
				finishAll(t, editor, endsOf(active))
				jobOf(t, editor, "a", true)
				enqueueMany(t, editor, "a", 3, 4)
				tx := editing(t, db, editor, endConcurrency)
				wantClaimed(t, claimAs(t, claimer, "m", 10, planOrBlock))
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				wantClaimed(t, claimAs(t, claimer, "m", 10, planOrBlock), idOf(3))
				wantRunning(t, claimer, 1)
			})
		}
	}
}

// More triggers of the job are due, and sooner, than a claim looks at.
func TestAJobThatIsBeingEditedHoldsUpNoOthers(t *testing.T) {
	edits := []struct {
		name   string
		change func(*durable.Edit)
		first  int // how many of the job's triggers can be claimed meanwhile, -1 for any number
	}{
		{"ends concurrency", endConcurrency, 0},
		{"is gone", func(e *durable.Edit) { e.Job, e.Add = nil, nil }, -1},
		{"is described", func(e *durable.Edit) { e.Job.Description = "new" }, -1},
		{"stays as it is", func(e *durable.Edit) { e.Add = []durable.TriggerRow{oneShot("a", 90)} }, 50},
	}
	for _, d := range databases[1:] {
		for _, edit := range edits {
			t.Run(d.name+"/"+edit.name, func(t *testing.T) {
				s, db := d.store(t, 6)
				jobOf(t, s, "a", true)
				jobOf(t, s, "b", true)
				enqueueMany(t, s, "a", 1, 50)
				enqueue(t, s, durable.EnqueueOnly, "b", oneShot("b", 100))
				editing(t, db, s, edit.change)
				claimed := map[string]int{}
				for range 6 { // all, ten at a time
					for _, c := range claimAs(t, s, "m", 10, planOrBlock) {
						claimed[c.Run.Job]++
					}
				}
				if claimed["b"] != 1 || edit.first >= 0 && claimed["a"] != edit.first {
					t.Errorf("claimed = %v, want the one of job b, and %d of job a", claimed, edit.first)
				}
			})
		}
	}
}

// Others have the gate of an exclusive job: an edit, or a claim of its first trigger.
func TestAnExclusiveJobWhoseGateIsHeldHoldsUpNoOthers(t *testing.T) {
	holders := map[string]func(testing.TB, *sql.DB, durable.Store){
		"by an edit": func(t testing.TB, db *sql.DB, s durable.Store) { editing(t, db, s, func(*durable.Edit) {}) },
		"by a claim": func(t testing.TB, _ *sql.DB, s durable.Store) { standing(t, s, "m", planOrBlock) },
	}
	for _, d := range databases[1:] {
		for name, hold := range holders {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				s, db := d.store(t, 6)
				jobOf(t, s, "a", false)
				jobOf(t, s, "b", false)
				enqueueMany(t, s, "a", 1, 50)
				enqueue(t, s, durable.EnqueueOnly, "b", oneShot("b", 100))
				hold(t, db, s)
				wantClaimed(t, claimAs(t, s, "n", 10, planOrBlock), idOf(100))
			})
		}
	}
}

// A claim is about to park a trigger of a job that is paused when the job is set going
// again.
func TestATriggerThatIsParkedAsItsJobGoesOnIsReleased(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 6)
			jobOf(t, s, "a", true)
			pause := func(paused bool) error {
				return s.Edit(t.Context(), "a", durable.EditJob, func(e *durable.Edit) error {
					e.Job.Paused, e.Release = paused, !paused
					return nil
				})
			}
			if err := pause(true); err != nil {
				t.Fatal(err)
			}
			enqueueMany(t, s, "a", 1, 2)
			goOn := standing(t, s, "m", func(due durable.Due) durable.Verdict {
				parked := due.Trigger
				parked.State, parked.Reason = durable.StatePaused, "job is paused"
				return durable.Verdict{Trigger: parked}
			})
			edited := async(func() error { return pause(false) })
			waitForLocks(t, d, db, 1)
			wantClaimed(t, goOn())
			if err := <-edited; err != nil {
				t.Fatal(err)
			}
			wantClaimed(t, claimAs(t, s, "n", 10, runIt), idsOf(1, 2)...)
		})
	}
}

// A watch looks at what is claimed by many.
type watch struct {
	testing.TB
	db     *sql.DB
	mu     sync.Mutex
	active map[string]durable.RunRow // claimed, and not yet about to end
	newest map[string]int64          // the largest fence of each job
	alone  map[string]int64          // likewise, of exclusive runs
	ids    map[string]bool
	fences map[int64]bool
}

func newWatch(t testing.TB, db *sql.DB) *watch {
	return &watch{TB: t, db: db, active: map[string]durable.RunRow{}, newest: map[string]int64{}, alone: map[string]int64{},
		ids: map[string]bool{}, fences: map[int64]bool{}}
}

// plan is planOrBlock, and takes its time.
func (w *watch) plan(due durable.Due) durable.Verdict {
	var n int
	if err := w.db.QueryRow("SELECT count(*) FROM taskmanager_run").Scan(&n); err != nil {
		w.Error(err)
	}
	return planOrBlock(due)
}

func (w *watch) claim(s durable.Store, limit int) ([]durable.Claimed, error) {
	w.mu.Lock()
	newest := maps.Clone(w.newest)
	w.mu.Unlock()
	res, err := s.Claim(w.Context(), durable.ClaimRequest{Node: "n", Limit: limit, Handlers: []string{"h"}, Plan: w.plan})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range res.Claimed {
		run := *c.Run
		if w.ids[run.ID] {
			w.Errorf("run %s was claimed twice", run.ID)
		}
		if w.fences[run.Fence] || run.Fence <= newest[run.Job] {
			w.Errorf("job %s has fence %d after %d", run.Job, run.Fence, newest[run.Job])
		}
		if run.Exclusive {
			if run.Fence <= w.alone[run.Job] {
				w.Errorf("exclusive job %s has fence %d after %d", run.Job, run.Fence, w.alone[run.Job])
			}
			w.alone[run.Job] = run.Fence
		}
		for _, other := range w.active {
			early, late := other, run
			if early.Fence > late.Fence {
				early, late = late, early
			}
			if late.Exclusive && early.Job == late.Job {
				w.Errorf("exclusive run %s of job %s was claimed while %s is active", late.ID, late.Job, early.ID)
			}
		}
		w.active[run.ID], w.ids[run.ID], w.fences[run.Fence] = run, true, true
		w.newest[run.Job] = max(w.newest[run.Job], run.Fence)
	}
	return res.Claimed, err
}

func (w *watch) end(s durable.Store, claimed []durable.Claimed) error {
	w.mu.Lock()
	for _, c := range claimed {
		delete(w.active, c.Run.ID)
	}
	w.mu.Unlock()
	own, err := s.Finish(w.Context(), durable.FinishRequest{Ends: endsOf(claimed)})
	for i, o := range own {
		if !o {
			w.Errorf("the end of run %s was refused", claimed[i].Run.ID)
		}
	}
	return err
}

// Jobs turn exclusive and back all the time, under several claims and edits at once.
func TestJobsAreExclusiveWhileTheySaySo(t *testing.T) {
	const jobs, first, claimers, claims, editors, edits, each = 3, 30, 6, 50, 2, 40, 4
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 2*claimers+editors)
			w := newWatch(t, db)
			for j := range jobs {
				jobOf(t, s, fmt.Sprint(j), true)
				enqueueMany(t, s, fmt.Sprint(j), j*first, (j+1)*first-1)
			}
			var g errgroup.Group
			for c := range claimers {
				r := rand.New(rand.NewPCG(1, uint64(c)))
				g.Go(func() error {
					var active []durable.Claimed
					for range claims {
						claimed, err := w.claim(s, 1+r.IntN(4))
						if err := errors.Join(err, w.end(s, active)); err != nil {
							return err
						}
						active = claimed
					}
					return w.end(s, active)
				})
			}
			for e := range editors {
				r := rand.New(rand.NewPCG(2, uint64(e)))
				g.Go(func() error {
					for n := range edits {
						job, toggle := fmt.Sprint(r.IntN(jobs)), r.IntN(3) > 0
						var add []durable.TriggerRow
						for i := range each {
							add = append(add, oneShot(job, 1000*(e+1)+n*each+i))
						}
						err := d.edit(t.Context(), s, db, e == 0, job, func(e *durable.Edit) error {
							if toggle {
								e.Job.AllowConcurrent, e.Release = !e.Job.AllowConcurrent, true
							}
							e.Add = add
							return oneExclusive(e.Running)
						})
						if err != nil {
							return fmt.Errorf("Edit: %w", err)
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			for idle := 0; len(w.ids) < jobs*first+editors*edits*each; idle++ {
				claimed, err := w.claim(s, 50)
				if err := errors.Join(err, w.end(s, claimed)); err != nil {
					t.Fatal(err)
				}
				if len(claimed) > 0 {
					idle = 0
				} else if _, err := s.Expire(t.Context(), durable.ExpireRequest{}); err != nil || idle > 2 {
					t.Fatalf("%d triggers were claimed, want %d, %v", len(w.ids), jobs*first+editors*edits*each, err)
				}
			}
		})
	}
}

func oneExclusive(running []durable.RunRow) error {
	var exclusive []string
	for _, r := range running {
		if r.Exclusive {
			exclusive = append(exclusive, r.ID)
		}
	}
	if len(exclusive) > 1 {
		return fmt.Errorf("exclusive runs %v of job %s are active", exclusive, running[0].Job)
	}
	return nil
}

// edit edits a job, perhaps in a transaction of the caller's, who has to try again after a
// deadlock. SQLite has him wait by looking again from time to time.
func (d database) edit(ctx context.Context, s durable.Store, db *sql.DB, callers bool, job string, change func(*durable.Edit) error) error {
	if !callers || d.name == "sqlite" {
		return s.Edit(ctx, job, durable.EditJob, change)
	}
	for {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		editor, err := sqlstore.Tx(tx).Join(s)
		if err == nil {
			err = editor.Edit(ctx, job, durable.EditJob, change)
		}
		if err == nil {
			return tx.Commit()
		}
		_ = tx.Rollback()
		if !strings.Contains(err.Error(), "40P01") && !strings.Contains(err.Error(), "1213") {
			return err
		}
	}
}
