package taskmanager_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// everySecond is due at each full second.
type everySecond struct{}

func (everySecond) Next(after time.Time) (time.Time, bool) {
	return after.Truncate(time.Second).Add(time.Second), true
}

func (everySecond) String() string { return "every second" }

// daily is due at that time of each day, in UTC.
type daily time.Duration

func (d daily) Next(after time.Time) (time.Time, bool) {
	next := after.UTC().Truncate(24 * time.Hour).Add(time.Duration(d))
	if !next.After(after) {
		next = next.Add(24 * time.Hour)
	}
	return next, true
}

const noon = daily(12 * time.Hour)

// nextFunc is a function as a Schedule.
type nextFunc func(time.Time) (time.Time, bool)

func (f nextFunc) Next(after time.Time) (time.Time, bool) { return f(after) }

// delaySchedule is a schedule that is a fixed delay with a number of runs.
type delaySchedule struct {
	delay time.Duration
	runs  int
}

func (s delaySchedule) Next(after time.Time) (time.Time, bool) { return after.Add(s.delay), true }
func (s delaySchedule) FixedDelay() (time.Duration, int, bool) { return s.delay, s.runs, true }
func (s delaySchedule) String() string                         { return "delay" }

// manual is a schedule without instants of its own.
type manual struct{}

func (manual) Next(time.Time) (time.Time, bool) { return time.Time{}, false }
func (manual) Manual() bool                     { return true }

// atNoon makes a world whose wall clock stands at d before noon, and a task at noon.
func atNoon(t *testing.T, d time.Duration) (*world, *taskmanager.Handle) {
	w := newWorld(t)
	w.clk.StepWall(12*time.Hour - d)
	h := w.schedule("noon", noon, func(context.Context) error {
		w.note("%s", w.clk.Now().Format(time.DateTime))
		return nil
	})
	return w, h
}

func TestAnHourBackMovesNoIntervalTask(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -24 * time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		w := newWorld(t)
		begun := w.age
		h := w.ticks("a", 10*time.Second, func(_ context.Context, tick taskmanager.Tick) error {
			if w.age == begun || tick.Lateness != 0 {
				t.Errorf("tick %d late by %v", tick.Index, tick.Lateness)
			}
			return nil
		})
		for range 10 {
			w.advance(5 * time.Second)
			w.clk.StepWall(step)
			w.advance(5 * time.Second)
		}
		wantTicks(t, h, taskmanager.Ledger{Ran: 10})
		if want := w.clk.Now().Add(10 * time.Second); !h.NextRun().Equal(want) {
			t.Errorf("NextRun = %v, want %v on the wall clock as it is now", h.NextRun(), want)
		}
	}
}

func TestAnInstantThatWasServedIsNotServedAgainAfterAnHourBack(t *testing.T) {
	w, h := atNoon(t, 10*time.Second)
	w.advance(time.Minute) // 12:00:50
	w.clk.StepWall(-30 * time.Minute)
	w.advance(time.Hour) // 12:30:50
	if got := h.TotalRuns(); got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
	if want := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC); !h.NextRun().Equal(want) {
		t.Errorf("NextRun = %v, want %v", h.NextRun(), want)
	}
	w.advance(24 * time.Hour)
	if got := h.TotalRuns(); got != 2 {
		t.Errorf("%d runs on the second day, want 2", got)
	}
	w.wantLog(t, "WARN wall clock stepped")
}

func TestADayBackSeatsTheScheduleAnew(t *testing.T) {
	w, h := atNoon(t, 10*time.Second)
	w.advance(time.Minute)
	w.clk.StepWall(-24 * time.Hour)
	w.advance(2 * time.Second)
	if want := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC); !h.NextRun().Equal(want) {
		t.Errorf("NextRun = %v, want %v", h.NextRun(), want)
	}
	w.advance(24 * time.Hour)
	if got := h.TotalRuns(); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
}

func TestBackByAnHourAnEverySecondScheduleIsMuteUntilTheLastInstantPasses(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", everySecond{}, nothing)
	w.advance(10 * time.Second)
	w.clk.StepWall(-time.Hour)
	w.advance(time.Hour - time.Second)
	if got := h.TotalRuns(); got != 10 {
		t.Errorf("%d runs within the hour, want the 10 from before", got)
	}
	w.advance(11 * time.Second)
	if got := h.TotalRuns(); got != 20 {
		t.Errorf("%d runs, want 20", got)
	}
	w.clk.StepWall(-24 * time.Hour)
	w.advance(12 * time.Second)
	if got := h.TotalRuns(); got < 30 {
		t.Errorf("%d runs after a day back, want it to go on from the new now", got)
	}
	if got := w.m.Totals().ClockSteps; got != 2 {
		t.Errorf("ClockSteps = %d, want 2", got)
	}
}

func TestAYearForwardIsOneLateRunAndOneGap(t *testing.T) {
	const year = 365 * 24 * time.Hour
	w := newWorld(t)
	var asked atomic.Int32
	var late []time.Duration
	h := w.schedule("a", nextFunc(func(after time.Time) (time.Time, bool) {
		asked.Add(1)
		return everySecond{}.Next(after)
	}), func(context.Context) error {
		late = append(late, w.clk.Now().Sub(w.clk.Now().Truncate(time.Second)))
		return nil
	})
	other := w.ticks("b", 100*time.Millisecond, func(_ context.Context, tick taskmanager.Tick) error {
		if tick.Lateness != 0 {
			t.Errorf("the other task is late by %v", tick.Lateness)
		}
		return nil
	})
	w.advance(10*time.Second + 300*time.Millisecond)
	before := asked.Load()
	w.clk.StepWall(year)
	w.advance(5 * time.Second)
	s := h.Snapshot()
	if s.Runs < 15 || s.Runs > 16 {
		t.Errorf("%d runs, want one for each second and at most one more", s.Runs)
	}
	if s.Lateness.Max < year-2*time.Second || s.Lateness.Max > year+time.Second {
		t.Errorf("the late run was late by %v, want about a year", s.Lateness.Max)
	}
	if s.Gaps != 1 || s.GapTo.Sub(s.GapFrom) < year-2*time.Second {
		t.Errorf("%d gaps, the last from %v to %v; want one of a year", s.Gaps, s.GapFrom, s.GapTo)
	}
	if got := len(w.of("a", taskmanager.KindGap)); got != 1 {
		t.Errorf("%d gap events, want 1", got)
	}
	if s.Ticks.Due() != s.Runs {
		t.Errorf("the ledger has %d instants, %d runs", s.Ticks.Due(), s.Runs)
	}
	if got := asked.Load() - before; got > 15 {
		t.Errorf("Next was called %d times in 5 seconds", got)
	}
	wantTicks(t, other, taskmanager.Ledger{Ran: 153})
	w.wantLog(t, "WARN wall clock stepped")
	steps := w.of("", taskmanager.KindClockStep)
	if len(steps) != 1 || steps[0].Duration != year {
		t.Errorf("observed steps %+v, want one of a year", steps)
	}
}

func TestAWallScheduleIsSeatedAnewWithinASecondOfAStep(t *testing.T) {
	w, h := atNoon(t, time.Hour)
	w.advance(10 * time.Second)
	w.clk.StepWall(59 * time.Minute)
	w.advance(time.Second)
	if want := w.clk.Now().Truncate(24 * time.Hour).Add(12 * time.Hour); !h.NextRun().Equal(want) {
		t.Errorf("NextRun = %v, want %v", h.NextRun(), want)
	}
	w.advance(time.Minute)
	if h.TotalRuns() != 1 || h.Lateness().Max != 0 {
		t.Errorf("%d runs, late by up to %v, want 1, 0", h.TotalRuns(), h.Lateness().Max)
	}
}

// On Linux the monotonic hand stands still while the machine is suspended.
func TestAfterASuspendOneLateRunServesAllThatWasMissed(t *testing.T) {
	w, h := atNoon(t, time.Hour)
	w.advance(time.Minute)
	w.clk.StepWall(50 * time.Hour)
	w.advance(2 * time.Second)
	s := h.Snapshot()
	if s.Runs != 1 || s.Lateness.Max < 49*time.Hour || s.Gaps != 1 {
		t.Errorf("%d runs, late by %v, %d gaps; want 1, 49 h, 1", s.Runs, s.Lateness.Max, s.Gaps)
	}
	if want := time.Date(2026, 1, 4, 12, 0, 0, 0, time.UTC); !s.NextRun.Equal(want) {
		t.Errorf("NextRun = %v, want %v", s.NextRun, want)
	}
}

func TestAStalledProcessServesAScheduleOnce(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", everySecond{}, func(context.Context) error { w.note(""); return nil })
	w.advance(2 * time.Second)
	w.stall(10*time.Second + 500*time.Millisecond)
	w.advance(1500 * time.Millisecond)
	w.want(t, "1s ", "2s ", "12.5s ", "13s ", "14s ")
	if s := h.Snapshot(); s.Gaps != 1 || s.Ticks.Due() != 5 {
		t.Errorf("%d gaps, %+v; want 1, and 5 instants", s.Gaps, s.Ticks)
	}
	if got := w.m.Totals().ClockSteps; got != 0 {
		t.Errorf("ClockSteps = %d, want none: both hands moved", got)
	}
}

func TestSlewingIsFollowedWithoutAWord(t *testing.T) {
	for _, by := range []time.Duration{time.Millisecond, -time.Millisecond} {
		w, h := atNoon(t, 10*time.Minute)
		for range 500 {
			w.advance(time.Second)
			w.clk.StepWall(by)
		}
		w.advance(3 * time.Minute)
		if s := h.Snapshot(); s.Runs != 1 || w.m.Totals().ClockSteps != 0 {
			t.Errorf("%d runs, %d steps; want 1, 0", s.Runs, w.m.Totals().ClockSteps)
		}
		if at := h.LastRun().Truncate(24 * time.Hour).Add(12 * time.Hour); h.LastRun().Sub(at).Abs() > 25*time.Millisecond {
			t.Errorf("the run was at %v, want at noon", h.LastRun())
		}
		w.wantLog(t)
	}
}

func TestAScheduleNeverRunsBeforeItsInstantOnTheWallClock(t *testing.T) {
	w, h := atNoon(t, 500*time.Millisecond)
	w.clk.StepWall(-20 * time.Second) // and the watch has had no time to look
	w.advance(time.Second)
	if got := h.TotalRuns(); got != 0 {
		t.Errorf("%d runs at %v", got, w.clk.Now())
	}
	w.advance(30 * time.Second)
	w.want(t, w.lines[0])
	if want := "2026-01-01 12:00:00"; !strings.HasSuffix(w.lines[0], want) {
		t.Errorf("ran at %s, want %s", w.lines[0], want)
	}
}

func TestAClockWithOneHandIsNotWatched(t *testing.T) {
	mock := clock.NewMock()
	m := newManager(taskmanager.WithClock(mock))
	defer m.Close()
	h := must(m.Schedule("noon", noon, nothing))
	at := mock.Now().Add(12 * time.Hour)
	if next, ok := seam.Inspect(m).NextWake(); !ok || !next.Equal(at) {
		t.Errorf("the engine wakes up at %v, want %v", next, at)
	}
	tasktest.AdvanceMock(t, m, mock, 36*time.Hour)
	if h.TotalRuns() != 2 || h.Lateness().Max != 0 {
		t.Errorf("%d runs, late by up to %v; want 2, 0", h.TotalRuns(), h.Lateness().Max)
	}
}

func TestNextIsGivenWallInstantsWithoutAMonotonicReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		defer m.Close()
		must(m.Schedule("a", nextFunc(func(after time.Time) (time.Time, bool) {
			if after != after.Round(0) {
				t.Errorf("Next(%v) has a monotonic reading", after)
			}
			return after.Add(time.Second), true
		}), nothing))
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
	})
}

func TestABadScheduleStopsItsTaskOnlyWithATypedReason(t *testing.T) {
	for name, second := range map[string]func(after time.Time) (time.Time, bool){
		"panic":        func(time.Time) (time.Time, bool) { panic(errBoom) },
		"Goexit":       func(time.Time) (time.Time, bool) { runtime.Goexit(); return time.Time{}, false },
		"same instant": func(after time.Time) (time.Time, bool) { return after, true },
		"backward":     func(after time.Time) (time.Time, bool) { return after.Add(-time.Hour), true },
		"zero":         func(time.Time) (time.Time, bool) { return time.Time{}, true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var asked atomic.Int32
			h := w.schedule("bad", nextFunc(func(after time.Time) (time.Time, bool) {
				if asked.Add(1) > 3 {
					return second(after)
				}
				return everySecond{}.Next(after)
			}), nothing)
			other := w.schedule("good", everySecond{}, nothing)
			w.advance(10 * time.Second)
			if err := h.Err(); !errors.Is(err, taskmanager.ErrSchedule) || !errors.Is(err, taskmanager.ErrStopped) {
				t.Errorf("Err = %v, want %v in it", err, taskmanager.ErrSchedule)
			}
			if name == "panic" && !errors.Is(h.Err(), errBoom) {
				t.Errorf("Err = %v, want %v in it", h.Err(), errBoom)
			}
			if s := h.Snapshot(); s.State != taskmanager.Stopped || s.Runs < 2 || s.Runs > 3 {
				t.Errorf("%v after %d runs, want stopped", s.State, s.Runs)
			}
			if got := other.TotalRuns(); got != 10 {
				t.Errorf("the other task has %d runs, want 10", got)
			}
			w.wantLog(t, "ERROR task stopped bad")
			w.every("bad", time.Second, nothing)
		})
	}
}

func TestABadScheduleIsRefusedWhereItIsGiven(t *testing.T) {
	w := newWorld(t)
	interval := w.every("a", time.Second, nothing)
	for name, test := range map[string]struct {
		schedule taskmanager.Schedule
		is       error
	}{
		"nil":       {nil, taskmanager.ErrInvalidOption},
		"typed nil": {(*delaySchedule)(nil), taskmanager.ErrSchedule},
		"panic":     {nextFunc(func(time.Time) (time.Time, bool) { panic(errBoom) }), errBoom},
		"backward":  {nextFunc(func(at time.Time) (time.Time, bool) { return at.Add(-1), true }), taskmanager.ErrSchedule},
		"invalid":   {invalid{}, errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := w.m.Schedule("b", test.schedule, nothing); h != nil || !errors.Is(err, test.is) {
				t.Errorf("Schedule = %v, %v, want %v", h, err, test.is)
			}
			if err := interval.RescheduleWith(test.schedule); !errors.Is(err, test.is) {
				t.Errorf("RescheduleWith = %v, want %v", err, test.is)
			}
		})
	}
	if _, ok := w.m.Lookup("b"); ok {
		t.Error("a task although the call was refused")
	}
	w.advance(3 * time.Second)
	wantTicks(t, interval, taskmanager.Ledger{Ran: 3})
}

// invalid is a schedule that needs something before it can be scheduled.
type invalid struct{ everySecond }

func (invalid) Validate() error { return errBoom }

func TestAScheduleThatBlocksIsGivenUpAndHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager()
		defer m.Close()
		release := make(chan struct{})
		var asked atomic.Int32
		h := must(m.Schedule("stuck", nextFunc(func(after time.Time) (time.Time, bool) {
			if asked.Add(1) > 2 {
				<-release
			}
			return everySecond{}.Next(after)
		}), nothing))
		other := must(m.Schedule("other", everySecond{}, nothing))
		time.Sleep(20*time.Second + time.Millisecond)
		synctest.Wait()
		if err := h.Err(); !errors.Is(err, taskmanager.ErrSchedule) {
			t.Errorf("Err = %v, want %v", err, taskmanager.ErrSchedule)
		}
		if s := other.Snapshot(); s.Runs < 20 || s.Lateness.Max > time.Millisecond {
			t.Errorf("the other task has %d runs, late by up to %v", s.Runs, s.Lateness.Max)
		}
		runs := h.TotalRuns()
		close(release) // the late answer
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := h.Snapshot(); s.State != taskmanager.Stopped || s.Runs != runs {
			t.Errorf("after the late answer: %v, %d runs, want stopped, %d", s.State, s.Runs, runs)
		}
	})
}

func TestAManualScheduleWaitsForRunNow(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", manual{}, func(context.Context) error { w.note(""); return nil })
	w.advance(time.Hour)
	if s := h.Snapshot(); s.State != taskmanager.Scheduled || s.Runs != 0 || !s.NextRun.IsZero() {
		t.Errorf("%v, %d runs, next %v; want scheduled, 0, none", s.State, s.Runs, s.NextRun)
	}
	for range 2 {
		if err := h.RunNow(); err != nil {
			t.Fatal(err)
		}
		w.advance(time.Hour)
	}
	if err := errors.Join(h.Pause(), h.Resume()); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Hour)
	w.want(t, "1h0m0s ", "2h0m0s ")
	if s := h.Snapshot(); s.State != taskmanager.Scheduled || s.Ticks.Due() != 0 {
		t.Errorf("%v, %+v; want scheduled and no tick", s.State, s.Ticks)
	}
}

func TestAFixedDelayScheduleCountsFromTheEndOnMonotonicTimeAndEnds(t *testing.T) {
	w := newWorld(t)
	began := w.age
	var at []time.Duration
	h := w.schedule("a", delaySchedule{10 * time.Second, 4}, func(ctx context.Context) error {
		at = append(at, w.clk.Now().Sub(w.start))
		return w.clk.Sleep(ctx, 3*time.Second)
	})
	_ = began
	w.advance(24 * time.Second) // inside the second run's tail
	if len(at) != 2 || at[0] != 10*time.Second || at[1] != 23*time.Second {
		t.Errorf("runs at %v, want 10s, 23s", at)
	}
	w.advance(4 * time.Second)
	w.clk.StepWall(-2 * time.Hour) // moves nothing
	w.advance(9 * time.Second)
	if len(at) != 3 {
		t.Errorf("%d runs by 37s on the monotonic hand, want 3", len(at))
	}
	w.advance(time.Minute)
	if s := h.Snapshot(); s.State != taskmanager.Complete || s.Runs != 4 || s.Ticks.Due() != 4 || s.Gaps != 0 {
		t.Errorf("%v after %d runs, %+v; want complete, 4", s.State, s.Runs, s.Ticks)
	}
	if got := h.Options().MaxRuns; got != 4 {
		t.Errorf("effective MaxRuns = %d, want 4", got)
	}
}

func TestAScheduleWithoutAFurtherInstantIsComplete(t *testing.T) {
	w := newWorld(t)
	once := w.start.Add(10 * time.Second)
	h := w.schedule("once", nextFunc(func(after time.Time) (time.Time, bool) { return once, once.After(after) }), func(ctx context.Context) error {
		return w.clk.Sleep(ctx, 5*time.Second)
	})
	none := w.schedule("none", nextFunc(func(time.Time) (time.Time, bool) { return time.Time{}, false }), nothing)
	if got := none.State(); got != taskmanager.Complete {
		t.Errorf("a schedule without instants is %v, want complete", got)
	}
	w.advance(12 * time.Second)
	if got := h.State(); got != taskmanager.Running {
		t.Errorf("State = %v, want running", got)
	}
	w.advance(5 * time.Second)
	if s := h.Snapshot(); s.State != taskmanager.Complete || s.Successes != 1 || s.Err != nil {
		t.Errorf("%v, %d successes, %v; want complete, 1, nil", s.State, s.Successes, s.Err)
	}
}

func TestAScheduleHasJitterOnlyWhenAskedAndThenAlwaysTheSame(t *testing.T) {
	w := newWorld(t)
	offsets := map[string]map[time.Duration]int{"plain": {}, "jitter": {}}
	for name, opts := range map[string][]taskmanager.TaskOption{
		"plain":  nil,
		"jitter": {taskmanager.WithJitter(900 * time.Millisecond)},
	} {
		w.schedule(name, everySecond{}, func(context.Context) error {
			offsets[name][w.clk.Now().Sub(w.clk.Now().Truncate(time.Second))]++
			return nil
		}, opts...)
	}
	w.advance(30*time.Second + 950*time.Millisecond)
	if got := offsets["plain"]; len(got) != 1 || got[0] != 30 {
		t.Errorf("without jitter: starts by offset %v, want 30 at 0", got)
	}
	if got := offsets["jitter"]; len(got) != 1 {
		t.Errorf("with jitter: starts by offset %v, want one offset", got)
	}
}

func TestAScheduleHasAWindow(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", everySecond{}, func(context.Context) error { w.note(""); return nil },
		taskmanager.WithStartAt(w.start.Add(5*time.Second)), taskmanager.WithEndAt(w.start.Add(7*time.Second)))
	w.advance(20 * time.Second)
	w.want(t, "5s ", "6s ", "7s ")
	if got := h.State(); got != taskmanager.Complete {
		t.Errorf("State = %v, want complete", got)
	}
}

func TestAPauseOfAScheduleIsOneGap(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", everySecond{}, func(context.Context) error { w.note(""); return nil })
	w.advance(2500 * time.Millisecond)
	if err := h.Pause(); err != nil {
		t.Fatal(err)
	}
	w.advance(10 * time.Second)
	if got := h.State(); got != taskmanager.Paused {
		t.Errorf("State = %v, want paused", got)
	}
	if err := h.Resume(); err != nil {
		t.Fatal(err)
	}
	w.advance(1500 * time.Millisecond)
	w.want(t, "1s ", "2s ", "13s ", "14s ")
	if s := h.Snapshot(); s.Gaps != 1 || s.Ticks.Due() != s.Ticks.Ran+s.Ticks.SkippedPaused || s.Ticks.SkippedPaused != 1 {
		t.Errorf("%d gaps, %+v; want 1, and the one instant known skipped", s.Gaps, s.Ticks)
	}
}

func TestRescheduleBetweenIntervalAndSchedule(t *testing.T) {
	w := newWorld(t)
	h := w.every("a", 10*time.Second, func(context.Context) error { w.note(""); return nil })
	w.advance(12500 * time.Millisecond)
	if err := h.RescheduleWith(everySecond{}); err != nil {
		t.Fatal(err)
	}
	if h.Interval() != 0 || h.Schedule() != (everySecond{}) || h.Snapshot().Schedule != "every second" {
		t.Errorf("interval %v, schedule %v", h.Interval(), h.Snapshot().Schedule)
	}
	w.advance(2 * time.Second)
	if err := h.Reschedule(3 * time.Second); err != nil {
		t.Fatal(err)
	}
	if h.Interval() != 3*time.Second || h.Schedule() != nil || h.Snapshot().Schedule != "every 3s" {
		t.Errorf("interval %v, schedule %v", h.Interval(), h.Snapshot().Schedule)
	}
	w.advance(6 * time.Second)
	if err := h.RescheduleWith(manual{}); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Hour)
	w.want(t, "10s ", "13s ", "14s ", "17.5s ", "20.5s ")
	if s := h.Snapshot(); s.Ticks.Due() != 5 || s.Runs != 5 {
		t.Errorf("%+v in %d runs, want 5 instants", s.Ticks, s.Runs)
	}
}

func TestTheWatchEndsWithTheLastWallSchedule(t *testing.T) {
	clk := newHandClock()
	m := newManager(clk.option())
	defer m.Close()
	a, b := must(m.Schedule("a", noon, nothing)), must(m.Schedule("b", noon, nothing))
	a.Stop()
	if got := time.Duration(clk.armed() - clk.Mono()); got != time.Second {
		t.Errorf("the next look is in %v, want 1s", got)
	}
	if err := b.Reschedule(time.Hour); err != nil {
		t.Fatal(err)
	}
	clk.run(2 * time.Second)
	if got := time.Duration(clk.armed() - clk.Mono()); got < 50*time.Minute {
		t.Errorf("the engine wakes up in %v although nobody follows the wall clock", got)
	}
	b.Stop()
	if clk.armed() != 0 {
		t.Error("a timer is armed although there is no task")
	}
}
