package taskmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// Each of these was a fault once. They are kept as promises of the whole kind.

var policies = []taskmanager.OverlapPolicy{taskmanager.Skip, taskmanager.Coalesce, taskmanager.CatchUp(3)}

var minutely = nextFunc(func(after time.Time) (time.Time, bool) {
	return after.Truncate(time.Minute).Add(time.Minute), true
})

func (w *world) stateIs(h *taskmanager.Handle, want taskmanager.State) {
	w.t.Helper()
	if got := h.State(); got != want {
		w.t.Errorf("state %v, want %v\n%s\n%+v", got, want, h.Explain(), h.Ticks())
	}
}

func TestLookingAtATaskChangesNothing(t *testing.T) {
	looks := map[string]func(*world, *taskmanager.Handle){
		"not":      func(*world, *taskmanager.Handle) {},
		"Snapshot": func(_ *world, h *taskmanager.Handle) { h.Snapshot() },
		"Explain":  func(_ *world, h *taskmanager.Handle) { _ = h.Explain() },
		"Totals":   func(w *world, _ *taskmanager.Handle) { w.m.Totals() },
		"Report":   func(w *world, _ *taskmanager.Handle) { _ = w.m.Report() },
	}
	for _, kind := range []string{"interval", "schedule", "skip", "coalesce", "catch-up 3", "paused"} {
		play := func(look func(*world, *taskmanager.Handle)) (ticks []taskmanager.Ledger, lines []string) {
			w := newWorld(t)
			runs := 0
			body := func(ctx context.Context) error {
				w.note("run")
				if runs++; runs == 1 {
					return errBoom
				}
				return w.clk.Sleep(ctx, 100*time.Second)
			}
			h := w.every("task", time.Minute, body, backingOffFor(90*time.Second))
			var policy taskmanager.OverlapPolicy
			switch {
			case kind == "schedule":
				w.stop(h)
				h = w.schedule("task", minutely, body, backingOffFor(90*time.Second))
			case kind == "paused":
				_ = h.Pause()
			case policy.UnmarshalText([]byte(kind)) == nil:
				w.stop(h)
				h = w.every("task", time.Minute, body, backingOffFor(90*time.Second), taskmanager.WithOverlap(policy))
			}
			for i := range 40 {
				w.advance(25 * time.Second)
				look(w, h)
				if i == 30 && kind == "paused" {
					_ = h.Resume()
				}
				if i%10 == 9 {
					ticks = append(ticks, h.Ticks())
				}
			}
			w.note("end")
			return ticks, w.lines
		}
		wantTicks, wantLines := play(looks["not"])
		for name, look := range looks {
			if ticks, lines := play(look); !slices.Equal(ticks, wantTicks) || !slices.Equal(lines, wantLines) {
				t.Errorf("%s, looked at by %s:\n%+v\n%q\nwant, as when nobody looks:\n%+v\n%q", kind, name, ticks, lines, wantTicks, wantLines)
			}
		}
	}
}

func TestAHeldTickOfAScheduleIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	fail := true
	h := w.schedule("task", minutely, func(context.Context) error {
		if fail {
			fail = false
			return errBoom
		}
		return nil
	}, backingOffFor(90*time.Second))
	w.advance(125 * time.Second) // ran at 60 s, held at 120 s, floor at 150 s
	h.Snapshot()
	wantTicks(t, h, taskmanager.Ledger{Ran: 1, Pending: 1})
	w.advance(30 * time.Second)
	wantTicks(t, h, taskmanager.Ledger{Ran: 2})
}

func TestEachOfOverlappingRunsHasItsOwnTimeLimitAndLateness(t *testing.T) {
	w := newWorld(t)
	long := map[int64]time.Duration{1: 30 * time.Second, 2: time.Second, 4: 30 * time.Second}
	h := w.ticks("task", time.Second, func(ctx context.Context, tick taskmanager.Tick) error {
		if d := long[tick.Index]; d > 0 {
			err := w.clk.Sleep(ctx, d)
			w.note("tick %d: %v", tick.Index, context.Cause(ctx))
			return err
		}
		return nil
	}, taskmanager.WithNonReentrant(false), taskmanager.WithExecutionTimeout(3500*time.Millisecond), taskmanager.WithBackoffCap(0))
	w.advance(20 * time.Second)
	w.want(t, "3s tick 2: <nil>", "4.5s tick 1: "+taskmanager.ErrExecutionTimeout.Error(), "7.5s tick 4: "+taskmanager.ErrExecutionTimeout.Error())
	if s := h.Snapshot(); s.Timeouts != 2 || s.InFlight != 0 || s.Lateness.Max != 0 {
		t.Errorf("time-outs %d, in flight %d, lateness up to %v, want 2, 0, 0", s.Timeouts, s.InFlight, s.Lateness.Max)
	}
}

func TestAReentrantTaskAtALimitLeaksNoPlace(t *testing.T) {
	ends := map[string]func(*taskmanager.Handle){
		"Stop":       (*taskmanager.Handle).Stop,
		"Pause":      func(h *taskmanager.Handle) { _ = h.Pause() },
		"Reschedule": func(h *taskmanager.Handle) { _ = h.Reschedule(1000 * time.Hour) },
		"RunNow":     func(h *taskmanager.Handle) { _ = h.RunNow(); _ = h.RunNow(); h.Stop() },
	}
	for name, end := range ends {
		for places := 1; places <= 3; places++ {
			for _, skips := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d places, skips %v", name, places, skips), func(t *testing.T) {
					w := newWorld(t, taskmanager.WithMaxConcurrentRuns(places), taskmanager.WithTagLimit("x", places))
					opts := []taskmanager.TaskOption{taskmanager.WithNonReentrant(false), taskmanager.WithTag("x")}
					if skips {
						opts = append(opts, taskmanager.WithSkipOverLimit())
					}
					h := w.every("task", time.Second, func(ctx context.Context) error {
						return w.clk.Sleep(context.WithoutCancel(ctx), 10*time.Second)
					}, opts...)
					w.advance(4500 * time.Millisecond)
					if got := h.Ticks().Due(); got != 4 {
						t.Errorf("the ledger has %d ticks, want 4: %+v", got, h.Ticks())
					}
					end(h)
					w.advance(30 * time.Second)
					// Every place can be had again.
					var others []*taskmanager.Handle
					for i := range places {
						others = append(others, w.every(fmt.Sprint(i), time.Second, w.sleeper("", 900*time.Millisecond), taskmanager.WithTag("x")))
					}
					w.advance(5950 * time.Millisecond)
					for _, o := range others {
						if s := o.Snapshot(); s.Runs != 5 || s.Lateness.Max != 0 {
							t.Errorf("%s ran %d times, late up to %v, want 5, 0:\n%s", s.Name, s.Runs, s.Lateness.Max, o.Explain())
						}
					}
				})
			}
		}
	}
}

func TestAChangeWhileTheScheduleIsBeingAskedStrandsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*taskmanager.Handle) error
		least  uint64 // runs in the five minutes after it
	}{
		"Reschedule":     {func(h *taskmanager.Handle) error { return h.Reschedule(time.Second) }, 299},
		"RescheduleWith": {func(h *taskmanager.Handle) error { return h.RescheduleWith(everySecond{}) }, 299},
		"Pause, Resume":  {func(h *taskmanager.Handle) error { return errors.Join(h.Pause(), h.Resume()) }, 4},
		"RunNow":         {func(h *taskmanager.Handle) error { return h.RunNow() }, 5},
		"nothing":        {func(*taskmanager.Handle) error { return nil }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager()
				defer m.Close()
				s := &stuck{release: make(chan struct{})}
				h := must(m.Schedule("task", s, nothing))
				time.Sleep(61 * time.Second) // it ran once, and the schedule has been asked
				before := h.TotalRuns()
				if err := c.change(h); err != nil {
					t.Fatal(err)
				}
				close(s.release)
				time.Sleep(5 * time.Minute)
				if runs := h.TotalRuns() - before; runs < c.least {
					t.Errorf("%d runs in five minutes, want %d and more\n%s", runs, c.least, h.Explain())
				}
				h.Stop()
				if err := h.Wait(t.Context()); err != nil {
					t.Errorf("Wait = %v", err)
				}
			})
		})
	}
}

func TestInstantsFurtherThanNanosecondsCountAreFarAway(t *testing.T) {
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, end := range []time.Time{far, time.Unix(0, math.MaxInt64), time.Unix(1<<40, 0), far.AddDate(100_000, 0, 0)} {
		w := newWorld(t)
		for _, h := range []*taskmanager.Handle{
			w.every("interval", time.Second, nothing, taskmanager.WithEndAt(end)),
			w.every("delay", time.Second, nothing, taskmanager.WithEndAt(end), taskmanager.WithFixedDelay()),
			w.schedule("schedule", everySecond{}, nothing, taskmanager.WithEndAt(end)),
		} {
			w.advance(5500 * time.Millisecond)
			if h.TotalRuns() < 5 || h.State() != taskmanager.Scheduled {
				t.Errorf("%s until %v: %d runs, %v, want 5 and more", h.Name(), end, h.TotalRuns(), h.State())
			}
		}
	}
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	for _, h := range []*taskmanager.Handle{
		must(m.ScheduleRecurring("start", time.Second, nothing, taskmanager.WithStartAt(far))),
		must(m.ScheduleRecurring("local start", time.Second, nothing, taskmanager.WithStartAt(far.Local()))),
		must(m.ScheduleTicks("ticks", time.Second, func(context.Context, taskmanager.Tick) error { return nil }, taskmanager.WithStartAt(far.Local()))),
		must(m.ScheduleRecurring("interval", math.MaxInt64, nothing)),
		must(m.ScheduleRecurring("delay", math.MaxInt64, nothing, taskmanager.WithFixedDelay())),
		must(m.Schedule("schedule", nextFunc(func(time.Time) (time.Time, bool) { return far, true }), nothing)),
	} {
		clk.Advance(time.Minute)
		if s := h.Snapshot(); s.Runs != 0 || s.Ticks.Due() != 0 || s.State != taskmanager.Scheduled {
			t.Errorf("%s: %v, %d runs, ticks %+v, want none for a long time", s.Name, s.State, s.Runs, s.Ticks)
		}
	}
}

func TestATaskIsCompleteHoweverItsLastTickEnds(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		fails bool
		opts  []taskmanager.TaskOption
		hog   bool // another task has the only place, for a minute
		pause bool // across the end
	}{
		"ran":                     {},
		"late, at a limit":        {hog: true},
		"skipped over a limit":    {hog: true, opts: []taskmanager.TaskOption{taskmanager.WithSkipOverLimit()}},
		"skipped while running":   {lasts: 8 * time.Second},
		"coalesced":               {lasts: 8 * time.Second, opts: []taskmanager.TaskOption{taskmanager.WithOverlap(taskmanager.Coalesce)}},
		"caught up":               {lasts: 8 * time.Second, opts: []taskmanager.TaskOption{taskmanager.WithOverlap(taskmanager.CatchUp(1))}},
		"held by backoff":         {fails: true, opts: []taskmanager.TaskOption{backingOffFor(20 * time.Second)}},
		"skipped while paused":    {pause: true},
		"reentrant, at a limit":   {hog: true, opts: []taskmanager.TaskOption{taskmanager.WithNonReentrant(false)}},
		"reentrant, skipped over": {hog: true, opts: []taskmanager.TaskOption{taskmanager.WithNonReentrant(false), taskmanager.WithSkipOverLimit()}},
	} {
		for _, interval := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, interval %v", name, interval), func(t *testing.T) {
				w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
				if c.hog {
					w.every("hog", 2*time.Second, w.sleeper("hog", time.Minute), taskmanager.WithMaxRuns(1))
				}
				body := func(ctx context.Context) error {
					if err := w.clk.Sleep(ctx, c.lasts); err != nil || c.fails {
						return errors.Join(err, errBoom)
					}
					return nil
				}
				opts := append(c.opts, taskmanager.WithEndAt(w.clk.Now().Add(12*time.Second)))
				var h *taskmanager.Handle
				if interval {
					h = w.every("task", 5*time.Second, body, opts...)
				} else {
					h = w.schedule("task", nextFunc(func(after time.Time) (time.Time, bool) {
						return after.Truncate(5 * time.Second).Add(5 * time.Second), true
					}), body, opts...)
				}
				w.advance(7 * time.Second)
				if c.pause {
					_ = h.Pause()
				}
				w.advance(30 * time.Second)
				if c.pause {
					_ = h.Resume()
				}
				w.advance(2 * time.Minute)
				w.stateIs(h, taskmanager.Complete)
				if !isDone(h.Done()) {
					t.Error("Done is not closed")
				}
			})
		}
	}
}

func TestTheLastOfMaxRunsCompletesATaskHoweverItEnds(t *testing.T) {
	for _, policy := range policies {
		for name, last := range map[string]func(context.Context) error{
			"succeeds": nothing,
			"fails":    fails,
			"panics":   func(context.Context) error { panic("as told") },
			"Goexit":   func(context.Context) error { runtime.Goexit(); return nil },
			"outlives": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		} {
			t.Run(fmt.Sprint(policy, ", ", name), func(t *testing.T) {
				w := newWorld(t)
				runs := 0
				h := w.every("task", time.Second, func(ctx context.Context) error {
					runs++
					err := w.clk.Sleep(ctx, 3500*time.Millisecond)
					if runs == 1 {
						return err
					}
					if name == "outlives" {
						_ = w.clk.Sleep(ctx, time.Hour)
					}
					return last(ctx)
				}, taskmanager.WithMaxRuns(2), taskmanager.WithOverlap(policy), taskmanager.WithExecutionTimeout(4*time.Second), backingOffFor(time.Millisecond))
				w.advance(time.Minute)
				w.stateIs(h, taskmanager.Complete)
				if got := h.TotalRuns(); got != 2 || h.Ticks().Pending != 0 {
					t.Errorf("%d runs, ticks %+v, want 2 runs and nothing pending", got, h.Ticks())
				}
			})
		}
	}
}

func TestRescheduleWithHonoursTheSchedulesRunCount(t *testing.T) {
	w := newWorld(t)
	h := w.every("task", time.Second, nothing)
	w.advance(5500 * time.Millisecond)
	if err := h.RescheduleWith(delaySchedule{time.Second, 3}); err != nil {
		t.Fatal(err)
	}
	w.advance(1500 * time.Millisecond)
	if err := h.RescheduleWith(delaySchedule{time.Second, 2}); err != nil { // a count of its own
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.stateIs(h, taskmanager.Complete)
	if got := h.TotalRuns(); got != 5+1+2 {
		t.Errorf("%d runs, want 8: five of the interval, one and two of the schedules", got)
	}

	h = w.every("again", time.Hour, nothing)
	_ = h.RescheduleWith(delaySchedule{time.Second, 2})
	w.advance(1500 * time.Millisecond)
	_ = h.Reschedule(time.Second) // the count was the schedule's, and goes with it
	w.advance(10 * time.Second)
	if got := h.TotalRuns(); got != 11 {
		t.Errorf("%d runs, want 11", got)
	}
}

func TestNextRunIsNeverInThePast(t *testing.T) {
	for _, policy := range policies {
		for _, kind := range []string{"interval", "schedule"} {
			for name, body := range map[string]taskmanager.Func{"slow": nothing, "failing": fails, "quick": nothing, "failing slowly": fails} {
				w := newWorld(t)
				w.advance(time.Hour)
				if result := body; name == "slow" || name == "failing slowly" {
					body = func(ctx context.Context) error {
						return errors.Join(w.clk.Sleep(ctx, 3700*time.Millisecond), result(ctx))
					}
				}
				opts := []taskmanager.TaskOption{taskmanager.WithOverlap(policy), backingOffFor(2300 * time.Millisecond)}
				var h *taskmanager.Handle
				if kind == "interval" {
					h = w.every("task", time.Second, body, opts...)
				} else {
					h = w.schedule("task", everySecond{}, body, opts...)
				}
				known := 0
				for i := range 200 {
					if i%9 == 0 {
						_ = h.RunNow() // during backoff, too, and beyond its end
					}
					w.advance(330 * time.Millisecond)
					next := h.NextRun()
					if !next.IsZero() {
						known++
					}
					if !next.IsZero() && next.Before(w.clk.Now()) {
						t.Fatalf("%s, %v, %s: NextRun = now%v\n%s", kind, policy, name, next.Sub(w.clk.Now()), h.Explain())
					}
				}
				if known == 0 {
					t.Errorf("%s, %v, %s: NextRun is never known", kind, policy, name)
				}
			}
		}
	}
}

func TestChangesInTheMidstOfABatchDoNotExceedTheLimit(t *testing.T) {
	for places := 1; places <= 3; places++ {
		for name, change := range map[string]func(a, b *taskmanager.Handle){
			"pause, resume, run": func(a, b *taskmanager.Handle) {
				_ = b.RunNow()
				_ = a.Pause()
				_ = a.Resume()
				_ = a.RunNow()
			},
			"pause, resume":   func(a, b *taskmanager.Handle) { _ = b.RunNow(); _ = a.Pause(); _ = a.Resume() },
			"reschedule, run": func(a, b *taskmanager.Handle) { _ = b.RunNow(); _ = a.Reschedule(time.Second); _ = a.RunNow() },
			"stop":            func(a, b *taskmanager.Handle) { a.Stop(); _ = b.RunNow() },
		} {
			t.Run(fmt.Sprintf("%s, %d places", name, places), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newManager(taskmanager.WithMaxConcurrentRuns(places))
					defer m.Close()
					var running, peak atomic.Int64
					body := func(context.Context) error {
						if n := running.Add(1); n > peak.Load() {
							peak.Store(n)
						}
						time.Sleep(10 * time.Second)
						running.Add(-1)
						return nil
					}
					var a, b atomic.Pointer[taskmanager.Handle]
					var once sync.Once
					opts := taskmanager.WithJitter(0)
					must(m.ScheduleRecurring("first", time.Second, func(ctx context.Context) error {
						once.Do(func() { change(a.Load(), b.Load()) })
						return body(ctx)
					}, opts))
					a.Store(must(m.ScheduleRecurring("a", time.Second, body, opts)))
					b.Store(must(m.ScheduleRecurring("b", time.Hour, body, opts)))
					for i := range places - 2 { // begin before, so that "first" and "a" have the last two places
						must(m.ScheduleRecurring(fmt.Sprint("before ", i), 500*time.Millisecond, body, opts))
					}
					for i := range places {
						must(m.ScheduleRecurring(fmt.Sprint("after ", i), 1100*time.Millisecond, body, opts))
					}
					time.Sleep(45 * time.Second)
					if got := peak.Load(); got != int64(places) {
						t.Errorf("%d runs at once, want %d", got, places)
					}
					for h := range m.Tasks() {
						_ = h.Pause()
					}
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

func TestAStepOfTheClockDuringAPauseIsFollowedFromTheResumption(t *testing.T) {
	for _, step := range []time.Duration{0, 40 * time.Second, time.Minute, 90 * time.Second, 100*24*time.Hour + time.Second, -40 * time.Second, -30 * time.Hour} {
		for _, watched := range []time.Duration{0, 2 * time.Second} { // the step is seen during the pause, or not
			w := newWorld(t)
			var ran []string
			h := w.schedule("task", minutely, func(context.Context) error {
				ran = append(ran, w.clk.Now().Format(time.DateTime))
				return nil
			})
			_ = h.Pause()
			w.clk.StepWall(step)
			w.advance(watched)
			if err := h.Resume(); err != nil {
				t.Fatal(err)
			}
			next, _ := minutely(w.clk.Now())
			w.advance(next.Sub(w.clk.Now()) + time.Second)
			if want := []string{next.Format(time.DateTime)}; !slices.Equal(ran, want) {
				t.Errorf("after a step of %v, watched for %v, and resumed: ran at %v, want %v", step, watched, ran, want)
			}
		}
	}
}

func TestARefusedRunNowLeavesTheHeldTickAlone(t *testing.T) {
	for _, refusals := range []int{0, 1, 3} {
		w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
		h := w.every("task", time.Second, fails, taskmanager.WithSkipOverLimit(), backingOffFor(1500*time.Millisecond))
		w.advance(2200 * time.Millisecond) // failed at 1 s, tick 2 is held until 2.5 s
		hog := w.every("hog", time.Hour, w.sleeper("hog", 100*time.Millisecond))
		if err := hog.RunNow(); err != nil {
			t.Fatal(err)
		}
		wantTicks(t, h, taskmanager.Ledger{Ran: 1, Pending: 1})
		for range refusals {
			if err := h.RunNow(); !errors.Is(err, taskmanager.ErrLimitReached) {
				t.Fatalf("RunNow = %v, want %v", err, taskmanager.ErrLimitReached)
			}
		}
		w.advance(400 * time.Millisecond)
		wantTicks(t, h, taskmanager.Ledger{Ran: 2})
	}
}

func TestAnObserverThatEndsItsGoroutineStrandsNoRun(t *testing.T) {
	for _, policy := range policies {
		for name, end := range map[string]func(){
			"returns": func() {},
			"panics":  func() { panic("as told") },
			"Goexit":  runtime.Goexit,
		} {
			m, clk := tasktest.New(t, taskmanager.WithLogger(silent), taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) { end() })))
			h := must(m.ScheduleRecurring("task", time.Second, func(ctx context.Context) error { return clk.Sleep(ctx, 1500*time.Millisecond) },
				taskmanager.WithJitter(0), taskmanager.WithOverlap(policy)))
			clk.Advance(20900 * time.Millisecond)
			want := map[taskmanager.OverlapPolicy]uint64{taskmanager.Skip: 10, taskmanager.Coalesce: 14, taskmanager.CatchUp(3): 14}[policy]
			if s := h.Snapshot(); s.Failures > 0 || s.Runs != want || s.Ticks.Due() != 20 {
				t.Errorf("%v, observer %s: %d runs, %d failed, ticks %+v, want %d runs\n%s", policy, name, s.Runs, s.Failures, s.Ticks, want, h.Explain())
			}
			if got := m.Totals().EnginePanics; got != 0 {
				t.Errorf("%v, observer %s: EnginePanics = %d, want 0", policy, name, got)
			}
		}
	}
}

func TestAStoppedTaskIsNotKept(t *testing.T) {
	for name, stop := range map[string]func(*taskmanager.TaskManager, *tasktest.Clock, *taskmanager.Handle){
		"idle": func(_ *taskmanager.TaskManager, _ *tasktest.Clock, h *taskmanager.Handle) { h.Stop() },
		"after a run": func(_ *taskmanager.TaskManager, clk *tasktest.Clock, h *taskmanager.Handle) {
			clk.Advance(1700 * time.Millisecond)
			h.Stop()
		},
		"during a run": func(_ *taskmanager.TaskManager, clk *tasktest.Clock, h *taskmanager.Handle) {
			clk.Advance(1100 * time.Millisecond)
			h.Stop()
		},
		"during RunNow": func(_ *taskmanager.TaskManager, clk *tasktest.Clock, h *taskmanager.Handle) { _ = h.RunNow(); h.Stop() },
		"paused":        func(_ *taskmanager.TaskManager, _ *tasktest.Clock, h *taskmanager.Handle) { _ = h.Pause(); h.Stop() },
		"by its manager": func(m *taskmanager.TaskManager, clk *tasktest.Clock, _ *taskmanager.Handle) {
			clk.Advance(1100 * time.Millisecond)
			m.StopTag("x")
		},
	} {
		for _, obeys := range []bool{true, false} {
			for limit, opts := range map[string][]taskmanager.TaskOption{"no limit": nil, "time limit": {taskmanager.WithExecutionTimeout(time.Minute)}} {
				t.Run(fmt.Sprintf("%s, obeys %v, %s", name, obeys, limit), func(t *testing.T) {
					m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
					var kept []weak.Pointer[taskmanager.Handle]
					for i := range 20 {
						kept = append(kept, stopOne(m, clk, fmt.Sprint(i), obeys, opts, stop))
					}
					clk.Advance(time.Hour)
					if deadlines, batches, ending := taskmanager.Dangling(m); deadlines+batches+ending > 0 {
						t.Errorf("left over: %d deadlines, %d batches, %d tasks", deadlines, batches, ending)
					}
					runtime.GC()
					n := 0
					for _, p := range kept {
						if p.Value() != nil {
							n++
						}
					}
					if n > 2 { // the last may be in a register or a buffer still
						t.Errorf("%d of 20 stopped tasks are still in memory", n)
					}
					runtime.KeepAlive(m)
				})
			}
		}
	}
}

// stopOne schedules a task and stops it, in a frame of its own, so that nothing of it
// is left on the stack.
//
//go:noinline
func stopOne(m *taskmanager.TaskManager, clk *tasktest.Clock, name string, obeys bool, opts []taskmanager.TaskOption, stop func(*taskmanager.TaskManager, *tasktest.Clock, *taskmanager.Handle)) weak.Pointer[taskmanager.Handle] {
	h := must(m.ScheduleRecurring(name, time.Second, func(ctx context.Context) error {
		if !obeys {
			ctx = context.WithoutCancel(ctx)
		}
		return clk.Sleep(ctx, 500*time.Millisecond)
	}, append(opts, taskmanager.WithJitter(0), taskmanager.WithTag("x"))...))
	stop(m, clk, h)
	clk.Advance(time.Second)
	return weak.Make(h)
}

func TestAFollowingRunDoesNotOvertakeThoseThatWaitAtTheLimit(t *testing.T) {
	for _, policy := range []taskmanager.OverlapPolicy{taskmanager.Coalesce, taskmanager.CatchUp(1), taskmanager.CatchUp(5)} {
		w := newWorld(t, taskmanager.WithMaxConcurrentRuns(1))
		w.every("always behind", time.Second, w.sleeper("", 1500*time.Millisecond), taskmanager.WithOverlap(policy))
		var others []*taskmanager.Handle
		for i := range 3 {
			others = append(others, w.every(fmt.Sprint(i), 20*time.Second, nothing))
		}
		w.advance(2 * time.Minute)
		for _, h := range others {
			// The run in flight, and those of ticks that were due before: 5 held at most.
			if s := h.Snapshot(); s.Runs < 5 || s.Lateness.Max > 10*time.Second {
				t.Errorf("%v: %s ran %d times, late up to %v:\n%s", policy, s.Name, s.Runs, s.Lateness.Max, h.Explain())
			}
		}
	}
}

func TestAJitterLongerThanThePeriodLosesNoInstant(t *testing.T) {
	for _, jitter := range []time.Duration{0, time.Second, 20 * time.Second, 5 * time.Minute} {
		m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
		h := must(m.Schedule("task", everySecond{}, nothing, taskmanager.WithJitter(jitter)))
		clk.Advance(10*time.Minute + jitter)
		if s := h.Snapshot(); s.Runs < 600 || s.Gaps > 0 || s.Ticks.Ran != s.Ticks.Due() {
			t.Errorf("jitter %v: %d runs in ten minutes, %d gaps, ticks %+v", jitter, s.Runs, s.Gaps, s.Ticks)
		}
	}
}

func TestOptionsStayWhatWasGiven(t *testing.T) {
	for name, end := range map[string]func(*world, *taskmanager.Handle){
		"MaxRuns":    func(w *world, _ *taskmanager.Handle) { w.advance(time.Minute) },
		"Stop":       func(w *world, h *taskmanager.Handle) { w.stop(h) },
		"RunNow":     func(w *world, h *taskmanager.Handle) { _ = h.RunNow(); _ = h.RunNow(); w.advance(time.Minute) },
		"Reschedule": func(w *world, h *taskmanager.Handle) { _ = h.Reschedule(time.Minute); w.advance(time.Hour) },
		"RescheduleWith": func(w *world, h *taskmanager.Handle) {
			_ = h.RescheduleWith(delaySchedule{time.Second, 1})
			w.advance(time.Hour)
		},
		"a clock step": func(w *world, _ *taskmanager.Handle) { w.clk.StepWall(-time.Hour); w.advance(time.Minute) },
	} {
		for _, kind := range []string{"interval", "schedule"} {
			for _, window := range []bool{false, true} {
				w := newWorld(t)
				opts := []taskmanager.TaskOption{taskmanager.WithMaxRuns(2), taskmanager.WithTag("x"), taskmanager.WithJitter(0)}
				if window {
					opts = append(opts, taskmanager.WithEndAt(w.clk.Now().Add(100*time.Hour)))
				}
				var h *taskmanager.Handle
				if kind == "interval" {
					h = w.every("task", time.Second, nothing, opts...)
				} else {
					h = w.schedule("task", everySecond{}, nothing, opts...)
				}
				before := string(must(json.Marshal(h.Options())))
				end(w, h)
				if got := string(must(json.Marshal(h.Options()))); got != before {
					t.Errorf("%s, %s: Options = %s,\nwant %s", kind, name, got, before)
				}
			}
		}
	}
}

func TestUserCodeSeesASnapshotThatAddsUp(t *testing.T) {
	w := newWorld(t)
	var h *taskmanager.Handle
	look := func(where string) {
		s := h.Snapshot()
		if s.Runs != s.Successes+s.Failures+s.Cancelled+uint64(s.InFlight) || uint64(s.ConsecutiveFailures) > s.Failures || s.Ticks.Due() > s.Runs {
			t.Errorf("in %s: %+v", where, s)
		}
		w.note("%s", where)
	}
	h = w.every("task", time.Second, func(context.Context) error {
		look("run")
		return lookingError{look}
	}, taskmanager.WithMaxRuns(2), taskmanager.WithBackoff(func() backoff.BackOff {
		look("constructor")
		return lookingPolicy{look}
	}))
	w.advance(time.Minute)
	seen := map[string]bool{}
	for _, line := range w.lines {
		seen[line] = true
	}
	for _, want := range []string{"1s run", "1s constructor", "1s policy", "2s run", "2s policy"} {
		if !seen[want] {
			t.Errorf("%q is not among %q", want, w.lines)
		}
	}
}

// Errors and policies of the user's that look at their task when they are asked.
type (
	lookingError  struct{ look func(string) }
	lookingPolicy struct{ look func(string) }
)

func (e lookingError) Error() string               { e.look("error"); return "looking" }
func (p lookingPolicy) NextBackOff() time.Duration { p.look("policy"); return 0 }
func (p lookingPolicy) Reset()                     {}

func TestTheEndOfAWindowIsOnTheWallClock(t *testing.T) {
	for step, want := range map[time.Duration]uint64{
		0:                 2, // 0:01 and 0:02, and the end is at 0:02:30
		-2 * time.Minute:  4, // 23:59 and 0:00 before these
		90 * time.Second:  2, // 0:01 late, 0:02
		-90 * time.Second: 4, // 23:59, 0:00
		-26 * time.Minute: 28,
		3 * time.Minute:   1, // 0:01 late
	} {
		w := newWorld(t)
		h := w.schedule("task", minutely, nothing, taskmanager.WithEndAt(w.clk.Now().Add(150*time.Second)))
		w.clk.StepWall(step)
		w.advance(40 * time.Minute)
		if got := h.TotalRuns(); got != want || h.State() != taskmanager.Complete {
			t.Errorf("after a step of %v: %d runs, %v, want %d, %v", step, got, h.State(), want, taskmanager.Complete)
		}
	}
}
