package storetest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// benchBatch is how many runs one request claims or finishes.
const benchBatch = 100

// benchPast is how long ago the first trigger was due: far enough for any number of
// rounds.
const benchPast = 10_000 * time.Hour

// Bench measures claims and finishes in batches of 100, among 10,000 waiting triggers
// or as many as the environment's STORETEST_WAITING says, and idle claims. One
// operation is one run, claimed and finished.
func Bench(b *testing.B, open func(b *testing.B, now func() time.Time) durable.Store) {
	waiting := 10_000
	if n, err := strconv.Atoi(os.Getenv("STORETEST_WAITING")); err == nil && n > 0 {
		waiting = n
	}
	c := newClock()
	s := open(b, c.now) // one for all: a million rows take their time
	benchLoad(b, s, c, waiting)
	for _, claimers := range []int{1, 8} {
		b.Run(fmt.Sprintf("claim+finish/waiting=%d/claimers=%d", waiting, claimers), func(b *testing.B) {
			benchRuns(b, s, c, claimers, time.Duration(waiting)*time.Microsecond)
		})
	}
	b.Run(fmt.Sprintf("idle/waiting=%d", waiting), func(b *testing.B) {
		c.advance(-2 * benchPast)
		benchBeat(b, s, "idle")
		for b.Loop() {
			res, err := s.Claim(context.Background(), durable.ClaimRequest{Node: "idle", Limit: benchBatch, Handlers: []string{"h"}, Plan: benchPlan(0)})
			if err != nil || len(res.Claimed) > 0 {
				b.Fatalf("Claim = %d runs, %v, want none, nil", len(res.Claimed), err)
			}
		}
	})
}

func benchBeat(b *testing.B, s durable.Store, node string) {
	if _, err := s.Beat(context.Background(), durable.NodeRow{ID: node, Name: node}, 1000*time.Hour); err != nil {
		b.Fatalf("Beat = %v, want nil", err)
	}
}

// benchLoad adds triggers that are all due, a microsecond one after the other, of
// jobs that allow concurrency.
func benchLoad(b *testing.B, s durable.Store, c *clock, waiting int) {
	b.Helper()
	const perJob = 1000
	start := c.now().Add(-benchPast)
	for first := 0; first < waiting; first += perJob {
		name := fmt.Sprintf("job-%06d", first/perJob)
		err := s.Edit(context.Background(), name, durable.EditJob, func(e *durable.Edit) error {
			e.Job = &durable.JobRow{Name: name, Group: "bench", Handler: "h", AllowConcurrent: true, Data: []byte(`{"of":"the job"}`)}
			for i := first; i < min(first+perJob, waiting); i++ {
				e.Triggers = append(e.Triggers, durable.TriggerRow{
					ID: idOf(int64(i) + 1), Job: name, Name: fmt.Sprintf("t%09d", i), Handler: "h", Priority: 5,
					Schedule: "cron 0 * * * * ?", DueAt: start.Add(time.Duration(i) * time.Microsecond),
				})
			}
			return nil
		})
		if err != nil {
			b.Fatalf("Edit = %v, want nil", err)
		}
	}
}

// benchRuns claims and finishes b.N runs.
func benchRuns(b *testing.B, s durable.Store, c *clock, claimers int, round time.Duration) {
	for i := range claimers {
		benchBeat(b, s, fmt.Sprint("node-", i))
	}
	plan := benchPlan(round)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range claimers {
		wg.Go(func() {
			for left.Load() > 0 {
				c.advance(time.Microsecond)
				res, err := s.Claim(context.Background(), durable.ClaimRequest{Node: fmt.Sprint("node-", i), Limit: benchBatch, Handlers: []string{"h"}, Plan: plan})
				if err != nil {
					b.Errorf("Claim = %v, want nil", err)
					return
				}
				es := make([]durable.End, len(res.Claimed))
				for k := range res.Claimed {
					es[k] = ended(*res.Claimed[k].Run)
				}
				if _, err := s.Finish(context.Background(), durable.FinishRequest{Ends: es, Resume: resume}); err != nil {
					b.Errorf("Finish = %v, want nil", err)
					return
				}
				left.Add(-int64(len(es)))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(int64(b.N)-left.Load())/b.Elapsed().Seconds(), "runs/s")
}

// benchPlan has a trigger due again after all others, which is long past, too.
func benchPlan(round time.Duration) func(durable.Due) durable.Verdict {
	return func(d durable.Due) durable.Verdict {
		t := d.Trigger
		run := &durable.RunRow{
			ID: runID(t), Job: t.Job, Trigger: t.Name, ScheduledAt: t.DueAt, Attempt: 1,
			Data: d.Job.Data, Priority: t.Priority, TriggerID: t.ID,
		}
		t.PrevAt, t.Fired = t.DueAt, t.Fired+1
		t.DueAt = t.DueAt.Add(round)
		return durable.Verdict{Trigger: t, Run: run}
	}
}
