package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// sleeper is a body that takes d, and notes its name when it starts.
func (w *world) sleeper(name string, d time.Duration) taskmanager.Func {
	return func(ctx context.Context) error {
		w.note("%s", name)
		return w.clk.Sleep(ctx, d)
	}
}

func TestOverALimitTasksWaitInOrderOfDueTime(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.every("c", 4*time.Second, w.sleeper("c", 10*time.Second), taskmanager.WithMaxRuns(1))
	w.every("b", 3*time.Second, w.sleeper("b", 10*time.Second), taskmanager.WithMaxRuns(1))
	w.every("a", 2*time.Second, w.sleeper("a", 10*time.Second), taskmanager.WithMaxRuns(1))
	w.every("d", 4*time.Second, w.sleeper("d", 10*time.Second), taskmanager.WithMaxRuns(1))
	w.advance(time.Minute)
	w.want(t, "2s a", "12s b", "22s c", "32s d")
}

func TestATaskHoldsOnePlaceInTheQueueAndItsFurtherTicksAreMissed(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.every("long", time.Second, w.sleeper("long", 10*time.Second), taskmanager.WithMaxRuns(1))
	h := w.ticks("waits", 2*time.Second, func(_ context.Context, tick taskmanager.Tick) error {
		w.note("tick %d late %v", tick.Index, tick.Lateness)
		return nil
	})
	w.advance(5 * time.Second)
	wantTicks(t, h, taskmanager.Ledger{Missed: 1, Pending: 1})
	if s := h.Snapshot(); s.InFlight != 0 || s.Runs != 0 {
		t.Errorf("waiting: in flight %d, runs %d, want 0, 0", s.InFlight, s.Runs)
	}
	w.advance(8 * time.Second)
	w.want(t, "1s long", "11s tick 1 late 9s", "12s tick 6 late 0s")
	wantTicks(t, h, taskmanager.Ledger{Ran: 2, Missed: 4})
	if got := w.ticksOf("waits", taskmanager.KindMissed); got != 4 {
		t.Errorf("events tell of %d missed ticks, want 4", got)
	}
}

func TestSkipOverLimitSkipsAndCounts(t *testing.T) {
	w := newWorld(t, taskmanager.WithTagLimit("x", 1))
	w.every("long", time.Second, w.sleeper("long", 10*time.Second), taskmanager.WithMaxRuns(1), taskmanager.WithTag("x"))
	h := w.every("skips", 2*time.Second, w.sleeper("skips", 0), taskmanager.WithTag("x"), taskmanager.WithSkipOverLimit())
	w.advance(5 * time.Second)
	if err := h.RunNow(); !errors.Is(err, taskmanager.ErrLimitReached) {
		t.Errorf("RunNow = %v, want %v", err, taskmanager.ErrLimitReached)
	}
	w.advance(9 * time.Second)
	w.want(t, "1s long", "12s skips", "14s skips")
	wantTicks(t, h, taskmanager.Ledger{Ran: 2, SkippedLimit: 5})
	if got := w.ticksOf("skips", taskmanager.KindSkippedLimit); got != 5 {
		t.Errorf("events tell of %d ticks skipped, want 5", got)
	}
	if err := h.RunNow(); err != nil {
		t.Errorf("RunNow under the limit = %v", err)
	}
}

func TestRunNowOverALimitWaitsItsTurn(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.every("long", time.Second, w.sleeper("long", 10*time.Second), taskmanager.WithMaxRuns(1))
	h := w.every("a", time.Hour, w.sleeper("a", 0))
	w.advance(2 * time.Second)
	if err := h.RunNow(); err != nil {
		t.Errorf("RunNow = %v, want nil: it waits", err)
	}
	if err := h.RunNow(); !errors.Is(err, taskmanager.ErrAlreadyRunning) {
		t.Errorf("RunNow beside one that waits = %v, want %v", err, taskmanager.ErrAlreadyRunning)
	}
	w.advance(20 * time.Second)
	w.want(t, "1s long", "11s a")
	wantTicks(t, h, taskmanager.Ledger{})
}

func TestARunThatWaitsAtOneLimitHoldsNoPlaceAtAnother(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(2), taskmanager.WithTagLimit("x", 1))
	tag := taskmanager.WithTag("x")
	w.every("x1", time.Second, w.sleeper("x1", 10*time.Second), tag, taskmanager.WithMaxRuns(1))
	w.every("x2", 2*time.Second, w.sleeper("x2", 10*time.Second), tag, taskmanager.WithMaxRuns(1))
	w.every("free", 3*time.Second, w.sleeper("free", 5*time.Second), taskmanager.WithMaxRuns(1))
	w.every("waits", 4*time.Second, w.sleeper("waits", 10*time.Second), taskmanager.WithMaxRuns(1))
	w.advance(time.Minute)
	w.want(t, "1s x1", "3s free", "8s waits", "11s x2")
}

func TestStopAndPauseWhileWaitingGiveUpThePlace(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.every("long", time.Second, w.sleeper("long", 10*time.Second), taskmanager.WithMaxRuns(1))
	stopped := w.every("stopped", 2*time.Second, w.sleeper("stopped", 0))
	paused := w.every("paused", 3*time.Second, w.sleeper("paused", 0))
	w.every("last", 4*time.Second, w.sleeper("last", 0), taskmanager.WithMaxRuns(1))
	w.advance(5 * time.Second)
	w.stop(stopped)
	if err := paused.Pause(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stopped.Done():
	default:
		t.Error("a task that was stopped while it waited is not done")
	}
	w.advance(10 * time.Second)
	w.want(t, "1s long", "11s last")
	wantTicks(t, stopped, taskmanager.Ledger{Missed: 2})
	wantTicks(t, paused, taskmanager.Ledger{SkippedPaused: 5})
	if err := paused.Resume(); err != nil {
		t.Fatal(err)
	}
	w.advance(3 * time.Second)
	w.want(t, "1s long", "11s last", "18s paused")
}

func TestWaitingIsNotCountedInTheTimeLimit(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.every("long", time.Second, w.sleeper("long", 10*time.Second), taskmanager.WithMaxRuns(1))
	h := w.every("a", 2*time.Second, func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(w.clk.Now().Add(5*time.Second)) {
			t.Errorf("deadline %v at %v, want 5 s later", deadline, w.clk.Now())
		}
		return w.clk.Sleep(ctx, 4*time.Second)
	}, taskmanager.WithExecutionTimeout(5*time.Second), taskmanager.WithMaxRuns(1))
	w.advance(time.Minute)
	if s := h.Snapshot(); s.Successes != 1 || s.LastDuration != 4*time.Second || s.Lateness.Max != 9*time.Second {
		t.Errorf("successes %d, took %v, late by %v; want 1, 4s, 9s", s.Successes, s.LastDuration, s.Lateness.Max)
	}
}

func TestOverlappingRunsKeepToALimitToo(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(2))
	at, most := 0, 0
	h := w.every("both", 10*time.Second, func(ctx context.Context) error {
		at++
		most = max(most, at)
		w.note("start")
		err := w.clk.Sleep(ctx, 45*time.Second)
		at--
		return err
	}, taskmanager.WithNonReentrant(false))
	w.advance(51 * time.Second)
	// The tick of 30 s waits, those of 40 s and 50 s are missed.
	wantTicks(t, h, taskmanager.Ledger{Ran: 2, Missed: 2, Pending: 1})
	w.advance(10 * time.Second)
	w.want(t, "10s start", "20s start", "55s start")
	w.advance(time.Hour)
	if most != 2 {
		t.Errorf("%d runs at once, want 2", most)
	}
	if err := h.Pause(); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	other := w.every("other", time.Second, nothing)
	w.advance(10 * time.Second)
	if got := other.Successes(); got != 10 {
		t.Errorf("%d runs with free places, want 10", got)
	}
}

func TestNoPlaceIsLostHoweverARunEnds(t *testing.T) {
	for _, mishap := range mishaps {
		t.Run(mishap.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager(taskmanager.WithMaxConcurrentRuns(2), taskmanager.WithTagLimit("x", 1))
				defer m.Close()
				opts := []taskmanager.TaskOption{taskmanager.WithJitter(0), taskmanager.WithTag("x"), taskmanager.WithBackoffCap(0)}
				bad := must(m.ScheduleRecurring("bad", time.Second, mishap.fn, append(opts, taskmanager.WithExecutionTimeout(time.Minute))...))
				late := must(m.ScheduleRecurring("late", time.Second, func(ctx context.Context) error {
					<-ctx.Done()
					return mishap.fn(ctx)
				}, append(opts, taskmanager.WithExecutionTimeout(100*time.Millisecond))...))
				good := must(m.ScheduleRecurring("good", time.Second, nothing, opts...))
				time.Sleep(10500 * time.Millisecond)
				stopped := must(m.ScheduleRecurring("stopped", time.Second, func(ctx context.Context) error {
					<-ctx.Done()
					return mishap.fn(ctx)
				}, opts...))
				time.Sleep(10 * time.Second)
				stopped.Stop()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if b, l, g := bad.Failures(), late.Timeouts(), good.Successes(); b < 20 || l < 20 || g < 20 {
					t.Errorf("%d, %d and %d runs in 30 s, want at least 20 of each", b, l, g)
				}
			})
		})
	}
}

func TestLimitsHoldInARandomCrowd(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(5), taskmanager.WithTagLimit("x", 2), taskmanager.WithTagLimit("y", 3))
	random := rand.New(rand.NewPCG(1, 2))
	at := map[string]int{}
	all := 0
	var handles []*taskmanager.Handle
	for i := range 40 {
		tag := []string{"x", "y", "z"}[random.IntN(3)]
		lasts := time.Duration(random.IntN(400)) * time.Millisecond
		opts := []taskmanager.TaskOption{taskmanager.WithTag(tag), taskmanager.WithNonReentrant(random.IntN(4) > 0), taskmanager.WithBackoffCap(time.Second)}
		if random.IntN(3) == 0 {
			opts = append(opts, taskmanager.WithSkipOverLimit())
		}
		if random.IntN(3) == 0 {
			opts = append(opts, taskmanager.WithExecutionTimeout(200*time.Millisecond))
		}
		handles = append(handles, w.every(fmt.Sprint(i), time.Duration(100+random.IntN(900))*time.Millisecond, func(ctx context.Context) error {
			at[tag]++
			all++
			if all > 5 || at["x"] > 2 || at["y"] > 3 {
				t.Errorf("%d runs at once, by tag %v", all, at)
			}
			defer func() { at[tag]--; all-- }()
			return w.clk.Sleep(ctx, lasts)
		}, opts...))
	}
	for range 300 {
		w.advance(time.Duration(random.IntN(300)) * time.Millisecond)
		h := handles[random.IntN(len(handles))]
		switch random.IntN(4) {
		case 0:
			_ = h.RunNow()
		case 1:
			_ = h.Pause()
		case 2:
			_ = h.Resume()
		}
	}
	for _, h := range handles {
		_ = h.Pause()
	}
	w.advance(10 * time.Second)
	if all != 0 || w.m.Totals().Ticks.Pending != 0 {
		t.Errorf("all paused, and %d runs go on, %d ticks wait", all, w.m.Totals().Ticks.Pending)
	}
	for i, tag := range []string{"x", "x", "y", "y", "y"} { // all places are free
		w.every(fmt.Sprint("free ", i), time.Second, w.sleeper("free", 500*time.Millisecond), taskmanager.WithMaxRuns(1), taskmanager.WithTag(tag))
	}
	w.advance(time.Second)
	if got := w.m.Totals().Running; got != 5 {
		t.Errorf("%d of 5 places can be had", got)
	}
}

func TestRunOnceTakesNoPlace(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
	w.every("long", time.Second, w.sleeper("long", 10*time.Second))
	w.advance(time.Second)
	if err := w.m.RunOnce(t.Context(), "once", nothing); err != nil {
		t.Errorf("RunOnce = %v", err)
	}
}

func TestARunThatWaitsForTheManagersLimitHoldsNoPlaceOfItsTag(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1), taskmanager.WithTagLimit("x", 1))
	tag := taskmanager.WithTag("x")
	w.every("long", time.Second, w.sleeper("long", 10*time.Second), taskmanager.WithMaxRuns(1))
	w.every("x1", 2*time.Second, w.sleeper("x1", time.Second), tag, taskmanager.WithMaxRuns(2))
	w.every("x2", 3*time.Second, w.sleeper("x2", time.Second), tag, taskmanager.WithMaxRuns(2))
	w.advance(time.Minute)
	w.want(t, "1s long", "11s x1", "12s x2", "14s x1", "15s x2")
}
