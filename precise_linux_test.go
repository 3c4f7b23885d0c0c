package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager"
)

// timerDescriptors counts the process's timers of the kernel.
func timerDescriptors(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatalf("no descriptors: %v", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "timerfd") {
			n++
		}
	}
	return n
}

func TestThePreciseDriverServesEachTickOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	m := newManager()
	defer m.Close()
	const enough = 300
	ran := make(chan int64, 10*enough)
	h := must(m.ScheduleTicks("task", time.Millisecond, func(_ context.Context, tick taskmanager.Tick) error {
		select {
		case ran <- tick.Index:
		default: // the test has seen enough
		}
		return nil
	}, taskmanager.WithPrecise(), taskmanager.WithJitter(0)))
	if !taskmanager.HasKernelTimer(h) {
		t.Fatal("the task has no timer of the kernel's")
	}
	last := int64(0)
	for range enough {
		k := <-ran
		if k <= last {
			t.Fatalf("tick %d after tick %d", k, last)
		}
		last = k
	}
	h.Stop()
	if err := h.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
	s := h.Snapshot()
	if s.Ticks.Ran != s.Runs || s.Ticks.Pending != 0 || s.Ticks.Due() < uint64(last) {
		t.Errorf("runs %d, ticks %+v, the last seen was %d", s.Runs, s.Ticks, last)
	}
	checkRuns(t, h)
}

func TestAPreciseTaskLeavesNoGoroutineAndNoDescriptor(t *testing.T) {
	before := timerDescriptors(t)
	for name, end := range map[string]func(*taskmanager.TaskManager, []*taskmanager.Handle){
		"Stop": func(_ *taskmanager.TaskManager, all []*taskmanager.Handle) {
			for _, h := range all {
				h.Stop()
			}
		},
		"Close":      func(m *taskmanager.TaskManager, _ []*taskmanager.Handle) { _ = m.Close() },
		"completion": nil,
		"an end far away": func(_ *taskmanager.TaskManager, all []*taskmanager.Handle) {
			for _, h := range all {
				if err := h.Reschedule(1000 * time.Hour); err != nil { // its goroutine waits
					t.Errorf("Reschedule = %v", err)
				}
				_ = h.Pause() // and then for nothing
				h.Stop()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			m := newManager()
			defer m.Close()
			opts := []taskmanager.TaskOption{taskmanager.WithPrecise(), taskmanager.WithJitter(0)}
			if end == nil {
				opts = append(opts, taskmanager.WithMaxRuns(3))
			}
			var all []*taskmanager.Handle
			for i := range 5 {
				all = append(all, must(m.ScheduleRecurring(fmt.Sprint(i), 2*time.Millisecond, nothing, opts...)))
			}
			if end != nil {
				if got := timerDescriptors(t); got != before+5 {
					t.Errorf("%d timers of the kernel's for five tasks, %d before", got, before)
				}
				end(m, all)
			}
			for _, h := range all {
				if err := h.Wait(t.Context()); err != nil {
					t.Errorf("Wait = %v", err)
				}
			}
			goleak.VerifyNone(t) // with the goroutine the last user of the descriptor is gone
			if got := timerDescriptors(t); got != before {
				t.Errorf("%d timers of the kernel's are left, %d before", got, before)
			}
		})
	}
}

func TestAPreciseTaskOutlivesWhatItsFunctionDoes(t *testing.T) {
	defer goleak.VerifyNone(t)
	m := newManager()
	defer m.Close()
	ran := make(chan int, 100)
	runs := 0
	must(m.ScheduleRecurring("task", time.Millisecond, func(context.Context) error {
		runs++
		defer func(n int) {
			select {
			case ran <- n:
			default:
			}
		}(runs)
		switch runs % 4 {
		case 1:
			runtime.Goexit() // ends the goroutine that waits for the kernel
		case 2:
			panic("as told")
		case 3:
			return errors.New("as told")
		}
		return nil
	}, taskmanager.WithPrecise(), taskmanager.WithJitter(0), taskmanager.WithBackoffCap(0)))
	for want := 1; want <= 40; want++ {
		if got := <-ran; got != want {
			t.Fatalf("run %d, want %d", got, want)
		}
	}
	if got := m.Totals().EnginePanics; got != 0 {
		t.Errorf("EnginePanics = %d, want 0", got)
	}
}

func TestAFaultInThePreciseLoopIsSurfacedAndTheTaskGoesOn(t *testing.T) {
	defer goleak.VerifyNone(t)
	var log diary
	m := newManager(taskmanager.WithLogger(slog.New(&log)))
	defer m.Close()
	f := &fault{loop: "precise", nth: 3}
	taskmanager.SetFault(m, f.strike)
	ran := make(chan struct{}, 1000)
	h := must(m.ScheduleRecurring("task", time.Millisecond, func(context.Context) error {
		select {
		case ran <- struct{}{}:
		default:
		}
		return nil
	}, taskmanager.WithPrecise(), taskmanager.WithJitter(0)))
	for n := 0; f.times.Load() < f.nth+3; n++ { // the loop goes round again
		if <-ran; n > 5000 {
			t.Fatalf("in %d ticks the loop went round %d times", n, f.times.Load())
		}
	}
	if got := m.Totals().EnginePanics; got != 1 {
		t.Errorf("EnginePanics = %d, want 1", got)
	}
	h.Stop()
	if err := m.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	checkRuns(t, h)
	if want := "ERROR taskmanager: panic in the engine, please report it"; !slices.Equal(log.logged, []string{want}) {
		t.Errorf("logged %q, want %q", log.logged, want)
	}
}

func TestAKernelTimerExpiresOnceAndEndsItsWaitWhenItIsClosed(t *testing.T) {
	timer, err := taskmanager.NewKernelTimer()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		timer.Set(time.Microsecond)
		if !timer.Wait() {
			t.Fatal("Wait = false for a timer that is set")
		}
	}
	timer.Set(time.Hour)
	timer.Set(0) // disarmed
	waits := make(chan bool)
	go func() { waits <- timer.Wait() }()
	timer.Close()
	if <-waits {
		t.Error("Wait = true for a timer that was closed")
	}
}
