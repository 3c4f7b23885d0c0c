package taskmanager_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// A run that is queued and let go again has not been had: MaxRuns counts starts.
func TestMaxRunsIsReachedByStartsAndNotByWaiting(t *testing.T) {
	one := taskmanager.WithMaxRuns(1)
	for name, c := range map[string]struct {
		opts []taskmanager.TaskOption
		do   func(*taskmanager.Handle, *tasktest.Clock)
	}{
		"ticks skipped over the limit": {[]taskmanager.TaskOption{taskmanager.WithSkipOverLimit()}, func(*taskmanager.Handle, *tasktest.Clock) {}},
		"RunNow refused": {[]taskmanager.TaskOption{taskmanager.WithSkipOverLimit()}, func(h *taskmanager.Handle, clk *tasktest.Clock) {
			clk.Advance(1500 * time.Millisecond)
			if err := h.RunNow(); !errors.Is(err, taskmanager.ErrLimitReached) {
				t.Errorf("RunNow = %v, want %v", err, taskmanager.ErrLimitReached)
			}
		}},
		"paused while waiting": {nil, func(h *taskmanager.Handle, clk *tasktest.Clock) {
			clk.Advance(2500 * time.Millisecond)
			_ = h.Pause()
			clk.Advance(time.Second)
			_ = h.Resume()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, clk := tasktest.New(t, taskmanager.WithMaxConcurrentRuns(1))
			noJitter := taskmanager.WithJitter(0)
			must(m.ScheduleRecurring("hog", time.Second, func(ctx context.Context) error { return clk.Sleep(ctx, 5*time.Second) }, noJitter, one))
			h := must(m.ScheduleRecurring("x", 2*time.Second, nothing, append(c.opts, noJitter, one)...))
			c.do(h, clk)
			clk.Advance(20 * time.Second)
			if h.TotalRuns() != 1 || h.State() != taskmanager.Complete {
				t.Errorf("%d runs, %v, %+v; want 1 run, then complete", h.TotalRuns(), h.State(), h.Ticks())
			}
		})
	}
}

func TestPauseAndResumeBeforeARunBeginsLeaveItToTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		defer m.Close()
		opts := []taskmanager.TaskOption{taskmanager.WithJitter(0), taskmanager.WithMaxRuns(1)}
		var b *taskmanager.Handle
		must(m.ScheduleRecurring("a", time.Second, func(context.Context) error {
			_ = b.Pause()
			return b.Resume()
		}, append(opts, taskmanager.WithPaused())...))
		b = must(m.ScheduleRecurring("b", time.Second, nothing, opts...))
		a, _ := m.Lookup("a")
		_ = a.Resume()
		time.Sleep(10 * time.Second)
		if b.TotalRuns() != 1 || b.State() != taskmanager.Complete {
			t.Errorf("%d runs, %v, want 1, complete", b.TotalRuns(), b.State())
		}
	})
}

func TestANewScheduleHasItsRunsHoweverTheOldOneStood(t *testing.T) {
	t.Run("rescheduled during the last run", func(t *testing.T) {
		m, clk := tasktest.New(t)
		h := must(m.ScheduleRecurring("x", time.Second, func(ctx context.Context) error { return clk.Sleep(ctx, 3*time.Second) }, taskmanager.WithJitter(0)))
		if err := h.RescheduleWith(delaySchedule{time.Second, 1}); err != nil {
			t.Fatal(err)
		}
		clk.Advance(2 * time.Second)
		if err := h.Reschedule(time.Second); err != nil {
			t.Fatal(err)
		}
		clk.Advance(20 * time.Second)
		if got := h.TotalRuns(); got < 5 {
			t.Errorf("%d runs, want it to go on", got)
		}
	})
	t.Run("a run of the old one waits", func(t *testing.T) {
		m, clk := tasktest.New(t, taskmanager.WithMaxConcurrentRuns(1))
		must(m.ScheduleRecurring("hog", time.Second, func(ctx context.Context) error { return clk.Sleep(ctx, 5*time.Second) }, taskmanager.WithJitter(0), taskmanager.WithMaxRuns(1)))
		h := must(m.ScheduleRecurring("x", 2*time.Second, nothing, taskmanager.WithJitter(0)))
		clk.Advance(3 * time.Second)
		if err := h.RescheduleWith(delaySchedule{time.Second, 1}); err != nil {
			t.Fatal(err)
		}
		clk.Advance(20 * time.Second)
		if got := h.TotalRuns(); got != 2 {
			t.Errorf("%d runs, want the one that waited and the new schedule's", got)
		}
	})
	t.Run("the option still counts", func(t *testing.T) {
		m, clk := tasktest.New(t)
		h := must(m.ScheduleRecurring("x", time.Second, nothing, taskmanager.WithJitter(0), taskmanager.WithMaxRuns(2)))
		if err := h.RescheduleWith(delaySchedule{time.Second, 5}); err != nil {
			t.Fatal(err)
		}
		clk.Advance(20 * time.Second)
		if h.TotalRuns() != 2 || h.Options().MaxRuns != 2 {
			t.Errorf("%d runs of %d, want 2", h.TotalRuns(), h.Options().MaxRuns)
		}
	})
}

func TestShutdownWaitsForNoObserver(t *testing.T) {
	for name, observe := range map[string]func(m *taskmanager.TaskManager, release chan struct{}){
		"that calls Shutdown": func(m *taskmanager.TaskManager, _ chan struct{}) { _ = m.Shutdown(context.Background()) },
		"that blocks":         func(_ *taskmanager.TaskManager, release chan struct{}) { <-release },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var m *taskmanager.TaskManager
				m = newManager(taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
					if e.Kind == taskmanager.KindRan {
						observe(m, release)
					}
				})))
				must(m.ScheduleRecurring("x", time.Second, func(context.Context) error { time.Sleep(time.Second); return nil }, taskmanager.WithJitter(0)))
				time.Sleep(1500 * time.Millisecond)
				if err := m.Shutdown(context.Background()); err != nil {
					t.Errorf("Shutdown = %v", err)
				}
				close(release)
			})
		})
	}
}

func TestShutdownFromARunOnceInsideARunWaitsForNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		ended := make(chan error, 1)
		must(m.ScheduleRecurring("x", time.Second, func(ctx context.Context) error {
			return m.RunOnce(ctx, "inner", func(context.Context) error {
				ended <- m.Shutdown(context.Background())
				return nil
			})
		}, taskmanager.WithJitter(0)))
		if err := <-ended; err != nil {
			t.Errorf("Shutdown = %v", err)
		}
	})
}

func TestARunNowThatWasAcceptedRuns(t *testing.T) {
	m := newManager()
	defer m.Close()
	for range 300 {
		var starts atomic.Int64
		h := must(m.ScheduleRecurring("x", 100*time.Microsecond, func(context.Context) error { starts.Add(1); return nil },
			taskmanager.WithJitter(0), taskmanager.WithEndAt(time.Now().Add(150*time.Microsecond))))
		var accepted int64
		for h.State() != taskmanager.Complete {
			if h.RunNow() == nil {
				accepted++
			}
			runtime.Gosched()
		}
		<-h.Done()
		if ticks := int64(h.Ticks().Ran); starts.Load() != accepted+ticks {
			t.Fatalf("%d runs, want %d accepted and %d ticks", starts.Load(), accepted, ticks)
		}
	}
}

func TestAMockThatIsSetBackHoldsUpNothing(t *testing.T) {
	mock := clock.NewMock()
	m := newManager(taskmanager.WithClock(mock))
	defer m.Close()
	h := must(m.ScheduleRecurring("x", time.Second, nothing, taskmanager.WithJitter(0)))
	tasktest.AdvanceMock(t, m, mock, 5*time.Second)
	mock.Set(mock.Now().Add(-3 * time.Second))
	tasktest.AdvanceMock(t, m, mock, 2*time.Second)
	if got := h.TotalRuns(); got != 7 {
		t.Errorf("%d runs in 5 s and 2 s, want 7", got)
	}
	if err := h.Reschedule(500 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	tasktest.AdvanceMock(t, m, mock, 2*time.Second)
	if got := h.TotalRuns(); got != 11 {
		t.Errorf("%d runs, want 11", got)
	}
}

func TestLookingAtAnOverlappingTaskInBackoffChangesNothing(t *testing.T) {
	runs := func(look bool) uint64 {
		m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
		n := 0
		h := must(m.ScheduleRecurring("x", 10*time.Second, func(ctx context.Context) error {
			switch n++; n {
			case 1:
				return clk.Sleep(ctx, time.Hour)
			case 2:
				return errBoom
			}
			return nil
		}, taskmanager.WithJitter(0), taskmanager.WithNonReentrant(false),
			taskmanager.WithBackoff(func() backoff.BackOff { return backoff.NewConstantBackOff(15 * time.Second) })))
		clk.Advance(31 * time.Second)
		if look {
			_ = h.Snapshot()
		}
		_ = h.Resume()
		clk.Advance(14 * time.Second)
		return h.TotalRuns()
	}
	if got, want := runs(true), runs(false); got != want || want != 4 {
		t.Errorf("%d runs when looked at, %d when not, want 4", got, want)
	}
}

func TestABackoffOfNothingKeepsCatchUpsTicks(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent), taskmanager.WithBackoffBase(0))
	first := true
	h := must(m.ScheduleRecurring("x", time.Second, func(ctx context.Context) error {
		if !first {
			return nil
		}
		first = false
		_ = clk.Sleep(ctx, 5500*time.Millisecond)
		return errBoom
	}, taskmanager.WithJitter(0), taskmanager.WithOverlap(taskmanager.CatchUp(10))))
	clk.Advance(6600 * time.Millisecond)
	if got := h.Ticks(); got.Ran != 6 || got.Due() != 6 {
		t.Errorf("Ticks = %+v, want 6 ran", got)
	}
}

func TestThousandsOfEndingsAreOneGoroutine(t *testing.T) {
	var most atomic.Int64
	m, clk := tasktest.New(t, taskmanager.WithMaxConcurrentRuns(1), taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) {
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
	})))
	must(m.ScheduleRecurring("hog", 500*time.Millisecond, func(ctx context.Context) error { return clk.Sleep(ctx, time.Hour) }, taskmanager.WithJitter(0)))
	end := taskmanager.WithEndAt(clk.Now().Add(time.Second))
	for i := range 2000 {
		must(m.ScheduleRecurring(string(rune('a'+i%26))+time.Duration(i).String(), time.Second, nothing, taskmanager.WithJitter(0), taskmanager.WithSkipOverLimit(), end))
	}
	clk.Advance(2 * time.Second)
	if got := m.Totals().Tasks; got != 1 {
		t.Errorf("%d live tasks, want 1", got)
	}
	if got := most.Load(); got > 100 {
		t.Errorf("%d goroutines at once", got)
	}
}

func TestRescheduleStartsAnOrdinaryGrid(t *testing.T) {
	m, clk := tasktest.New(t)
	var h *taskmanager.Handle
	h = must(m.ScheduleRecurring("x", time.Hour, func(context.Context) error { return h.Reschedule(time.Hour) },
		taskmanager.WithJitter(0), taskmanager.WithImmediately(), taskmanager.WithOverlap(taskmanager.Coalesce)))
	clk.Advance(90 * time.Minute)
	if got := h.TotalRuns(); got != 2 {
		t.Errorf("%d runs in an hour and a half, want 2: at once and after an hour", got)
	}
}

// A run can outlive the engine: one that has called Shutdown, and one that was abandoned.
func TestARunWithATimeLimitMayEndAfterTheEngine(t *testing.T) {
	limit := taskmanager.WithExecutionTimeout(time.Hour)
	check := func(t *testing.T, m *taskmanager.TaskManager, h *taskmanager.Handle) {
		t.Helper()
		<-h.Done()
		if n := m.Totals().EnginePanics; n != 0 {
			t.Errorf("%d panics of the engine, want none", n)
		}
	}
	t.Run("its own Shutdown", func(t *testing.T) {
		m := newManager()
		check(t, m, must(m.ScheduleRecurring("a", time.Millisecond, m.Shutdown, taskmanager.WithJitter(0), limit)))
	})
	t.Run("abandoned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newManager()
			release := make(chan struct{})
			h := must(m.ScheduleRecurring("a", time.Second, func(context.Context) error { <-release; return nil }, limit))
			time.Sleep(2 * time.Second)
			if err := m.Close(); err == nil {
				t.Error("Close did not say that a run was abandoned")
			}
			close(release)
			check(t, m, h)
		})
	})
}

// An error is what the function says; a panic is what it does.
func TestOnlyAPanicCountsAsOne(t *testing.T) {
	for name, fn := range map[string]taskmanager.Func{
		"typed nil":   func(context.Context) error { return (*taskmanager.PanicError)(nil) },
		"of another":  func(context.Context) error { return &taskmanager.PanicError{Value: "elsewhere"} },
		"its own one": func(context.Context) error { panic(errBoom) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.every("a", time.Second, fn, taskmanager.WithMaxRuns(1))
			w.advance(time.Second)
			want := uint64(0)
			if name == "its own one" {
				want = 1
			}
			if s := h.Snapshot(); s.Failures != 1 || s.Panics != want || s.State != taskmanager.Complete {
				t.Errorf("%d failures, %d panics, %v; want 1, %d, complete", s.Failures, s.Panics, s.State, want)
			}
			if n := w.m.Totals().EnginePanics; n != 0 {
				t.Errorf("%d panics of the engine, want none", n)
			}
			select {
			case <-h.Done():
			default:
				t.Error("Done is not closed")
			}
		})
	}
}

// callsBack is a context that does something when it is first asked for a value, which
// Shutdown does once it has begun.
type callsBack struct {
	context.Context
	do func()
}

func (c *callsBack) Value(key any) any {
	if do := c.do; do != nil {
		c.do = nil
		do()
	}
	return c.Context.Value(key)
}

func TestNothingStartsOnceShutdownHasBegun(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	runs := 0
	h := w.every("a", time.Second, func(context.Context) error { runs++; return nil })
	seconds := w.schedule("b", everySecond{}, func(context.Context) error { runs++; return nil })
	err := w.m.Shutdown(&callsBack{context.Background(), func() {
		for name, err := range map[string]error{
			"Schedule": func() error { _, err := w.m.ScheduleRecurring("c", time.Second, nothing); return err }(),
			"RunNow":   h.RunNow(), "Pause": h.Pause(), "Reschedule": h.Reschedule(time.Minute), "of b": seconds.RunNow(),
		} {
			if !errors.Is(err, taskmanager.ErrClosed) {
				t.Errorf("%s = %v, want %v", name, err, taskmanager.ErrClosed)
			}
		}
		if n := len(w.m.Report().Tasks); n != 2 {
			t.Errorf("the report has %d tasks, want 2", n)
		}
		w.advance(3 * time.Second)
	}})
	if err != nil || runs != 0 {
		t.Errorf("Shutdown = %v after %d runs, want none", err, runs)
	}
	wantTicks(t, h, taskmanager.Ledger{Missed: 3})
}

func TestShutdownCountsTicksAsStopDoes(t *testing.T) {
	for name, prepare := range map[string]func(*world, *taskmanager.Handle){
		"paused":      func(_ *world, h *taskmanager.Handle) { _ = h.Pause() },
		"backing off": func(w *world, _ *taskmanager.Handle) { w.advance(time.Second) },
	} {
		var ledgers []taskmanager.Ledger
		for _, end := range []func(*world, *taskmanager.Handle){
			func(_ *world, h *taskmanager.Handle) { h.Stop() },
			func(w *world, _ *taskmanager.Handle) { _ = w.m.Close() },
		} {
			w := newWorld(t)
			h := w.every("a", time.Second, fails, backingOffFor(time.Hour))
			prepare(w, h)
			w.clk.Advance(5500 * time.Millisecond)
			w.others = true
			end(w, h)
			ledgers = append(ledgers, h.Ticks())
		}
		if ledgers[0] != ledgers[1] || ledgers[0].SkippedPaused+ledgers[0].SkippedBackoff == 0 {
			t.Errorf("%s: after Stop %+v,\nafter Shutdown %+v", name, ledgers[0], ledgers[1])
		}
	}
}

// goexitError is an error that ends whoever asks what it says.
type goexitError struct{}

func (goexitError) Error() string { runtime.Goexit(); return "" }

func TestAnErrorWhoseTextEndsTheGoroutineLosesNoRun(t *testing.T) {
	w := newWorld(t, taskmanager.WithBackoffBase(0), taskmanager.WithMaxConcurrentRuns(1))
	runs, others := 0, 0
	h := w.every("a", 10*time.Second, func(ctx context.Context) error {
		if runs++; runs > 1 {
			return nil
		}
		_ = w.clk.Sleep(ctx, 25*time.Second)
		return goexitError{}
	}, taskmanager.WithOverlap(taskmanager.Coalesce)) // one follows the first at once
	w.advance(50 * time.Second)
	w.every("b", 10*time.Second, func(context.Context) error { others++; return nil })
	w.advance(50 * time.Second)
	if s := h.Snapshot(); runs != 9 || others != 5 || s.Ticks.Pending != 0 {
		t.Errorf("%d runs and %d of another task, %+v; want 9 and 5", runs, others, s.Ticks)
	}
	if n := len(w.of("a", taskmanager.KindRan)); n != 8 {
		t.Errorf("the observer was told of %d runs, want 8", n)
	}
}

func TestAGraceOfZeroIsOverAtOnceOnAnyClock(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithShutdownGrace(0))
	gate := clk.NewGate()
	must(m.ScheduleRecurring("a", time.Second, func(ctx context.Context) error { return gate.Wait(context.WithoutCancel(ctx)) }, taskmanager.WithJitter(0)))
	clk.Advance(time.Second)
	var cut *taskmanager.ShutdownError
	if err := m.Close(); !errors.As(err, &cut) || len(cut.Abandoned) != 1 { // nobody moves the clock
		t.Errorf("Close = %v, want one run abandoned", err)
	}
	gate.Open()
}

// What RunOnce calls inside a run is inside that run, too.
func TestARunIsKnownByTheContextOfARunOnceInsideIt(t *testing.T) {
	for _, nested := range []bool{false, true} {
		w := newWorld(t)
		var h *taskmanager.Handle
		var waited, shut error
		ask := func(ctx context.Context) error {
			done := make(chan struct{})
			go func() { // known by the context and not by the goroutine
				defer close(done)
				waited, shut = h.Wait(ctx), w.m.Shutdown(ctx)
			}()
			<-done
			return nil
		}
		h = w.every("a", time.Second, func(ctx context.Context) error {
			if !nested {
				return ask(ctx)
			}
			return w.m.RunOnce(ctx, "inner", ask)
		})
		w.advance(time.Second)
		if !errors.Is(waited, taskmanager.ErrOwnRun) || shut != nil {
			t.Errorf("nested: %v; Wait = %v, Shutdown = %v; want %v, nil", nested, waited, shut, taskmanager.ErrOwnRun)
		}
	}
}

func TestTheContextOfARunThatIsOverIsAnybodys(t *testing.T) {
	w := newWorld(t)
	var kept context.Context
	h := w.every("a", time.Second, func(ctx context.Context) error { kept = ctx; return nil }, taskmanager.WithMaxRuns(1))
	w.advance(time.Second)
	if err := h.Wait(kept); err != nil {
		t.Errorf("Wait = %v, want nil: the task is complete", err)
	}
}
