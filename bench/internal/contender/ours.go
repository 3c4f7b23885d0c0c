package contender

import (
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// ours is the library with its defaults, jitter off because the benchmark
// spreads the tasks itself. Names, diagnostics, panic recovery and contexts
// are all on: there is no stripped mode.
var ours = Contender{
	Name: "ours", Title: "**taskmanager**", Module: "github.com/taskmanager-go/taskmanager", Named: true, AddCost: 2 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) { return openOurs(s) },
}

// oursPrecise is the same with WithPrecise, which is for few tasks.
var oursPrecise = Contender{
	Name: "precise", Title: "**taskmanager**, precise", Module: "github.com/taskmanager-go/taskmanager", Named: true, AddCost: 2 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) { return openOurs(s, taskmanager.WithPrecise()) },
}

type ourManager struct {
	m       *taskmanager.TaskManager
	handles []*taskmanager.Handle
	opts    []taskmanager.TaskOption // for every task; StartAt is put at the end
}

func openOurs(s Setup, opts ...taskmanager.TaskOption) (Scheduler, error) {
	m, err := taskmanager.New()
	if err != nil {
		return nil, err
	}
	opts = append(opts, taskmanager.WithJitter(0), taskmanager.WithImmediately())
	if s.Timeout > 0 {
		opts = append(opts, taskmanager.WithExecutionTimeout(s.Timeout))
	}
	return &ourManager{m, make([]*taskmanager.Handle, s.Jobs), append(opts, nil)}, nil
}

func (o *ourManager) Add(j Job) error {
	// Immediately makes the start itself the first instant; a start in the past
	// would be taken as now, and the grid be another one.
	first := j.First
	if soon := time.Now().Add(time.Millisecond); first.Before(soon) {
		first = grid{j.First, j.Interval}.after(soon)
	}
	o.opts[len(o.opts)-1] = taskmanager.WithStartAt(first)
	h, err := o.m.ScheduleRecurring(j.Name, j.Interval, j.RunContext, o.opts...)
	o.handles[j.Index] = h
	return err
}

func (o *ourManager) Start() {}

func (o *ourManager) Stop(i int) error {
	o.handles[i].Stop()
	o.handles[i] = nil
	return nil
}

func (o *ourManager) Close() { _ = o.m.Close() }
