package integration

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

const benchBatch = 100

// BenchmarkClaimAndFinish is what a job that does nothing costs, in batches of 100:
// through the store, and as a bare loop that marks rows as claimed and then deletes
// them, which is what no store on that database can beat.
func BenchmarkClaimAndFinish(b *testing.B) {
	for _, d := range databases {
		for _, claimers := range []int{1, 8} {
			name := fmt.Sprintf("%s/claimers=%d", d.name, claimers)
			b.Run(name+"/store", func(b *testing.B) { benchStore(b, d, claimers) })
			b.Run(name+"/raw", func(b *testing.B) { benchRaw(b, d, claimers) })
		}
	}
}

func perSecond(b *testing.B, n int64, since time.Time) {
	b.ReportMetric(float64(n)/time.Since(since).Seconds(), "jobs/s")
	b.ReportMetric(0, "ns/op")
}

// together runs f in some goroutines until it says that there is no more.
func together(b *testing.B, n int, f func(worker int) (done int, err error)) int64 {
	var all atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for {
				done, err := f(i)
				if err != nil {
					b.Error(err)
					return
				}
				if done == 0 {
					return
				}
				all.Add(int64(done))
			}
		})
	}
	wg.Wait()
	return all.Load()
}

// oneShots adds n one-shot triggers, due now, of ten jobs that allow concurrency.
func oneShots(t testing.TB, s durable.Store, n int) {
	ctx := context.Background()
	for j := range 10 {
		job := fmt.Sprintf("job-%d", j)
		err := s.Edit(ctx, job, durable.EditJob, func(e *durable.Edit) error {
			e.Job = &durable.JobRow{Name: job, Handler: "h", AllowConcurrent: true, Source: durable.SourceCode}
			for i := j; i < n; i += 10 {
				id := fmt.Sprintf("%026d", i)
				e.Add = append(e.Add, durable.TriggerRow{
					ID: id, Job: job, Name: "manual-" + id, Handler: "h", Kind: durable.KindManual, Priority: 5,
					DueAt: e.Now, ScheduledAt: e.Now, Attempt: 1, IdempotencyKey: "key-" + id, Data: []byte(`{"x":1}`),
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runIt makes a run of a one-shot trigger.
func runIt(d durable.Due) durable.Verdict {
	t := d.Trigger
	return durable.Verdict{Delete: true, Run: &durable.RunRow{
		ID: t.ID, Job: t.Job, Trigger: t.Origin, Kind: t.Kind, ScheduledAt: t.ScheduledAt, Attempt: t.Attempt,
		IdempotencyKey: t.IdempotencyKey, Data: t.Data, Priority: t.Priority, TriggerID: t.ID, Exclusive: !d.Job.AllowConcurrent,
	}}
}

func endsOf(claimed []durable.Claimed) []durable.End {
	ends := make([]durable.End, len(claimed))
	for i, c := range claimed {
		ends[i].Run = *c.Run
		ends[i].Run.State = durable.RunSucceeded
	}
	return ends
}

func benchStore(b *testing.B, d database, claimers int) {
	s, _ := d.store(b, claimers)
	ctx := context.Background()
	oneShots(b, s, b.N*benchBatch)
	for i := range claimers {
		if _, err := s.Beat(ctx, durable.NodeRow{ID: fmt.Sprint("n", i)}, time.Hour); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	start := time.Now()
	n := together(b, claimers, func(worker int) (int, error) {
		node := fmt.Sprint("n", worker)
		for {
			res, err := s.Claim(ctx, durable.ClaimRequest{Node: node, Limit: benchBatch, Handlers: []string{"h"}, Plan: runIt})
			if err != nil {
				return 0, err
			}
			if len(res.Claimed) == 0 {
				if res.Next.IsZero() {
					return 0, nil
				}
				continue // others have them all
			}
			_, err = s.Finish(ctx, durable.FinishRequest{Ends: endsOf(res.Claimed)})
			return len(res.Claimed), err
		}
	})
	perSecond(b, n, start)
	if n != int64(b.N*benchBatch) {
		b.Errorf("%d jobs done, want %d", n, b.N*benchBatch)
	}
}

// rawSQL is the bare loop in one dialect.
var rawSQL = map[string]struct{ claim, remove string }{
	"sqlite": {
		`UPDATE raw SET state = 1, node = 'n' WHERE id IN (SELECT id FROM raw WHERE state = 0 ORDER BY due_at, id LIMIT 100) RETURNING id`,
		`DELETE FROM raw WHERE id IN (%s)`,
	},
	"postgres": {
		`UPDATE raw SET state = 1, node = 'n' WHERE id IN (SELECT id FROM raw WHERE state = 0 ORDER BY due_at, id LIMIT 100 FOR UPDATE SKIP LOCKED) RETURNING id`,
		`DELETE FROM raw WHERE id IN (%s)`,
	},
	"mysql": {
		`SELECT id FROM raw FORCE INDEX (raw_due) WHERE state = 0 ORDER BY due_at, id LIMIT 100 FOR UPDATE SKIP LOCKED`,
		`DELETE FROM raw WHERE id IN (%s)`,
	},
}

func benchRaw(b *testing.B, d database, claimers int) {
	db := d.open(b)
	db.SetMaxOpenConns(claimers)
	db.SetMaxIdleConns(claimers)
	if d.name == "sqlite" {
		db.SetMaxOpenConns(1)
	}
	do(b, db, `CREATE TABLE raw (id BIGINT PRIMARY KEY, state INTEGER, due_at BIGINT, node VARCHAR(30), data VARCHAR(200))`)
	do(b, db, `CREATE INDEX raw_due ON raw (state, due_at, id)`)
	var rows []string
	for i := range b.N * benchBatch {
		rows = append(rows, fmt.Sprintf("(%d, 0, %d, '', 'some data that a job may have')", i, i))
		if len(rows) == 1000 || i == b.N*benchBatch-1 {
			do(b, db, "INSERT INTO raw VALUES "+strings.Join(rows, ","))
			rows = nil
		}
	}
	b.ResetTimer()
	start := time.Now()
	n := together(b, claimers, func(int) (int, error) {
		ids, err := rawClaim(db, d.name)
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		_, err = db.Exec(fmt.Sprintf(rawSQL[d.name].remove, strings.Join(ids, ",")))
		return len(ids), err
	})
	perSecond(b, n, start)
}

func rawClaim(db *sql.DB, name string) (ids []string, err error) {
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: map[bool]sql.IsolationLevel{true: sql.LevelReadCommitted}[name == "mysql"]})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.Query(rawSQL[name].claim)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if name == "mysql" && len(ids) > 0 {
		if _, err := tx.Exec("UPDATE raw SET state = 1, node = 'n' WHERE id IN (" + strings.Join(ids, ",") + ")"); err != nil {
			return nil, err
		}
	}
	return ids, tx.Commit()
}
