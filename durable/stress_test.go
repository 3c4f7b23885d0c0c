package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// TestStress starts, stops and changes several nodes on one store from many goroutines,
// on the real clock; what it finds wrong is a race, a hang, or a job that overlaps itself.
func TestStress(t *testing.T) {
	store := durable.NewMemory()
	var overlap sync.Map
	node := func(i int) *durable.Scheduler {
		s, err := durable.New(store, durable.Config{
			Node: fmt.Sprint("n", i), PollInterval: 5 * time.Millisecond, NodeTimeout: 2 * time.Second, Retention: -1,
			ShutdownTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Waker: stressHub,
			Observer: durable.ObserverFunc(func(durable.Event) {}),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = durable.Handle(s, "h", func(ctx context.Context, r durable.Run, _ noArgs) error {
			if r.Fence > 0 {
				if _, busy := overlap.LoadOrStore(r.Job, r.ID); busy {
					t.Errorf("%s overlaps itself", r.Job)
				}
				defer overlap.Delete(r.Job)
			}
			switch rand.IntN(10) {
			case 0:
				panic("stress")
			case 1:
				return fmt.Errorf("no")
			case 2:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ctx := context.Background()
	const nodes = 3
	var mu sync.Mutex
	live := make([]*durable.Scheduler, nodes)
	end := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			for time.Now().Before(end) {
				s := node(i)
				if err := s.Start(ctx); err != nil {
					t.Errorf("Start = %v", err)
					return
				}
				mu.Lock()
				live[i] = s
				mu.Unlock()
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Millisecond)
				<-ctx.Done()
				cancel()
				var stops sync.WaitGroup
				for range 3 {
					stops.Go(func() { _ = s.Shutdown(context.Background()) })
				}
				stops.Wait()
			}
		})
	}
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				mu.Lock()
				s := live[rand.IntN(nodes)]
				mu.Unlock()
				if s == nil {
					continue
				}
				job := fmt.Sprint("j", rand.IntN(4))
				switch rand.IntN(9) {
				case 0:
					sched, _ := cronsched.Every(10*time.Millisecond, 0)
					_ = s.AddJob(ctx, durable.Job{Name: job, Handler: "h", RunOnEveryNode: rand.IntN(4) == 0, Timeout: 50 * time.Millisecond,
						Retry: durable.Retry{MaxRetries: 2, Delay: time.Millisecond}, Triggers: []durable.Trigger{{Schedule: sched}}})
				case 1:
					_ = s.RemoveJob(ctx, job)
				case 2:
					_ = s.PauseJob(ctx, job)
				case 3:
					_ = s.ResumeJob(ctx, job)
				case 4:
					_, _ = s.Cancel(ctx, job)
				case 5:
					_, _ = s.Status(ctx, job)
				case 6:
					_, _ = s.Runs(ctx, durable.RunQuery{Job: job})
				case 7:
					_ = s.Stats()
				default:
					_, _ = s.Trigger(ctx, job, nil)
				}
			}
		})
	}
	wg.Wait()
	rows, err := store.Runs(ctx, durable.RunQuery{States: []durable.RunState{durable.RunRunning}})
	if err != nil || len(rows) != 0 {
		t.Errorf("%d runs left running after clean stops, %v, want 0", len(rows), err)
	}
	nodesLeft, _, err := store.Nodes(ctx)
	if err != nil || len(nodesLeft) != 0 {
		t.Errorf("nodes left after clean stops: %+v, %v, want none", nodesLeft, err)
	}
}

var stressHub = &hub{}
