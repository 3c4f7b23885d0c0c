package contender

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// afterFunc is what a careful person writes by hand: a time.AfterFunc that
// re-arms itself to the next instant of an absolute grid (Reset(interval)
// would drift), skips instants it has missed, and never overlaps itself. It
// recovers no panic, keeps no count and has no name.
var afterFunc = Contender{
	Name: "afterfunc", Title: "time.AfterFunc, re-armed", AddCost: time.Microsecond,
	Open: func(s Setup) (Scheduler, error) {
		return &afterFuncs{tasks: make([]*timerTask, s.Jobs), timeout: s.Timeout}, nil
	},
}

type afterFuncs struct {
	tasks   []*timerTask
	timeout time.Duration
}

type timerTask struct {
	timer    atomic.Pointer[time.Timer] // nil until AfterFunc has returned it
	next     time.Time
	interval time.Duration
	run      func()
	stopped  atomic.Bool
}

func (a *afterFuncs) Add(j Job) error {
	now := time.Now()
	t := &timerTask{next: j.First, interval: j.Interval, run: limited(j.Run, a.timeout)}
	if !now.Before(t.next) {
		t.next = grid{j.First, j.Interval}.after(now)
	}
	a.tasks[j.Index] = t
	t.timer.Store(time.AfterFunc(t.next.Sub(now), t.fire))
	return nil
}

func (t *timerTask) fire() {
	if t.stopped.Load() {
		return
	}
	t.run()
	t.next = t.next.Add(t.interval)
	d := time.Until(t.next)
	if d <= 0 {
		missed := -d/t.interval + 1
		t.next = t.next.Add(missed * t.interval)
		d += missed * t.interval
	}
	timer := t.timer.Load()
	for timer == nil { // fired before Add had stored it
		runtime.Gosched()
		timer = t.timer.Load()
	}
	if !t.stopped.Load() {
		timer.Reset(d)
	}
}

func (a *afterFuncs) Start() {}

func (a *afterFuncs) Stop(i int) error {
	a.tasks[i].stopped.Store(true)
	a.tasks[i].timer.Load().Stop()
	a.tasks[i] = nil
	return nil
}

func (a *afterFuncs) Close() {
	for i, t := range a.tasks {
		if t != nil {
			_ = a.Stop(i)
		}
	}
}

// limited puts a time limit on run the way one does by hand.
func limited(run func(), timeout time.Duration) func() {
	if timeout <= 0 {
		return run
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_ = ctx // a body would watch it
		run()
	}
}
