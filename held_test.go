package taskmanager_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
)

// Ticks that are held, and runs by RunNow beside them.

// MaxRuns can be used up by RunNow while a tick is held by backoff, or about to be.
func TestTheLastRunByRunNowDuringBackoffEndsTheTask(t *testing.T) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"interval":    nil,
		"fixed delay": {taskmanager.WithFixedDelay()},
		"coalesce":    {taskmanager.WithOverlap(taskmanager.Coalesce)},
		"reentrant":   {taskmanager.WithNonReentrant(false)},
	} {
		for _, looked := range []bool{false, true} {
			w := newWorld(t)
			runs := 0
			h := w.every("a", 10*time.Second, func(ctx context.Context) error {
				if runs++; runs == 1 {
					return errBoom
				}
				return w.clk.Sleep(ctx, 5*time.Second)
			}, append(opts, taskmanager.WithMaxRuns(2), backingOffFor(time.Hour))...)
			w.advance(30 * time.Second) // failed at 10 s; the tick at 20 s fell into the backoff
			if err := h.RunNow(); err != nil {
				t.Fatal(err)
			}
			w.advance(2 * time.Second)
			if looked {
				h.Snapshot()
			}
			if next := h.NextRun(); !next.IsZero() {
				t.Errorf("%s: NextRun = %v during the last run", name, next)
			}
			w.advance(10 * time.Second)
			if h.State() != taskmanager.Complete || h.TotalRuns() != 2 {
				t.Errorf("%s, looked at %v: %v after %d runs, want complete after 2", name, looked, h.State(), h.TotalRuns())
			}
		}
	}
}

func TestATickHeldByBackoffRunsWhenAWaitingRunNowHasItsTurn(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(2))
	hog := func(ctx context.Context) error { return w.clk.Sleep(ctx, 2*time.Second) }
	first, second := w.every("first", time.Hour, hog), w.every("second", time.Hour, hog)
	h := w.ticks("a", 10*time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		w.note("tick %d", tick.Index)
		switch tick.Index {
		case 1:
			return errBoom
		case -1:
			return w.clk.Sleep(ctx, time.Minute)
		}
		return nil
	}, taskmanager.WithNonReentrant(false), backingOffFor(15*time.Second))
	w.advance(24 * time.Second) // failed at 10 s, tick 2 is held until 25 s
	if err := errors.Join(first.RunNow(), second.RunNow()); err != nil {
		t.Fatal(err)
	}
	w.advance(500 * time.Millisecond)
	if err := h.RunNow(); err != nil { // waits for a place, until 26 s
		t.Fatal(err)
	}
	w.advance(13 * time.Second)
	w.want(t, "10s tick 1", "26s tick -1", "26s tick 2", "30s tick 3")
}

func TestWhatBackoffHeldATickForIsNoLateness(t *testing.T) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"skip":     nil,
		"coalesce": {taskmanager.WithOverlap(taskmanager.Coalesce)},
		"catch up": {taskmanager.WithOverlap(taskmanager.CatchUp(2))},
	} {
		w := newWorld(t)
		var got []taskmanager.Tick
		h := w.ticks("a", time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
			got = append(got, tick)
			switch tick.Index {
			case 1:
				return errBoom
			case -1:
				return w.clk.Sleep(ctx, 200*time.Millisecond)
			}
			return nil
		}, append(opts, backingOffFor(1500*time.Millisecond))...) // tick 2 is held until 2.5 s
		w.advance(2400 * time.Millisecond)
		if err := h.RunNow(); err != nil { // goes on until 2.6 s
			t.Fatal(err)
		}
		w.advance(400 * time.Millisecond)
		if last := got[len(got)-1]; last.Index != 2 || last.Lateness != 100*time.Millisecond {
			t.Errorf("%s: tick %d, %v late, want 2, 100ms", name, last.Index, last.Lateness)
		}
	}
}

func TestFixedDelayCountsFromARunDuringAPauseToo(t *testing.T) {
	for name, do := range map[string]func(*world) *taskmanager.Handle{
		"option": func(w *world) *taskmanager.Handle {
			return w.every("a", time.Minute, func(context.Context) error { w.note("run"); return nil }, taskmanager.WithFixedDelay())
		},
		"schedule": func(w *world) *taskmanager.Handle {
			return w.schedule("a", cronsched.MustParse("every 1m"), func(context.Context) error { w.note("run"); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := do(w)
			w.advance(50 * time.Second)
			if err := errors.Join(h.Pause(), h.RunNow()); err != nil {
				t.Fatal(err)
			}
			w.advance(0)
			if err := h.Resume(); err != nil {
				t.Fatal(err)
			}
			w.advance(109 * time.Second)
			w.want(t, "50s run", "1m50s run")
		})
	}
}

func TestPauseLeavesARunByRunNowThatHasNotBegun(t *testing.T) {
	for _, waits := range []bool{false, true} {
		w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
		hog := w.every("hog", time.Hour, func(ctx context.Context) error { return w.clk.Sleep(ctx, 10*time.Second) })
		h := w.every("a", time.Minute, func(context.Context) error { w.note("run"); return nil })
		w.advance(time.Second)
		if waits {
			if err := hog.RunNow(); err != nil {
				t.Fatal(err)
			}
			w.advance(0)
		}
		if err := errors.Join(h.RunNow(), h.Pause()); err != nil {
			t.Fatal(err)
		}
		w.advance(time.Hour)
		if want := map[bool]string{false: "1s run", true: "11s run"}[waits]; true {
			w.want(t, want)
		}
		w.stateIs(h, taskmanager.Paused)
	}
}

func TestNoNextRunIsToldOfATaskWhoseLastRunWaits(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	hog := w.every("hog", time.Hour, func(ctx context.Context) error { return w.clk.Sleep(ctx, 10*time.Second) })
	h := w.every("a", time.Second, nothing, taskmanager.WithMaxRuns(1))
	if err := hog.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(1500 * time.Millisecond)
	if next := h.NextRun(); !next.IsZero() {
		t.Errorf("NextRun = %v, want none\n%s", next, h.Explain())
	}
}
