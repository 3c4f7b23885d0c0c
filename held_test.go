package taskmanager_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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
		if waits {
			w.want(t, "11s run")
		} else {
			w.want(t, "1s run")
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

func TestATickThatWaitsForAPlaceIsHeldByBackoffToo(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.ticks("a", time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		w.note("tick %d", tick.Index)
		if tick.Index == 1 {
			return errors.Join(w.clk.Sleep(ctx, 1500*time.Millisecond), errBoom)
		}
		return nil
	}, taskmanager.WithNonReentrant(false), backingOffFor(10*time.Second))
	w.advance(13 * time.Second)
	w.want(t, "1s tick 1", "12.5s tick 12", "13s tick 13")
}

func TestARunByRunNowDoesNotMoveTheFirstTickOfAFixedDelay(t *testing.T) {
	for _, paused := range []bool{false, true} {
		for name, start := range map[string]func(*world, time.Time) *taskmanager.Handle{
			"option": func(w *world, at time.Time) *taskmanager.Handle {
				return w.every("a", time.Minute, func(context.Context) error { w.note("run"); return nil },
					taskmanager.WithFixedDelay(), taskmanager.WithStartAt(at))
			},
			"schedule": func(w *world, at time.Time) *taskmanager.Handle {
				return w.schedule("a", cronsched.MustParse("every 1m"), func(context.Context) error { w.note("run"); return nil }, taskmanager.WithStartAt(at))
			},
		} {
			w := newWorld(t)
			h := start(w, w.clk.Now().Add(time.Hour))
			if paused {
				if err := h.Pause(); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.RunNow(); err != nil {
				t.Fatal(err)
			}
			if next, want := h.NextRun(), w.start.Add(61*time.Minute); !paused && !next.Equal(want) {
				t.Errorf("%s: NextRun = %v during the run, want %v", name, next, want)
			}
			w.advance(30 * time.Minute)
			if err := h.Resume(); err != nil {
				t.Fatal(err)
			}
			if next, want := h.NextRun(), w.start.Add(61*time.Minute); !next.Equal(want) {
				t.Errorf("%s, paused %v: NextRun = %v, want %v", name, paused, next, want)
			}
			w.advance(32 * time.Minute)
			w.want(t, "0s run", "1h1m0s run", "1h2m0s run")
		}
	}
}

// A tick that waits for a place counts to the number of runs, until Pause lets go of it.
func TestANumberOfRunsIsKeptWhateverWaitsAtReschedule(t *testing.T) {
	for name, c := range map[string]struct {
		opts   []taskmanager.TaskOption
		change func(*taskmanager.Handle) error
		want   uint64
	}{
		"MaxRuns, interval": {[]taskmanager.TaskOption{taskmanager.WithMaxRuns(1)}, func(h *taskmanager.Handle) error { return h.Reschedule(2 * time.Second) }, 1},
		"xN":                {nil, func(h *taskmanager.Handle) error { return h.RescheduleWith(cronsched.MustParse("every 1s x3")) }, 3},
		"MaxRuns and xN":    {[]taskmanager.TaskOption{taskmanager.WithMaxRuns(2)}, func(h *taskmanager.Handle) error { return h.RescheduleWith(cronsched.MustParse("every 1s x3")) }, 2},
	} {
		for _, paused := range []bool{false, true} {
			w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
			hog := w.every("hog", time.Hour, func(ctx context.Context) error { return w.clk.Sleep(ctx, 10*time.Second) })
			h := w.every("a", time.Second, nothing, c.opts...)
			if err := hog.RunNow(); err != nil {
				t.Fatal(err)
			}
			w.advance(1500 * time.Millisecond) // tick 1 waits
			if err := c.change(h); err != nil {
				t.Fatal(err)
			}
			want := c.want
			if paused {
				if err := errors.Join(h.Pause(), h.Resume()); err != nil {
					t.Fatal(err)
				}
			} else if name == "xN" {
				want++ // the one that waits is not its
			}
			w.advance(time.Minute)
			if h.State() != taskmanager.Complete || h.TotalRuns() != want {
				t.Errorf("%s, paused %v: %v after %d runs, want complete after %d", name, paused, h.State(), h.TotalRuns(), want)
			}
		}
	}
}

func TestTurnsComeInOrderOfDueTimeOverAllLimits(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(2), taskmanager.WithTagLimit("x", 1))
	hog := func(d time.Duration) taskmanager.Func {
		return func(ctx context.Context) error { return w.clk.Sleep(ctx, d) }
	}
	body := func(name string) taskmanager.Func {
		return func(ctx context.Context) error { w.note("%s", name); return w.clk.Sleep(ctx, 5*time.Second) }
	}
	tagged, plain := w.every("c", time.Hour, hog(50*time.Second), taskmanager.WithTag("x")), w.every("d", time.Hour, hog(100*time.Second))
	w.every("a", 20*time.Second, body("a"), taskmanager.WithTag("x"))
	w.every("b", 25*time.Second, body("b"))
	if err := errors.Join(tagged.RunNow(), plain.RunNow()); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Second)
	w.stall(44 * time.Second) // a is due since 40 s, at the tag's limit; b since 25 s, at the manager's
	w.advance(11 * time.Second)
	w.want(t, "50s b", "55s a")
}

func TestNextRunIsNoneWhileItIsNotKnown(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	hog := w.every("hog", time.Hour, func(ctx context.Context) error { return w.clk.Sleep(ctx, 10500*time.Millisecond) })
	waits := w.every("waits", 4*time.Second, nothing)
	if err := hog.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(9 * time.Second)
	if next := waits.NextRun(); !next.IsZero() {
		t.Errorf("NextRun = %v while a tick waits its turn", next)
	}

	w = newWorld(t)
	delay := w.every("delay", time.Minute, func(ctx context.Context) error { return w.clk.Sleep(ctx, 5*time.Second) }, taskmanager.WithFixedDelay())
	w.advance(30 * time.Second)
	if err := delay.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Second)
	if next := delay.NextRun(); !next.IsZero() {
		t.Errorf("NextRun = %v, which counts from the end of a run that goes on", next)
	}
	w.advance(5 * time.Second)
	if next, want := delay.NextRun(), w.start.Add(95*time.Second); !next.Equal(want) {
		t.Errorf("NextRun = %v, want %v", next, want)
	}
}

// Each tick is told once, as what became of it.
func TestEventsTellEachTickOnce(t *testing.T) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"skip": nil, "coalesce": {taskmanager.WithOverlap(taskmanager.Coalesce)}, "catch up": {taskmanager.WithOverlap(taskmanager.CatchUp(2))},
	} {
		w := newWorld(t)
		n := 0
		h := w.every("a", time.Second, func(ctx context.Context) error {
			if n++; n == 2 {
				_ = w.clk.Sleep(ctx, 2*time.Second)
			}
			if n > 2 {
				return nil
			}
			return errBoom
		}, append(opts, backingOffFor(1500*time.Millisecond))...)
		w.advance(2400 * time.Millisecond)
		if err := h.RunNow(); err != nil {
			t.Fatal(err)
		}
		w.advance(4 * time.Second)
		told := map[int64][]taskmanager.Kind{}
		for _, e := range w.of("a") {
			first := e.Index - int64(e.Count) + 1
			switch e.Kind {
			case taskmanager.KindRan, taskmanager.KindFailed:
				first = e.Index
			case taskmanager.KindAdded:
				continue
			}
			for k := first; k <= e.Index; k++ {
				told[k] = append(told[k], e.Kind)
			}
		}
		for k := int64(1); k <= 6; k++ {
			if len(told[k]) != 1 {
				t.Errorf("%s: tick %d is told as %v, want once", name, k, told[k])
			}
		}
	}
}

func TestATickThatIsHeldKeepsItsInstantOverAReschedule(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	gate, runs := w.clk.NewGate(), 0
	var second taskmanager.Tick
	h := w.ticks("a", time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		if runs++; runs == 1 {
			_ = gate.Wait(ctx)
			return errBoom
		}
		if runs == 2 {
			second = tick
		}
		return nil
	}, taskmanager.WithNonReentrant(false), backingOffFor(5*time.Second))
	w.others = true
	w.advance(2500 * time.Millisecond) // the first run goes on, tick 2 waits for its place
	if err := h.Reschedule(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	w.advance(500 * time.Millisecond)
	gate.Open()
	w.advance(5 * time.Second) // the backoff is over
	if at := second.Scheduled.Sub(w.start); at != 2*time.Second || second.Lateness != 0 {
		t.Errorf("the run at %v is for %v, late by %v, want 2s, not late", w.clk.Now().Sub(w.start), at, second.Lateness)
	}
}

func TestCatchUpReplaysWhatWasMissedAfterABackoffToo(t *testing.T) {
	w := newWorld(t)
	var ran []int64
	h := w.ticks("a", time.Second, func(_ context.Context, tick taskmanager.Tick) error {
		ran = append(ran, tick.Index)
		if len(ran) == 1 {
			return errBoom
		}
		return nil
	}, taskmanager.WithOverlap(taskmanager.CatchUp(10)), backingOffFor(2500*time.Millisecond))
	w.advance(time.Second)
	w.stall(7 * time.Second)
	if want := []int64{1, 3, 4, 5, 6, 7, 8}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: 7, SkippedBackoff: 1})
}

func TestARunByRunNowBeforeStartAtLeavesTheFirstTickOfAFixedDelayKnown(t *testing.T) {
	w := newWorld(t)
	var starts []time.Duration
	h := w.every("a", 5*time.Second, func(ctx context.Context) error {
		starts = append(starts, w.clk.Now().Sub(w.start))
		return w.clk.Sleep(ctx, 4*time.Second)
	}, taskmanager.WithFixedDelay(), taskmanager.WithStartAt(w.start.Add(10*time.Second)))
	w.advance(8 * time.Second)
	if err := h.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Second)
	if next, text := h.NextRun().Sub(w.start), h.Explain(); next != 15*time.Second || !strings.Contains(text, "next instants") {
		t.Errorf("before StartAt the next run is at %v, want 15s; Explain() =\n%s", next, text)
	}
	w.advance(2 * time.Second) // the run goes on beyond StartAt, and so the delay counts from its end
	if next := h.NextRun(); !next.IsZero() {
		t.Errorf("the next run is at %v, want it unknown", next.Sub(w.start))
	}
	w.advance(10 * time.Second)
	if want := []time.Duration{8 * time.Second, 17 * time.Second}; !slices.Equal(starts, want) {
		t.Errorf("started at %v, want %v", starts, want)
	}
}
