package taskmanager_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

func TestTheObserverIsToldOfEachOutcome(t *testing.T) {
	w := newWorld(t)
	n := 0
	h := w.every("a", time.Second, func(ctx context.Context) error {
		switch n++; n {
		case 1:
			return nil
		case 2:
			return errBoom
		case 3:
			return w.clk.Sleep(ctx, 2500*time.Millisecond)
		}
		return w.clk.Sleep(ctx, time.Hour)
	}, taskmanager.WithTag("tag"), taskmanager.WithBackoffCap(0))
	w.advance(6500 * time.Millisecond)
	w.stop(h)
	w.advance(0)
	w.others = true
	if err := w.m.RunOnce(t.Context(), "once", nothing); err != nil {
		t.Fatal(err)
	}
	type short struct {
		kind  taskmanager.Kind
		index int64
		count uint64
		at    time.Duration
		lasts time.Duration
		err   bool
	}
	var got []short
	for _, e := range w.of("a") {
		if e.Tag != "tag" || e.Task != "a" {
			t.Errorf("event of task %q, tag %q", e.Task, e.Tag)
		}
		got = append(got, short{e.Kind, e.Index, e.Count, e.Time.Sub(w.start), e.Duration, e.Err != nil})
	}
	slices.SortStableFunc(got, func(a, b short) int { return int(a.at - b.at) }) // the classes are not ordered among each other
	want := []short{
		{taskmanager.KindAdded, 0, 0, 0, 0, false},
		{taskmanager.KindRan, 1, 0, time.Second, 0, false},
		{taskmanager.KindFailed, 2, 0, 2 * time.Second, 0, true},
		{taskmanager.KindSkippedRunning, 4, 1, 4 * time.Second, 0, false},
		{taskmanager.KindSkippedRunning, 5, 1, 5 * time.Second, 0, false},
		{taskmanager.KindRan, 3, 0, 5500 * time.Millisecond, 2500 * time.Millisecond, false},
	}
	if !slices.Equal(got[:min(len(got), 6)], want) {
		t.Errorf("events:\n\t%+v\nwant:\n\t%+v", got, want)
	}
	if len(w.of("a", taskmanager.KindRemoved)) != 1 || len(w.of("a", taskmanager.KindCancelled)) != 1 {
		t.Errorf("no removal, or no cancelled run: %+v", got)
	}
	if once := w.of("once"); len(once) != 1 || once[0].Kind != taskmanager.KindRan || once[0].Index != -1 {
		t.Errorf("of RunOnce: %+v", once)
	}
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for k := taskmanager.KindRan; k <= taskmanager.KindClockStep; k++ {
		if name := k.String(); name == "" || strings.HasPrefix(name, "kind ") || seen[name] {
			t.Errorf("kind %d is called %q", k, name)
		} else {
			seen[name] = true
		}
	}
	if got, want := taskmanager.Kind(200).String(), "kind 200"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// brokenHandler is a slog.Handler that misbehaves.
type brokenHandler struct{ do func() }

func (h brokenHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h brokenHandler) Handle(context.Context, slog.Record) error { h.do(); return nil }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h brokenHandler) WithGroup(string) slog.Handler             { return h }

func TestABrokenObserverOrLogHarmsNeitherTicksNorTasks(t *testing.T) {
	for name, do := range map[string]func(){
		"panics":            func() { panic(errBoom) },
		"panics with nil":   func() { panic(nil) },
		"Goexit":            runtime.Goexit,
		"panic then Goexit": func() { defer runtime.Goexit(); panic("lost") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t,
				taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) { do() })),
				taskmanager.WithLogger(slog.New(brokenHandler{do})))
			n := 0
			h := w.every("a", time.Second, func(ctx context.Context) error {
				if n++; n%2 == 0 {
					return errBoom
				}
				return w.clk.Sleep(ctx, 1500*time.Millisecond)
			}, taskmanager.WithBackoffCap(0))
			s := w.schedule("b", everySecond{}, nothing)
			w.advance(30 * time.Second)
			if a, b := h.Ticks(), s.Successes(); a.Due() != 30 || a.Ran < 15 || b != 30 {
				t.Errorf("a: %+v, b: %d runs; want no harm", a, b)
			}
			if got := h.Snapshot().InFlight; got > 1 {
				t.Errorf("%d runs in flight", got)
			}
		})
	}
	t.Run("Goexit on the pump", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newManager(taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) { runtime.Goexit() })))
			defer m.Close()
			var handles []*taskmanager.Handle
			for _, name := range []string{"a", "b", "c"} {
				handles = append(handles, must(m.ScheduleRecurring(name, time.Second, nothing, taskmanager.WithJitter(0))))
			}
			time.Sleep(10500 * time.Millisecond)
			synctest.Wait()
			for _, h := range handles {
				if s := h.Snapshot(); s.Successes != 10 || s.Lateness.Max > 5*time.Millisecond {
					t.Errorf("%s: %d runs, late by up to %v", s.Name, s.Successes, s.Lateness.Max)
				}
			}
		})
	})
}

func TestABlockedObserverHoldsUpOnlyEventsAndTheyAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var seen atomic.Uint64
		m := newManager(taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
			if e.Task == "observed" {
				<-release
			}
			seen.Add(1)
		})))
		observed := must(m.ScheduleRecurring("observed", time.Second, nothing, taskmanager.WithJitter(0)))
		other := must(m.ScheduleRecurring("other", time.Second, nothing, taskmanager.WithJitter(0)))
		time.Sleep(20500 * time.Millisecond)
		synctest.Wait()
		if a, b := observed.Successes(), other.Successes(); a != 20 || b != 20 {
			t.Errorf("%d and %d runs in 20 s, want 20 each", a, b)
		}
		if got := other.Lateness().Max; got > 5*time.Millisecond {
			t.Errorf("the other task is late by %v", got)
		}
		if got := m.Totals().EventsDropped; got != 19 {
			t.Errorf("EventsDropped = %d, want 19: one event is being observed", got)
		}
		// The queue behind the observer holds a bounded number of events.
		for range 2000 {
			h := must(m.ScheduleRecurring("short", time.Hour, nothing))
			h.Stop()
		}
		dropped := m.Totals().EventsDropped - 19
		if dropped < 2900 || dropped > 4000 {
			t.Errorf("%d of 4000 events dropped, want all but about a thousand", dropped)
		}
		begun := time.Now()
		if err := m.Close(); err != nil {
			t.Errorf("Close = %v, want nil: no run is there", err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Close took %v with a blocked observer, want at most the grace", took)
		}
		close(release)
		synctest.Wait()
		if got := seen.Load(); got < 1000 {
			t.Errorf("%d events seen after the release", got)
		}
	})
}

func TestEventsOfATaskComeInOrderWithinTheirClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs, ticks := map[string][]int64{}, map[string][]int64{}
		m := newManager(taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case taskmanager.KindRan:
				runs[e.Task] = append(runs[e.Task], e.Index)
			case taskmanager.KindSkippedRunning:
				ticks[e.Task] = append(ticks[e.Task], e.Index)
			}
		})))
		defer m.Close()
		for _, name := range []string{"a", "b", "c"} {
			must(m.ScheduleRecurring(name, 10*time.Millisecond, func(context.Context) error {
				time.Sleep(25 * time.Millisecond)
				return nil
			}, taskmanager.WithJitter(0)))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for name := range runs {
			if !slices.IsSorted(runs[name]) || !slices.IsSorted(ticks[name]) || len(runs[name]) < 60 || len(ticks[name]) < 100 {
				t.Errorf("%s: runs %v, skipped %v: not in order, or too few", name, runs[name], ticks[name])
			}
		}
	})
}

func TestHealthIsLoggedOnceForEachChange(t *testing.T) {
	w := newWorld(t)
	n := 0
	h := w.every("a", time.Second, func(context.Context) error {
		switch n++; {
		case n <= 10:
			return nil
		case n <= 30:
			return errBoom
		case n <= 40:
			return nil
		case n <= 50:
			panic("p")
		}
		return nil
	}, taskmanager.WithBackoffCap(0))
	w.advance(100 * time.Second)
	w.wantLog(t, "WARN task failing a", "INFO task recovered a", "ERROR task panicked a", "INFO task recovered a")
	w.stop(h)
	w.advance(0)
	w.wantLog(t, "WARN task failing a", "INFO task recovered a", "ERROR task panicked a", "INFO task recovered a")
}

func TestTheFirstPanicOfEachStreakOfFailuresIsLogged(t *testing.T) {
	w := newWorld(t)
	n := 0
	ends := []string{"error", "panic", "error", "panic", "", "panic", "error", "panic", ""}
	w.every("a", time.Second, func(context.Context) error {
		n++
		switch ends[n-1] {
		case "error":
			return errBoom
		case "panic":
			panic("p")
		}
		return nil
	}, taskmanager.WithBackoffCap(0), taskmanager.WithMaxRuns(uint64(len(ends))))
	w.advance(20 * time.Second)
	w.wantLog(t, "WARN task failing a", "ERROR task panicked a", "INFO task recovered a", "ERROR task panicked a", "INFO task recovered a")
}

func TestAnObserverMayCallTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *taskmanager.TaskManager
		var failed atomic.Uint64
		m = newManager(taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
			_ = m.Totals()
			for h := range m.Tasks() {
				_ = h.Snapshot()
			}
			if h, ok := m.Lookup(e.Task); ok && e.Kind == taskmanager.KindFailed && failed.Add(1) == 3 {
				h.Stop()
			}
			if e.Kind == taskmanager.KindRemoved && e.Task == "a" {
				_ = m.Shutdown(context.Background())
			}
		})))
		h := must(m.ScheduleRecurring("a", time.Second, func(context.Context) error { return errBoom }, taskmanager.WithBackoffCap(0)))
		must(m.ScheduleRecurring("b", time.Second, nothing))
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_ = m.Close()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		if got := h.Failures(); got != 3 {
			t.Errorf("Failures = %d, want 3", got)
		}
		if _, err := m.ScheduleRecurring("c", time.Second, nothing); !errors.Is(err, taskmanager.ErrClosed) {
			t.Errorf("after Shutdown from the observer: %v", err)
		}
	})
}

func TestTheRunThatFollowsSurvivesAnObserverThatCallsGoexit(t *testing.T) {
	w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1),
		taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) { runtime.Goexit() })))
	h := w.every("a", time.Second, w.sleeper("a", 1500*time.Millisecond), taskmanager.WithOverlap(taskmanager.Coalesce))
	w.advance(10 * time.Second)
	// Each run but the first follows right upon the one before.
	wantTicks(t, h, taskmanager.Ledger{Ran: 7, Coalesced: 3})
	if err := h.Pause(); err != nil {
		t.Fatal(err)
	}
	w.advance(2 * time.Second)
	w.every("b", time.Second, w.sleeper("b", 0), taskmanager.WithMaxRuns(1))
	w.advance(time.Second)
	if got := w.lines[len(w.lines)-1]; got != "13s b" {
		t.Errorf("last start %q, want 13s b: the place is free", got)
	}
}
