package taskmanager

import (
	"sync/atomic"
	"time"
)

const (
	// preciseSpin is how long before the instant a precise task's goroutine is
	// woken. The kernel timer and the runtime bring it there some time later, and
	// the rest it spins: 60 times a second all of that is 2.2 % of a core (bench,
	// 60 Hz).
	preciseSpin = 250 * time.Microsecond
	// maxSpins bounds the spin for the case that the clock stands still; it is a
	// few times what preciseSpin takes at 20 ns a look.
	maxSpins = 50_000
)

// A preciseTimer wakes a goroutine of its task's own a little before each tick is
// due. It is an accelerator beside the wheel and not instead of it: whichever
// finds the tick due first serves it, so that whatever happens here, the task has
// normal timing.
type preciseTimer struct {
	engine *engine
	task   *task
	timer  kernelTimer
	target atomic.Int64
	over   atomic.Bool
}

// makePrecise gives a task its preciseTimer, if this platform and clock can have one.
// Called with engine.mu held, for a task that nobody else has yet.
func (e *engine) makePrecise(t *task) {
	if _, real := e.source.(realSource); !real || !e.clockMoves() {
		return
	}
	timer, err := newKernelTimer()
	if err != nil {
		return
	}
	p := &preciseTimer{engine: e, task: t, timer: timer}
	p.target.Store(never)
	t.x().precise = p
	go p.loop()
}

// clockMoves tells whether the clock goes on by itself: not in a synctest bubble,
// where waiting for the kernel would stop time altogether.
func (e *engine) clockMoves() bool {
	from := e.source.Mono()
	for range maxSpins {
		if e.source.Mono() != from {
			return true
		}
	}
	return false
}

// aim sets the next instant. Called with engine.mu held.
func (p *preciseTimer) aim(when int64) {
	if p.target.Swap(when) == when || p.over.Load() {
		return
	}
	if when == never {
		p.timer.set(0)
		return
	}
	p.timer.set(max(1, time.Duration(when-p.engine.source.Mono())-preciseSpin))
}

// close ends the goroutine. Called with engine.mu held.
func (p *preciseTimer) close() {
	p.over.Store(true)
	p.timer.close()
}

// loop waits for the kernel timer, spins to the instant and serves the tick. A task
// whose function calls Goexit ends this goroutine, so another goes on.
func (p *preciseTimer) loop() {
	clean := false
	defer func() {
		if clean {
			return
		}
		if v := recover(); v != nil {
			p.engine.surface("precise", v)
		}
		go p.loop()
	}()
	for goid := goroutineID(); p.timer.wait() && !p.over.Load(); {
		if p.engine.fault != nil {
			p.engine.fault("precise")
		}
		target := p.target.Load()
		if target == never {
			continue
		}
		if !p.spin(target) {
			break
		}
		if r := p.engine.firePrecise(p.task); r != nil {
			p.engine.runHere(r, goid)
		}
	}
	clean = true
}

// spin waits for the instant, and tells whether the clock moved.
func (p *preciseTimer) spin(target int64) bool {
	source := p.engine.source
	from := source.Mono()
	for range maxSpins {
		if source.Mono() >= target || p.over.Load() {
			return true
		}
	}
	return source.Mono() != from
}

// firePrecise serves the task's tick if it is due and the pump has not done so.
func (e *engine) firePrecise(t *task) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.source.Mono()
	if !t.node.filed() || t.node.when > now {
		return nil
	}
	e.wheel.remove(&t.node)
	return e.fire(&t.node, now)
}
