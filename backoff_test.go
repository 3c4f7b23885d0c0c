package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
)

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

// rude is a backoff policy that ends the goroutine it is called on.
type rude struct{}

func (rude) NextBackOff() time.Duration { runtime.Goexit(); return 0 }
func (rude) Reset()                     {}

func TestAPolicyThatCallsGoexitHarmsNeitherTicksNorLimits(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	h := w.every("a", time.Second, func(context.Context) error { return errBoom }, taskmanager.WithBackoff(func() backoff.BackOff { return rude{} }))
	other := w.every("b", time.Second, nothing)
	w.advance(10 * time.Second)
	if s := h.Snapshot(); s.Failures != 10 || s.InFlight != 0 || other.Successes() != 10 {
		t.Errorf("failures %d, in flight %d, the other task's runs %d; want 10, 0, 10", s.Failures, s.InFlight, other.Successes())
	}
	w.stop(h)
	select {
	case <-h.Done():
	default:
		t.Error("Done is not closed")
	}
}

// policyFunc is a policy that asks the function.
type policyFunc func() time.Duration

func (p policyFunc) NextBackOff() time.Duration { return p() }
func (p policyFunc) Reset()                     {}

func TestThePolicysTimeIsNoneOfTheNextRunsOfItsBatch(t *testing.T) {
	clk := newHandClock()
	m := newManager(clk.option())
	defer m.Close()
	slow := policyFunc(func() time.Duration { clk.move(time.Second); return 0 })
	noJitter := taskmanager.WithJitter(0)
	must(m.ScheduleRecurring("failing", time.Minute, fails, noJitter, taskmanager.WithBackoff(func() backoff.BackOff { return slow })))
	h := must(m.ScheduleRecurring("next", time.Minute, nothing, noJitter, taskmanager.WithExecutionTimeout(500*time.Millisecond)))
	clk.move(time.Duration(clk.armed() - clk.Mono()))
	clk.ring()
	if s := h.Snapshot(); s.LastError != nil || s.LastDuration != 0 || s.Lateness.Max < time.Second {
		t.Errorf("it took %v, began %v late and ended with %v; want 0, a second, nil", s.LastDuration, s.Lateness.Max, s.LastError)
	}
}

func TestAPolicyThatPanicsEndsItsTaskInOneLineOfWords(t *testing.T) {
	w := newWorld(t)
	asked := policyFunc(func() time.Duration { panic("ouch") })
	h := w.every("a", time.Second, func(context.Context) error { return errBoom }, taskmanager.WithBackoff(func() backoff.BackOff { return asked }))
	w.advance(time.Second)
	err := h.Err()
	var p *taskmanager.PanicError
	if !errors.Is(err, taskmanager.ErrBackoffStop) || !errors.Is(err, errBoom) || !errors.As(err, &p) || p.Value != "ouch" {
		t.Errorf("Err = %v, want the policy's end, its panic and the run's error in it", err)
	}
	if want := "taskmanager: task stopped: taskmanager: backoff policy gave up: it panicked: taskmanager: panic: ouch: boom"; err.Error() != want {
		t.Errorf("Err = %q, want %q", err, want)
	}
}
