package taskmanager_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/internal/seam"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// Windows, steps of the clock and values at the edge of what can be said.

func TestTheLongestTimeLimitIsNone(t *testing.T) {
	for _, limit := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		w := newWorld(t)
		w.advance(time.Hour)
		var err error
		h := w.every("a", time.Second, func(ctx context.Context) error {
			err = w.clk.Sleep(ctx, 100*time.Millisecond)
			return err
		}, taskmanager.WithExecutionTimeout(limit))
		w.advance(1050 * time.Millisecond)
		if s := h.Snapshot(); s.Overdue || s.InFlight != 1 {
			t.Errorf("limit %v: %+v", limit, s)
		}
		w.advance(450 * time.Millisecond)
		if err != nil || h.Failures() != 0 || h.Successes() != 1 {
			t.Errorf("limit %v: %v, %d failures", limit, err, h.Failures())
		}
	}
}

func TestOptionsTellEveryStartAt(t *testing.T) {
	w := newWorld(t)
	for _, at := range []time.Time{
		time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2027, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)),
	} {
		h := w.every(at.String(), time.Second, nothing, taskmanager.WithStartAt(at))
		if got := h.Options().StartAt; !got.Equal(at) || got.Location() != at.Location() {
			t.Errorf("StartAt %v, Options say %v", at, got)
		}
	}
}

func TestStartAtHoldsWhateverTheClockDoes(t *testing.T) {
	for _, step := range []time.Duration{-time.Minute, -2 * time.Hour, -5 * time.Hour, time.Hour} {
		w := newWorld(t)
		start := w.clk.Now().Add(10 * time.Hour)
		h := w.schedule("a", minutely, nothing, taskmanager.WithStartAt(start))
		w.advance(time.Minute)
		w.clk.StepWall(step)
		w.advance(5 * time.Minute)
		if next := h.NextRun(); h.TotalRuns() > 0 || !next.Equal(start) {
			t.Errorf("step %v: %d runs, then one at %v, want none before %v", step, h.TotalRuns(), next, start)
		}
	}
}

func TestStartAtOfAFixedDelayIsOneDelayBeforeTheFirstRun(t *testing.T) {
	w := newWorld(t)
	start := w.clk.Now().Add(time.Hour)
	h := w.schedule("a", cronsched.MustParse("every 10s"), nothing, taskmanager.WithStartAt(start))
	if got, want := h.NextRun(), start.Add(10*time.Second); !got.Equal(want) {
		t.Errorf("NextRun = %v, want %v", got, want)
	}
}

// Whether a step back is a correction is told by the step, not by when the last run was.
func TestEachStepBackIsJudgedByItself(t *testing.T) {
	t.Run("two corrections", func(t *testing.T) {
		w, h := atNoon(t, 10*time.Second)
		w.advance(time.Minute)
		for range 2 {
			w.clk.StepWall(-2 * time.Hour)
			w.advance(2 * time.Second)
		}
		w.advance(5 * time.Hour)
		if h.TotalRuns() != 1 {
			t.Errorf("%d runs, want the one before: %v", h.TotalRuns(), w.lines)
		}
	})
	t.Run("a large one long after", func(t *testing.T) {
		w, h := atNoon(t, 10*time.Second)
		w.advance(2 * time.Hour)
		w.clk.StepWall(-4 * time.Hour)
		w.advance(2 * time.Second)
		if next, want := h.NextRun(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC); !next.Equal(want) {
			t.Errorf("NextRun = %v, want %v", next, want)
		}
	})
	t.Run("a large one while the schedule is asked", func(t *testing.T) {
		w := newWorld(t)
		asked, answer := 0, w.clk.NewGate()
		h := w.schedule("a", nextFunc(func(after time.Time) (time.Time, bool) {
			if asked++; asked == 2 {
				_ = answer.Wait(context.WithValue(t.Context(), seam.RunKey{}, "parked like a run"))
			}
			return minutely(after)
		}), nothing)
		w.advance(time.Minute) // it is asked, and thinks
		w.clk.StepWall(-4 * time.Hour)
		w.advance(2 * time.Second)
		answer.Open()
		if next, want := h.NextRun(), w.clk.Now().Truncate(time.Minute).Add(time.Minute); !next.Equal(want) {
			t.Errorf("NextRun = %v, want %v", next, want)
		}
	})
}

func TestRescheduleWithHasAJitterOfItsOwnAndTheSameEnd(t *testing.T) {
	w := newWorld(t)
	late := 0
	for range 20 {
		h := w.schedule("a", noon, nothing, taskmanager.WithJitter(time.Hour))
		if err := h.RescheduleWith(noon); err != nil {
			t.Fatal(err)
		}
		if h.NextRun().After(w.clk.Now().Add(12 * time.Hour)) {
			late++
		}
		w.stop(h)
	}
	if late < 18 {
		t.Errorf("%d of 20 have a jitter", late)
	}
	h := w.every("interval", time.Hour, nothing, taskmanager.WithJitter(time.Hour))
	if err := h.RescheduleWith(noon); err != nil || !h.NextRun().Equal(w.clk.Now().Add(12*time.Hour)) {
		t.Errorf("NextRun = %v, %v, want noon: the jitter was an interval's", h.NextRun(), err)
	}

	end := w.clk.Now().Add(time.Hour)
	h = w.every("end", time.Minute, nothing, taskmanager.WithEndAt(end))
	w.stop(w.every("interval2", time.Hour, nothing))
	w.clk.StepWall(30 * time.Minute)
	if err := h.RescheduleWith(minutely); err != nil {
		t.Fatal(err)
	}
	w.advance(40 * time.Minute)
	if last := h.LastRun(); last.After(end) || h.State() != taskmanager.Complete {
		t.Errorf("%v, last run %v, want complete at %v", h.State(), last, end)
	}
}

func TestAStateIsTextWhateverItIs(t *testing.T) {
	for s := range taskmanager.State(255) {
		if s.String() == "" {
			t.Errorf("state %d has no text", uint8(s))
		}
	}
}

// A nosyContext calls back when it is asked for a value.
type nosyContext struct {
	context.Context
	asked func()
}

func (c nosyContext) Value(key any) any { c.asked(); return c.Context.Value(key) }

func TestShutdownAsksRunOncesContextWithNoLock(t *testing.T) {
	m := must(taskmanager.New(taskmanager.WithLogger(silent)))
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- m.RunOnce(nosyContext{parent, func() { m.Totals() }}, "x", func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-began
	_ = m.Close()
	if err := <-ended; err != taskmanager.ErrClosed {
		t.Errorf("RunOnce = %v, want %v", err, taskmanager.ErrClosed)
	}
}

func TestTheFirstPanicOfAnObserverIsLogged(t *testing.T) {
	for name, use := range map[string]func(*taskmanager.TaskManager){
		"a run's event": func(m *taskmanager.TaskManager) {
			for range 3 {
				_ = m.RunOnce(t.Context(), "x", nothing)
			}
		},
		"another": func(m *taskmanager.TaskManager) {
			for range 3 {
				must(m.ScheduleRecurring("x", time.Hour, nothing)).Stop()
			}
		},
	} {
		var text bytes.Buffer
		m := must(taskmanager.New(taskmanager.WithLogger(slog.New(slog.NewTextHandler(&text, nil))),
			taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) { panic("bug in the adapter") }))))
		use(m)
		_ = m.Close()
		if log := text.String(); strings.Count(log, "observer or log handler panicked") != 1 || !strings.Contains(log, "bug in the adapter") {
			t.Errorf("%s: log is %q, want one line about the panic", name, log)
		}
	}
}

func TestTheEventsOfTasksOfOneNameComeInOrder(t *testing.T) {
	for range 8 {
		var kinds []taskmanager.Kind
		m := must(taskmanager.New(taskmanager.WithLogger(silent), taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
			if e.Kind == taskmanager.KindAdded || e.Kind == taskmanager.KindRemoved {
				kinds = append(kinds, e.Kind)
			}
		}))))
		for range 100 { // fewer than the queue takes
			h := must(m.ScheduleRecurring("x", time.Hour, nothing, taskmanager.WithJitter(0), taskmanager.WithImmediately(), taskmanager.WithMaxRuns(1)))
			<-h.Done()
		}
		_ = m.Close()
		if dropped := m.Totals().EventsDropped; dropped > 0 || len(kinds) != 200 {
			t.Errorf("%d events, %d dropped, want 200, 0", len(kinds), dropped)
		}
		for i, k := range kinds {
			if want := [...]taskmanager.Kind{taskmanager.KindAdded, taskmanager.KindRemoved}[i%2]; k != want {
				t.Fatalf("event %d is %v, want %v", i, k, want)
			}
		}
	}
}

// An observer that blocks at the end of a run keeps nothing waiting: not the run that
// follows, nor the place at a limit that this one has by then.
func TestABlockingObserverHoldsUpNoRun(t *testing.T) {
	clk := tasktest.NewClock(t)
	gate, blocked := clk.NewGate(), false
	m := must(taskmanager.New(clk.Option(), taskmanager.WithLogger(silent), taskmanager.WithMaxConcurrentRuns(1),
		taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
			if e.Kind == taskmanager.KindRan && e.Task == "a" && !blocked {
				blocked = true
				_ = gate.Wait(context.WithValue(context.Background(), seam.RunKey{}, "parked like a run"))
			}
		}))))
	defer clk.Close(m)
	runs := 0
	a := must(m.ScheduleRecurring("a", time.Second, func(ctx context.Context) error {
		if runs++; runs == 1 {
			return clk.Sleep(ctx, 1500*time.Millisecond)
		}
		return nil
	}, taskmanager.WithJitter(0), taskmanager.WithOverlap(taskmanager.Coalesce)))
	b := must(m.ScheduleRecurring("b", 3*time.Second, nothing, taskmanager.WithJitter(0)))
	clk.Advance(time.Minute)
	if a.TotalRuns() < 55 || b.TotalRuns() < 19 {
		t.Errorf("%d and %d runs, want one each second and each third", a.TotalRuns(), b.TotalRuns())
	}
	gate.Open()
}

// A panic whose text ends the goroutine that asks for it.
type exiting struct{}

func (exiting) Error() string { runtime.Goexit(); return "" }

func TestAPanicWhoseTextCallsGoexitEndsNoQueue(t *testing.T) {
	seen := 0
	m := must(taskmanager.New(taskmanager.WithLogger(silent), taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) {
		if seen++; seen == 1 {
			panic(exiting{})
		}
	}))))
	for range 10 {
		must(m.ScheduleRecurring("x", time.Hour, nothing)).Stop()
	}
	_ = m.Close()
	if seen != 20 {
		t.Errorf("%d events, want 20", seen)
	}
}

func TestAGapIsToldOnceAndBeforeTheEndOfItsTask(t *testing.T) {
	start := func(t *testing.T, opts ...taskmanager.TaskOption) (w *world, h *taskmanager.Handle, open func()) {
		w = newWorld(t)
		asked, answer := 0, w.clk.NewGate()
		h = w.schedule("a", nextFunc(func(after time.Time) (time.Time, bool) {
			if asked++; asked == 2 {
				_ = answer.Wait(context.WithValue(t.Context(), seam.RunKey{}, "parked like a run"))
			}
			return minutely(after)
		}), nothing, opts...)
		w.stall(5*time.Minute + 10*time.Second) // the instant at 1 min runs late
		return w, h, answer.Open
	}
	w, _, open := start(t, taskmanager.WithEndAt(time.Date(2026, 1, 1, 0, 5, 30, 0, time.UTC)))
	open()
	w.advance(0)
	events := w.of("a")
	if last := events[len(events)-1].Kind; last != taskmanager.KindRemoved || len(w.of("a", taskmanager.KindGap)) != 1 {
		t.Errorf("events %v, want one gap, and the end last", events)
	}

	w, h, open := start(t)
	w.clk.StepWall(-2 * time.Minute)
	w.advance(2 * time.Second)
	open() // what it answers is not what counts any more
	w.advance(0)
	if s := h.Snapshot(); s.Gaps != 1 || s.GapTo.After(s.NextRun) {
		t.Errorf("%d gaps, the last until %v, next run %v, want one that ends before", s.Gaps, s.GapTo, s.NextRun)
	}
}

func TestExplainAsksFromWhereTheEngineWill(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", minutely, nothing)
	w.advance(3 * time.Minute)
	if err := h.Pause(); err != nil {
		t.Fatal(err)
	}
	w.clk.StepWall(-time.Hour)
	w.advance(2 * time.Second)
	if text := h.Explain(); !strings.Contains(text, "2026-01-01 00:04:00") || strings.Contains(text, "2025-12-31 23:0") {
		t.Errorf("Explain lists what the last instant served is in the way of:\n%s", text)
	}
}

func TestNextRunIsTheSchedulesHoweverFarAway(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC) // nanoseconds from now go to 2318
	h := w.schedule("a", nextFunc(func(after time.Time) (time.Time, bool) { return at, at.After(after) }), nothing)
	if next := h.NextRun(); !next.Equal(at) {
		t.Errorf("NextRun() = %v, want %v", next, at)
	}
}

func TestToLookAtATaskChangesNothing(t *testing.T) {
	var ledgers []taskmanager.Ledger
	for _, looked := range []bool{false, true} {
		w := newWorld(t)
		runs := 0
		h := w.schedule("a", nextFunc(func(after time.Time) (time.Time, bool) {
			return after.Truncate(10 * time.Second).Add(10 * time.Second), true
		}), func(context.Context) error {
			if runs++; runs == 1 {
				return errBoom
			}
			return nil
		}, backingOffFor(25*time.Second))
		w.advance(22 * time.Second) // the tick at 20 s is due, and in the backoff
		if looked {
			h.Snapshot()
		}
		w.clk.StepWall(-5 * time.Second)
		w.advance(time.Minute)
		ledgers = append(ledgers, h.Ticks())
	}
	if ledgers[0] != ledgers[1] {
		t.Errorf("%+v,\nand if looked at in between %+v", ledgers[0], ledgers[1])
	}
}

func TestTheLongestFixedDelayEnds(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", math.MaxInt64, nothing, taskmanager.WithFixedDelay(), taskmanager.WithImmediately(), taskmanager.WithEndAt(w.start.Add(time.Hour)))
	w.others = true
	w.advance(2 * time.Hour)
	if state := h.State(); state != taskmanager.Complete {
		t.Errorf("%v after EndAt, want complete", state)
	}
}

func TestReportsAreJSONWhateverTheSchedulesSay(t *testing.T) {
	w := newWorld(t)
	at := time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	w.schedule("far", nextFunc(func(after time.Time) (time.Time, bool) { return at, at.After(after) }), nothing)
	if text, err := json.Marshal(w.m.Report()); err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestDefaultsThatAreForIntervalsLetSchedulesBe(t *testing.T) {
	w := newWorld(t, taskmanager.WithDefaultTaskOptions(taskmanager.WithImmediately(), taskmanager.WithFixedDelay()))
	h := w.schedule("a", everySecond{}, nothing)
	w.advance(3 * time.Second)
	if h.TotalRuns() != 3 || h.Options().FixedDelay || h.Options().Immediately {
		t.Errorf("%d runs, %+v", h.TotalRuns(), h.Options())
	}
}

func TestSlackIsForTheRealClock(t *testing.T) {
	slack := taskmanager.WithTimerSlack(10 * time.Millisecond)
	w := newWorld(t, slack)
	a, b := w.every("a", 10*time.Millisecond, nothing), w.every("b", 11*time.Millisecond, nothing)
	w.advance(11 * time.Millisecond)
	mock := clock.NewMock()
	m := must(taskmanager.New(taskmanager.WithClock(mock), slack))
	defer m.Close()
	c := must(m.ScheduleRecurring("c", 10*time.Millisecond, nothing, taskmanager.WithJitter(0)))
	d := must(m.ScheduleRecurring("d", 11*time.Millisecond, nothing, taskmanager.WithJitter(0)))
	tasktest.AdvanceMock(t, m, mock, 11*time.Millisecond)
	for _, h := range []*taskmanager.Handle{a, b, c, d} {
		if h.TotalRuns() != 1 {
			t.Errorf("%s has had %d runs, want 1", h.Name(), h.TotalRuns())
		}
	}
}

// resets is a policy that counts how often it is reset.
type resets struct{ n int }

func (r *resets) Reset()                     { r.n++ }
func (r *resets) NextBackOff() time.Duration { return time.Duration(r.n) * time.Second }

func TestAPolicyBeginsEachStreakReset(t *testing.T) {
	w := newWorld(t)
	shared, runs := &resets{}, 0
	h := w.every("a", 10*time.Second, func(context.Context) error {
		if runs++; runs%3 == 0 {
			return nil
		}
		return errBoom
	}, taskmanager.WithBackoff(func() backoff.BackOff { return shared }))
	w.advance(90 * time.Second) // three streaks of two failures
	if shared.n != 3 || h.TotalRuns() != 9 {
		t.Errorf("%d resets in %d runs, want 3 in 9", shared.n, h.TotalRuns())
	}
}
