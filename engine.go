package taskmanager

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// engine turns time into runs. There is one timer, armed for the next deadline in
// the wheel, and no goroutine while nothing is due: the timer's callback, the
// pump, takes out what is due, files it at its next deadline, arms the timer, and
// only then runs the tasks, one after the other, on its own goroutine.
//
// If one of them blocks, the timer's next expiry starts another pump, which
// finishes what this one left (batch.go): the runtime's timers elect the leader,
// and a goroutine is started for a batch and not for a run. A task known to be
// slow gets a goroutine of its own.
//
// There is one engine, with one lock, to a manager. Shards that wake by themselves
// were measured in a prototype and cost 1.4 times the CPU on two cores, since it
// is wake-ups that cost most.
type engine struct {
	m      *TaskManager // immutable
	source seam.Source  // immutable
	// settler is source where time is a test's, else nil: then every run goes on a
	// goroutine of its own, one settles before the next starts, in order of due
	// time, and wake-ups are exact.
	settler seam.Settler
	slack   int64 // immutable: minimum spacing of wake-ups

	// mu guards the fields below, every node and gate, and together with the
	// task's own mu a task's move from one deadline to the next. The order of locks
	// is in doc.go.
	mu      sync.Mutex
	wheel   wheel
	timer   seam.Timer
	armed   int64 // what the timer is armed for, never if it is not
	woken   int64 // when it last expired
	rescue  bool  // it is armed early, to see to open batches
	due     []*node
	sink    int64 // of task.warm, so that the compiler does not leave its loads out
	batches batches
	watch   clockWatch
	closed  bool
	// departures are tasks about to end (endAside), the first of them right now.
	departures []departure

	draining atomic.Bool   // no run starts any more; set with mu held
	panics   atomic.Uint64 // of the engine's own code
	// fault is called where such a panic is to be survived, by tests that want one; nil
	// otherwise, and set before use.
	fault func(loop string)
}

// chunk is how many nodes are popped before their runs begin: of a burst of 100,000 the
// first begin at once.
const chunk = 1024

func newEngine(m *TaskManager, source seam.Source, slack time.Duration) *engine {
	e := &engine{m: m, source: source, slack: int64(min(slack, endless)), armed: never}
	e.settler, _ = source.(seam.Settler)
	e.wheel.exact = e.settler != nil
	if s, ok := source.(seam.Stepper); ok {
		e.watch.told = true
		s.OnStep(e.stepped)
	}
	e.timer = source.NewTimer(e.pump)
	return e
}

// wallAt gives the wall clock's instant for one of the monotonic hand, as far as
// anybody can know: with the distance that the two have now.
func (e *engine) wallAt(mono int64) time.Time {
	wall, now := e.source.Now()
	return wall.Add(time.Duration(mono - now))
}

// pump is the timer's callback.
func (e *engine) pump() {
	if e.settler != nil {
		e.pumpExactly()
		return
	}
	e.pumpAs("pump")
}

// pumpAs is the pump on the real clock, for the first time or again.
func (e *engine) pumpAs(loop string) {
	mark := takeMark()
	defer dropMark(mark)
	e.pumpMarked(loop, mark)
}

// pumpLoop is pumpAs with the goroutine's mark on its stack.
func (e *engine) pumpLoop(loop string, goid uint64) {
	clean := false
	defer func() {
		if clean {
			return
		}
		if v := recover(); v != nil {
			e.surface(loop, v)
		}
		// A panic of our own, or a task's Goexit on this goroutine: either way
		// there may be runs left that nobody has taken.
		go e.pumpAs("again")
	}()
	if e.fault != nil {
		e.fault(loop)
	}
	for more := true; more; {
		var single *run
		single, more = e.collect(e.source.Mono())
		if single != nil {
			e.runHere(single, goid)
		}
		e.drain(goid)
	}
	clean = true
}

// runHere runs r on this goroutine; what has to follow it goes on another, since
// others wait for this one.
func (e *engine) runHere(r *run, goid uint64) {
	if _, follow := e.execute(r, goid, e.source.Mono()); follow != nil {
		e.spawnLocking(follow)
	}
}

// collect takes what is due at now and arms the timer for what comes next. A lone
// run is returned; several become an open batch, for drain. more tells that there
// is more due already.
func (e *engine) collect(now int64) (single *run, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.armed, e.woken = never, now // whatever it was armed for: it has expired
	if e.closed {
		return nil, false
	}
	if end, dense := e.wheel.denseAt(now); dense {
		// The runtime has started another thread, beside the one that we are on, which
		// is about to sleep until the next timer. The sooner it has one the better:
		// else it sleeps for long, and has to be woken to hear of the one we arm.
		e.arm(end, now)
	}
	var done bool
	e.due, done = e.wheel.popDue(now, chunk, e.due[:0])
	for _, n := range e.due {
		if n.task != nil {
			e.sink += n.task.warm()
		}
	}
	fired := 0
	b := e.batches.get()
	defer func() {
		if fired < len(e.due) { // a panic of our own: what has been taken is not lost
			e.saveUnfired(e.due[fired:])
			e.batches.open(b)
		}
		clear(e.due)
		e.rearm(now, !done)
	}()
	for _, n := range e.due {
		if e.fault != nil {
			e.fault("collect")
		}
		if r := e.fire(n, now); r != nil {
			if r.aside {
				e.spawn(r)
			} else {
				b.runs = append(b.runs, r)
			}
		}
		fired++
	}
	switch len(b.runs) {
	case 0:
		e.batches.put(b)
	case 1:
		single = b.runs[0]
		e.batches.put(b)
	default:
		e.batches.open(b)
		if !done {
			// As many goroutines as can run at once share the work.
			e.batches.help(e, runtime.GOMAXPROCS(0)-1)
		}
	}
	return single, !done
}

// saveUnfired files again the nodes that were popped when a panic struck, the one
// that it struck at included.
func (e *engine) saveUnfired(nodes []*node) {
	for _, n := range nodes {
		if !n.filed() { // harmless for a task that has stopped: fire finds nothing due
			e.wheel.add(n, n.when, n.when)
		}
	}
}

// A task with an interval below tiny, 10 µs, whose tick found it busy or over a limit is let
// be for lookAgain, 100 µs: another tick is due by the time that one is accounted for, and
// the pump would do nothing else until one can run.
const (
	tiny      = int64(10 * time.Microsecond)
	lookAgain = int64(100 * time.Microsecond)
)

// fire does what a deadline is for, and files the node at its next one. It returns
// the run to start. Called with engine.mu held.
func (e *engine) fire(n *node, now int64) *run {
	if n.filed() {
		return nil // something that ran since it was popped has filed it anew
	}
	switch n.kind {
	case nodeWatch:
		e.watchClock()
		return nil
	case nodeLimit:
		e.limitPassed(n.task, now)
		return nil
	}
	if e.draining.Load() {
		return nil // the task's turn to end will come
	}
	t := n.task
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seatOf() != nil {
		e.fireSeated(t, now)
		return nil
	}
	r := t.fall(now)
	kept := r == nil && t.blocked()
	if r != nil && !e.admit(r) {
		r, kept = nil, true
	}
	e.refile(t, now)
	if soon := now + lookAgain; kept && t.interval < tiny && e.settler == nil && t.node.filed() && t.node.when < soon {
		e.fileAt(t, soon, now)
	}
	e.endIfOver(t)
	return r
}

// spawn runs r on a goroutine of its own, and what follows it. Called with
// engine.mu held, so that a settler hears of it before time can move.
//
// A goroutine costs 0.3 µs, which is nothing beside a run that is slow; keeping
// idle ones for reuse was not worth their trimming.
func (e *engine) spawn(r *run) {
	e.begun()
	go e.goRun(r)
}

func (e *engine) spawnLocking(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spawn(r)
}

// goRun is the goroutine of r, and of each run that has to follow.
func (e *engine) goRun(r *run) {
	defer func() {
		if v := recover(); v != nil {
			e.surface("run", v)
			go e.goRun(r) // if it had begun, it does not begin again
			return
		}
		e.ended() // after a task's Goexit, too
	}()
	for goid := goroutineID(); r != nil; {
		if e.fault != nil {
			e.fault("run")
		}
		_, r = e.execute(r, goid, e.source.Mono())
	}
}

// begun and ended tell a settler of work that goes on outside the pump.
func (e *engine) begun() {
	if e.settler != nil {
		e.settler.Busy(+1)
	}
}

func (e *engine) ended() {
	if e.settler != nil {
		e.settler.Busy(-1)
	}
}

// refile puts the task's node where its next decision is due. Called with
// engine.mu and the task's mu held.
func (e *engine) refile(t *task, now int64) {
	if t.life == live && !t.paused {
		if t.delayed() && t.origin == never && !t.exhausted() && !t.busy() && !t.holding() && !t.asking() {
			t.dueAfter(now) // the tick did not run, and so no run's end will set the next
		}
		if t.unseated() {
			e.askNext(t)
		}
	}
	e.fileAt(t, t.wakeAt(), now)
}

// endIfOver completes a task from where locks are held.
func (e *engine) endIfOver(t *task) {
	if t.over() {
		e.endAside(departure{task: t, how: complete})
	}
}

func (e *engine) fileAt(t *task, when, now int64) {
	if t.node.filed() {
		if t.node.when == when {
			return
		}
		e.wheel.remove(&t.node)
	}
	e.file(&t.node, when, now)
	if t.extra != nil && t.extra.precise != nil {
		t.extra.precise.aim(when)
	}
}

// file puts a node into the wheel, and the timer forward if it has to be.
func (e *engine) file(n *node, when, now int64) {
	if e.closed {
		return
	}
	e.wheel.add(n, when, now)
	if when < e.armed && e.wheel.count > 0 && !e.pumping() {
		e.arm(when, now)
	}
}

// pumping tells that the pump holds the lock and will arm the timer at its end.
func (e *engine) pumping() bool { return len(e.due) > 0 }

// rearm arms the timer for the next deadline. While a batch is open, or there is
// more due that the caller is about to take, it is armed for soon: in case that all
// who work on it are stuck. Called with engine.mu held.
func (e *engine) rearm(now int64, more bool) {
	e.due = e.due[:0]
	when, soon := e.wheel.wake(), now+rescueAfter
	if e.rescue = more || e.batches.pending() && max(when, e.woken+e.slack) > soon; e.rescue {
		when = soon
	}
	e.arm(when, now)
}

// armAnew arms the timer by the time there is now.
func (e *engine) armAnew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.armed = never
		e.rearm(e.source.Mono(), false)
	}
}

func (e *engine) arm(when, now int64) {
	if e.slack > 0 && e.settler == nil && when != never && !e.rescue {
		when = max(when, e.woken+e.slack)
	}
	if when == e.armed {
		return
	}
	e.armed = when
	if when == never {
		e.timer.Stop()
		return
	}
	e.timer.Reset(time.Duration(max(0, when-now)))
	if e.settler != nil {
		e.armAgain(when, now)
	}
}

// armAgain arms the timer by the time there is now, if the clock has been moved since
// now: a Mock counts from where it is when the timer is armed. One that moves by itself
// will have moved each time, so there is an end to it.
func (e *engine) armAgain(when, now int64) {
	for range 3 {
		then := e.source.Mono()
		if then == now || when <= now {
			return
		}
		now = then
		e.timer.Reset(time.Duration(max(0, when-now)))
	}
}

// pumpExactly is the pump where time is a test's: each run has ended or parked
// before the next begins.
func (e *engine) pumpExactly() {
	for {
		now := e.source.Mono()
		e.mu.Lock()
		e.armed, e.woken = never, now
		due, _ := e.wheel.popDue(now, int(^uint(0)>>1), nil)
		e.rearm(now, false)
		e.mu.Unlock()
		if len(due) == 0 {
			return
		}
		slices.SortFunc(due, func(a, b *node) int {
			if c := cmp.Compare(a.when, b.when); c != 0 || a.task == nil || b.task == nil {
				return c
			}
			if c := cmp.Compare(b.kind, a.kind); c != 0 {
				return c // a limit that passes frees its task for the tick
			}
			return cmp.Compare(a.task.id, b.task.id)
		})
		for _, n := range due {
			e.fireExactly(n, now)
			e.settler.Settle()
		}
	}
}

func (e *engine) fireExactly(n *node, now int64) {
	defer func() {
		if v := recover(); v != nil {
			e.surface("pump", v)
			e.mu.Lock()
			e.saveUnfired([]*node{n})
			e.rearm(now, false)
			e.mu.Unlock()
		}
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault != nil {
		e.fault("collect")
	}
	if r := e.fire(n, now); r != nil {
		e.spawn(r)
	}
}

// surface reports a panic of the engine's own code, which must not end it.
func (e *engine) surface(loop string, v any) {
	e.panics.Add(1)
	e.m.events.enginePanic(loop, v)
}

// close ends the engine for good: nothing is woken any more.
func (e *engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.armed = never
	e.timer.Stop()
	e.wheel.clear()
}
