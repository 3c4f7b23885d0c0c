package taskmanager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// The clock is moved and the pump called by hand, so nothing but ticks is counted.
// AllocsPerRun drops fractions: the few bytes of a pool that the race detector empties
// at will do not count beside 100 ticks.
func TestWhatATickAllocates(t *testing.T) {
	const tasks, interval = 100, 10 * time.Millisecond
	limit := taskmanager.WithExecutionTimeout(time.Second)
	tick := func(context.Context, taskmanager.Tick) error { return nil }
	for name, c := range map[string]struct {
		fn    taskmanager.Func
		ticks taskmanager.TickFunc
		opts  []taskmanager.TaskOption
		most  int // allocations a tick
	}{
		"plain":               {fn: nothing},
		"with its tick":       {ticks: tick},
		"coalesce":            {fn: nothing, opts: []taskmanager.TaskOption{taskmanager.WithOverlap(taskmanager.Coalesce)}},
		"catch up":            {fn: nothing, opts: []taskmanager.TaskOption{taskmanager.WithOverlap(taskmanager.CatchUp(3))}},
		"fixed delay":         {fn: nothing, opts: []taskmanager.TaskOption{taskmanager.WithFixedDelay()}},
		"concurrency limit":   {fn: nothing, opts: []taskmanager.TaskOption{taskmanager.WithTag("gate")}},
		"a run limit, an end": {fn: nothing, opts: []taskmanager.TaskOption{taskmanager.WithMaxRuns(1 << 40), taskmanager.WithEndAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))}},
		"looks at its context": {fn: func(ctx context.Context) error {
			if isDone(ctx.Done()) {
				return ctx.Err()
			}
			return nil
		}},
		"time limit":          {fn: nothing, opts: []taskmanager.TaskOption{limit}, most: 2},
		"time limit and tick": {ticks: tick, opts: []taskmanager.TaskOption{limit}, most: 2},
		"time limit and gate": {fn: nothing, opts: []taskmanager.TaskOption{limit, taskmanager.WithTag("gate")}, most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			clk := newHandClock()
			m := newManager(clk.option(), taskmanager.WithTagLimit("gate", tasks))
			defer m.Close()
			for i := range tasks {
				opts := append(c.opts, taskmanager.WithJitter(0))
				if c.fn != nil {
					must(m.ScheduleRecurring(fmt.Sprint(i), interval, c.fn, opts...))
				} else {
					must(m.ScheduleTicks(fmt.Sprint(i), interval, c.ticks, opts...))
				}
				if i%2 == 0 {
					clk.move(time.Microsecond) // some fall due together, some not
				}
			}
			clk.run(time.Second) // what a task and the wheel keep for good
			before := m.Totals().Runs
			const rounds = 20
			got := testing.AllocsPerRun(rounds, func() { clk.run(interval) })
			ran := float64(m.Totals().Runs-before) / (rounds + 1)
			if ran < tasks*0.95 {
				t.Fatalf("%v ticks a round, want about %d", ran, tasks)
			}
			if got > float64(c.most*tasks) {
				t.Errorf("%v allocations in %v ticks, want %d a tick at most", got, ran, c.most)
			}
			if c.most > 0 && got < tasks*0.9 {
				t.Errorf("%v allocations in %v ticks: every run has a context of its own", got, ran)
			}
		})
	}
}
