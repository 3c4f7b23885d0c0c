package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

func TestMain(m *testing.M) {
	atOnce() // the fault tests
	// A pipe of the proxy's stays behind now and then when its link is cut in the midst of
	// a packet: it sends to nobody.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*NoopToxic).Pipe"))
}

// The clock is the server's: nothing here is injected.
func TestRealClock(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := d.store(t, pool)
		ctx := t.Context()
		switch d.name { // it does not depend on the session's time zone
		case "postgres":
			do(t, db, "SET TIME ZONE 'Asia/Kathmandu'")
		case "mysql":
			do(t, db, "SET time_zone = '+05:45'")
		}
		beat, err := s.Beat(ctx, durable.NodeRow{ID: "n", Name: "n"}, time.Minute)
		if err != nil || beat.Alive != 1 {
			t.Fatalf("Beat = %+v, %v", beat, err)
		}
		if skew := time.Since(beat.Now).Abs(); skew > 10*time.Second {
			t.Errorf("Now is %v off", skew)
		}
		oneShots(t, s, 20)
		res, err := s.Claim(ctx, durable.ClaimRequest{Node: "n", Limit: 50, Handlers: []string{"h"}, Plan: runIt})
		if err != nil || len(res.Claimed) != 20 {
			t.Fatalf("Claim = %d runs, %v, want 20", len(res.Claimed), err)
		}
		own, err := s.Finish(ctx, durable.FinishRequest{Ends: endsOf(res.Claimed)})
		if err != nil || len(own) != 20 || !own[0] {
			t.Fatalf("Finish = %v, %v", own, err)
		}
		rows, err := s.Runs(ctx, durable.RunQuery{})
		if err != nil || len(rows) != 20 || rows[0].EndedAt.Before(rows[0].StartedAt) {
			t.Errorf("Runs = %d, %v", len(rows), err)
		}
	})
}

// The idle claim is the store's heartbeat: one query, no transaction.
func TestAClaimThatFindsNothingIsOneQuery(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := d.store(t, pool)
		if _, err := s.Beat(t.Context(), durable.NodeRow{ID: "n"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		counting, count := countingDB(t, db)
		s, err := sqlstore.Open(counting, d.dialect)
		if err != nil {
			t.Fatal(err)
		}
		claim := calls(s)["Claim"]
		if err := claim(t.Context()); err != nil { // looks at the schema, too
			t.Fatal(err)
		}
		before := count.Load()
		if err := claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := count.Load() - before; n != 1 {
			t.Errorf("an idle claim made %d queries, want 1", n)
		}
	})
}

// Claims, ends, edits, purges and beats of many at once: what a server gives up for a
// deadlock is repeated, and no error reaches the caller. At the end all is done once.
func TestNothingOfDeadlocksReachesTheCaller(t *testing.T) {
	const workers, jobCount, perJob = 16, 6, 40
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			pool := workers
			if d.name == "sqlite" {
				pool = 4
			}
			s, _ := d.store(t, pool)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			fill(t, s, jobCount, perJob)
			var left atomic.Int64
			left.Store(jobCount * perJob)
			var mu sync.Mutex
			ran := map[string]int{}
			fences := map[string]int64{}
			var g errgroup.Group
			for w := range workers {
				g.Go(func() error {
					node := fmt.Sprint("n", w)
					for i := 0; left.Load() > 0; i++ {
						if err := ctx.Err(); err != nil {
							return fmt.Errorf("%d left: %w", left.Load(), err)
						}
						if _, err := s.Beat(ctx, durable.NodeRow{ID: node}, time.Hour); err != nil {
							return fmt.Errorf("Beat: %w", err)
						}
						res, err := s.Claim(ctx, durable.ClaimRequest{Node: node, Limit: 5, Handlers: []string{"h"}, Plan: planOrBlock})
						if err != nil {
							return fmt.Errorf("Claim: %w", err)
						}
						mu.Lock()
						for _, c := range res.Claimed {
							ran[c.Run.ID]++
							if c.Run.Exclusive && c.Run.Fence <= fences[c.Run.Job] {
								t.Errorf("fence %d after %d", c.Run.Fence, fences[c.Run.Job])
							}
							fences[c.Run.Job] = max(fences[c.Run.Job], c.Run.Fence)
						}
						mu.Unlock()
						if err := disturb(ctx, s, w, i); err != nil {
							return err
						}
						own, err := s.Finish(ctx, durable.FinishRequest{Ends: endsOf(res.Claimed)})
						if err != nil {
							return fmt.Errorf("Finish: %w", err)
						}
						for _, o := range own {
							if !o {
								t.Error("a run was not its node's")
							}
						}
						left.Add(-int64(len(own)))
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			for id, n := range ran {
				if n != 1 {
					t.Errorf("run %s was claimed %d times", id, n)
				}
			}
			if len(ran) != jobCount*perJob {
				t.Errorf("%d runs, want %d", len(ran), jobCount*perJob)
			}
		})
	}
}

// fill adds one-shot triggers of jobs, every other of which is exclusive.
func fill(t *testing.T, s durable.Store, jobCount, perJob int) {
	for j := range jobCount {
		job := fmt.Sprintf("job-%d", j)
		err := s.Edit(t.Context(), job, durable.EditJob, func(e *durable.Edit) error {
			e.Job = &durable.JobRow{Name: job, Handler: "h", AllowConcurrent: j%2 == 0}
			for i := range perJob {
				id := fmt.Sprintf("%013d%013d", j, i)
				e.Add = append(e.Add, durable.TriggerRow{ID: id, Job: job, Name: "manual-" + id, Handler: "h",
					Kind: durable.KindManual, Priority: i % 3, DueAt: e.Now, ScheduledAt: e.Now, Attempt: 1})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// planOrBlock is what the scheduler does: a busy job's trigger is blocked.
func planOrBlock(d durable.Due) durable.Verdict {
	if d.Busy {
		t := d.Trigger
		t.State, t.Reason = durable.StateBlocked, "busy"
		return durable.Verdict{Trigger: t}
	}
	return runIt(d)
}

// disturb does what others do meanwhile.
func disturb(ctx context.Context, s durable.Store, w, i int) error {
	job := fmt.Sprintf("job-%d", (w+i)%6)
	switch (w + i) % 4 {
	case 0:
		err := s.Edit(ctx, job, durable.EditJob, func(e *durable.Edit) error {
			e.Job.Description = fmt.Sprint(w, i)
			e.Release = true
			return nil
		})
		if err != nil {
			return fmt.Errorf("Edit: %w", err)
		}
	case 1:
		if _, err := s.Purge(ctx, durable.PurgeRequest{OlderThan: time.Hour}); err != nil {
			return fmt.Errorf("Purge: %w", err)
		}
	case 2:
		if _, err := s.Expire(ctx, durable.ExpireRequest{Grace: time.Hour, Limit: 10}); err != nil {
			return fmt.Errorf("Expire: %w", err)
		}
	case 3:
		err := s.Edit(ctx, job, durable.EnqueueOnly, func(e *durable.Edit) error {
			e.Records = []durable.RunRow{{ID: fmt.Sprintf("%013d%013d", 100+w, i), Job: job, State: durable.RunSkipped}}
			for _, r := range e.Running {
				e.Cancel = append(e.Cancel, r.ID)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("Edit(EnqueueOnly): %w", err)
		}
	}
	return nil
}

func TestAnEditCanBePartOfTheCallersTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := d.store(t, pool)
		ctx := t.Context()
		do(t, db, "CREATE TABLE business (id INTEGER)")
		for _, commit := range []bool{false, true} {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO business VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			editor, err := sqlstore.Tx(tx).Join(s)
			if err != nil {
				t.Fatal(err)
			}
			err = editor.Edit(ctx, "a", durable.EditJob, func(e *durable.Edit) error {
				e.Job = &durable.JobRow{Name: "a", Handler: "h"}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			err = editor.Edit(ctx, "a", durable.EnqueueOnly, func(e *durable.Edit) error {
				if e.Job == nil {
					t.Error("the transaction does not see what it did")
				}
				id := strings.Repeat("x", 26)
				e.Add = []durable.TriggerRow{{ID: id, Job: "a", Name: id, Handler: "h", Kind: durable.KindManual, DueAt: e.Now}}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			end, want := tx.Rollback, 0
			if commit {
				end, want = tx.Commit, 1
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			states, err := s.Jobs(ctx, durable.JobQuery{})
			if err != nil || len(states) != want {
				t.Errorf("commit %v: %d jobs, %v, want %d", commit, len(states), err, want)
			}
			var rows int
			if err := db.QueryRow("SELECT count(*) FROM business").Scan(&rows); err != nil || rows != want {
				t.Errorf("commit %v: %d rows, %v, want %d", commit, rows, err, want)
			}
		}
		if _, err := sqlstore.Tx(nil).Join(durable.NewMemory()); err == nil {
			t.Error("Join of another store = nil, want an error")
		}
	})
}

// A batch may be larger than what a server takes in one packet.
func TestLargeDataInOneBatch(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := d.store(t, pool)
		ctx := t.Context()
		data := []byte(`{"x":"` + strings.Repeat("y", 200<<10) + `"}`)
		if _, err := s.Beat(ctx, durable.NodeRow{ID: "n"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		oneShots(t, s, 100)
		res, err := s.Claim(ctx, durable.ClaimRequest{Node: "n", Limit: 100, Handlers: []string{"h"}, Plan: func(due durable.Due) durable.Verdict {
			v := runIt(due)
			v.Delete, v.Trigger = false, due.Trigger
			v.Trigger.State, v.Trigger.Data, v.Run.Data = durable.StateComplete, data, data
			return v
		}})
		if err != nil || len(res.Claimed) != 100 {
			t.Fatalf("Claim = %d runs, %v", len(res.Claimed), err)
		}
		if _, err := s.Finish(ctx, durable.FinishRequest{Ends: endsOf(res.Claimed)}); err != nil {
			t.Fatal(err)
		}
		states, err := s.Jobs(ctx, durable.JobQuery{Names: []string{"job-3"}})
		if err != nil || string(states[0].Triggers[0].Data) != string(data) {
			t.Errorf("the trigger's data is another, %v", err)
		}
	})
}

// A context that ends leaves no transaction behind.
func TestACancelledCallLeavesTheConnectionUsable(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := d.store(t, pool)
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			err := s.Edit(ctx, "a", durable.EditJob, func(e *durable.Edit) error {
				e.Job = &durable.JobRow{Name: "a", Handler: fmt.Sprint(i)}
				cancel()
				return nil
			})
			if err == nil {
				t.Error("Edit = nil, want an error: its context ended")
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.Edit(t.Context(), "a", durable.EditJob, func(*durable.Edit) error { panic("change") })
		}()
		failure := errors.New("no")
		if err := s.Edit(t.Context(), "a", durable.EditJob, func(*durable.Edit) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("Edit = %v, want %v", err, failure)
		}
		states, err := s.Jobs(t.Context(), durable.JobQuery{})
		if err != nil || len(states) != 0 {
			t.Errorf("Jobs = %d, %v, want none", len(states), err)
		}
		if _, err := s.Lease(t.Context(), "l", "n", time.Minute); err != nil {
			t.Error(err)
		}
	})
}
