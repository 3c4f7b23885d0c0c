package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
)

// Many goroutines do everything at once to managers on the real clock, and another
// shuts them down in the middle.
func TestStartAndStopUnderStress(t *testing.T) {
	for round := range 8 {
		m := newManager(taskmanager.WithMaxConcurrentRuns(round%3*4), taskmanager.WithTagLimit("x", 2),
			taskmanager.WithTimerSlack(time.Duration(round%2)*time.Millisecond), taskmanager.WithShutdownGrace(time.Minute),
			taskmanager.WithObserver(taskmanager.ObserverFunc(func(taskmanager.Event) {})), taskmanager.WithLogger(slog.New(faultLog{silent.Handler(), t})))
		var kept sync.Map // every handle
		var runs atomic.Uint64
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
				var mine []*taskmanager.Handle
				for i := range 400 {
					if worker == 0 && i == 350 {
						ctx, cancel := context.WithCancel(context.Background())
						if round%2 == 0 {
							cancel()
						}
						if err := m.Shutdown(ctx); err != nil && !errors.As(err, new(*taskmanager.ShutdownError)) {
							t.Errorf("Shutdown = %v", err)
						}
						cancel()
						return
					}
					if len(mine) < 5 || random.IntN(10) == 0 {
						if h := randomTask(t, m, random, fmt.Sprint(worker, " ", i), &runs); h != nil {
							mine = append(mine, h)
							kept.Store(h, true)
						}
						continue
					}
					touch(t, m, mine[random.IntN(len(mine))], random)
				}
			})
		}
		all.Wait()
		_ = m.Close()
		var sum uint64
		kept.Range(func(key, _ any) bool {
			h := key.(*taskmanager.Handle)
			<-h.Done() // hangs if a run or a place is lost
			s := h.Snapshot()
			sum += s.Runs
			if s.InFlight != 0 || s.Ticks.Pending != 0 || s.Runs != s.Successes+s.Failures+s.Cancelled {
				t.Errorf("after Shutdown: %+v", s)
			}
			return true
		})
		totals := m.Totals()
		if sum != runs.Load() || totals.Runs != sum || totals.Running != 0 || totals.Tasks != 0 || totals.EnginePanics != 0 {
			t.Errorf("%d bodies called, handles tell of %d, totals of %+v", runs.Load(), sum, totals)
		}
		if sum == 0 {
			t.Error("nothing ran")
		}
	}
}

// A faultLog fails its test when the engine reports a fault of its own.
type faultLog struct {
	slog.Handler
	t *testing.T
}

func (faultLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (f faultLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "engine") {
		r.Attrs(func(a slog.Attr) bool { f.t.Errorf("%s: %s", r.Message, a); return true })
	}
	return nil
}

// randomTask schedules a task of a random kind, nil once the manager is closed.
func randomTask(t *testing.T, m *taskmanager.TaskManager, random *rand.Rand, name string, runs *atomic.Uint64) *taskmanager.Handle {
	opts := []taskmanager.TaskOption{taskmanager.WithJitter(time.Millisecond), taskmanager.WithBackoffCap(time.Millisecond)}
	add := func(one int, o taskmanager.TaskOption) {
		if random.IntN(one) == 0 {
			opts = append(opts, o)
		}
	}
	switch random.IntN(4) {
	case 0:
		opts = append(opts, taskmanager.WithNonReentrant(false))
	case 1:
		opts = append(opts, taskmanager.WithOverlap(taskmanager.CatchUp(3)))
	case 2:
		opts = append(opts, taskmanager.WithOverlap(taskmanager.Coalesce))
	}
	add(3, taskmanager.WithTag("x"))
	add(3, taskmanager.WithExecutionTimeout(2*time.Millisecond))
	add(4, taskmanager.WithMaxRuns(5))
	add(4, taskmanager.WithSkipOverLimit())
	add(8, taskmanager.WithPaused())
	add(8, taskmanager.WithEndAt(time.Now().Add(20*time.Millisecond)))
	kind := random.IntN(10)
	fn := func(ctx context.Context) error {
		runs.Add(1)
		switch kind {
		case 0:
			return errBoom
		case 1:
			panic("stress")
		case 2:
			runtime.Goexit()
		case 3, 4: // ends with its limit, or when it is stopped
			child, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
			defer cancel()
			<-child.Done()
			return ctx.Err()
		case 5:
			_ = m.Totals()
		}
		return nil
	}
	var h *taskmanager.Handle
	var err error
	if random.IntN(5) == 0 {
		h, err = m.Schedule(name, nextFunc(func(after time.Time) (time.Time, bool) { return after.Add(time.Millisecond), true }), fn, opts[1:]...)
	} else {
		h, err = m.ScheduleRecurring(name, time.Duration(1+random.IntN(3))*time.Millisecond, fn, opts...)
	}
	if err != nil && !errors.Is(err, taskmanager.ErrClosed) {
		t.Errorf("schedule: %v", err)
	}
	return h
}

// touch does a random thing to a task.
func touch(t *testing.T, m *taskmanager.TaskManager, h *taskmanager.Handle, random *rand.Rand) {
	var err error
	switch random.IntN(12) {
	case 0:
		err = h.Pause()
	case 1, 2:
		err = h.Resume()
	case 3:
		err = h.Reschedule(time.Duration(1+random.IntN(3)) * time.Millisecond)
	case 4:
		err = h.RescheduleWith(everySecond{})
	case 5, 6:
		err = h.RunNow()
	case 7:
		h.Stop()
	case 8:
		m.StopTag("none")
		for h := range m.Tagged("x") {
			_ = h.Name()
		}
	case 9:
		_ = m.Totals()
	case 10:
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = h.Wait(ctx)
	default:
		s := h.Snapshot()
		if s.Runs != s.Successes+s.Failures+s.Cancelled+uint64(s.InFlight) {
			t.Errorf("runs do not add up: %+v", s)
		}
	}
	switch {
	case err == nil, errors.Is(err, taskmanager.ErrStopped), errors.Is(err, taskmanager.ErrClosed),
		errors.Is(err, taskmanager.ErrAlreadyRunning), errors.Is(err, taskmanager.ErrLimitReached), errors.Is(err, taskmanager.ErrInvalidOption):
	default:
		t.Errorf("unexpected: %v", err)
	}
}

func TestThousandsOfTasksOfEachKindLeaveNothingBehind(t *testing.T) {
	limit := taskmanager.WithExecutionTimeout(10 * time.Millisecond)
	noBackoff := taskmanager.WithBackoffCap(0)
	obeys := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	ran := make(chan struct{}, 2) // from runs on goroutines of their own
	for name, kind := range map[string]struct {
		fn   taskmanager.Func
		opts []taskmanager.TaskOption
	}{
		"skip":      {nothing, nil},
		"coalesce":  {nothing, []taskmanager.TaskOption{taskmanager.WithOverlap(taskmanager.Coalesce)}},
		"catch up":  {nothing, []taskmanager.TaskOption{taskmanager.WithOverlap(taskmanager.CatchUp(3))}},
		"reentrant": {func(context.Context) error { ran <- struct{}{}; return nil }, []taskmanager.TaskOption{taskmanager.WithNonReentrant(false)}},
		"delay":     {nothing, []taskmanager.TaskOption{taskmanager.WithFixedDelay()}},
		"limited":   {nothing, []taskmanager.TaskOption{limit}},
		"failing":   {func(context.Context) error { return errBoom }, []taskmanager.TaskOption{noBackoff}},
		"backoff":   {func(context.Context) error { return errBoom }, []taskmanager.TaskOption{taskmanager.WithBackoff(func() backoff.BackOff { return backoff.NewConstantBackOff(time.Minute) })}},
		"panicking": {func(context.Context) error { panic("leak") }, []taskmanager.TaskOption{noBackoff}},
		"waiting":   {obeys, []taskmanager.TaskOption{taskmanager.WithTag("x")}},
		"children": {func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err()
		}, []taskmanager.TaskOption{limit}},
		"complete": {nothing, []taskmanager.TaskOption{taskmanager.WithMaxRuns(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			clk := newHandClock()
			m := newManager(clk.option(), taskmanager.WithTagLimit("x", 1))
			const batch = 500
			cycles := func() (heapObjects int64) {
				for i := range batch {
					h := must(m.ScheduleRecurring(fmt.Sprint(i), 10*time.Millisecond, kind.fn, append(kind.opts, taskmanager.WithJitter(0))...))
					if name == "waiting" {
						if err := h.RunNow(); err != nil { // a run by the clock would hold up this goroutine
							t.Fatal(err)
						}
					} else {
						clk.run(25 * time.Millisecond)
					}
					if name == "reentrant" {
						<-ran
						<-ran
					}
					h.Stop()
					if err := h.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				runtime.GC()
				runtime.GC()
				var stats runtime.MemStats
				runtime.ReadMemStats(&stats)
				return int64(stats.HeapObjects)
			}
			// What is kept for reuse, by the runtime too, grows now and then; a leak each time.
			least, objects := int64(math.MaxInt64), cycles()
			for range 3 {
				now := cycles()
				least = min(least, now-objects)
				objects = now
			}
			if least > batch/4 {
				t.Errorf("the heap grew by at least %d objects with each %d tasks", least, batch)
			}
			if got := clk.armed(); got != 0 {
				t.Errorf("a timer is armed %v ahead although there is no task", time.Duration(got-clk.Mono()))
			}
			if got := m.Totals(); got.Tasks != 0 || got.Running != 0 || name != "waiting" && name != "reentrant" && got.Runs < 4*batch {
				t.Errorf("Totals = %+v, want a run of each task, and no task left", got)
			}
			goleak.VerifyNone(t) // before Shutdown, too
			if err := m.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
	}
}

// However short an interval is, a task that is busy or over a limit does not keep the
// engine busy: what falls due meanwhile is looked at now and then.
func TestATaskThatCannotRunDoesNotKeepTheEngineBusy(t *testing.T) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"skips":      nil,
		"coalesces":  {taskmanager.WithOverlap(taskmanager.Coalesce)},
		"catches up": {taskmanager.WithOverlap(taskmanager.CatchUp(2))},
		"reentrant":  {taskmanager.WithNonReentrant(false)},
		"over limit": {taskmanager.WithSkipOverLimit(), taskmanager.WithNonReentrant(false)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var looks atomic.Int64
				m := newManager(taskmanager.WithMaxConcurrentRuns(1), taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
					if e.Count > 0 {
						looks.Add(1)
					}
				})))
				defer m.Close()
				pause := func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
				h := must(m.ScheduleRecurring("a", time.Nanosecond, pause, append(opts, taskmanager.WithJitter(0))...))
				time.Sleep(time.Second + 50*time.Millisecond)
				s := h.Snapshot()
				if n := looks.Load() + int64(m.Totals().EventsDropped); s.Runs < 10 || n > 22_000 {
					t.Errorf("%d events in a second of %d runs, want two for each 100 µs at most", n, s.Runs)
				}
				if due := s.Ticks.Due(); due < 1e9 {
					t.Errorf("%d ticks accounted for, want all of a second", due)
				}
			})
		})
	}
}

// But the grid is exact where it can be: what falls due during a run is skipped, whatever
// the interval is.
func TestAShortIntervalKeepsToItsGrid(t *testing.T) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"plain":             nil,
		"with a time limit": {taskmanager.WithExecutionTimeout(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager()
				defer m.Close()
				ran := make(chan int64, 10)
				h := must(m.ScheduleTicks("a", 40*time.Microsecond, func(_ context.Context, tick taskmanager.Tick) error {
					ran <- tick.Index
					time.Sleep(130 * time.Microsecond)
					return nil
				}, append(opts, taskmanager.WithJitter(0))...))
				time.Sleep(610 * time.Microsecond)
				for _, want := range []int64{1, 5, 9, 13} {
					if got := <-ran; got != want {
						t.Errorf("tick %d ran, want %d", got, want)
					}
				}
				if l := h.Ticks(); l.Missed != 0 || l.SkippedRunning != 11 {
					t.Errorf("ticks are %+v, want 11 skipped and none missed", l)
				}
			})
		})
	}
}
