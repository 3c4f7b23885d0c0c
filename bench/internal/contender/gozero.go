package contender

import (
	"sync/atomic"
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// goZero is go-zero's collection.TimingWheel, standing for the timing wheels
// that have one goroutine, one ticker and slots of linked lists. Its timers
// fire once, so a task sets the next one when it has run.
//
// The wheel is a thousand slots of a millisecond, or of ten from a million
// tasks on, where a millisecond's tick leaves it behind. It rounds delays down
// and counts from a tick that has begun, so a delay is made one tick longer
// and rounded up: a task must not start before it is due.
var goZero = Contender{
	Name: "gozero", Title: "go-zero TimingWheel", Module: "github.com/zeromicro/go-zero", AddCost: 5 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) {
		if err := refuseTimeout("go-zero", s); err != nil {
			return nil, err
		}
		z := &zeroWheel{tick: time.Millisecond, tasks: make([]*zeroTask, s.Jobs)}
		if s.Jobs >= 1_000_000 {
			z.tick = 10 * time.Millisecond
		}
		var err error
		z.w, err = collection.NewTimingWheel(z.tick, 1000, z.execute)
		return z, err
	},
}

type zeroWheel struct {
	w     *collection.TimingWheel
	tick  time.Duration
	tasks []*zeroTask
}

type zeroTask struct {
	next     time.Time
	interval time.Duration
	run      func()
	stopped  atomic.Bool
}

func (z *zeroWheel) Add(j Job) error {
	t := &zeroTask{next: j.First, interval: j.Interval, run: j.Run}
	if now := time.Now(); !now.Before(t.next) {
		t.next = grid{j.First, j.Interval}.after(now)
	}
	z.tasks[j.Index] = t
	return z.arm(j.Index, t)
}

func (z *zeroWheel) arm(key any, t *zeroTask) error {
	ticks := (max(0, time.Until(t.next))+z.tick-1)/z.tick + 1
	return z.w.SetTimer(key, t, ticks*z.tick)
}

func (z *zeroWheel) execute(key, value any) {
	t := value.(*zeroTask)
	if t.stopped.Load() {
		return
	}
	t.run()
	t.next = t.next.Add(t.interval)
	if now := time.Now(); !now.Before(t.next) {
		t.next = grid{t.next, t.interval}.after(now)
	}
	if !t.stopped.Load() {
		_ = z.arm(key, t)
	}
}

func (z *zeroWheel) Start() {}

func (z *zeroWheel) Stop(i int) error {
	z.tasks[i].stopped.Store(true)
	z.tasks[i] = nil
	return z.w.RemoveTimer(i)
}

func (z *zeroWheel) Close() { z.w.Stop() }
