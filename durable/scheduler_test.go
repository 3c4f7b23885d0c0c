package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// A world is a scheduler on a memory store, both on a fake clock.
type world struct {
	*durable.Scheduler
	t     *testing.T
	clk   *tasktest.Clock
	store *durable.Memory
}

func newWorld(t *testing.T, config durable.Config) *world {
	t.Helper()
	m, clk := tasktest.New(t)
	w := &world{t: t, clk: clk, store: durable.NewMemory(durable.MemoryNow(clk.Now))}
	config.Manager = m
	if config.Node == "" {
		config.Node = "test"
	}
	if config.Retention == 0 {
		config.Retention = -1
	}
	s, err := durable.New(w.store, config)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	w.Scheduler = s
	return w
}

func (w *world) start() {
	w.t.Helper()
	if err := w.Start(context.Background()); err != nil {
		w.t.Fatalf("Start: %v", err)
	}
	w.clk.Advance(0)
}

func (w *world) runs(q durable.RunQuery) []durable.RunRow {
	w.t.Helper()
	rows, err := w.Runs(context.Background(), q)
	if err != nil {
		w.t.Fatalf("Runs: %v", err)
	}
	return rows
}

type noArgs struct{}

func TestACronTriggerFiresAtItsInstants(t *testing.T) {
	w := newWorld(t, durable.Config{})
	var at []time.Time
	if err := durable.Handle(w.Scheduler, "h", func(ctx context.Context, run durable.Run, _ noArgs) error {
		at = append(at, run.ScheduledAt)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.AddJob(context.Background(), durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{
		{Schedule: cronsched.MustParse("cron */10 * * * * *")},
	}}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.clk.Advance(time.Minute)
	if len(at) != 6 {
		t.Fatalf("%d runs, want 6: %v", len(at), at)
	}
	for i, got := range at {
		if want := time.Date(2026, 1, 1, 0, 0, 10*(i+1), 0, time.UTC); !got.Equal(want) {
			t.Errorf("run %d scheduled at %v, want %v", i, got, want)
		}
	}
	for _, r := range w.runs(durable.RunQuery{}) {
		if r.State != durable.RunSucceeded {
			t.Errorf("run %+v", r)
		}
	}
}

func TestAFailedRunIsRetried(t *testing.T) {
	w := newWorld(t, durable.Config{})
	n := 0
	if err := durable.Handle(w.Scheduler, "h", func(ctx context.Context, run durable.Run, _ noArgs) error {
		if n++; n < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.AddJob(context.Background(), durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 5, Delay: 10 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := w.Trigger(context.Background(), "j", map[string]int{"x": 1}); err != nil {
		t.Fatal(err)
	}
	w.clk.Advance(time.Minute)
	rows := w.runs(durable.RunQuery{Job: "j"})
	if len(rows) != 3 || rows[0].State != durable.RunSucceeded || rows[0].Attempt != 3 || rows[1].State != durable.RunFailed {
		t.Fatalf("runs %+v", rows)
	}
}
