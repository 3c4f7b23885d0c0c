package durable_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/taskmanager-go/taskmanager/durable"
)

// BenchmarkRuns is a run through the whole library on the memory store: by hand, claim,
// handler, record.
func BenchmarkRuns(b *testing.B) {
	ctx := context.Background()
	store := durable.NewMemory()
	var left atomic.Int64
	done := make(chan struct{})
	node := func() *durable.Scheduler {
		s, err := durable.New(store, durable.Config{MaxConcurrentRuns: 200, Retention: -1})
		if err != nil {
			b.Fatal(err)
		}
		if err := durable.Handle(s, "h", func(context.Context, durable.Run, struct{}) error {
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		if err := s.AddJob(ctx, durable.Job{Name: "j", Handler: "h", AllowConcurrent: true}); err != nil {
			b.Fatal(err)
		}
		return s
	}
	first := node()
	if err := first.Start(ctx); err != nil {
		b.Fatal(err)
	}
	if err := first.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
	s := node()
	left.Store(int64(b.N))
	for range b.N {
		if _, err := s.Trigger(ctx, "j", nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := s.Start(ctx); err != nil {
		b.Fatal(err)
	}
	<-done
	b.StopTimer()
	if err := s.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
}
