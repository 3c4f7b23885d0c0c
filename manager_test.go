package taskmanager_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFixedRateStartsOnTheGridWhateverTheRunsTake(t *testing.T) {
	w := newWorld(t)
	w.every("rate", 10*time.Second, func(ctx context.Context) error {
		w.note("")
		return w.clk.Sleep(ctx, 3*time.Second)
	})
	w.advance(100 * time.Second)
	w.want(t, "10s ", "20s ", "30s ", "40s ", "50s ", "1m0s ", "1m10s ", "1m20s ", "1m30s ", "1m40s ")
}

func TestFixedDelayCountsFromTheEndOfTheRun(t *testing.T) {
	w := newWorld(t)
	h := w.every("delay", 10*time.Second, func(ctx context.Context) error {
		w.note("")
		return w.clk.Sleep(ctx, 3*time.Second)
	}, taskmanager.WithFixedDelay())
	w.advance(100 * time.Second)
	w.want(t, "10s ", "23s ", "36s ", "49s ", "1m2s ", "1m15s ", "1m28s ")
	if got, want := h.NextRun(), w.start.Add(101*time.Second); !got.Equal(want) {
		t.Errorf("NextRun = %v, want %v", got, want)
	}
}

func TestNoDriftAfterTenThousandTicks(t *testing.T) {
	w := newWorld(t)
	const interval = 16666667 * time.Nanosecond // a period that no power of two divides
	wrong := 0
	h := w.ticks("world", interval, func(ctx context.Context, tick taskmanager.Tick) error {
		at := w.start.Add(time.Duration(tick.Index) * interval)
		if !w.clk.Now().Equal(at) || !tick.Scheduled.Equal(at) || tick.Lateness != 0 {
			wrong++
		}
		return w.clk.Sleep(ctx, 2*time.Millisecond)
	})
	w.advance(10_000*interval + interval/2)
	if wrong != 0 {
		t.Errorf("%d ticks not at their exact instant", wrong)
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: 10_000})
}

func TestTicksDuringARunAreSkippedAndCounted(t *testing.T) {
	w := newWorld(t)
	at, most := 0, 0
	h := w.every("slow", 10*time.Millisecond, func(ctx context.Context) error {
		at++
		most = max(most, at)
		defer func() { at-- }()
		if w.clk.Now().Sub(w.start)%(10*time.Millisecond) != 0 {
			t.Errorf("start at %v, off the grid", w.clk.Now().Sub(w.start))
		}
		w.note("")
		return w.clk.Sleep(ctx, 55*time.Millisecond)
	})
	w.advance(time.Second)
	if most != 1 {
		t.Errorf("%d bodies at once, want 1", most)
	}
	// A run at 10 ms, at 70 ms and so on to 970 ms; the last one goes on.
	wantTicks(t, h, taskmanager.Ledger{Ran: 17, SkippedRunning: 83})
	if got := w.ticksOf("slow", taskmanager.KindSkippedRunning); got != 83 {
		t.Errorf("events tell of %d skipped ticks, want 83", got)
	}
	if w.lines[1] != "70ms " {
		t.Errorf("first start after the release at %q, want on the grid at 70ms", w.lines[1])
	}
}

// held runs a task of 10 s whose first run takes 47 s.
func held(t *testing.T, policy taskmanager.OverlapPolicy) (*world, *taskmanager.Handle) {
	w := newWorld(t)
	first := true
	h := w.ticks("held", 10*time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		w.note("tick %d of %v, late %v", tick.Index, tick.Scheduled.Sub(w.start), tick.Lateness)
		if first {
			first = false
			return w.clk.Sleep(ctx, 47*time.Second)
		}
		return nil
	}, taskmanager.WithOverlap(policy))
	return w, h
}

func TestCoalesceMakesExactlyOneRunRightAsTheBodyEnds(t *testing.T) {
	w, h := held(t, taskmanager.Coalesce)
	w.advance(70 * time.Second)
	w.want(t,
		"10s tick 1 of 10s, late 0s",
		"57s tick 5 of 50s, late 7s",
		"1m0s tick 6 of 1m0s, late 0s",
		"1m10s tick 7 of 1m10s, late 0s")
	wantTicks(t, h, taskmanager.Ledger{Ran: 4, Coalesced: 3})
	if got := w.ticksOf("held", taskmanager.KindCoalesced); got != 3 {
		t.Errorf("events tell of %d coalesced ticks, want 3", got)
	}
}

func TestCatchUpReplaysTheLatestTicksInOrderAndDropsTheRest(t *testing.T) {
	w, h := held(t, taskmanager.CatchUp(3))
	w.advance(60 * time.Second)
	w.want(t,
		"10s tick 1 of 10s, late 0s",
		"57s tick 3 of 30s, late 27s",
		"57s tick 4 of 40s, late 17s",
		"57s tick 5 of 50s, late 7s",
		"1m0s tick 6 of 1m0s, late 0s")
	wantTicks(t, h, taskmanager.Ledger{Ran: 5, Dropped: 1})
	if got := w.ticksOf("held", taskmanager.KindDropped); got != 1 {
		t.Errorf("events tell of %d dropped ticks, want 1", got)
	}
}

func TestCatchUpServesAStallTickByTick(t *testing.T) {
	w := newWorld(t)
	var served []int64
	h := w.ticks("sim", 10*time.Millisecond, func(_ context.Context, tick taskmanager.Tick) error {
		served = append(served, tick.Index)
		return nil
	}, taskmanager.WithOverlap(taskmanager.CatchUp(4)))
	w.stall(105 * time.Millisecond)
	w.advance(10 * time.Millisecond)
	if want := []int64{6, 7, 8, 9, 10, 11}; !slices.Equal(served, want) {
		t.Errorf("served %v, want %v", served, want)
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: 6, Dropped: 5})
}

func TestHeldTicksAreDecidedWhenTheTaskIsStopped(t *testing.T) {
	w, h := held(t, taskmanager.CatchUp(2))
	w.advance(45 * time.Second)
	wantTicks(t, h, taskmanager.Ledger{Ran: 1, Dropped: 1, Pending: 2})
	w.stop(h)
	w.advance(0)
	wantTicks(t, h, taskmanager.Ledger{Ran: 1, Dropped: 1, Missed: 2})
	if s := h.Snapshot(); s.Cancelled != 1 || s.State != taskmanager.Stopped {
		t.Errorf("after Stop: cancelled %d, state %v, want 1, stopped", s.Cancelled, s.State)
	}
}

func TestReentrantRunsOverlap(t *testing.T) {
	w := newWorld(t)
	var at, most atomic.Int32
	h := w.every("both", 10*time.Second, func(ctx context.Context) error {
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		return w.clk.Sleep(ctx, 25*time.Second)
	}, taskmanager.WithNonReentrant(false))
	w.advance(101 * time.Second)
	if got := most.Load(); got != 3 {
		t.Errorf("%d bodies at once, want 3", got)
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: 10})
	s := h.Snapshot()
	if s.InFlight != 3 || s.Successes != 7 || !s.LastRun.Equal(w.start.Add(100*time.Second)) {
		t.Errorf("in flight %d, successes %d, last start %v; want 3, 7, 1m40s", s.InFlight, s.Successes, s.LastRun.Sub(w.start))
	}
	if s.Lateness.Max != 0 || s.Duration.Max != 25*time.Second {
		t.Errorf("late by up to %v, took up to %v; want 0, 25s", s.Lateness.Max, s.Duration.Max)
	}
}

func TestAnEarlyTimerFiresNothingAndTheInstantFiresOnce(t *testing.T) {
	clk := newHandClock()
	m := must(taskmanager.New(clk.option()))
	defer m.Close()
	start, _ := clk.Now()
	var served []string
	h := must(m.ScheduleTicks("a", 10*time.Second, func(_ context.Context, tick taskmanager.Tick) error {
		served = append(served, fmt.Sprint(tick.Index, " ", tick.Scheduled.Sub(start)))
		return nil
	}, taskmanager.WithJitter(0)))
	for i := range 3 {
		clk.move(10*time.Second - 3*time.Millisecond)
		clk.ring() // early
		if got := len(served); got != i {
			t.Fatalf("%d runs 3 ms before instant %d, want %d", got, i+1, i)
		}
		clk.move(3 * time.Millisecond)
		clk.ring()
		clk.ring() // nothing is due twice
		clk.move(400 * time.Microsecond)
		clk.ring()
		clk.move(-400 * time.Microsecond)
		if want := start.Add(time.Duration(i+2) * 10 * time.Second); !h.NextRun().Equal(want) {
			t.Errorf("NextRun = %v, want %v", h.NextRun(), want)
		}
	}
	if want := []string{"1 10s", "2 20s", "3 30s"}; !slices.Equal(served, want) {
		t.Errorf("served %q, want %q", served, want)
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: 3})
}

// A stuck body is on the very goroutine that was to run the others.
func TestAStuckTaskHoldsUpNobodyInItsOwnBatch(t *testing.T) {
	clk := newHandClock()
	m := must(taskmanager.New(clk.option()))
	defer m.Close()
	stuck, release := make(chan struct{}), make(chan struct{})
	_ = must(m.ScheduleRecurring("stuck", time.Second, func(context.Context) error {
		close(stuck)
		<-release
		return nil
	}, taskmanager.WithJitter(0), taskmanager.WithMaxRuns(1)))
	var others []*taskmanager.Handle
	for i := range 100 {
		others = append(others, must(m.ScheduleRecurring(fmt.Sprint(i), time.Second, nothing, taskmanager.WithJitter(0))))
	}
	clk.move(time.Duration(clk.armed() - clk.Mono()))
	first := make(chan struct{})
	go func() {
		defer close(first)
		clk.ring()
	}()
	<-stuck
	next := time.Duration(clk.armed() - clk.Mono())
	if next > 2*time.Millisecond {
		t.Fatalf("the engine wakes up again in %v, with runs left", next)
	}
	clk.move(next)
	clk.ring()
	for _, h := range others {
		if got := h.Successes(); got != 1 {
			t.Fatalf("%s: %d runs beside a stuck one, want 1", h.Name(), got)
		}
		if l := h.Lateness(); l.Max > 3*time.Millisecond {
			t.Errorf("%s: late by %v", h.Name(), l.Max)
		}
	}
	close(release)
	<-first
}

func TestTimerSlackDelaysNoRescue(t *testing.T) {
	clk := newHandClock()
	m := newManager(clk.option(), taskmanager.WithTimerSlack(time.Second))
	defer m.Close()
	stuck, release := make(chan struct{}), make(chan struct{})
	must(m.ScheduleRecurring("stuck", time.Minute, func(context.Context) error {
		close(stuck)
		<-release
		return nil
	}, taskmanager.WithJitter(0), taskmanager.WithMaxRuns(1)))
	beside := must(m.ScheduleRecurring("beside", time.Minute, nothing, taskmanager.WithJitter(0)))
	must(m.ScheduleRecurring("next", time.Minute+200*time.Microsecond, nothing, taskmanager.WithJitter(0)))
	clk.move(time.Duration(clk.armed() - clk.Mono()))
	first := make(chan struct{})
	go func() {
		defer close(first)
		clk.ring()
	}()
	<-stuck
	clk.run(2 * time.Millisecond)
	if got := beside.Successes(); got != 1 {
		t.Errorf("%d runs two milliseconds after the instant, beside a stuck one; want 1", got)
	}
	close(release)
	<-first
}

func TestAStuckTaskChangesNoLatenessOfTenThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(taskmanager.New())
		defer m.Shutdown(t.Context())
		stuck := must(m.ScheduleRecurring("stuck", 10*time.Second, func(ctx context.Context) error {
			time.Sleep(time.Minute)
			return nil
		}, taskmanager.WithJitter(0)))
		var fast []*taskmanager.Handle
		for i := range 10_000 {
			fast = append(fast, must(m.ScheduleRecurring(fmt.Sprint(i), 20*time.Second, nothing, taskmanager.WithJitter(0))))
		}
		time.Sleep(65 * time.Second)
		if !stuck.IsRunning() {
			t.Fatal("the slow run has ended already")
		}
		for _, h := range fast {
			// A burst is served at the end of its slot, 262 µs, and the run that is stuck
			// in it costs the others a millisecond, once.
			if s := h.Snapshot(); s.Successes != 3 || s.Lateness.Max > 2*time.Millisecond {
				t.Fatalf("%s: %d runs, late by up to %v, want 3 within 2ms", s.Name, s.Successes, s.Lateness.Max)
			}
		}
	})
}

func TestARealClockWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(taskmanager.New())
		defer m.Close()
		start := time.Now()
		var at []time.Duration
		h := must(m.ScheduleRecurring("a", time.Hour, func(context.Context) error {
			at = append(at, time.Since(start))
			return nil
		}, taskmanager.WithJitter(0), taskmanager.WithPrecise()))
		time.Sleep(3*time.Hour + time.Second)
		synctest.Wait()
		if want := []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour}; !slices.Equal(at, want) {
			t.Errorf("runs at %v, want %v", at, want)
		}
		wantTicks(t, h, taskmanager.Ledger{Ran: 3})
	})
}

func TestAStallIsOneLateRunThenTheGrid(t *testing.T) {
	w := newWorld(t)
	h := w.ticks("a", time.Second, func(_ context.Context, tick taskmanager.Tick) error {
		w.note("tick %d late %v", tick.Index, tick.Lateness)
		return nil
	})
	w.stall(2*time.Hour + 300*time.Millisecond)
	w.advance(time.Second)
	w.want(t, "2h0m0.3s tick 7200 late 300ms", "2h0m1s tick 7201 late 0s")
	wantTicks(t, h, taskmanager.Ledger{Ran: 2, Missed: 7199})
	if got := w.ticksOf("a", taskmanager.KindMissed); got != 7199 {
		t.Errorf("events tell of %d missed ticks, want 7199", got)
	}
}

func TestJitterMovesTheWholeGrid(t *testing.T) {
	w := newWorld(t)
	offsets := map[time.Duration]bool{}
	for i := range 50 {
		var first time.Duration
		w.ticks(fmt.Sprint(i), 10*time.Second, func(_ context.Context, tick taskmanager.Tick) error {
			at := w.clk.Now().Sub(w.start)
			if tick.Index == 1 {
				first = at
				offsets[at] = true
				if at < 10*time.Second || at >= 12*time.Second {
					t.Errorf("first tick at %v, want in [10s, 12s)", at)
				}
			} else if at != first+time.Duration(tick.Index-1)*10*time.Second {
				t.Errorf("tick %d at %v, the first at %v", tick.Index, at, first)
			}
			return nil
		}, taskmanager.WithJitter(2*time.Second))
	}
	w.advance(32 * time.Second)
	if len(offsets) < 45 {
		t.Errorf("50 tasks have %d different offsets", len(offsets))
	}
}

func TestAThousandRepeatsOfReentrantCallsGiveEqualTraces(t *testing.T) {
	var first []string
	for i := range 1000 {
		t.Run("", func(t *testing.T) {
			w := newWorld(t)
			w.others = true
			var child atomic.Pointer[taskmanager.Handle]
			w.every("parent", 10*time.Millisecond, func(ctx context.Context) error {
				w.note("parent")
				if h := child.Load(); h != nil {
					h.Stop()
				}
				h, err := w.m.ScheduleRecurring("child", 3*time.Millisecond, func(ctx context.Context) error {
					w.note("child")
					return w.clk.Sleep(ctx, 4*time.Millisecond)
				}, taskmanager.WithJitter(0), taskmanager.WithOverlap(taskmanager.Coalesce))
				child.Store(h)
				return err
			})
			w.every("changing", 7*time.Millisecond, func(context.Context) error {
				w.note("changing")
				if h, ok := w.m.Lookup("child"); ok {
					return h.Reschedule(2 * time.Millisecond)
				}
				return nil
			})
			w.advance(60 * time.Millisecond)
			if i == 0 {
				first = w.lines
			}
			w.want(t, first...)
		})
	}
	if len(first) < 20 {
		t.Errorf("only %d lines in a trace: %q", len(first), first)
	}
}

func TestSeveralManagersLiveOnOneClock(t *testing.T) {
	clk := tasktest.NewClock(t)
	var order []string
	var managers []*taskmanager.TaskManager
	for i := range 3 {
		m := must(taskmanager.New(clk.Option()))
		managers = append(managers, m)
		must(m.ScheduleRecurring("a", time.Second, func(context.Context) error {
			order = append(order, fmt.Sprint(i))
			return nil
		}, taskmanager.WithJitter(0)))
	}
	clk.Advance(2 * time.Second)
	clk.Close(managers...)
	if want := []string{"0", "1", "2", "0", "1", "2"}; !slices.Equal(order, want) {
		t.Errorf("runs of managers %v, want %v", order, want)
	}
}

// On the real clock: no time is asserted.
func TestAPreciseTaskRunsAllItsTicksHoweverItsRunsEnd(t *testing.T) {
	for _, mishap := range mishaps {
		m := newManager()
		h := must(m.ScheduleRecurring("a", 2*time.Millisecond, mishap.fn, taskmanager.WithPrecise(), taskmanager.WithJitter(0),
			taskmanager.WithBackoffCap(0), taskmanager.WithMaxRuns(5)))
		<-h.Done()
		if s := h.Snapshot(); s.Failures != 5 || s.State != taskmanager.Complete {
			t.Errorf("%s: %d failures, %v; want 5, complete", mishap.name, s.Failures, s.State)
		}
		_ = m.Close()
	}
}

func TestTimerSlackSpacesWakeUpsAndLosesNoTick(t *testing.T) {
	const slack = 5 * time.Millisecond
	clk := newHandClock()
	m := newManager(clk.option(), taskmanager.WithTimerSlack(slack))
	defer m.Close()
	var handles []*taskmanager.Handle
	for i := range 20 {
		handles = append(handles, must(m.ScheduleRecurring(fmt.Sprint(i), time.Duration(100+i)*time.Millisecond, nothing, taskmanager.WithJitter(0))))
	}
	last := int64(math.MinInt64 / 2)
	for clk.Mono() < int64(10*time.Second) {
		clk.move(time.Duration(clk.armed() - clk.Mono()))
		if gap := time.Duration(clk.Mono() - last); gap < slack {
			t.Fatalf("woken %v after the last time, want at least %v", gap, slack)
		}
		last = clk.Mono()
		clk.ring()
	}
	for _, h := range handles {
		if s := h.Snapshot(); s.Ticks.Ran < uint64(10*time.Second/h.Interval())-1 || s.Ticks.Missed > 0 || s.Lateness.Max > slack+time.Millisecond {
			t.Errorf("%s: %+v, late by up to %v", s.Name, s.Ticks, s.Lateness.Max)
		}
	}
}
