package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// step is what the world of the first example does 60 times a second.
func step(_ context.Context, tick taskmanager.Tick) error {
	fmt.Println("step", tick.Index)
	return nil
}

// The program that README.md begins with.
func Example() {
	m, err := taskmanager.New()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	world, err := m.ScheduleTicks("world", time.Second/60, step, taskmanager.WithOverlap(taskmanager.CatchUp(60)), taskmanager.WithMaxRuns(3))
	if err != nil {
		log.Fatal(err)
	}
	<-world.Done()
	// Output:
	// step 1
	// step 2
	// step 3
}

// A run that takes longer than the interval costs ticks, which are counted, and
// moves nothing: the next tick is on the grid.
func ExampleTaskManager_ScheduleRecurring() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)
	start := clk.Now()

	cleanup, err := m.ScheduleRecurring("session.cleanup", 30*time.Second, func(ctx context.Context) error {
		fmt.Println("cleanup at", clk.Now().Sub(start))
		return clk.Sleep(ctx, 40*time.Second) // a slow one
	}, taskmanager.WithJitter(0))
	if err != nil {
		log.Fatal(err)
	}
	clk.Advance(2 * time.Minute)

	ticks := cleanup.Ticks()
	fmt.Printf("%d ticks: %d ran, %d skipped since the run before went on\n", ticks.Due(), ticks.Ran, ticks.SkippedRunning)
	// Output:
	// cleanup at 30s
	// cleanup at 1m30s
	// 4 ticks: 2 ran, 2 skipped since the run before went on
}

// With CatchUp a game loop has every step of its fixed timestep, also after the
// process was held up; here for 450 ms, with 100 ms a step.
func ExampleTaskManager_ScheduleTicks() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)

	_, err := m.ScheduleTicks("world", 100*time.Millisecond, func(_ context.Context, tick taskmanager.Tick) error {
		fmt.Println("step", tick.Index, "late", tick.Lateness)
		return nil
	}, taskmanager.WithJitter(0), taskmanager.WithOverlap(taskmanager.CatchUp(5)))
	if err != nil {
		log.Fatal(err)
	}
	clk.Stall(450 * time.Millisecond)
	clk.Advance(50 * time.Millisecond)
	// Output:
	// step 1 late 350ms
	// step 2 late 250ms
	// step 3 late 150ms
	// step 4 late 50ms
	// step 5 late 0s
}

// Anything with a Next is a schedule; package cronsched has those that people
// know. They follow the wall clock.
func ExampleTaskManager_Schedule() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)

	weekdays, err := cronsched.Parse("cron 0 30 9 * * MON-FRI tz=UTC")
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.Schedule("report", weekdays, func(context.Context) error {
		fmt.Println(clk.Now().Format("Mon 2006-01-02 15:04:05"))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	clk.Advance(4 * 24 * time.Hour)
	// Output:
	// Thu 2026-01-01 09:30:00
	// Fri 2026-01-02 09:30:00
}

// A policy of one's own, from github.com/cenkalti/backoff: no run starts before
// the delay has passed, and the tick that it held is served then. The engine's own
// policy has full jitter.
func ExampleWithBackoff() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)
	start := clk.Now()

	_, err := m.ScheduleRecurring("upstream.sync", time.Second, func(context.Context) error {
		at := clk.Now().Sub(start)
		fmt.Println("try at", at)
		if at < 8*time.Second {
			return errors.New("connection refused")
		}
		return nil
	}, taskmanager.WithJitter(0), taskmanager.WithBackoff(func() backoff.BackOff {
		return backoff.NewConstantBackOff(3500 * time.Millisecond)
	}))
	if err != nil {
		log.Fatal(err)
	}
	clk.Advance(10 * time.Second)
	// Output:
	// try at 1s
	// try at 4.5s
	// try at 8s
	// try at 9s
	// try at 10s
}

// Two heavy tasks, one place: the second waits for its turn. With
// WithSkipOverLimit it would do without that tick.
func ExampleWithTagLimit() {
	m, clk := fakeTime(taskmanager.WithTagLimit("heavy", 1)) // in a test: tasktest.New(t, …)
	defer clk.Close(m)
	start := clk.Now()

	for _, name := range []string{"snapshot", "rollup"} {
		_, err := m.ScheduleRecurring(name, 10*time.Second, func(ctx context.Context) error {
			fmt.Println(name, "begins at", clk.Now().Sub(start))
			return clk.Sleep(ctx, 3*time.Second)
		}, taskmanager.WithJitter(0), taskmanager.WithTag("heavy"))
		if err != nil {
			log.Fatal(err)
		}
	}
	clk.Advance(20 * time.Second)
	// Output:
	// snapshot begins at 10s
	// rollup begins at 13s
	// snapshot begins at 20s
}

// The report is a table; /debug/tasks shows the same (TaskManager.Handler).
func ExampleTaskManager_Report() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)

	_, err1 := m.ScheduleRecurring("session.cleanup", 30*time.Second, nothing, taskmanager.WithJitter(0))
	_, err2 := m.ScheduleRecurring("snapshot.save", time.Minute, func(ctx context.Context) error {
		return clk.Sleep(ctx, 2*time.Second)
	}, taskmanager.WithJitter(0), taskmanager.WithTag("heavy"))
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	clk.Advance(5 * time.Minute)
	fmt.Print(m.Report())
	// Output:
	// 2026-01-01 00:05:00 UTC: 2 live tasks, 1 running; 15 runs: 14 ok, 0 failed (0 timed out, 0 panicked), 0 cancelled; 15 ticks: 15 ran, 0 skipped, 0 missed, 0 coalesced, 0 dropped, 0 pending
	//
	// NAME             TAG    SCHEDULE    STATE      RUNS  FAILED (IN A ROW)  SKIPPED  MISSED  IN FLIGHT  LAST TOOK  P99 TOOK  P99 LATE  NEXT    LAST ERROR
	// session.cleanup  -      every 30s   scheduled  10    0 (0)              0        0       0          0s         0s        0s        in 30s  -
	// snapshot.save    heavy  every 1m0s  running    5     0 (0)              0        0       1          2s         2s        0s        in 1m   -
}

// Explain says why a task is not running now.
func ExampleHandle_Explain() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)

	sync, err := m.ScheduleRecurring("upstream.sync", 10*time.Second, func(context.Context) error {
		return errors.New("connection refused")
	}, taskmanager.WithJitter(0), taskmanager.WithBackoff(func() backoff.BackOff {
		return backoff.NewConstantBackOff(25 * time.Second)
	}))
	if err != nil {
		log.Fatal(err)
	}
	clk.Advance(12 * time.Second)
	fmt.Print(sync.Explain())
	// Output:
	// task "upstream.sync", every 10s: backing off
	// it backs off after 1 failure, until 2026-01-01 00:00:35 UTC (in 23s)
	// the last error: connection refused
	// next instants:
	//   2026-01-01 00:00:35 UTC, in 23s, tick 3, held by backoff
	//   2026-01-01 00:00:40 UTC, in 28s, tick 4
	//   2026-01-01 00:00:50 UTC, in 38s, tick 5
	//   2026-01-01 00:01:00 UTC, in 48s, tick 6
	//   2026-01-01 00:01:10 UTC, in 58s, tick 7
}

// Shutdown waits for what is running; when its context ends it cancels, and says
// whom.
func ExampleTaskManager_Shutdown() {
	m, err := taskmanager.New(taskmanager.WithLogger(silent))
	if err != nil {
		log.Fatal(err)
	}
	begun := make(chan struct{})
	save, err := m.ScheduleRecurring("snapshot.save", time.Hour, func(ctx context.Context) error {
		close(begun)
		<-ctx.Done() // a good citizen: it stops when it is told to
		return context.Cause(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := save.RunNow(); err != nil {
		log.Fatal(err)
	}
	<-begun

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err = m.Shutdown(ctx)
	var cut *taskmanager.ShutdownError
	if errors.As(err, &cut) {
		fmt.Println("cancelled:", cut.Cancelled[0].Name, "abandoned:", len(cut.Abandoned))
	}
	fmt.Println(save.State(), "|", save.Snapshot().Cancelled, "cancelled |", save.RunNow())
	// Output:
	// cancelled: snapshot.save abandoned: 0
	// stopped | 1 cancelled | taskmanager: closed
}

// An observer sees everything that happens; metrics and traces are built on it.
func ExampleObserverFunc() {
	var missed atomic.Uint64
	m, clk := fakeTime(taskmanager.WithObserver(taskmanager.ObserverFunc(func(e taskmanager.Event) {
		if e.Kind == taskmanager.KindMissed {
			missed.Add(e.Count)
		}
	})))
	defer clk.Close(m)

	_, err := m.ScheduleRecurring("heartbeat", time.Second, nothing, taskmanager.WithJitter(0))
	if err != nil {
		log.Fatal(err)
	}
	clk.Stall(time.Minute) // the process was stopped
	fmt.Println("missed", missed.Load())
	// Output: missed 59
}

// In README.md too.
func TestIdleSessionsAreDropped(t *testing.T) {
	m, clk := tasktest.New(t)
	dropped := 0
	_, err := m.ScheduleRecurring("session.cleanup", 30*time.Second, func(context.Context) error {
		dropped++
		return nil
	}, taskmanager.WithJitter(0))
	if err != nil {
		t.Fatal(err)
	}
	clk.Advance(24 * time.Hour) // takes milliseconds; when it returns, all runs have ended
	if dropped != 2880 {
		t.Errorf("dropped %d times in a day, want 2880", dropped)
	}
}

// fakeTime is tasktest.New for an Example, which has no *testing.T.
func fakeTime(opts ...taskmanager.Option) (*taskmanager.TaskManager, *tasktest.Clock) {
	clk := tasktest.NewClock(exampleTB{})
	m, err := taskmanager.New(append([]taskmanager.Option{clk.Option(), taskmanager.WithLogger(silent)}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return m, clk
}

type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                           {}
func (exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
