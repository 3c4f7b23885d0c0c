package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
)

// everySecond is due at each full second.
type everySecond struct{}

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
	var at []time.Duration
	h := w.schedule("a", delaySchedule{10 * time.Second, 4}, func(ctx context.Context) error {
		at = append(at, w.clk.Now().Sub(w.start))
		return w.clk.Sleep(ctx, 3*time.Second)
	})
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
	if got := h.Options().MaxRuns; got != 0 {
		t.Errorf("Options().MaxRuns = %d, though the number is the schedule's", got)
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

// spent is a schedule with a fixed delay that has no instant.
type spent struct{ asked *atomic.Int32 }

func (s spent) Next(after time.Time) (time.Time, bool) { s.asked.Add(1); return after, false }
func (s spent) FixedDelay() (time.Duration, int, bool) { return time.Second, 0, true }

func TestAScheduleThatHasNoInstantIsAskedOnce(t *testing.T) {
	for range 100 {
		w := newWorld(t)
		s := spent{new(atomic.Int32)}
		h := w.schedule("a", s, nothing)
		w.advance(0)
		if n := s.asked.Load(); n != 1 || h.State() != taskmanager.Complete {
			t.Fatalf("asked %d times, %v; want once, complete", n, h.State())
		}
	}
}

// manualDelay says that it is manual, and that it has a fixed delay.
type manualDelay struct{ delaySchedule }

func (manualDelay) Manual() bool { return true }

func TestAManualScheduleHasNoInstantsWhateverElseItSays(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", manualDelay{delaySchedule{time.Second, 3}}, nothing)
	w.advance(time.Minute)
	if s := h.Snapshot(); s.Runs != 0 || !s.NextRun.IsZero() {
		t.Errorf("%d runs, the next at %v; want none", s.Runs, s.NextRun)
	}
}

func TestAFaultOfAScheduleStopsOnlyATaskThatHasItStill(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		w := newWorld(t)
		h := w.schedule("a", everySecond{}, nothing)
		stop := h.FaultOfSchedule() // found, and about to end the task
		if replaced {
			if err := h.RescheduleWith(everySecond{}); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if over := h.Err() != nil; over == replaced {
			t.Errorf("with another schedule: %v; Err() = %v", replaced, h.Err())
		}
	}
}

// moody says the first time what it is, and then panics.
type moody struct {
	everySecond
	asked *int
}

func (s moody) Manual() bool {
	if *s.asked++; *s.asked > 1 {
		panic("asked again")
	}
	return false
}

func TestAScheduleIsAskedOnceWhatItIs(t *testing.T) {
	w := newWorld(t)
	h := w.schedule("a", moody{asked: new(int)}, nothing)
	w.advance(time.Second)
	if err := h.RescheduleWith(moody{asked: new(int)}); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Second)
	wantTicks(t, h, taskmanager.Ledger{Ran: 2})
}

// The two hands of a real clock are not read at one instant.
func TestNextRunIsTheSchedulesInstantToTheNanosecond(t *testing.T) {
	m := newManager()
	defer m.Close()
	yearly := cronsched.MustParse("cron 0 0 0 1 1 *")
	want, _ := yearly.Next(time.Now())
	for i := range 2000 {
		h := must(m.Schedule(fmt.Sprint("a", i), yearly, nothing))
		if got, also := h.NextRun(), h.Snapshot().NextRun; !got.Equal(want) || !also.Equal(want) {
			t.Fatalf("NextRun = %v, in the snapshot %v, want %v", got, also, want)
		}
	}
}
