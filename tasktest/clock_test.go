package tasktest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A trace writes down what happened, with the time on the clock.
type trace struct {
	now   func() time.Time
	start time.Time
	lines []string
}

func newTrace(now func() time.Time) *trace { return &trace{now: now, start: now()} }

func (tr *trace) add(what string) {
	tr.lines = append(tr.lines, fmt.Sprintf("%v %s", tr.now().Sub(tr.start), what))
}

func (tr *trace) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(tr.lines, want) {
		t.Errorf("trace = %q,\nwant    %q", tr.lines, want)
	}
}

func schedule(t *testing.T, m *taskmanager.TaskManager, name string, interval time.Duration, fn taskmanager.Func, opts ...taskmanager.TaskOption) *taskmanager.Handle {
	t.Helper()
	h, err := m.ScheduleRecurring(name, interval, fn, append([]taskmanager.TaskOption{taskmanager.WithJitter(0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAdvanceStartsRunsAtTheirInstantsInOrder(t *testing.T) {
	m, clk := tasktest.New(t)
	tr := newTrace(clk.Now)
	for _, task := range []struct {
		name     string
		interval time.Duration
	}{{"b", 2 * time.Second}, {"a", 2 * time.Second}, {"c", 3 * time.Second}} {
		schedule(t, m, task.name, task.interval, func(context.Context) error { tr.add(task.name); return nil })
	}
	clk.Advance(6 * time.Second)
	tr.want(t, "2s b", "2s a", "3s c", "4s b", "4s a", "6s b", "6s a", "6s c")
}

func TestSleepParksARunAndTimeGoesOn(t *testing.T) {
	m, clk := tasktest.New(t)
	tr := newTrace(clk.Now)
	schedule(t, m, "slow", 10*time.Second, func(ctx context.Context) error {
		tr.add("begin")
		err := clk.Sleep(ctx, 3*time.Second)
		tr.add("end")
		return err
	})
	clk.Advance(25 * time.Second)
	tr.want(t, "10s begin", "13s end", "20s begin", "23s end")
}

func TestSleepEndsWithTheContext(t *testing.T) {
	m, clk := tasktest.New(t)
	var err error
	h := schedule(t, m, "limited", time.Minute, func(ctx context.Context) error {
		err = clk.Sleep(ctx, time.Hour)
		return err
	}, taskmanager.WithExecutionTimeout(5*time.Second))
	clk.Advance(65 * time.Second)
	if !errors.Is(err, taskmanager.ErrExecutionTimeout) {
		t.Errorf("Sleep = %v, want %v", err, taskmanager.ErrExecutionTimeout)
	}
	if got := h.Timeouts(); got != 1 {
		t.Errorf("Timeouts = %d, want 1", got)
	}
}

func TestGateHoldsRunsUntilOpened(t *testing.T) {
	m, clk := tasktest.New(t)
	gate := clk.NewGate()
	h := schedule(t, m, "held", time.Second, func(ctx context.Context) error { return gate.Wait(ctx) })
	clk.Advance(3 * time.Second)
	if !h.IsRunning() {
		t.Fatal("the run did not wait for the gate")
	}
	gate.Open()
	if s := h.Snapshot(); s.InFlight != 0 || s.Successes != 1 {
		t.Errorf("after Open: in flight %d, successes %d, want 0, 1", s.InFlight, s.Successes)
	}
}

func TestStallMakesOneLateRun(t *testing.T) {
	m, clk := tasktest.New(t)
	tr := newTrace(clk.Now)
	h := schedule(t, m, "a", time.Second, func(context.Context) error { tr.add("a"); return nil })
	clk.Stall(4500 * time.Millisecond)
	clk.Advance(time.Second)
	tr.want(t, "4.5s a", "5s a")
	if got := h.Ticks(); got.Ran != 2 || got.Missed != 3 {
		t.Errorf("Ticks = %+v, want 2 ran and 3 missed", got)
	}
}

func TestStepWallMovesNoIntervalTask(t *testing.T) {
	m, clk := tasktest.New(t)
	runs := 0
	schedule(t, m, "a", time.Second, func(context.Context) error { runs++; return nil })
	start := clk.Now()
	clk.StepWall(-time.Hour)
	clk.Advance(10 * time.Second)
	clk.StepWall(2 * time.Hour)
	clk.Advance(10 * time.Second)
	if runs != 20 {
		t.Errorf("%d runs in 20 s, want 20", runs)
	}
	if got, want := clk.Now().Sub(start), time.Hour+20*time.Second; got != want {
		t.Errorf("wall moved by %v, want %v", got, want)
	}
}

func TestClosingEndsWhatIsParked(t *testing.T) {
	ended := make(chan error, 1)
	t.Run("inner", func(t *testing.T) {
		m, clk := tasktest.New(t)
		schedule(t, m, "deaf", time.Second, func(ctx context.Context) error {
			err := clk.Sleep(context.WithoutCancel(ctx), 24*time.Hour)
			ended <- err
			return err
		})
		clk.Advance(time.Second)
	})
	if err := <-ended; !errors.Is(err, tasktest.ErrClosed) {
		t.Errorf("Sleep = %v, want %v", err, tasktest.ErrClosed)
	}
}

func TestInABubbleAnyDurableWaitParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, clk := tasktest.New(t)
		release := make(chan struct{})
		h := schedule(t, m, "waits", time.Second, func(context.Context) error { <-release; return nil })
		clk.Advance(3 * time.Second)
		if got := h.Ticks(); got.Ran != 1 || got.SkippedRunning != 2 {
			t.Errorf("Ticks = %+v, want 1 ran and 2 skipped", got)
		}
		close(release)
		clk.Advance(time.Second)
		if got := h.Successes(); got != 2 {
			t.Errorf("Successes = %d, want 2", got)
		}
	})
}

func TestAdvanceMockIsExactAndOrdered(t *testing.T) {
	mock := clock.NewMock()
	m, err := taskmanager.New(taskmanager.WithClock(mock))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tr := newTrace(mock.Now)
	schedule(t, m, "b", 2*time.Second, func(context.Context) error { tr.add("b"); return nil })
	schedule(t, m, "a", 2*time.Second, func(context.Context) error { tr.add("a"); return nil })
	schedule(t, m, "c", 3*time.Second, func(context.Context) error { tr.add("c"); return nil })
	tasktest.AdvanceMock(t, m, mock, 6*time.Second)
	tr.want(t, "2s b", "2s a", "3s c", "4s b", "4s a", "6s b", "6s a", "6s c")
}

func TestAdvanceMockSettlesWhatFallsDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := clock.NewMock()
		m, err := taskmanager.New(taskmanager.WithClock(mock))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		tr := newTrace(mock.Now)
		now := func(name string) {
			schedule(t, m, name, time.Hour, func(context.Context) error { tr.add(name); return nil }, taskmanager.WithImmediately())
		}
		h := schedule(t, m, "by hand", time.Hour, func(context.Context) error {
			time.Sleep(time.Second) // the Mock has arrived, and the others are awaited
			now("by a run")
			return nil
		})
		now("at first")
		tasktest.AdvanceMock(t, m, mock, time.Second)
		if err := h.RunNow(); err != nil {
			t.Fatal(err)
		}
		tasktest.AdvanceMock(t, m, mock, 0)
		tr.want(t, "0s at first", "1s by a run")
	})
}

func TestThePlainMockLosesNoTick(t *testing.T) {
	mock := clock.NewMock()
	m, err := taskmanager.New(taskmanager.WithClock(mock))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ran := make(chan struct{}, 100)
	h := schedule(t, m, "a", time.Second, func(context.Context) error { ran <- struct{}{}; return nil })
	for range 10 {
		mock.Add(time.Second)
		<-ran
	}
	if got := h.Ticks().Due(); got != 10 {
		t.Errorf("Due = %d, want 10", got)
	}
}

func TestAThousandRepeatsGiveEqualTraces(t *testing.T) {
	var first []string
	for i := range 1000 {
		t.Run("", func(t *testing.T) {
			m, clk := tasktest.New(t)
			tr := newTrace(clk.Now)
			for _, name := range []string{"x", "y", "z"} {
				schedule(t, m, name, 10*time.Millisecond, func(ctx context.Context) error {
					tr.add(name)
					return clk.Sleep(ctx, 15*time.Millisecond)
				}, taskmanager.WithOverlap(taskmanager.Coalesce))
			}
			clk.Advance(100 * time.Millisecond)
			if i == 0 {
				first = tr.lines
			}
			tr.want(t, first...)
		})
	}
}

func BenchmarkTicks(b *testing.B) {
	m, clk := tasktest.New(b)
	_, err := m.ScheduleRecurring("a", time.Millisecond, func(context.Context) error { return nil }, taskmanager.WithJitter(0))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	clk.Advance(time.Duration(b.N) * time.Millisecond)
}

func TestAdvanceGoesNoFurtherThanTimeDoes(t *testing.T) {
	for name, move := range map[string]func(*tasktest.Clock, time.Duration){"Advance": (*tasktest.Clock).Advance, "Stall": (*tasktest.Clock).Stall} {
		m, clk := tasktest.New(t)
		runs, from := 0, clk.Now()
		if _, err := m.ScheduleRecurring("a", time.Second, func(context.Context) error { runs++; return nil },
			taskmanager.WithMaxRuns(1), taskmanager.WithJitter(0)); err != nil {
			t.Fatal(err)
		}
		move(clk, math.MaxInt64)
		if gone := clk.Now().Sub(from); runs != 1 || gone < math.MaxInt64-1 {
			t.Errorf("%s: %d runs, the clock has moved by %v", name, runs, gone)
		}
	}
}

func TestCloseWaitsInABubbleForNothingThatIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, clk := tasktest.New(t)
		release := make(chan struct{})
		if _, err := m.ScheduleRecurring("a", time.Second, func(context.Context) error { <-release; return nil }, taskmanager.WithJitter(0)); err != nil {
			t.Fatal(err)
		}
		clk.Advance(time.Second)
		before := time.Now()
		clk.Close(m)
		if took := time.Since(before); took != 0 {
			t.Errorf("Close took %v", took)
		}
		close(release)
	})
}

// A brokenTB is a test that can fail without anybody's harm.
type brokenTB struct {
	testing.TB
	said     string
	cleanups []func()
}

func (b *brokenTB) Helper()          {}
func (b *brokenTB) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }
func (b *brokenTB) Fatalf(form string, args ...any) {
	b.said = fmt.Sprintf(form, args...)
	runtime.Goexit()
}

func TestARunThatWaitsForSomethingElseFailsItsTestAndNoMore(t *testing.T) {
	b := &brokenTB{}
	m, clk := tasktest.New(b)
	clk.SetPatience(10 * time.Millisecond)
	release := make(chan struct{})
	if _, err := m.ScheduleRecurring("a", time.Second, func(context.Context) error { <-release; return nil }, taskmanager.WithJitter(0)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { clk.Advance(time.Second) })
	wg.Wait()
	if !strings.Contains(b.said, "no progress") || !strings.Contains(b.said, "clock_test.go") {
		t.Errorf("the test was ended with %.200q, want it to say where the run waits", b.said)
	}
	for _, f := range b.cleanups {
		f() // does not wait for the run
	}
	close(release)
}

func TestAMoveBackFailsItsTest(t *testing.T) {
	for name, move := range map[string]func(*tasktest.Clock, time.Duration){"Advance": (*tasktest.Clock).Advance, "Stall": (*tasktest.Clock).Stall} {
		b := &brokenTB{}
		clk := tasktest.NewClock(b)
		from := clk.Now()
		var wg sync.WaitGroup
		wg.Go(func() { move(clk, -1) })
		wg.Wait()
		if want := "tasktest: " + name + "(-1ns): time does not go back"; !strings.HasPrefix(b.said, want) {
			t.Errorf("the test was ended with %q, want %q", b.said, want)
		}
		if got := clk.Now(); !got.Equal(from) {
			t.Errorf("%s: the clock went from %v to %v", name, from, got)
		}
		clk.Close()
	}
}

func TestCloseEndsTheGraceThoughSomebodyGoesOnSleeping(t *testing.T) {
	m, clk := tasktest.New(t)
	if _, err := m.ScheduleRecurring("a", time.Second, func(ctx context.Context) error {
		_ = clk.Sleep(ctx, time.Hour)
		for {
			if err := clk.Sleep(context.WithoutCancel(ctx), 100*time.Millisecond); err != nil {
				return err
			}
		}
	}, taskmanager.WithJitter(0)); err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Second)
	clk.Close(m)
}

// RunOnce is a piece of work of its own, unless it is called on a run's goroutine.
func TestAdvanceWaitsForRunOnceWhereverItIsCalled(t *testing.T) {
	m, clk := tasktest.New(t)
	add := func(name string, fn taskmanager.Func) {
		t.Helper()
		if _, err := m.ScheduleRecurring(name, time.Second, fn, taskmanager.WithJitter(0), taskmanager.WithMaxRuns(1)); err != nil {
			t.Fatal(err)
		}
	}
	sleeps := func(ctx context.Context) error { return clk.Sleep(ctx, time.Hour) }
	parked := make(chan struct{})
	add("with its context, elsewhere", func(ctx context.Context) error {
		go func() {
			_ = m.RunOnce(ctx, "aside", func(ctx context.Context) error { close(parked); return sleeps(ctx) })
		}()
		<-parked
		return nil
	})
	add("with another context, here", func(context.Context) error { return m.RunOnce(context.Background(), "inside", sleeps) })
	clk.Advance(time.Second)
	ended := false
	add("takes its time", func(context.Context) error {
		for range 1000 {
			runtime.Gosched()
		}
		ended = true
		return nil
	})
	clk.Advance(time.Second)
	if !ended {
		t.Error("Advance has not waited for a run")
	}
}
