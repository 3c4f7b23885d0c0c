package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

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
	{"panic with a string", func(context.Context) error { panic("ouch") }, nil, "taskmanager: task panicked: ouch", true},
	{"panic with an error", func(context.Context) error { panic(errBoom) }, errBoom, "taskmanager: task panicked: boom", true},
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

func TestBackoffIsFullJitterUnderItsCeiling(t *testing.T) {
	w := newWorld(t, taskmanager.WithObserver(nil))
	var shares []float64
	var over int
	for i := range 60 {
		var failedAt time.Time
		n := 0
		w.every(fmt.Sprint(i), time.Millisecond, func(context.Context) error {
			if n++; n > 14 {
				return nil
			}
			if n > 1 && n != 14 { // run 13 succeeds, so run 14 comes at once
				ceiling := min(30*time.Second, time.Second<<min(n-2, 5))
				delay := w.clk.Now().Sub(failedAt)
				if delay > ceiling+time.Millisecond { // the next tick may be one interval away
					over++
				}
				shares = append(shares, float64(delay)/float64(ceiling+time.Millisecond))
			}
			failedAt = w.clk.Now()
			if n == 13 {
				return nil
			}
			return errBoom
		}, taskmanager.WithBackoffCap(30*time.Second), taskmanager.WithMaxRuns(14))
	}
	w.advance(5 * time.Minute)
	if over > 0 || len(shares) != 60*12 {
		t.Errorf("%d of %d delays above their ceiling, want none of %d", over, len(shares), 60*12)
	}
	if got := chiSquare(shares, 10); got > 80 { // 9 degrees of freedom: 1 in 10^13
		t.Errorf("delays are not uniform: chi-square %.1f", got)
	}
}

// chiSquare is the distance of shares in [0, 1] from the uniform distribution.
func chiSquare(shares []float64, bins int) (sum float64) {
	counts := make([]float64, bins)
	for _, s := range shares {
		counts[max(0, min(bins-1, int(s*float64(bins))))]++
	}
	want := float64(len(shares)) / float64(bins)
	for _, c := range counts {
		sum += (c - want) * (c - want) / want
	}
	return sum
}

func TestFullJitterIsUniformBoundedAndNeverOverflows(t *testing.T) {
	p := &taskmanager.FullJitter{Base: time.Second, Cap: 30 * time.Second, MaxPower: math.MaxInt}
	var shares []float64
	for range 5000 {
		p.Reset()
		for n := range 8 {
			ceiling := min(30*time.Second, time.Second<<n)
			d := p.NextBackOff()
			if d < 0 || d > ceiling {
				t.Fatalf("delay %v after failure %d, want in [0, %v]", d, n+1, ceiling)
			}
			shares = append(shares, float64(d)/float64(ceiling))
		}
	}
	if got := chiSquare(shares, 50); got > 180 { // 49 degrees of freedom: 1 in 10^16
		t.Errorf("not uniform: chi-square %.1f", got)
	}
	for _, p := range []taskmanager.FullJitter{
		{Base: time.Second, Cap: math.MaxInt64, MaxPower: math.MaxInt},
		{Base: math.MaxInt64, Cap: math.MaxInt64, MaxPower: 1},
		{Base: 1, Cap: math.MaxInt64, MaxPower: 63},
	} {
		for n := range 100_000 {
			if d := p.NextBackOff(); d < 0 {
				t.Fatalf("%+v: delay %v after failure %d", p, d, n+1)
			}
		}
	}
	for _, p := range []taskmanager.FullJitter{{}, {Base: time.Second}, {Cap: time.Second}, {Base: -1, Cap: -1, MaxPower: -1}} {
		for range 10 {
			if d := p.NextBackOff(); d != 0 {
				t.Errorf("%+v: delay %v, want none", p, d)
			}
		}
	}
}

func TestBackoffDoesNotOverflowAtAHundredThousandFailures(t *testing.T) {
	clk := newHandClock()
	m := newManager(clk.option(), taskmanager.WithBackoffBase(1), taskmanager.WithBackoffMaxPower(math.MaxInt))
	defer m.Close()
	h := must(m.ScheduleRecurring("a", time.Millisecond, func(context.Context) error { return errBoom },
		taskmanager.WithJitter(0), taskmanager.WithBackoffCap(time.Microsecond)))
	clk.run(100 * time.Second)
	if s := h.Snapshot(); s.ConsecutiveFailures != 100_000 || s.Ticks.Due() != 100_000 {
		t.Errorf("%d failures in a row of %+v, want 100000", s.ConsecutiveFailures, s.Ticks)
	}
}

// steady is a backoff policy of always the same delays, the last one for good.
type steady struct {
	delays []time.Duration
	made   *int
}

func (p *steady) NextBackOff() time.Duration {
	d := p.delays[0]
	if len(p.delays) > 1 {
		p.delays = p.delays[1:]
	}
	return d
}
func (p *steady) Reset() {}

func policy(made *int, delays ...time.Duration) taskmanager.TaskOption {
	return taskmanager.WithBackoff(func() backoff.BackOff {
		*made++
		return &steady{delays: delays, made: made}
	})
}

func TestTheLatestTickHeldByBackoffIsServedAtTheFloor(t *testing.T) {
	w := newWorld(t)
	made := 0
	h := w.ticks("a", time.Second, func(_ context.Context, tick taskmanager.Tick) error {
		w.note("tick %d of %v late %v", tick.Index, tick.Scheduled.Sub(w.start), tick.Lateness)
		if tick.Index == 1 {
			return errBoom
		}
		return nil
	}, policy(&made, 3500*time.Millisecond))
	w.advance(2 * time.Second)
	if s := h.Snapshot(); s.State != taskmanager.BackingOff || !s.NextRun.Equal(w.start.Add(4500*time.Millisecond)) || s.Ticks.Pending != 1 {
		t.Errorf("%v, next at %v, %+v; want backing off until 4.5s", s.State, s.NextRun.Sub(w.start), s.Ticks)
	}
	w.advance(4 * time.Second)
	w.want(t, "1s tick 1 of 1s late 0s", "4.5s tick 4 of 4s late 0s", "5s tick 5 of 5s late 0s", "6s tick 6 of 6s late 0s")
	wantTicks(t, h, taskmanager.Ledger{Ran: 4, SkippedBackoff: 2})
	if got := w.ticksOf("a", taskmanager.KindSkippedBackoff); got != 2 {
		t.Errorf("events tell of %d ticks skipped by backoff, want 2", got)
	}
}

func TestABackoffShorterThanTheIntervalLeavesTheGridAlone(t *testing.T) {
	w := newWorld(t)
	made := 0
	h := w.every("a", time.Second, func(context.Context) error { w.note(""); return errBoom }, policy(&made, 300*time.Millisecond))
	w.advance(1100 * time.Millisecond)
	if s := h.Snapshot(); s.State != taskmanager.BackingOff || !s.NextRun.Equal(w.start.Add(2*time.Second)) {
		t.Errorf("%v, next at %v; want backing off, 2s", s.State, s.NextRun.Sub(w.start))
	}
	w.advance(2 * time.Second)
	w.want(t, "1s ", "2s ", "3s ")
	wantTicks(t, h, taskmanager.Ledger{Ran: 3})
	if made != 1 {
		t.Errorf("%d policies made in one streak, want 1", made)
	}
}

func TestBackoffBeginsAtTheGivenFailureAndEndsAtASuccess(t *testing.T) {
	w := newWorld(t)
	made, n := 0, 0
	w.every("a", time.Second, func(context.Context) error {
		w.note("")
		if n++; n == 5 {
			return nil
		}
		return errBoom
	}, policy(&made, 10*time.Second), taskmanager.WithFailuresBeforeBackoff(3))
	w.advance(28 * time.Second)
	w.want(t, "1s ", "2s ", "3s ", "13s ", "23s ", "24s ", "25s ", "26s ")
	if made != 2 {
		t.Errorf("%d policies made, want one for each of 2 streaks", made)
	}
}

func TestAPolicyThatStopsEndsItsTaskAndTheHandleSaysWhy(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy func() backoff.BackOff
	}{
		{"stop", func() backoff.BackOff { return &backoff.StopBackOff{} }},
		{"panic in the constructor", func() backoff.BackOff { panic("no policy") }},
		{"nil policy", func() backoff.BackOff { return nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			h := w.every("a", time.Second, func(context.Context) error { return errBoom }, taskmanager.WithBackoff(test.policy))
			w.advance(10 * time.Second)
			err := h.Err()
			if !errors.Is(err, taskmanager.ErrBackoffStop) || !errors.Is(err, taskmanager.ErrStopped) {
				t.Errorf("Err = %v, want %v and %v in it", err, taskmanager.ErrBackoffStop, taskmanager.ErrStopped)
			}
			if s := h.Snapshot(); s.State != taskmanager.Stopped || s.Runs != 1 || s.Failures != 1 {
				t.Errorf("%v after %d runs, %d failures; want stopped, 1, 1", s.State, s.Runs, s.Failures)
			}
			select {
			case <-h.Done():
			default:
				t.Error("Done is not closed")
			}
			w.every("a", time.Second, nothing)
		})
	}
}

func TestAPolicyThatAsksForANegativeDelayGetsNone(t *testing.T) {
	w := newWorld(t)
	made := 0
	h := w.every("a", time.Second, func(context.Context) error { return errBoom }, policy(&made, -5*time.Second, math.MaxInt64))
	w.advance(10 * time.Second)
	if s := h.Snapshot(); s.Runs != 2 || s.State != taskmanager.BackingOff {
		t.Errorf("%d runs, %v; want 2 and backing off for ever", s.Runs, s.State)
	}
}

func TestStopDuringBackoffTakesEffectAtOnce(t *testing.T) {
	w := newWorld(t)
	made := 0
	h := w.every("a", time.Second, func(context.Context) error { return errBoom }, policy(&made, time.Hour))
	w.advance(10 * time.Second)
	w.stop(h)
	select {
	case <-h.Done():
	default:
		t.Error("Done is not closed")
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: 1, SkippedBackoff: 8, Missed: 1})
	if got := h.State(); got != taskmanager.Stopped {
		t.Errorf("State = %v, want stopped", got)
	}
}

func TestRunNowIgnoresBackoff(t *testing.T) {
	w := newWorld(t)
	made, fail := 0, true
	h := w.every("a", time.Second, func(context.Context) error {
		w.note("")
		if fail {
			return errBoom
		}
		return nil
	}, policy(&made, 10*time.Second))
	w.advance(3500 * time.Millisecond)
	fail = false
	if err := h.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	if s := h.Snapshot(); s.Successes != 1 || s.ConsecutiveFailures != 0 {
		t.Errorf("successes %d, in a row %d, want 1, 0", s.Successes, s.ConsecutiveFailures)
	}
	w.advance(20 * time.Second)
	if s := h.Snapshot(); s.Failures != 1 || s.Successes < 10 {
		t.Errorf("failures %d, successes %d", s.Failures, s.Successes)
	}
}

func TestWithOverlappingRunsTheLatestFloorWins(t *testing.T) {
	w := newWorld(t)
	made := 0
	h := w.ticks("a", time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		w.note("tick %d", tick.Index)
		_ = w.clk.Sleep(ctx, 1500*time.Millisecond)
		return errBoom
	}, policy(&made, 10*time.Second, time.Second), taskmanager.WithNonReentrant(false), taskmanager.WithMaxRuns(3))
	w.advance(20 * time.Second)
	// Runs 1 and 2 end at 2.5 s (floor 12.5 s) and 3.5 s (floor 4.5 s).
	w.want(t, "1s tick 1", "2s tick 2", "12.5s tick 12")
	if h.State() != taskmanager.Complete {
		t.Errorf("State = %v, want complete", h.State())
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
