package durable_test

import (
	"context"
	"log/slog"
	"runtime"
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

// What a run allocates is a good part of what it costs. The bound leaves room for what
// is not a run's: claims, records, the loops.
func TestWhatARunAllocates(t *testing.T) {
	ctx := context.Background()
	const runs, most = 2000, 12
	var left atomic.Int64
	left.Store(runs)
	done := make(chan struct{})
	s, err := durable.New(nil, durable.Config{MaxConcurrentRuns: 100, Retention: -1, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = durable.Handle(s, "h", func(context.Context, durable.Run, noArgs) error {
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		})
	}
	if err == nil {
		err = s.AddJob(ctx, durable.Job{Name: "j", Handler: "h", AllowConcurrent: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	start := make(chan struct{})
	err = s.Use(func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, run durable.Run) error {
			<-start
			return next(ctx, run)
		}
	})
	if err == nil {
		err = s.Start(ctx)
	}
	for range runs {
		if err == nil {
			_, err = s.Trigger(ctx, "j", nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	close(start)
	<-done
	runtime.ReadMemStats(&after)
	if got := float64(after.Mallocs-before.Mallocs) / runs; got > most {
		t.Errorf("%.1f allocations a run, want %d at most", got, most)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
