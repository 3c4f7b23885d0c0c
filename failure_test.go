package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// badError is an error all of whose methods panic.
type badError struct{}

func (badError) Error() string   { panic("no text") }
func (badError) Is(error) bool   { panic("no identity") }
func (badError) Unwrap() []error { panic("nothing inside") }
func (badError) String() string  { panic("no string") }
func (badError) As(any) bool     { panic("no type") }

var noMap map[int]int

var errBoom = errors.New("boom")

// mishaps are the ways for a run to fail.
var mishaps = []struct {
	name     string
	fn       taskmanager.Func
	is       error // what errors.Is finds in the error
	text     string
	panicked bool
}{
	{"error", func(context.Context) error { return errBoom }, errBoom, "boom", false},
	{"wrapped error", func(context.Context) error { return fmt.Errorf("w: %w", io.EOF) }, io.EOF, "w: EOF", false},
	{"foreign cancellation", func(context.Context) error { return context.Canceled }, context.Canceled, "context canceled", false},
	{"panic with a string", func(context.Context) error { panic("ouch") }, nil, "taskmanager: panic: ouch", true},
	{"panic with an error", func(context.Context) error { panic(errBoom) }, errBoom, "taskmanager: panic: boom", true},
	{"panic with nil", func(context.Context) error { panic(nil) }, &runtime.PanicNilError{}, "panic called with nil argument", true},
	{"nil dereference", func(context.Context) error { return fmt.Errorf("%d", *(*int)(nil)) }, nil, "invalid memory address", true},
	{"write to a nil map", func(context.Context) error { noMap[1] = 1; return nil }, nil, "nil map", true},
	{"index out of range", func(context.Context) error { var s []int; _ = s[len(s)]; return nil }, nil, "out of range", true},
	{"panic with a bad error", func(context.Context) error { panic(badError{}) }, nil, "badError whose text panicked", true},
	{"Goexit", func(context.Context) error { runtime.Goexit(); return nil }, taskmanager.ErrGoexit, "Goexit", false},
	{"Goexit in a deferred call", func(context.Context) error { defer runtime.Goexit(); return nil }, taskmanager.ErrGoexit, "Goexit", false},
	{"Goexit over a panic", func(context.Context) error { defer runtime.Goexit(); panic("lost") }, taskmanager.ErrGoexit, "Goexit", false},
	{"panic over a panic", func(context.Context) error { defer func() { panic("second") }(); panic("first") }, nil, "second", true},
}

func TestAFailingRunFreesItsTaskAndTheNextTickRuns(t *testing.T) {
	for _, mishap := range mishaps {
		t.Run(mishap.name, func(t *testing.T) {
			w := newWorld(t)
			n := 0
			fn := func(ctx context.Context) error {
				if n++; n <= 3 {
					return mishap.fn(ctx)
				}
				return nil
			}
			h := w.every("a", time.Second, fn, taskmanager.WithBackoffCap(0))
			other := w.every("b", time.Second, nothing)
			w.advance(3 * time.Second)
			s := h.Snapshot()
			if s.Failures != 3 || s.ConsecutiveFailures != 3 || s.InFlight != 0 || s.State != taskmanager.Scheduled {
				t.Errorf("failures %d, in a row %d, in flight %d, %v; want 3, 3, 0, scheduled", s.Failures, s.ConsecutiveFailures, s.InFlight, s.State)
			}
			if mishap.is != nil && !errors.Is(s.LastError, mishap.is) {
				if _, isNil := mishap.is.(*runtime.PanicNilError); !isNil || !errors.As(s.LastError, new(*runtime.PanicNilError)) {
					t.Errorf("LastError = %v, want %v in it", s.LastError, mishap.is)
				}
			}
			if text := s.LastError.Error(); !strings.Contains(text, mishap.text) {
				t.Errorf("LastError = %q, want %q in it", text, mishap.text)
			}
			var p *taskmanager.PanicError
			if is := errors.As(s.LastError, &p); is != mishap.panicked {
				t.Errorf("PanicError = %v, want %v", is, mishap.panicked)
			} else if is && !strings.Contains(string(p.Stack), "failure_test.go") {
				t.Errorf("the stack does not lead to the body:\n%s", p.Stack)
			}
			if want := map[bool]uint64{true: 3}[mishap.panicked]; s.Panics != want {
				t.Errorf("Panics = %d, want %d", s.Panics, want)
			}
			w.advance(time.Second)
			s = h.Snapshot()
			if s.Successes != 1 || s.ConsecutiveFailures != 0 || s.LastError == nil {
				t.Errorf("after a success: %d, in a row %d, LastError %v; want 1, 0 and the last failure's", s.Successes, s.ConsecutiveFailures, s.LastError)
			}
			if got := other.Successes(); got != 4 {
				t.Errorf("the other task has %d runs, want 4", got)
			}
			wantTicks(t, h, taskmanager.Ledger{Ran: 4})
			failing := "WARN task failing a"
			if mishap.panicked {
				failing = "ERROR task panicked a"
			}
			w.wantLog(t, failing, "INFO task recovered a")
			if got := len(w.of("a", taskmanager.KindFailed)); got != 3 {
				t.Errorf("%d failures observed, want 3", got)
			}
		})
	}
}

// With the real clock the bodies are on the pump's own goroutine, which Goexit ends.
func TestNoMishapEndsThePump(t *testing.T) {
	for _, mishap := range mishaps {
		t.Run(mishap.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager()
				defer m.Close()
				for i := range 20 {
					// Some of the tasks are alone at their instant.
					must(m.ScheduleRecurring(fmt.Sprint(i), time.Second+time.Duration(i/10*i)*time.Millisecond, mishap.fn,
						taskmanager.WithJitter(0), taskmanager.WithBackoffCap(0)))
				}
				time.Sleep(4500 * time.Millisecond)
				synctest.Wait()
				for h := range m.Tasks() {
					if s := h.Snapshot(); s.Failures != 4 || s.InFlight != 0 || s.Lateness.Max > time.Millisecond {
						t.Errorf("%s: %d failures, %d in flight, late by up to %v; want 4, 0, at most 1ms", s.Name, s.Failures, s.InFlight, s.Lateness.Max)
					}
				}
				if got := m.Totals().EnginePanics; got != 0 {
					t.Errorf("EnginePanics = %d, want 0", got)
				}
			})
		})
	}
}

func TestAnErrorWhoseMethodsPanicIsAFailureLikeOthers(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", time.Second, func(context.Context) error { return badError{} }, taskmanager.WithBackoffCap(0))
	w.advance(3 * time.Second)
	if s := h.Snapshot(); s.Failures != 3 || s.InFlight != 0 {
		t.Errorf("failures %d, in flight %d, want 3, 0", s.Failures, s.InFlight)
	}
	if _, is := h.LastError().(badError); !is {
		t.Errorf("LastError is a %T, want the body's own error", h.LastError())
	}
	w.wantLog(t, "WARN task failing a")
}

func TestAStoppedRunThatReturnsABadErrorIsAccountedFor(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", time.Second, func(ctx context.Context) error {
		_ = w.clk.Sleep(ctx, time.Hour)
		return badError{}
	})
	w.advance(time.Second)
	w.stop(h)
	w.advance(0)
	if s := h.Snapshot(); s.InFlight != 0 || s.Failures+s.Cancelled != 1 {
		t.Errorf("in flight %d, failures %d, cancelled %d", s.InFlight, s.Failures, s.Cancelled)
	}
}

func TestATimeoutThatTheBodyIgnoresIsReportedOnceAndNamedByShutdown(t *testing.T) {
	w := newWorld(t, taskmanager.WithShutdownGrace(0))
	var cancelledAt []time.Duration
	h := w.every("deaf", 100*time.Millisecond, func(ctx context.Context) error {
		begun := w.clk.Now()
		err := w.clk.Sleep(ctx, time.Second)
		cancelledAt = append(cancelledAt, w.clk.Now().Sub(begun))
		if !errors.Is(err, taskmanager.ErrExecutionTimeout) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended with %v, Err %v", err, ctx.Err())
		}
		_ = w.clk.Sleep(context.WithoutCancel(ctx), time.Second-w.clk.Now().Sub(begun))
		return nil // late, and a failure all the same
	}, taskmanager.WithExecutionTimeout(50*time.Millisecond), taskmanager.WithBackoffCap(0))
	w.advance(140 * time.Millisecond)
	if s := h.Snapshot(); s.Overdue {
		t.Error("overdue before its time is over")
	}
	w.advance(860 * time.Millisecond) // at 1.0 s
	s := h.Snapshot()
	if !s.Overdue || s.InFlight != 1 || s.Runs != 1 || s.Ticks.SkippedRunning != 9 {
		t.Errorf("overdue %v, in flight %d, runs %d, skipped %d; want true, 1, 1, 9", s.Overdue, s.InFlight, s.Runs, s.Ticks.SkippedRunning)
	}
	w.wantLog(t, "WARN task timed out and is still running deaf")
	if got := w.of("deaf", taskmanager.KindOverdue); len(got) != 1 {
		t.Errorf("%d overdue events, want 1", len(got))
	}
	w.advance(200 * time.Millisecond) // ended at 1.1 s, and began again at 1.1 or 1.2 s
	s = h.Snapshot()
	if s.Timeouts != 1 || s.Failures != 1 || s.InFlight != 1 {
		t.Errorf("timeouts %d, failures %d, in flight %d; want 1, 1, 1", s.Timeouts, s.Failures, s.InFlight)
	}
	if !errors.Is(s.LastError, taskmanager.ErrExecutionTimeout) {
		t.Errorf("LastError = %v, want %v", s.LastError, taskmanager.ErrExecutionTimeout)
	}
	w.advance(100 * time.Millisecond)
	if len(cancelledAt) != 2 || cancelledAt[0] != 50*time.Millisecond || cancelledAt[1] != 50*time.Millisecond {
		t.Errorf("cancelled after %v, want 50ms twice", cancelledAt)
	}
	done := make(chan error)
	go func() { done <- w.m.Close() }()
	for {
		select {
		case err := <-done:
			var verdict *taskmanager.ShutdownError
			if !errors.As(err, &verdict) || len(verdict.Abandoned) != 1 || verdict.Abandoned[0].Name != "deaf" {
				t.Errorf("Close = %v, want deaf abandoned", err)
			} else if !strings.Contains(verdict.Abandoned[0].Stack, "failure_test.go") {
				t.Errorf("the stack does not say where it stands:\n%s", verdict.Abandoned[0].Stack)
			}
			return
		default:
			w.advance(time.Nanosecond) // a grace of nothing ends with the next move
		}
	}
}

func TestATimeoutKeepsWhatTheBodyReturnedAsItsCause(t *testing.T) {
	for _, fault := range []struct {
		name string
		err  func(ctx context.Context) error
		is   error
	}{
		{"nil", func(context.Context) error { return nil }, taskmanager.ErrExecutionTimeout},
		{"ctx.Err", func(ctx context.Context) error { return ctx.Err() }, context.DeadlineExceeded},
		{"own", func(context.Context) error { return errBoom }, errBoom},
		{"wrapped", func(ctx context.Context) error { return fmt.Errorf("read: %w", ctx.Err()) }, context.DeadlineExceeded},
	} {
		t.Run(fault.name, func(t *testing.T) {
			w := newWorld(t)
			h := w.every("a", time.Minute, func(ctx context.Context) error {
				_ = w.clk.Sleep(ctx, time.Hour)
				return fault.err(ctx)
			}, taskmanager.WithExecutionTimeout(time.Second))
			w.advance(62 * time.Second)
			if err := h.LastError(); !errors.Is(err, taskmanager.ErrExecutionTimeout) || !errors.Is(err, fault.is) || err.Error() == context.Canceled.Error() {
				t.Errorf("LastError = %v, want %v and %v in it", err, taskmanager.ErrExecutionTimeout, fault.is)
			}
			if s := h.Snapshot(); s.Timeouts != 1 || s.LastDuration != time.Second {
				t.Errorf("timeouts %d, duration %v, want 1, 1s", s.Timeouts, s.LastDuration)
			}
		})
	}
}

func TestEveryOverlappingRunHasATimeLimitOfItsOwn(t *testing.T) {
	w := newWorld(t)
	h := w.ticks("a", time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		err := w.clk.Sleep(ctx, time.Hour)
		w.note("tick %d ended", tick.Index)
		return err
	}, taskmanager.WithNonReentrant(false), taskmanager.WithExecutionTimeout(2500*time.Millisecond), taskmanager.WithBackoffCap(0))
	w.advance(6 * time.Second)
	w.want(t, "3.5s tick 1 ended", "4.5s tick 2 ended", "5.5s tick 3 ended")
	if s := h.Snapshot(); s.Timeouts != 3 || s.InFlight != 3 {
		t.Errorf("timeouts %d, in flight %d, want 3, 3", s.Timeouts, s.InFlight)
	}
}

func TestARunInTimeIsNotCancelledByAnEarlierRunsLimit(t *testing.T) {
	w := newWorld(t)
	n := 0
	h := w.every("a", 100*time.Millisecond, func(ctx context.Context) error {
		n++
		if err := w.clk.Sleep(ctx, time.Duration(n%10)*10*time.Millisecond); err != nil {
			return err
		}
		return ctx.Err()
	}, taskmanager.WithExecutionTimeout(91*time.Millisecond))
	w.advance(10 * time.Second)
	if s := h.Snapshot(); s.Failures != 0 || s.Ticks.Ran != 100 {
		t.Errorf("failures %d, ran %d, want 0, 100 (%v)", s.Failures, s.Ticks.Ran, s.LastError)
	}
}

func TestRunOnceHasARunsPanicRulesAndDiagnostics(t *testing.T) {
	for _, mishap := range mishaps {
		t.Run(mishap.name, func(t *testing.T) {
			w := newWorld(t)
			var err error
			ended := make(chan struct{})
			go func() { // Goexit ends this goroutine
				defer close(ended)
				err = w.m.RunOnce(t.Context(), "once", mishap.fn)
			}()
			<-ended
			w.advance(0)
			if strings.HasPrefix(mishap.name, "Goexit") {
				err = taskmanager.ErrGoexit // nobody is there to return it to
			} else if !strings.Contains(err.Error(), mishap.text) {
				t.Errorf("RunOnce = %v, want %q in it", err, mishap.text)
			}
			totals := w.m.Totals()
			if totals.Runs != 1 || totals.Failures != 1 || totals.Running != 0 || totals.Ticks.Due() != 0 {
				t.Errorf("Totals = %+v, want one failed run and no tick", totals)
			}
			if got := w.of("once", taskmanager.KindFailed); len(got) != 1 || got[0].Index != -1 {
				t.Errorf("observed %+v, want one failure of index -1", got)
			}
		})
	}
	w := newWorld(t)
	if err := w.m.RunOnce(t.Context(), "once", nothing); err != nil {
		t.Errorf("RunOnce = %v, want nil", err)
	}
	if got := w.m.Totals(); got.Successes != 1 || got.Runs != 1 {
		t.Errorf("Totals = %+v, want one success", got)
	}
	for _, call := range []error{w.m.RunOnce(t.Context(), " ", nothing), w.m.RunOnce(t.Context(), "a", nil)} {
		if !errors.Is(call, taskmanager.ErrInvalidOption) {
			t.Errorf("RunOnce = %v, want %v", call, taskmanager.ErrInvalidOption)
		}
	}
}
