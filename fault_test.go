package taskmanager_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// A fault breaks one of the engine's loops once, at the nth time round.
type fault struct {
	loop  string
	nth   int64
	times atomic.Int64
}

func (f *fault) strike(loop string) {
	if loop == f.loop && f.times.Add(1) == f.nth {
		panic("fault injected in " + loop)
	}
}

// A crowd is a task of each kind there is, and several of the plain ones.
type crowd struct {
	m     *taskmanager.TaskManager
	log   *diary
	sleep func(ctx context.Context, d time.Duration) error
	grids []grid
	all   []*taskmanager.Handle
}

var crowdLimits = []taskmanager.Option{taskmanager.WithTagLimit("limited", 1), taskmanager.WithTagLimit("skips", 1)}

func (c *crowd) add(name string, every time.Duration, fn taskmanager.Func, opts ...taskmanager.TaskOption) {
	h := must(c.m.ScheduleRecurring(name, every, fn, append(opts, taskmanager.WithJitter(0))...))
	c.all = append(c.all, h)
	if !h.Options().FixedDelay {
		c.grids = append(c.grids, grid{h: h, every: every})
	}
}

func (c *crowd) gather() {
	takes := func(d time.Duration) taskmanager.Func {
		return func(ctx context.Context) error { return c.sleep(ctx, d) }
	}
	atFirst := func(do func(context.Context)) taskmanager.Func {
		var once sync.Once
		return func(ctx context.Context) error {
			once.Do(func() { do(ctx) })
			return nil
		}
	}
	for i := range 6 {
		c.add(fmt.Sprint("plain ", i), time.Second, nothing)
		// Nobody knows at first that they are slow: they hold up a batch, until it
		// is rescued.
		c.add(fmt.Sprint("slow ", i), time.Second, atFirst(func(ctx context.Context) { _ = c.sleep(ctx, 30*time.Millisecond) }))
		c.add(fmt.Sprint("limited ", i), time.Second, takes(50*time.Millisecond), taskmanager.WithTag("limited"))
	}
	// It falls due alone at first, and so ends the pump's own goroutine.
	c.add("goexit", 110*time.Millisecond, atFirst(func(context.Context) { runtime.Goexit() }))
	c.add("coalesce", 300*time.Millisecond, takes(700*time.Millisecond), taskmanager.WithOverlap(taskmanager.Coalesce))
	c.add("catch up", 300*time.Millisecond, takes(400*time.Millisecond), taskmanager.WithOverlap(taskmanager.CatchUp(2)))
	c.add("delayed", 200*time.Millisecond, takes(100*time.Millisecond), taskmanager.WithFixedDelay())
	c.add("reentrant", 500*time.Millisecond, takes(1200*time.Millisecond), taskmanager.WithNonReentrant(false))
	c.add("timed", time.Second, takes(5*time.Second), taskmanager.WithExecutionTimeout(100*time.Millisecond), taskmanager.WithBackoffCap(0))
	c.add("failing", 200*time.Millisecond, fails, taskmanager.WithBackoffCap(100*time.Millisecond))
	c.add("skips", 400*time.Millisecond, takes(100*time.Millisecond), taskmanager.WithTag("skips"), taskmanager.WithSkipOverLimit())
	c.add("skips, too", 600*time.Millisecond, takes(50*time.Millisecond), taskmanager.WithTag("skips"), taskmanager.WithSkipOverLimit())
	c.all = append(c.all, must(c.m.Schedule("schedule", everySecond{}, nothing)))
}

// check is called at age, then late after three seconds more.
func (c *crowd) check(t *testing.T, f *fault, age time.Duration, more func(time.Duration)) {
	t.Helper()
	if f.times.Load() < f.nth {
		t.Errorf("the loop went round %d times: the fault was not injected", f.times.Load())
	}
	if got := c.m.Totals().EnginePanics; got != 1 {
		t.Errorf("EnginePanics = %d, want 1", got)
	}
	before := map[*taskmanager.Handle]uint64{}
	for _, h := range c.all {
		before[h] = h.TotalRuns()
	}
	more(3 * time.Second)
	age += 3 * time.Second
	for _, h := range c.all {
		if runs := h.TotalRuns(); runs <= before[h] {
			t.Errorf("%s has not run for three seconds:\n%s", h.Name(), h.Explain())
		}
		checkRuns(t, h)
	}
	for _, g := range c.grids {
		if l := g.h.Ticks(); l.Due() != uint64(age/g.every) {
			t.Errorf("%s: the ledger has %d ticks, the grid %d: %+v", g.h.Name(), l.Due(), age/g.every, l)
		}
	}
	// Every lock can be had.
	for _, h := range c.all {
		if err := h.Pause(); err != nil {
			t.Errorf("Pause = %v", err)
		}
	}
	more(5 * time.Second)
	if err := c.m.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	if deadlines, batches, ending := taskmanager.Dangling(c.m); deadlines+batches+ending > 0 {
		t.Errorf("left over: %d deadlines, %d batches, %d tasks", deadlines, batches, ending)
	}
	lines := 0
	for _, line := range c.log.logged {
		if strings.HasPrefix(line, "ERROR taskmanager: panic in the engine") {
			lines++
		} else if strings.HasPrefix(line, "ERROR") {
			t.Errorf("logged: %s", line)
		}
	}
	if lines != 1 {
		t.Errorf("%d error lines tell of the fault, want 1", lines)
	}
}

func TestAFaultInALoopOfTheEngineIsSurfacedAndLosesNothing(t *testing.T) {
	for loop, most := range map[string]int64{"pump": 15, "collect": 40, "drain": 1, "again": 1, "finish": 40, "run": 40, "answer": 2} {
		for nth := int64(1); nth <= most; nth++ {
			t.Run(fmt.Sprintf("%s %d", loop, nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fault{loop: loop, nth: nth}
					c := &crowd{log: &diary{}, sleep: func(ctx context.Context, d time.Duration) error {
						select {
						case <-time.After(d):
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}}
					c.m = newManager(append(crowdLimits, taskmanager.WithLogger(slog.New(c.log)))...)
					taskmanager.SetFault(c.m, f.strike)
					c.gather()
					time.Sleep(2950 * time.Millisecond)
					synctest.Wait()
					c.check(t, f, 2950*time.Millisecond, time.Sleep)
				})
			})
		}
	}
}

func TestAFaultInTheEngineOnTheFakeClockIsSurfacedAndLosesNothing(t *testing.T) {
	for loop, most := range map[string]int64{"collect": 40, "finish": 40, "run": 40, "answer": 2} {
		for nth := int64(1); nth <= most; nth++ {
			t.Run(fmt.Sprintf("%s %d", loop, nth), func(t *testing.T) {
				f := &fault{loop: loop, nth: nth}
				c := &crowd{log: &diary{}}
				var clk *tasktest.Clock
				c.m, clk = tasktest.New(t, append(crowdLimits, taskmanager.WithLogger(slog.New(c.log)))...)
				c.sleep = clk.Sleep
				taskmanager.SetFault(c.m, f.strike)
				c.gather()
				clk.Advance(2950 * time.Millisecond)
				c.check(t, f, 2950*time.Millisecond, clk.Advance)
			})
		}
	}
}

func TestAFaultAsATaskEndsKeepsNoneFromEnding(t *testing.T) {
	f := &fault{loop: "depart", nth: 1}
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent), taskmanager.WithTagLimit("one", 1))
	taskmanager.SetFault(m, f.strike)
	one, noJitter := taskmanager.WithTag("one"), taskmanager.WithJitter(0)
	must(m.ScheduleRecurring("hog", 500*time.Millisecond, func(ctx context.Context) error { return clk.Sleep(ctx, time.Minute) }, one, noJitter))
	var all []*taskmanager.Handle
	for i := range 3 { // their only tick is skipped, and so no run's end is theirs
		all = append(all, must(m.ScheduleRecurring(fmt.Sprint(i), time.Second, nothing, one, noJitter,
			taskmanager.WithSkipOverLimit(), taskmanager.WithEndAt(clk.Now().Add(time.Second)))))
	}
	clk.Advance(2 * time.Second)
	for _, h := range all {
		if got := h.State(); got != taskmanager.Complete {
			t.Errorf("%s is %v, want complete", h.Name(), got)
		}
	}
	if panics := m.Totals().EnginePanics; panics != 1 {
		t.Errorf("%d panics, want 1", panics)
	}
}

func TestAFaultAtTheEndOfTheLastRunEndsItsContextAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fault{loop: "finish", nth: 1}
		m := newManager()
		taskmanager.SetFault(m, f.strike)
		var ctx context.Context
		end := make(chan struct{})
		must(m.ScheduleRecurring("a", time.Second, func(runs context.Context) error {
			ctx = runs
			<-end
			return nil
		}, taskmanager.WithJitter(0)))
		time.Sleep(1500 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- m.Shutdown(context.Background()) }()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("the context has ended with %v while the run goes on", context.Cause(ctx))
		}
		close(end)
		if err := <-closed; err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		synctest.Wait()
		if cause := context.Cause(ctx); cause != taskmanager.ErrClosed {
			t.Errorf("the context's cause is %v, want %v", cause, taskmanager.ErrClosed)
		}
	})
}
