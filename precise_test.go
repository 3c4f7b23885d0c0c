package taskmanager_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

func TestAPreciseTaskHasNormalTimingWhereTheClockDoesNotMoveByItself(t *testing.T) {
	check := func(t *testing.T, m *taskmanager.TaskManager, run func(time.Duration)) {
		t.Helper()
		h := must(m.ScheduleRecurring("task", 10*time.Millisecond, nothing, taskmanager.WithPrecise(), taskmanager.WithJitter(0)))
		if taskmanager.HasKernelTimer(h) {
			t.Error("the task has a timer of the kernel's")
		}
		run(105 * time.Millisecond)
		wantTicks(t, h, taskmanager.Ledger{Ran: 10})
		if err := h.Reschedule(20 * time.Millisecond); err != nil {
			t.Errorf("Reschedule = %v", err)
		}
		run(105 * time.Millisecond)
		wantTicks(t, h, taskmanager.Ledger{Ran: 15})
		if !h.Options().Precise {
			t.Error("Options().Precise = false, want what was given")
		}
	}
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newManager()
			defer m.Close()
			check(t, m, func(d time.Duration) { time.Sleep(d); synctest.Wait() })
		})
	})
	t.Run("Mock", func(t *testing.T) {
		mock := clock.NewMock()
		m := newManager(taskmanager.WithClock(mock))
		defer m.Close()
		check(t, m, func(d time.Duration) { tasktest.AdvanceMock(t, m, mock, d) })
	})
	t.Run("fake clock", func(t *testing.T) {
		m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
		check(t, m, clk.Advance)
	})
	t.Run("by hand", func(t *testing.T) {
		clk := newHandClock()
		m := newManager(clk.option())
		defer m.Close()
		check(t, m, clk.run)
	})
}

func TestTwoDriversServeEachTickOnce(t *testing.T) {
	clk := newHandClock()
	m := newManager(clk.option())
	defer m.Close()
	var mu sync.Mutex
	runs := map[int64]int{}
	h := must(m.ScheduleTicks("task", time.Millisecond, func(_ context.Context, tick taskmanager.Tick) error {
		mu.Lock()
		defer mu.Unlock()
		runs[tick.Index]++
		return nil
	}, taskmanager.WithJitter(0)))
	if taskmanager.FirePrecise(h) {
		t.Fatal("a tick was served before it was due")
	}
	const ticks = 2000
	for range ticks {
		clk.move(time.Millisecond)
		var wg sync.WaitGroup
		start := make(chan struct{})
		wg.Go(func() { <-start; clk.ring() })
		for range 2 {
			wg.Go(func() {
				<-start
				taskmanager.FirePrecise(h)
			})
		}
		close(start)
		wg.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	for k := int64(1); k <= ticks; k++ {
		if runs[k] != 1 {
			t.Fatalf("tick %d was served %d times", k, runs[k])
		}
	}
	if len(runs) != ticks {
		t.Errorf("%d ticks served, want %d", len(runs), ticks)
	}
	wantTicks(t, h, taskmanager.Ledger{Ran: ticks})
}

func TestTheSpinEndsWhenTheClockStandsStillOrTheTaskIsOver(t *testing.T) {
	clk := newHandClock()
	m := newManager(clk.option())
	defer m.Close()
	h := must(m.ScheduleRecurring("task", time.Second, nothing))
	if taskmanager.Spin(h, clk.Mono()+1, false) {
		t.Error("spin on a clock that stands still says that it moved")
	}
	if !taskmanager.Spin(h, clk.Mono(), false) {
		t.Error("spin to an instant that is there says that the clock stands still")
	}
	if !taskmanager.Spin(h, clk.Mono()+1, true) {
		t.Error("spin for a task that is over does not end at once")
	}
}
