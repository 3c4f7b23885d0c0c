package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskmanager-go/taskmanager/durable"
)

// Claims beside claims, claims of many, and their fences.

// A pause stands still before the first statement that has its text.
type pause struct {
	text          string
	reached, goOn chan struct{}
	once          sync.Once
}

func (p *pause) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, p.text) {
		p.once.Do(func() { close(p.reached); <-p.goOn })
	}
	return ctx
}

func (p *pause) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A claim has read its job, and another one is faster to the gate: the fence of what is
// claimed later is the larger one.
func TestAnExclusiveRunsFenceIsTakenBehindTheGate(t *testing.T) {
	d := databases[1]
	s, db := d.store(t, 4)
	jobOf(t, s, "a", false)
	enqueueMany(t, s, "a", 1, 2)
	p := &pause{text: "FROM taskmanager_gate", reached: make(chan struct{}), goOn: make(chan struct{})}
	slow := tracedStore(t, db, p)
	var late durable.ClaimResult
	done := async(func() (err error) {
		late, err = slow.Claim(t.Context(), durable.ClaimRequest{Node: "m", Limit: 1, Handlers: []string{"h"}, Plan: planOrBlock})
		return err
	})
	select {
	case <-p.reached:
	case err := <-done:
		t.Fatalf("a claim of an exclusive job's trigger did not look for the gate: %v", err)
	}
	early := claimAs(t, s, "n", 1, planOrBlock)
	wantClaimed(t, early, idOf(2))
	finishAll(t, s, endsOf(early))
	close(p.goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantClaimed(t, late.Claimed, idOf(1))
	if !t.Failed() && late.Claimed[0].Run.Fence <= early[0].Run.Fence {
		t.Errorf("fence %d after %d", late.Claimed[0].Run.Fence, early[0].Run.Fence)
	}
}

// A claim stands still in its plan, and is let go after another one has ended.
func TestAClaimWaitsForNoOther(t *testing.T) {
	for _, d := range databases[1:] {
		for _, concurrent := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/concurrent=%v", d.name, concurrent), func(t *testing.T) {
				s, _ := d.store(t, 6)
				jobOf(t, s, "a", concurrent)
				jobOf(t, s, "b", concurrent)
				enqueueMany(t, s, "a", 1, 3)
				enqueueMany(t, s, "b", 4, 4)
				goOn := standing(t, s, "m", runIt)
				want := []string{idOf(4)}
				if concurrent {
					want = idsOf(2, 4)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // not to wait for ever
				defer cancel()
				res, err := s.Claim(ctx, durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: planOrBlock})
				if err != nil {
					t.Errorf("Claim = %v, want nil", err)
				}
				wantClaimed(t, res.Claimed, want...)
				finishAll(t, s, endsOf(res.Claimed))
				wantClaimed(t, goOn(), idOf(1))
			})
		}
	}
}

// Somebody has taken a number, and has not committed yet.
func TestNobodyWaitsForANumber(t *testing.T) {
	take := map[string]string{
		"postgres": "SELECT nextval('taskmanager_fence')",
		"mysql":    "INSERT INTO taskmanager_fence () VALUES ()",
	}
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 6)
			jobOf(t, s, "a", true)
			enqueueMany(t, s, "a", 1, 3)
			undo := inTransaction(t, db, take[d.name])
			defer undo()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // not to wait for ever
			defer cancel()
			res, err := s.Claim(ctx, durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: runIt})
			if err != nil {
				t.Errorf("Claim = %v, want nil", err)
			}
			wantClaimed(t, res.Claimed, idsOf(1, 3)...)
		})
	}
}

func TestNumbersLeaveNoRowsOnMySQL(t *testing.T) {
	s, db := databases[2].store(t, 4)
	jobOf(t, s, "a", true)
	jobOf(t, s, "b", false)
	for n := range 5 {
		enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 2*n))
		enqueue(t, s, durable.EnqueueOnly, "b", oneShot("b", 2*n+1))
		claimed := claimAs(t, s, "n", 10, planOrBlock)
		wantClaimed(t, claimed, idsOf(2*n, 2*n+1)...)
		finishAll(t, s, endsOf(claimed))
	}
	var rows int
	if err := db.QueryRow("SELECT count(*) FROM taskmanager_fence").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("taskmanager_fence has %d rows, %v, want none", rows, err)
	}
}

// jobOfEach adds due triggers, each of a job of its own, which has its ID for a name.
func jobOfEach(t testing.TB, db *sql.DB, s durable.Store, n int) {
	t.Helper()
	jobOf(t, s, "a", true)
	enqueueMany(t, s, "a", 1, n)
	do(t, db, "UPDATE taskmanager_trigger SET job = id")
	do(t, db, `INSERT INTO taskmanager_job (name, job_group, description, handler, max_retries, retry_delay, retry_exponential, retry_max_delay,
		retry_jitter, timeout, allow_concurrent, every_node, recovery, paused, source, code_hash, version)
		SELECT id, '', '', 'h', 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, '', '', 1 FROM taskmanager_trigger`)
}

// A server has room for some thousand locks, of all its databases.
func TestAClaimOfThousandsOfJobsHasFewLocksOnPostgres(t *testing.T) {
	s, db := databases[1].store(t, 4)
	jobOfEach(t, db, s, 3000)
	locks := 0
	claimed := claimAs(t, s, "n", 3000, func(due durable.Due) durable.Verdict {
		if locks > 0 { // they are of all triggers
			return runIt(due)
		}
		err := db.QueryRow(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
			AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'taskmanager_trigger'::regclass)`).Scan(&locks)
		if err != nil || locks == 0 || locks > 1024 {
			t.Errorf("a claim has %d locks of jobs, %v, want 1 to 1,024", locks, err)
		}
		return runIt(due)
	})
	wantClaimed(t, claimed, idsOf(1, 3000)...)
}

// Many triggers of as many jobs: more than a statement's batch has, than there are fences
// of one number, and, on PostgreSQL, than a claim looks at.
func TestTriggersOfThousandsOfJobsAreClaimedAtOnce(t *testing.T) {
	for _, d := range databases {
		many := 3000
		if d.name == "postgres" && !testing.Short() {
			many = 15_000
		}
		t.Run(fmt.Sprintf("%s/%d", d.name, many), func(t *testing.T) {
			s, db := d.store(t, 4)
			jobOfEach(t, db, s, many)
			var claimed []durable.Claimed
			for more := claimAs(t, s, "n", many, runIt); len(more) > 0; more = claimAs(t, s, "n", many, runIt) {
				if len(claimed) == 0 && len(more) < min(many, 10_000) {
					t.Errorf("a claim of %d has %d runs", many, len(more))
				}
				claimed = append(claimed, more...)
			}
			wantClaimed(t, claimed, idsOf(1, many)...)
			last := int64(0)
			for _, c := range claimed {
				if c.Run.Fence <= last || c.Job.Name != c.Run.ID {
					t.Fatalf("run %s of job %s has fence %d after %d", c.Run.ID, c.Job.Name, c.Run.Fence, last)
				}
				last = c.Run.Fence
			}
			ends := endsOf(claimed)
			own, err := s.Finish(t.Context(), durable.FinishRequest{Ends: append(ends, ends[:10]...)})
			if err != nil || len(own) != len(ends)+10 {
				t.Fatalf("Finish = %d answers, %v", len(own), err)
			}
			for i, o := range own {
				if o != (i < many) {
					t.Errorf("Finish: end %d: %v", i, o)
				}
			}
		})
	}
}

func TestAnyLimitClaimsWhatThereIs(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := d.store(t, pool)
		jobOf(t, s, "a", true)
		for _, limit := range []int{10_000, 10_001, math.MaxInt32, math.MaxInt} {
			enqueueMany(t, s, "a", 1, 2)
			claimed := claimAs(t, s, "n", limit, runIt)
			wantClaimed(t, claimed, idsOf(1, 2)...)
			finishAll(t, s, endsOf(claimed))
			if _, err := s.Purge(t.Context(), durable.PurgeRequest{IDs: idsOf(1, 2)}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Somebody adds a job again that was removed, and has the rows that it left.
func TestAClaimWaitsForNoEditOfARemovedJob(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 4)
			jobOf(t, s, "a", false)
			enqueueMany(t, s, "a", 1, 2)
			do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET state = %d WHERE id = '%s'", durable.StateBlocked, idOf(2)))
			do(t, db, "DELETE FROM taskmanager_job")
			defer inTransaction(t, db, "SELECT id FROM taskmanager_trigger WHERE id = '"+idOf(2)+"' FOR UPDATE")()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // not to wait for ever
			defer cancel()
			saw := 0
			_, err := s.Claim(ctx, durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: func(durable.Due) durable.Verdict {
				saw++
				return durable.Verdict{Delete: true}
			}})
			if err != nil || saw != 1 {
				t.Errorf("Claim = %v, and saw %d triggers, want nil, 1", err, saw)
			}
		})
	}
}
