package taskmanager_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

func (everySecond) Next(after time.Time) (time.Time, bool) {
	return after.Truncate(time.Second).Add(time.Second), true
}

func (everySecond) String() string { return "every second" }

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

func (invalid) Validate() error { return errBoom }

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

func TestAStepDuringAPauseIsFollowedAtResume(t *testing.T) {
	for _, test := range []struct {
		step time.Duration
		want []string // runs in the two hours after Resume
		next string
	}{
		{59 * time.Minute, []string{"2026-01-01 12:00:00"}, "2026-01-02 12:00:00"},
		{-time.Hour, []string{"2026-01-01 12:00:00"}, "2026-01-02 12:00:00"},
		{-24 * time.Hour, []string{"2025-12-31 12:00:00"}, "2026-01-01 12:00:00"},
	} {
		w, h := atNoon(t, time.Hour)
		w.advance(10 * time.Second)
		if err := h.Pause(); err != nil {
			t.Fatal(err)
		}
		w.clk.StepWall(test.step)
		w.advance(5 * time.Second)
		if err := h.Resume(); err != nil {
			t.Fatal(err)
		}
		w.advance(2*time.Hour + time.Minute)
		var got []string
		for _, line := range w.lines {
			_, at, _ := strings.Cut(line, " ")
			got = append(got, at)
		}
		if !slices.Equal(got, test.want) || h.NextRun().Format(time.DateTime) != test.next {
			t.Errorf("step %v: runs at %v, next %v; want %v, %s", test.step, got, h.NextRun(), test.want, test.next)
		}
	}
}

func TestAStepDuringARunIsFollowed(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, -24 * time.Hour} {
		w := newWorld(t)
		h := w.schedule("a", everySecond{}, func(ctx context.Context) error {
			if w.age > 0 {
				return nil
			}
			return w.clk.Sleep(ctx, 20*time.Second) // the first one, from 1 s to 21 s
		})
		w.advance(5 * time.Second)
		w.clk.StepWall(step)
		w.advance(20 * time.Second)
		before := h.TotalRuns()
		w.advance(2 * time.Hour)
		runs := h.TotalRuns() - before
		most, least := uint64(7201), uint64(7199)
		if step == -time.Hour {
			most, least = 3622, 3618 // mute until the last instant passes, at 1h5s
		}
		if runs < least || runs > most {
			t.Errorf("step %v: %d runs in two hours, want %d to %d", step, runs, least, most)
		}
		if s := h.Snapshot(); s.State != taskmanager.Scheduled || s.NextRun.Sub(w.clk.Now()) > time.Second {
			t.Errorf("step %v: %v, next run in %v", step, s.State, s.NextRun.Sub(w.clk.Now()))
		}
	}
}

// stepsClock is a schedule during whose n-th Next the wall clock is set.
func stepsClock(w *world, by time.Duration, n int, next nextFunc) nextFunc {
	asked := 0
	return func(after time.Time) (time.Time, bool) {
		if asked++; asked == n {
			defer w.clk.StepWall(by)
		}
		return next(after)
	}
}

// minuteLater is a schedule that is a fixed delay of a minute.
type minuteLater struct{ nextFunc }

func (minuteLater) FixedDelay() (time.Duration, int, bool) { return time.Minute, 0, true }

func TestAStepWhileAScheduleIsAskedMovesNoDelay(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		for n := 1; n <= 2; n++ { // the first question is the caller's, the second one the engine's
			t.Run(fmt.Sprint(by, n), func(t *testing.T) {
				w := newWorld(t)
				runs := 0
				s := stepsClock(w, by, n, delaySchedule{time.Minute, 0}.Next)
				w.schedule("a", minuteLater{s}, func(context.Context) error { runs++; return nil })
				for minute := range 4 {
					w.advance(59 * time.Second)
					if runs != minute {
						t.Errorf("%d runs a second before the end of minute %d, want %[2]d", runs, minute)
					}
					w.advance(time.Second)
					if runs != minute+1 {
						t.Errorf("%d runs at the end of minute %d, want %d", runs, minute, minute+1)
					}
				}
			})
		}
	}
}

func TestAStepBackWhileAScheduleIsAskedHasItAskedAgain(t *testing.T) {
	for n := 1; n <= 2; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWorld(t)
			w.clk.StepWall(12*time.Hour - time.Minute)
			h := w.schedule("a", stepsClock(w, -26*time.Hour, n, noon.Next), nothing) // the first that follows the clock
			for range n - 1 {
				w.advance(time.Minute)
			}
			w.advance(2 * time.Second) // and the step has been looked at
			if in := h.NextRun().Sub(w.clk.Now()); in < 0 || in > 3*time.Hour {
				t.Errorf("the next run is in %v, want it at the noon before the one that was answered", in)
			}
		})
	}
}

func TestOnAMockWhatIsDueAtOnceWaitsForNoMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(taskmanager.WithClock(clock.NewMock()))
		defer m.Close()
		h := must(m.ScheduleRecurring("a", time.Hour, nothing, taskmanager.WithImmediately(), taskmanager.WithJitter(0)))
		synctest.Wait()
		if got := h.Successes(); got != 1 {
			t.Errorf("%d runs, want 1", got)
		}
		served := false
		seam.HostOf(m).Go(func() { served = true })
		synctest.Wait()
		if !served {
			t.Error("what is to start at once has not")
		}
	})
}

// slowPolicy is a policy that takes until the channel is closed.
type slowPolicy chan struct{}

func (slowPolicy) Reset() {}
func (p slowPolicy) NextBackOff() time.Duration {
	<-p
	return time.Second
}

func TestAMockThatMovesWhileARunEndsPutsOffNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := clock.NewMock()
		m := newManager(taskmanager.WithClock(mock), taskmanager.WithLogger(silent))
		defer m.Close()
		policy := make(slowPolicy)
		h := must(m.ScheduleRecurring("a", time.Second, fails, taskmanager.WithJitter(0),
			taskmanager.WithBackoff(func() backoff.BackOff { return policy })))
		mock.Add(time.Second) // the run's end, and so the next begins at 2 s
		synctest.Wait()
		mock.Add(500 * time.Millisecond)
		close(policy)
		synctest.Wait()
		mock.Add(500 * time.Millisecond)
		synctest.Wait()
		if got := h.Failures(); got != 2 {
			t.Errorf("%d runs at the end of the delay, want 2", got)
		}
	})
}

// A crossedClock only ever moves forward, and has readers overtake each other between
// their look at it and their return.
type crossedClock struct {
	*clock.Mock
	start time.Time
	looks atomic.Int64
}

func (c *crossedClock) Now() time.Time {
	now := c.start.Add(time.Duration(c.looks.Add(1)) * time.Microsecond)
	runtime.Gosched()
	return now
}

func TestReadersThatOvertakeEachOtherAreNoStepBack(t *testing.T) {
	clk := &crossedClock{Mock: clock.NewMock(), start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m := newManager(taskmanager.WithClock(clk))
	defer m.Close()
	hands := seam.HostOf(m).Now
	wall, mono := hands()
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 1000 {
				hands()
			}
		})
	}
	readers.Wait()
	wallLater, monoLater := hands()
	if moved, want := time.Duration(monoLater-mono), wallLater.Sub(wall); moved != want {
		t.Errorf("the monotonic hand has moved by %v, want %v as the wall clock has", moved, want)
	}
}
