package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

func TestPauseCountsItsTicksAndResumeMakesNoBurst(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", time.Second, func(context.Context) error { w.note(""); return nil })
	w.advance(2500 * time.Millisecond)
	for range 2 { // twice is once
		if err := h.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	w.advance(10 * time.Second)
	if s := h.Snapshot(); s.State != taskmanager.Paused || !s.NextRun.IsZero() || s.Ticks.SkippedPaused != 10 {
		t.Errorf("paused: %v, next %v, %+v", s.State, s.NextRun, s.Ticks)
	}
	if err := errors.Join(h.Resume(), h.Resume()); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Second)
	w.want(t, "1s ", "2s ", "13s ")
	wantTicks(t, h, taskmanager.Ledger{Ran: 3, SkippedPaused: 10})
}

func TestRescheduleStartsANewGridInPlace(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", 10*time.Second, func(context.Context) error { w.note(""); return nil })
	w.advance(15 * time.Second)
	if err := h.Reschedule(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	w.advance(5 * time.Second)
	w.want(t, "10s ", "17s ", "19s ")
	wantTicks(t, h, taskmanager.Ledger{Ran: 3})
	for _, bad := range []time.Duration{0, -time.Second} {
		var refused *taskmanager.OptionError
		if err := h.Reschedule(bad); !errors.As(err, &refused) || refused.Option != "interval" {
			t.Errorf("Reschedule(%v) = %v, want an OptionError for interval", bad, err)
		}
	}
	w.stop(h)
	if err := h.Reschedule(time.Second); !errors.Is(err, taskmanager.ErrStopped) {
		t.Errorf("Reschedule of a stopped task = %v, want %v", err, taskmanager.ErrStopped)
	}
}

func TestRunNowIgnoresPauseAndIsNoTick(t *testing.T) {
	w := newWorld(t)
	gate := w.clk.NewGate()
	h := w.ticks("a", time.Hour, func(ctx context.Context, tick taskmanager.Tick) error {
		w.note("index %d of %v", tick.Index, tick.Scheduled.Sub(w.start))
		return gate.Wait(ctx)
	}, taskmanager.WithPaused())
	w.advance(time.Minute)
	if err := h.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	if err := h.RunNow(); !errors.Is(err, taskmanager.ErrAlreadyRunning) {
		t.Errorf("RunNow beside a run = %v, want %v", err, taskmanager.ErrAlreadyRunning)
	}
	gate.Open()
	if err := h.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	w.want(t, "1m0s index -1 of 1m0s", "1m0s index -1 of 1m0s")
	wantTicks(t, h, taskmanager.Ledger{})
	if got := h.TotalRuns(); got != 2 {
		t.Errorf("TotalRuns = %d, want 2", got)
	}
}

func TestStartImmediatelyMaxRunsAndWindow(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // of a fake clock
	tests := []struct {
		name string
		opts []taskmanager.TaskOption
		want []string
	}{
		{"immediately", []taskmanager.TaskOption{taskmanager.WithImmediately(), taskmanager.WithMaxRuns(3)}, []string{"0s 0", "10s 1", "20s 2"}},
		{"immediately, delay", []taskmanager.TaskOption{taskmanager.WithImmediately(), taskmanager.WithFixedDelay(), taskmanager.WithMaxRuns(2)}, []string{"0s 0", "11s 1"}},
		{"max runs", []taskmanager.TaskOption{taskmanager.WithMaxRuns(2)}, []string{"10s 1", "20s 2"}},
		{"start", []taskmanager.TaskOption{taskmanager.WithStartAt(begin.Add(5 * time.Second)), taskmanager.WithMaxRuns(2)}, []string{"15s 1", "25s 2"}},
		{"start in the past", []taskmanager.TaskOption{taskmanager.WithStartAt(begin.Add(-5 * time.Second)), taskmanager.WithMaxRuns(1)}, []string{"10s 1"}},
		{"end on a tick", []taskmanager.TaskOption{taskmanager.WithEndAt(begin.Add(20 * time.Second))}, []string{"10s 1", "20s 2"}},
		{"end before a tick", []taskmanager.TaskOption{taskmanager.WithEndAt(begin.Add(20*time.Second - 1))}, []string{"10s 1"}},
		{"window without a tick", []taskmanager.TaskOption{taskmanager.WithStartAt(begin.Add(time.Second)), taskmanager.WithEndAt(begin.Add(9 * time.Second))}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			h := w.ticks("a", 10*time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
				w.note("%d", tick.Index)
				return w.clk.Sleep(ctx, time.Second)
			}, test.opts...)
			w.advance(time.Minute)
			w.want(t, test.want...)
			if s := h.Snapshot(); s.State != taskmanager.Complete || s.Ticks.Due() != uint64(len(test.want)) || s.Err != nil || !s.NextRun.IsZero() {
				t.Errorf("state %v, %d due, err %v, next %v; want complete, %d, nil, none", s.State, s.Ticks.Due(), s.Err, s.NextRun, len(test.want))
			}
			select {
			case <-h.Done():
			default:
				t.Error("Done is not closed")
			}
			w.every("a", time.Hour, nothing) // its name is free
		})
	}
}

func TestNamesOfLiveTasksAreUnique(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", time.Second, nothing)
	if _, err := w.m.ScheduleRecurring("a", time.Second, nothing); !errors.Is(err, taskmanager.ErrDuplicateName) || err.Error() != `taskmanager: duplicate task name: "a"` {
		t.Errorf("second task of a name: %v, want %v that names it", err, taskmanager.ErrDuplicateName)
	}
	if got, ok := w.m.Lookup("a"); !ok || got != h {
		t.Errorf("Lookup = %v, %v", got, ok)
	}
	w.advance(3 * time.Second)
	w.stop(h)
	if _, ok := w.m.Lookup("a"); ok {
		t.Error("a stopped task is still found")
	}
	again := w.every("a", time.Minute, nothing)
	if h.Successes() != 3 || again.Successes() != 0 {
		t.Errorf("old handle has %d runs, new one %d, want 3 and 0", h.Successes(), again.Successes())
	}
}

func TestTasksAreListedByOrderOfSchedulingAndByTag(t *testing.T) {
	w := newWorld(t)
	for i, tag := range []string{"x", "", "y", "x", "y", "x"} {
		w.every(fmt.Sprint(i), time.Minute, nothing, taskmanager.WithTag(tag))
	}
	names := func(seq func(func(*taskmanager.Handle) bool)) (names []string) {
		for h := range seq {
			names = append(names, h.Name())
		}
		return names
	}
	if got, want := names(w.m.Tasks()), []string{"0", "1", "2", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("Tasks = %v, want %v", got, want)
	}
	if got, want := names(w.m.Tagged("x")), []string{"0", "3", "5"}; !slices.Equal(got, want) {
		t.Errorf("Tagged = %v, want %v", got, want)
	}
	if got := w.m.StopTag("x"); got != 3 {
		t.Errorf("StopTag = %d, want 3", got)
	}
	if got, want := names(w.m.Tasks()), []string{"1", "2", "4"}; !slices.Equal(got, want) {
		t.Errorf("Tasks = %v, want %v", got, want)
	}
	if got := w.m.StopTag("x"); got != 0 {
		t.Errorf("second StopTag = %d, want 0", got)
	}
	for range w.m.Tasks() {
		break // must not call yield again
	}
}

func TestMaxRunsCountsRunNowAndEndsTheGrid(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", 10*time.Second, func(ctx context.Context) error { return w.clk.Sleep(ctx, time.Second) }, taskmanager.WithMaxRuns(3))
	w.advance(12 * time.Second)
	if err := h.RunNow(); err != nil {
		t.Fatal(err)
	}
	w.advance(9 * time.Second)
	if s := h.Snapshot(); s.State != taskmanager.Complete || s.Runs != 3 || s.Ticks.Due() != 2 {
		t.Errorf("%v after %d runs and %d ticks; want complete, 3, 2", s.State, s.Runs, s.Ticks.Due())
	}
	if err := h.RunNow(); !errors.Is(err, taskmanager.ErrStopped) {
		t.Errorf("RunNow of a complete task = %v, want %v", err, taskmanager.ErrStopped)
	}
}

func TestStopTellsTheObserverOnceAndIsFinal(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", time.Second, nothing)
	w.advance(2500 * time.Millisecond)
	w.stop(h)
	w.stop(h)
	w.advance(10 * time.Second)
	if got := w.of("a", taskmanager.KindRemoved); len(got) != 1 || got[0].Err != nil {
		t.Errorf("removed: %+v, want one event without a reason", got)
	}
	for name, call := range map[string]func() error{
		"Pause": h.Pause, "Resume": h.Resume, "RunNow": h.RunNow,
		"Reschedule":     func() error { return h.Reschedule(time.Second) },
		"RescheduleWith": func() error { return h.RescheduleWith(everySecond{}) },
	} {
		if err := call(); !errors.Is(err, taskmanager.ErrStopped) {
			t.Errorf("%s = %v, want %v", name, err, taskmanager.ErrStopped)
		}
	}
	if s := h.Snapshot(); s.State != taskmanager.Stopped || s.Successes != 2 || !s.NextRun.IsZero() || s.Err != taskmanager.ErrStopped {
		t.Errorf("%v, %d successes, next %v, %v", s.State, s.Successes, s.NextRun, s.Err)
	}
}
