package taskmanager

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A TaskManager runs tasks again and again. Make one with New; one to a process
// or to a subsystem is usual. All methods are safe for concurrent use, from inside
// runs too.
type TaskManager struct {
	// Immutable after New.
	engine      *engine
	events      *events
	observer    Observer
	entropy     *entropy
	backoffBase time.Duration
	maxPower    int
	grace       time.Duration
	defaults    taskSettings // of every task
	allGate     *gate
	tagGates    map[string]*gate
	once        *conf          // of RunOnce
	ended       *cancelContext // stands in for the context of a run that has ended
	timedOut    *cancelContext // for that of a run whose time limit has passed
	stopped     *cancelContext // for that of a stopped task
	closed      *cancelContext // for those that Shutdown cancels

	// mu guards the fields below. It is never held while user code runs. Lock
	// order: TaskManager.mu, engine.mu, task.mu, then the leaf locks.
	mu      sync.Mutex
	names   names
	lastID  uint32
	confs   [4]*conf           // recently used: most tasks share theirs
	ending  map[*task]struct{} // over or never named, with a run in flight
	retired Totals             // of tasks that are gone
	closing *shutdown          // not nil from the first Shutdown on
	last    []*task            // the tasks that Shutdown ended, for the last report
}

// New returns a manager that is ready for tasks. All that is wrong with its
// options is reported at once, as *OptionError values.
func New(opts ...Option) (*TaskManager, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	m := &TaskManager{
		observer:    s.observer,
		backoffBase: s.backoffBase,
		maxPower:    s.maxPower,
		grace:       s.grace,
		defaults:    s.task,
		ended:       endedContext(context.Canceled),
		timedOut:    endedContext(ErrExecutionTimeout),
		stopped:     endedContext(ErrStopped),
		closed:      endedContext(ErrClosed),
		names:       newNames(),
		ending:      map[*task]struct{}{},
	}
	source := s.source
	if source == nil {
		source = newSource(s.clock)
	}
	m.engine = newEngine(m, source, s.slack)
	m.events = newEvents(m, s.logger)
	m.entropy = newEntropy(m.events.randomFailed)
	if s.maxConcurrent > 0 {
		m.allGate = newGate(s.maxConcurrent)
	}
	if len(s.tagLimits) > 0 {
		m.tagGates = map[string]*gate{}
		for tag, n := range s.tagLimits {
			m.tagGates[tag] = newGate(n)
		}
	}
	m.once = &conf{m: m, plain: true, opts: RecurringOptions{NonReentrant: true, FailuresBeforeBackoff: math.MaxInt}}
	return m, nil
}

// Lookup returns the live task of that name.
func (m *TaskManager) Lookup(name string) (*Handle, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.names.find(name)
	return t, t != nil
}

// Tasks iterates over the live tasks in the order they were scheduled in. It sees
// those that are there when the iteration starts, and holds no lock during it.
func (m *TaskManager) Tasks() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for _, t := range m.tasks() {
			if !yield(t) {
				return
			}
		}
	}
}

func (m *TaskManager) tasks() []*task {
	m.mu.Lock()
	tasks := m.names.all()
	m.mu.Unlock()
	slices.SortFunc(tasks, func(a, b *task) int { return cmp.Compare(a.id, b.id) })
	return tasks
}

// Tagged iterates over the live tasks with that tag, like Tasks.
func (m *TaskManager) Tagged(tag string) iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for t := range m.Tasks() {
			if t.Tag() == tag && !yield(t) {
				return
			}
		}
	}
}

// StopTag stops all live tasks with that tag and returns how many they were.
func (m *TaskManager) StopTag(tag string) (n int) {
	for t := range m.Tagged(tag) {
		if m.end(t, stopped, nil) {
			n++
		}
	}
	return n
}

// Totals are a manager's sums over all its tasks, those that are gone included.
type Totals struct {
	Tasks         int    `json:"tasks"`   // live
	Running       int    `json:"running"` // runs in flight
	Runs          uint64 `json:"runs"`    // started, RunNow and RunOnce included
	Successes     uint64 `json:"successes"`
	Failures      uint64 `json:"failures"` // time-outs and panics included
	Cancelled     uint64 `json:"cancelled"`
	Timeouts      uint64 `json:"timeouts"`
	Panics        uint64 `json:"panics"`
	Ticks         Ledger `json:"ticks"`
	ClockSteps    uint64 `json:"clockSteps"`    // of the wall clock, seen while a task followed it
	EventsDropped uint64 `json:"eventsDropped"` // observer and log too slow
	EnginePanics  uint64 `json:"enginePanics"`  // faults of this library
}

// Totals adds up all tasks; it takes time in proportion to their number.
func (m *TaskManager) Totals() Totals {
	m.mu.Lock()
	sum := m.retired
	tasks := m.names.all()
	sum.Tasks = len(tasks)
	for t := range m.ending {
		tasks = append(tasks, t)
	}
	m.mu.Unlock()
	now := m.engine.source.Mono()
	for _, t := range tasks {
		t.mu.Lock()
		t.account(now)
		sum.add(t)
		t.mu.Unlock()
	}
	m.engine.mu.Lock()
	sum.ClockSteps = m.engine.watch.steps
	m.engine.mu.Unlock()
	sum.EventsDropped = m.events.queue.Dropped()
	sum.EnginePanics = m.engine.panics.Load()
	return sum
}

// add adds a task's counts. Called with its mu held.
func (s *Totals) add(t *task) {
	if t.extra == nil && t.run.stage == free { // all went well: each run was a tick's
		s.Runs += t.successes
		s.Successes += t.successes
		s.Ticks.Ran += t.successes
		return
	}
	c, l := t.counts(), t.ledger()
	s.Running += int(t.inFlight())
	s.Runs += t.starts()
	s.Successes += t.successes
	s.Failures += c.failures
	s.Cancelled += c.cancelled
	s.Timeouts += c.timeouts
	s.Panics += c.panics
	if t.conf == t.conf.m.once {
		return // no ticks
	}
	s.Ticks.Ran += l.Ran
	s.Ticks.SkippedRunning += l.SkippedRunning
	s.Ticks.SkippedBackoff += l.SkippedBackoff
	s.Ticks.SkippedLimit += l.SkippedLimit
	s.Ticks.SkippedPaused += l.SkippedPaused
	s.Ticks.Missed += l.Missed
	s.Ticks.Coalesced += l.Coalesced
	s.Ticks.Dropped += l.Dropped
	s.Ticks.Pending += l.Pending
}

// RunOnce calls fn at once on the calling goroutine, with a run's panic rules and
// diagnostics, and returns its error; that of a panic is a *PanicError. It takes
// no place at a limit, and name need not be unique. fn's context is ctx, cancelled
// also by Shutdown. An *OptionError for a blank name or a nil fn; after Shutdown,
// ErrClosed.
func (m *TaskManager) RunOnce(ctx context.Context, name string, fn Func) error {
	if err := checkTask(name, fn == nil); err != nil {
		return err
	}
	o := m.newOnce(name, fn)
	inner := &cancelContext{}
	inner.Context, inner.cancel = context.WithCancelCause(ctx)
	defer inner.cancel(context.Canceled)
	o.task.shared.Store(inner)
	if m.engine.settler != nil && !m.insideRun(ctx) { // else it is a part of work that is counted
		m.engine.begun()
		defer m.engine.ended()
	}
	return o.Run(goroutineID())
}

// end is the one door out of life for a task: it stops, or is complete. It returns
// false if it had left before. A run in flight has its context cancelled, unless
// the manager drains.
func (m *TaskManager) end(t *task, how life, reason error) bool {
	return m.carryOut(departure{task: t, how: how, reason: reason})
}

// carryOut is end with its particulars.
func (m *TaskManager) carryOut(d departure) bool {
	t := d.task
	quiet, ok := m.endNow(d)
	if !ok {
		return false
	}
	if !quiet {
		t.closeDone() // in case that the last run has ended meanwhile
	}
	return true
}

// endNow does it, with all the locks; quiet tells that no run was in flight.
func (m *TaskManager) endNow(d departure) (quiet, ok bool) {
	t, how, reason := d.task, d.how, d.reason
	e := m.engine
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.names.fit()
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.nextTurns(t.conf.gates) // when the task is unlocked
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != live || how == complete && !t.over() || d.seat != nil && t.seatOf() != d.seat {
		return false, false // a RunNow or RescheduleWith, say, came between
	}
	if reason != nil {
		t.x().reason = reason
	}
	// What is atomic comes before what writes to other tasks' memory and the names', and
	// waits for none of that.
	if reason != ErrClosed {
		t.cancelRuns(m.stopped)
		(*taskContext)(t).end(m.stopped)
	}
	e.endLocked(t, how)
	m.names.remove(t)
	m.events.ended(t, how, reason) // with the locks held: before any task of that name is added
	if t.busy() {
		m.ending[t] = struct{}{}
		return false, true
	}
	t.endShared()
	t.signalDone()
	m.retired.add(t)
	return true, true
}

// endLocked takes a task out of the engine. Called with engine.mu and the task's mu
// held.
func (e *engine) endLocked(t *task, how life) {
	now := e.source.Mono()
	if t.paused || t.floor() > now {
		t.decide(now) // no run comes of it, and so it may be while the manager drains
	}
	n, last, _ := t.takeDue(now)
	if left := uint64(n) + t.dropHeld(); left > 0 {
		t.skip(KindMissed, &t.x().counts.missed, left, last)
	}
	t.life = how
	e.dequeue(t, true, KindMissed, func(c *counts) *uint64 { return &c.missed })
	e.wheel.remove(&t.node)
	e.armLimit(t)
	if t.followsWall() {
		e.unwatch(t)
	}
	if t.extra != nil && t.extra.precise != nil {
		t.extra.precise.close()
	}
	if e.wheel.count == 0 && !e.batches.pending() {
		e.arm(never, now) // no timer keeps an idle manager from being collected
	}
}

// A departure is a task that is to end as soon as no lock is held.
type departure struct {
	task   *task
	how    life
	reason error
	seat   *seat // not nil if it is the reason: a task that has another one by then stays
	again  bool  // a panic of our own has been in its way once
}

// endAside is end from where locks are held: one goroutine ends them all. Called
// with engine.mu held.
func (e *engine) endAside(d departure) {
	e.departures = append(e.departures, d)
	if len(e.departures) == 1 {
		e.begun()
		go e.depart()
	}
}

func (e *engine) depart() {
	defer e.ended()
	for d := e.nextDeparture(0); d.task != nil; d = e.nextDeparture(1) {
		e.departOne(d)
	}
}

// departOne does it; if a panic of our own prevents that, once more after the others.
func (e *engine) departOne(d departure) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		e.surface("depart", v)
		if !d.again {
			d.again = true
			e.mu.Lock()
			defer e.mu.Unlock()
			e.departures = append(e.departures, d) // not empty: d's place is there still
		}
	}()
	if e.fault != nil {
		e.fault("depart")
	}
	e.m.carryOut(d)
}

// nextDeparture takes off those that are done, and returns the first of the rest; no
// task if there is none, and then endAside starts another goroutine.
func (e *engine) nextDeparture(done int) departure {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.departures = e.departures[done:]
	if len(e.departures) == 0 {
		e.departures = nil
		return departure{}
	}
	return e.departures[0]
}

// dequeue frees the queued runs, those of RunNow only if manual, and counts their ticks.
// Called with engine.mu and the task's mu held.
func (e *engine) dequeue(t *task, manual bool, kind Kind, counter func(*counts) *uint64) {
	if !t.busy() {
		return
	}
	var waiting []*run
	t.eachRun(func(r *run) {
		if r.stage == queued && (manual || r.index >= 0) {
			waiting = append(waiting, r)
		}
	})
	for _, r := range waiting {
		e.leave(r)
		t.freed(r)
		if r.prior && t.extra.maxRuns > 0 {
			t.extra.maxRuns--
		}
		if r.index >= 0 {
			t.skip(kind, counter(&t.x().counts), 1, r.index)
		}
	}
}

// cancelRuns ends the contexts of the runs going on, but for the one that they share.
func (t *task) cancelRuns(ended *cancelContext) {
	t.eachRun(func(r *run) {
		r.stopped = true
		if r.ctx != nil {
			r.ctx.cancel(ended)
		}
	})
}

// endShared ends the context that the runs of a task share when Shutdown has ended
// the task and no run is in flight: a goroutine that a run started may wait for it.
func (t *task) endShared() {
	if t.extra != nil && t.extra.reason == ErrClosed {
		(*taskContext)(t).end(t.conf.m.closed)
	}
}

// closeDone closes the Done of a task that was over with a run in flight, if that
// has ended, and moves its counts to the retired ones.
func (t *task) closeDone() {
	m := t.conf.m
	m.mu.Lock()
	defer m.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := m.ending[t]; !ok || t.busy() {
		return
	}
	delete(m.ending, t)
	t.signalDone()
	m.retired.add(t)
}

// signalDone closes the channel that Done returned, if it has been asked for.
func (t *task) signalDone() {
	if x := t.extra; x != nil && x.done != nil && !x.doneClosed {
		x.doneClosed = true
		close(x.done)
	}
}

// followsWall tells whether the task has a schedule on the wall clock.
func (t *task) followsWall() bool {
	s := t.seatOf()
	return s != nil && !s.delay && !s.manual
}

func init() {
	seam.WithSource = func(src seam.Source) any {
		return optionFunc(func(s *settings) { s.source = src })
	}
	seam.Inspect = func(manager any) seam.Inspector {
		e := manager.(*TaskManager).engine
		source, ok := e.source.(*clockSource)
		if !ok {
			return nil
		}
		return inspector{e, source}
	}
	seam.Exempt = taskOptionFunc(func(s *taskSettings) {
		*s = taskSettings{RecurringOptions: DefaultRecurringOptions(), exempt: true}
	})
	seam.HostOf = func(manager any) seam.Host { return host{manager.(*TaskManager).engine} }
}
