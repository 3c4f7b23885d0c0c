package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// newManager makes a silent manager on the real clock, for bubbles.
func newManager(opts ...taskmanager.Option) *taskmanager.TaskManager {
	return must(taskmanager.New(append([]taskmanager.Option{taskmanager.WithLogger(silent)}, opts...)...))
}

// wantClosed checks that a manager takes nothing any more.
func wantClosed(t *testing.T, m *taskmanager.TaskManager) {
	t.Helper()
	h1, err1 := m.ScheduleRecurring("a", time.Second, nothing)
	h2, err2 := m.ScheduleTicks("b", time.Second, func(context.Context, taskmanager.Tick) error { return nil })
	h3, err3 := m.Schedule("c", everySecond{}, nothing)
	err4 := m.RunOnce(t.Context(), "d", func(context.Context) error { t.Error("a function was called after Shutdown"); return nil })
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, taskmanager.ErrClosed) {
			t.Errorf("call %d after Shutdown: %v, want %v", i+1, err, taskmanager.ErrClosed)
		}
	}
	if h1 != nil || h2 != nil || h3 != nil {
		t.Error("a handle although nothing was scheduled")
	}
	for h := range m.Tasks() {
		t.Errorf("%s is still listed", h.Name())
	}
}

func TestShutdownInEveryOrderIsNilWhenNothingRuns(t *testing.T) {
	shutdown := func(m *taskmanager.TaskManager) error { return m.Shutdown(context.Background()) }
	end := (*taskmanager.TaskManager).Close
	for i, calls := range [][]func(*taskmanager.TaskManager) error{
		{shutdown}, {end}, {shutdown, shutdown}, {shutdown, end}, {end, shutdown}, {end, end}, {shutdown, end, shutdown, end},
	} {
		for _, tasks := range []int{0, 3} {
			t.Run(fmt.Sprint(i, " ", tasks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newManager()
					var handles []*taskmanager.Handle
					for i := range tasks {
						handles = append(handles, must(m.ScheduleRecurring(fmt.Sprint(i), time.Second, nothing)))
					}
					time.Sleep(5 * time.Second)
					for _, call := range calls {
						if err := call(m); err != nil {
							t.Errorf("verdict %v, want nil", err)
						}
					}
					wantClosed(t, m)
					for _, h := range handles {
						if s := h.Snapshot(); s.State != taskmanager.Stopped || s.Successes < 4 || !errors.Is(s.Err, taskmanager.ErrClosed) {
							t.Errorf("after Shutdown: %v, %d runs, %v", s.State, s.Successes, s.Err)
						}
						h.Stop()
						for _, err := range []error{h.RunNow(), h.Pause(), h.Resume(), h.Reschedule(time.Second), h.RescheduleWith(everySecond{})} {
							if !errors.Is(err, taskmanager.ErrClosed) {
								t.Errorf("call on a handle after Shutdown: %v, want %v", err, taskmanager.ErrClosed)
							}
						}
						if err := h.Wait(t.Context()); err != nil {
							t.Errorf("Wait = %v, want nil", err)
						}
					}
				})
			})
		}
	}
}

func TestFiftyShutdownsAtOnceAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		release := make(chan struct{})
		must(m.ScheduleRecurring("deaf", time.Second, func(context.Context) error { <-release; return nil }))
		time.Sleep(5 * time.Second)
		verdicts := make([]error, 50)
		var all sync.WaitGroup
		for i := range verdicts {
			all.Go(func() {
				if i%2 == 0 {
					verdicts[i] = m.Close()
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					verdicts[i] = m.Shutdown(ctx)
				}
			})
		}
		all.Wait()
		var verdict *taskmanager.ShutdownError
		if !errors.As(verdicts[0], &verdict) || len(verdict.Abandoned) != 1 {
			t.Fatalf("verdict %v, want one run abandoned", verdicts[0])
		}
		for _, v := range verdicts {
			if v != verdicts[0] {
				t.Errorf("one verdict is %v, another %v", v, verdicts[0])
			}
		}
		if err := m.Close(); err != verdicts[0] {
			t.Errorf("later Close = %v, want %v", err, verdicts[0])
		}
		close(release)
	})
}

func TestDrainWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(taskmanager.WithShutdownGrace(500 * time.Millisecond))
		release := make(chan struct{})
		once := []taskmanager.TaskOption{taskmanager.WithJitter(0), taskmanager.WithFixedDelay()}
		var cause error
		ends := must(m.ScheduleRecurring("ends", time.Minute, func(context.Context) error { time.Sleep(time.Second); return nil }, once...))
		obeys := must(m.ScheduleRecurring("obeys", 59*time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}, once...))
		deaf := must(m.ScheduleRecurring("deaf", 58*time.Second, func(context.Context) error { <-release; return nil }, once...))
		quick := must(m.ScheduleRecurring("quick", 100*time.Millisecond, nothing, taskmanager.WithJitter(0)))
		time.Sleep(time.Minute + 50*time.Millisecond)
		synctest.Wait()
		before := quick.TotalRuns()

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		err := m.Shutdown(ctx)
		if took := time.Since(begun); took != 2500*time.Millisecond {
			t.Errorf("Shutdown took %v, want 2 s and the grace of 500 ms", took)
		}
		var verdict *taskmanager.ShutdownError
		if !errors.As(err, &verdict) {
			t.Fatalf("Shutdown = %v, want a ShutdownError", err)
		}
		if c := verdict.Cancelled; len(c) != 1 || c[0].Name != "obeys" || c[0].Age != 3050*time.Millisecond || c[0].Stack != "" {
			t.Errorf("Cancelled = %+v, want obeys of age 3.05s", c)
		}
		if a := verdict.Abandoned; len(a) != 1 || a[0].Name != "deaf" || a[0].Age != 4550*time.Millisecond || !strings.Contains(a[0].Stack, "lifecycle_test.go") {
			t.Errorf("Abandoned = %+v, want deaf of age 4.55s, and where it stands", a)
		}
		if want := "taskmanager: shutdown: 1 cancelled (obeys after 3.05s) 1 abandoned (deaf after 4.55s)"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if !errors.Is(cause, taskmanager.ErrClosed) {
			t.Errorf("cause of the cancelled context: %v, want %v", cause, taskmanager.ErrClosed)
		}
		if got := quick.TotalRuns(); got != before {
			t.Errorf("%d runs began during the drain", got-before)
		}
		if s := ends.Snapshot(); s.Successes != 1 || s.LastDuration != time.Second {
			t.Errorf("ends: %d successes, took %v", s.Successes, s.LastDuration)
		}
		if s := obeys.Snapshot(); s.Cancelled != 1 || s.Failures != 0 {
			t.Errorf("obeys: cancelled %d, failures %d, want 1, 0", s.Cancelled, s.Failures)
		}
		if !deaf.IsRunning() {
			t.Error("the deaf run is not shown as running")
		}
		close(release)
		if err := deaf.Wait(t.Context()); err != nil {
			t.Errorf("Wait = %v", err)
		}
		if s := deaf.Snapshot(); s.Successes != 1 || s.State != taskmanager.Stopped {
			t.Errorf("deaf: %d successes, %v", s.Successes, s.State)
		}
	})
}

// An hour of a Shutdown that waits costs no CPU worth the name: what there was to wake up
// for has ended with the tasks.
func TestShutdownWaitsAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := newHandClock()
		m := must(taskmanager.New(clk.option(), taskmanager.WithLogger(silent)))
		must(m.ScheduleRecurring("obeys", time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, taskmanager.WithJitter(0), taskmanager.WithExecutionTimeout(24*time.Hour)))
		must(m.Schedule("schedule", everySecond{}, nothing))
		for i := range 1000 {
			must(m.ScheduleRecurring(fmt.Sprint(i), 2*time.Second, nothing))
		}
		clk.move(time.Second)
		go clk.ring()
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		verdict := make(chan error, 1)
		before := clk.timesArmed()
		go func() { verdict <- m.Shutdown(ctx) }()
		synctest.Wait()
		clk.run(time.Hour)
		synctest.Wait()
		if n := clk.timesArmed() - before; n > 5 {
			t.Errorf("a timer was armed %d times while Shutdown waited for an hour, want a handful at most", n)
		}
		select {
		case err := <-verdict:
			t.Fatalf("Shutdown = %v before its context ended", err)
		default:
		}
		cancel()
		var cut *taskmanager.ShutdownError
		if err := <-verdict; !errors.As(err, &cut) || len(cut.Cancelled) != 1 || len(cut.Abandoned) != 0 {
			t.Errorf("Shutdown = %v, want one run cancelled", err)
		}
	})
}

func TestShutdownWaitsForRunsThatEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		h := must(m.ScheduleRecurring("a", time.Second, func(ctx context.Context) error {
			time.Sleep(30 * time.Second)
			return ctx.Err()
		}, taskmanager.WithJitter(0)))
		reentrant := must(m.ScheduleRecurring("b", time.Second, func(ctx context.Context) error {
			time.Sleep(20 * time.Second)
			return ctx.Err()
		}, taskmanager.WithJitter(0), taskmanager.WithNonReentrant(false), taskmanager.WithExecutionTimeout(time.Minute)))
		time.Sleep(10500 * time.Millisecond)
		if err := m.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if a, b := h.Successes(), reentrant.Successes(); a != 1 || b != 10 {
			t.Errorf("%d and %d successes, want 1 and 10", a, b)
		}
	})
}

func TestCloseCancelsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		for i := range 10 {
			must(m.ScheduleRecurring(fmt.Sprint(i), time.Second, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}, taskmanager.WithExecutionTimeout(time.Duration(i%2)*time.Hour), taskmanager.WithNonReentrant(i%3 > 0)))
		}
		time.Sleep(3 * time.Second)
		begun := time.Now()
		var verdict *taskmanager.ShutdownError
		if err := m.Close(); !errors.As(err, &verdict) || len(verdict.Cancelled) < 10 || len(verdict.Abandoned) > 0 {
			t.Errorf("Close = %v, want all runs cancelled", err)
		}
		if !slices.IsSortedFunc(verdict.Cancelled, func(a, b taskmanager.RunInfo) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("Cancelled is not in order of name")
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		if totals := m.Totals(); totals.Failures != 0 || totals.Cancelled != totals.Runs {
			t.Errorf("Totals = %+v, want every run cancelled", totals)
		}
	})
}

func TestAGraceOfZeroAbandonsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(taskmanager.WithShutdownGrace(0))
		release := make(chan struct{})
		must(m.ScheduleRecurring("a", time.Second, func(context.Context) error { <-release; return nil }))
		time.Sleep(3 * time.Second)
		begun := time.Now()
		var verdict *taskmanager.ShutdownError
		if err := m.Close(); !errors.As(err, &verdict) || len(verdict.Abandoned) != 1 {
			t.Errorf("Close = %v, want one run abandoned", err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		close(release)
	})
}

// inside calls f in a run: in one on the pump's goroutine, in one aside, in one
// with a time limit, in a TickFunc of a task of which three runs overlap.
func inside(t *testing.T, f func(t *testing.T, ctx context.Context, m *taskmanager.TaskManager, h *taskmanager.Handle)) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"pump":      nil,
		"limited":   {taskmanager.WithExecutionTimeout(time.Hour)},
		"reentrant": {taskmanager.WithNonReentrant(false)},
		"queued":    {taskmanager.WithTag("limit")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager(taskmanager.WithTagLimit("limit", 1))
				handle, called := make(chan *taskmanager.Handle, 1), make(chan struct{})
				handle <- must(m.ScheduleRecurring("self", time.Second, func(ctx context.Context) error {
					f(t, ctx, m, <-handle)
					close(called)
					return nil
				}, append(opts, taskmanager.WithMaxRuns(1))...))
				<-called
				begun := time.Now()
				if err := m.Shutdown(t.Context()); err != nil {
					t.Errorf("Shutdown = %v", err)
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("Shutdown afterwards took %v", took)
				}
			})
		})
	}
}

func TestARunMayShutItsManagerDown(t *testing.T) {
	tests := map[string]func(ctx context.Context, m *taskmanager.TaskManager) error{
		"with its context": func(ctx context.Context, m *taskmanager.TaskManager) error { return m.Shutdown(ctx) },
		"with another":     func(_ context.Context, m *taskmanager.TaskManager) error { return m.Shutdown(context.Background()) },
		"close":            func(_ context.Context, m *taskmanager.TaskManager) error { return m.Close() },
		"from a goroutine with a child of its context": func(ctx context.Context, m *taskmanager.TaskManager) error {
			child, cancel := context.WithCancel(context.WithValue(ctx, probeKey{}, 1))
			defer cancel()
			verdict := make(chan error)
			go func() { verdict <- m.Shutdown(child) }()
			return <-verdict
		},
		"after another shutdown began": func(ctx context.Context, m *taskmanager.TaskManager) error {
			go m.Shutdown(context.Background())
			synctest.Wait()
			return m.Shutdown(context.Background())
		},
	}
	for name, shutdown := range tests {
		t.Run(name, func(t *testing.T) {
			inside(t, func(t *testing.T, ctx context.Context, m *taskmanager.TaskManager, h *taskmanager.Handle) {
				begun := time.Now()
				if err := shutdown(ctx, m); err != nil {
					t.Errorf("Shutdown = %v, want nil", err)
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("Shutdown took %v: it waited for its caller", took)
				}
				if ctx.Err() != nil {
					t.Errorf("the calling run's context has ended: %v", context.Cause(ctx))
				}
				wantClosed(t, m)
			})
		})
	}
}

func TestFromAGoroutineOfARunOnlyTheContextBoundsShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		verdict := make(chan error)
		must(m.ScheduleRecurring("self", time.Second, func(context.Context) error {
			inner := make(chan error)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				inner <- m.Shutdown(ctx)
			}()
			verdict <- <-inner
			return nil
		}, taskmanager.WithJitter(0)))
		time.Sleep(time.Second)
		begun := time.Now()
		var e *taskmanager.ShutdownError
		if err := <-verdict; !errors.As(err, &e) || len(e.Abandoned) != 1 || e.Abandoned[0].Name != "self" {
			t.Errorf("Shutdown = %v, want self abandoned", err)
		}
		if took := time.Since(begun); took != 4*time.Second {
			t.Errorf("Shutdown took %v, want 3 s and the grace of 1 s", took)
		}
	})
}

func TestARunMayDoAnythingToItsManagerAndItself(t *testing.T) {
	inside(t, func(t *testing.T, ctx context.Context, m *taskmanager.TaskManager, h *taskmanager.Handle) {
		if err := h.Wait(ctx); !errors.Is(err, taskmanager.ErrOwnRun) {
			t.Errorf("Wait = %v, want %v", err, taskmanager.ErrOwnRun)
		}
		if err := h.Wait(context.Background()); !errors.Is(err, taskmanager.ErrOwnRun) {
			t.Errorf("Wait = %v, want %v", err, taskmanager.ErrOwnRun)
		}
		fromAside := make(chan error)
		go func() { fromAside <- h.Wait(ctx) }()
		if err := <-fromAside; !errors.Is(err, taskmanager.ErrOwnRun) {
			t.Errorf("Wait on a goroutine of the run = %v, want %v", err, taskmanager.ErrOwnRun)
		}
		other, err := m.ScheduleRecurring("other", time.Minute, nothing)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.RunNow(); err != nil {
			t.Error(err)
		}
		n := 0
		for each := range m.Tasks() {
			n++
			_ = each.Snapshot()
		}
		if n != 2 {
			t.Errorf("%d tasks, want 2", n)
		}
		if err := m.RunOnce(ctx, "nested", func(inner context.Context) error { return m.RunOnce(inner, "again", nothing) }); err != nil {
			t.Errorf("RunOnce = %v", err)
		}
		other.Stop()
		if err := other.Wait(ctx); err != nil {
			t.Errorf("Wait for another task = %v", err)
		}
		if err := errors.Join(h.Pause(), h.Resume(), h.Reschedule(time.Hour)); err != nil {
			t.Error(err)
		}
		if got := m.Totals().Running; got != 1 {
			t.Errorf("Running = %d, want 1", got)
		}
		h.Stop()
		h.Stop()
		if !errors.Is(context.Cause(ctx), taskmanager.ErrStopped) {
			t.Errorf("cause after Stop: %v, want %v", context.Cause(ctx), taskmanager.ErrStopped)
		}
		if got := h.State(); got != taskmanager.Running {
			t.Errorf("State = %v, want running", got)
		}
		select {
		case <-h.Done():
			t.Error("Done is closed during the run")
		default:
		}
		if h, err := m.ScheduleRecurring("self", time.Minute, nothing); err != nil {
			t.Errorf("the name is not free: %v", err)
		} else {
			h.Stop()
		}
	})
}

func TestTwoRunsThatShutDownDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		ended := make(chan error, 2)
		for i := range 2 {
			must(m.ScheduleRecurring(fmt.Sprint(i), time.Second, func(ctx context.Context) error {
				time.Sleep(time.Second) // so that both are running
				ended <- m.Shutdown(context.Background())
				return nil
			}, taskmanager.WithJitter(0)))
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("Shutdown = %v, want nil", err)
			}
		}
	})
}

func TestWaitReturnsTheCauseOfItsContextsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		defer m.Close()
		h := must(m.ScheduleRecurring("a", time.Second, nothing))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		if err := h.Wait(ctx); !errors.Is(err, errBoom) {
			t.Errorf("Wait = %v, want %v", err, errBoom)
		}
		go func() {
			time.Sleep(time.Minute)
			h.Stop()
		}()
		if err := h.Wait(t.Context()); err != nil || h.Err() != taskmanager.ErrStopped {
			t.Errorf("Wait = %v, Err = %v, want nil, %v", err, h.Err(), taskmanager.ErrStopped)
		}
	})
}

func TestStopCancelsTheRunWhichIsNoFailure(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := newManager()
			defer m.Close()
			returns := []func(context.Context) error{
				func(ctx context.Context) error { return ctx.Err() },
				func(ctx context.Context) error { return context.Cause(ctx) },
				func(ctx context.Context) error { return fmt.Errorf("read: %w", ctx.Err()) },
				func(ctx context.Context) error { return nil },
				func(ctx context.Context) error { return errBoom },
			}
			want := []taskmanager.Snapshot{{Cancelled: 1}, {Cancelled: 1}, {Cancelled: 1}, {Successes: 1}, {Failures: 1}}
			for i, result := range returns {
				h := must(m.ScheduleRecurring("a", time.Second, func(ctx context.Context) error {
					<-ctx.Done()
					return result(ctx)
				}, taskmanager.WithExecutionTimeout(limit)))
				time.Sleep(2 * time.Second)
				h.Stop()
				if err := h.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				s, w := h.Snapshot(), want[i]
				if s.Cancelled != w.Cancelled || s.Successes != w.Successes || s.Failures != w.Failures {
					t.Errorf("%d: cancelled %d, successes %d, failures %d; want %d, %d, %d", i,
						s.Cancelled, s.Successes, s.Failures, w.Cancelled, w.Successes, w.Failures)
				}
			}
		})
	}
}

func TestRunOnceEndsWithItsContextAndWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		wait := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errBoom)
		defer cancel()
		if err := m.RunOnce(ctx, "a", func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the deadline of the caller's context is lost")
			}
			return wait(ctx)
		}); !errors.Is(err, errBoom) {
			t.Errorf("RunOnce = %v, want %v", err, errBoom)
		}
		result := make(chan error)
		go func() { result <- m.RunOnce(context.Background(), "b", wait) }()
		synctest.Wait()
		var verdict *taskmanager.ShutdownError
		err := m.Close()
		if !errors.As(err, &verdict) || len(verdict.Cancelled) != 1 || verdict.Cancelled[0].Name != "b" {
			t.Errorf("Close = %v, want b cancelled", err)
		}
		if err := <-result; !errors.Is(err, taskmanager.ErrClosed) {
			t.Errorf("RunOnce = %v, want %v", err, taskmanager.ErrClosed)
		}
	})
}

func TestShutdownFromInsideRunOnceDoesNotWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		begun := time.Now()
		err := m.RunOnce(t.Context(), "a", func(ctx context.Context) error { return m.Shutdown(context.Background()) })
		if took := time.Since(begun); err != nil || took != 0 {
			t.Errorf("RunOnce = %v after %v, want nil at once", err, took)
		}
	})
}
