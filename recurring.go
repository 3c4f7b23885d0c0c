package taskmanager

import (
	"errors"
	"fmt"
	"time"
)

// ScheduleRecurring has fn called every interval, the first time one interval and
// a jitter from now (WithJitter, WithImmediately, WithStartAt). Ticks are on an
// absolute grid: tick k is due at start + jitter + k·interval on the monotonic
// clock, whatever the runs take; ticks that cannot be served are counted, never
// replayed unless asked (WithOverlap).
//
// The first run may begin before this returns: a function that uses its own handle
// finds it by Lookup, or is scheduled WithPaused and then resumed.
//
// The name must not be blank nor that of a live task (ErrDuplicateName), the
// interval positive, fn not nil: else nothing is scheduled, and the error names
// all that is wrong; that a name is taken only if nothing else is. After Shutdown:
// ErrClosed.
func (m *TaskManager) ScheduleRecurring(name string, interval time.Duration, fn Func, opts ...TaskOption) (*Handle, error) {
	return m.scheduleInterval(name, interval, fn, nil, opts)
}

// ScheduleTicks is ScheduleRecurring for a function that wants to know which tick
// it serves.
func (m *TaskManager) ScheduleTicks(name string, interval time.Duration, fn TickFunc, opts ...TaskOption) (*Handle, error) {
	return m.scheduleInterval(name, interval, nil, fn, opts)
}

func (m *TaskManager) scheduleInterval(name string, interval time.Duration, fn Func, tickFn TickFunc, opts []TaskOption) (*Handle, error) {
	s, err := newTaskSettings(&m.defaults, opts)
	defer settingsPool.Put(s)
	err = errors.Join(checkTask(name, fn == nil && tickFn == nil), checkInterval(interval), err)
	if err != nil {
		return nil, err
	}
	t := &task{name: name, fn: fn, interval: int64(interval), single: s.FixedDelay}
	if tickFn != nil {
		t.x().tickFn = tickFn
	}
	return m.schedule(t, s, first{jitter: m.entropy.below(s.Jitter)})
}

func checkInterval(interval time.Duration) error {
	if interval <= 0 {
		return &OptionError{"interval", interval, "must be positive"}
	}
	return nil
}

// startGrid sets the first tick of an interval task.
func (t *task) startGrid(s *taskSettings, jitter time.Duration, now int64, wall time.Time) {
	start := now
	if s.StartAt.After(wall) {
		start = later(now, s.StartAt.Sub(wall))
	}
	start = later(start, jitter)
	if t.extra != nil {
		t.extra.begins = 0
	}
	if t.single && start > now {
		t.x().begins = start
	}
	t.origin, t.next = start, 1
	if s.Immediately {
		t.next = 0
	}
	if t.single && !s.Immediately {
		t.origin = later(start, time.Duration(t.interval))
	}
}

// later is at + d, or as late as can be.
func later(at int64, d time.Duration) int64 {
	if sum := at + int64(d); d < 0 || sum >= at {
		return sum
	}
	return never - 1
}

// Schedule has fn called at the instants that the schedule gives, which may be a
// cron expression (package cronsched) or anything else with a Next. They follow
// the wall clock: after a step of it, or a suspended machine, one late run is made
// up for, and the schedule goes on from now. Errors as for ScheduleRecurring; options that
// have no meaning with the schedule are named only if all else is right, and a schedule
// whose Next panics is refused here. A schedule without an instant to come (a date that
// does not exist, a time that is over) is no error: its task is complete at once.
func (m *TaskManager) Schedule(name string, schedule Schedule, fn Func, opts ...TaskOption) (*Handle, error) {
	st, bad := newSeat(schedule)
	defaults := m.defaults.forSeat(st)
	s, err := newTaskSettings(&defaults, opts)
	defer settingsPool.Put(s)
	err = errors.Join(checkTask(name, fn == nil), bad, err)
	if err != nil {
		return nil, err
	}
	if err := s.checkFor(st); err != nil {
		return nil, err
	}
	if s.jitterGiven {
		st.shift = m.entropy.below(s.Jitter)
	} else {
		s.Jitter = 0
	}
	st.start = s.StartAt
	next, err := m.firstInstant(st)
	if err != nil {
		return nil, err
	}
	t := &task{name: name, fn: fn, single: true, origin: never, next: 1}
	t.x().seat, t.extra.maxRuns = st, st.runs
	return m.schedule(t, s, first{answer: next})
}

// forSeat returns a manager's defaults without those that have no meaning with the
// schedule: a default is not a wish, so it is not refused. st may be nil.
func (s taskSettings) forSeat(st *seat) taskSettings {
	s.Immediately, s.FixedDelay = false, false
	if st != nil && st.delay {
		s.NonReentrant, s.Overlap = true, OverlapPolicy{}
	}
	return s
}

// checkFor refuses options that have no meaning with the schedule.
func (s *taskSettings) checkFor(st *seat) error {
	var errs []error
	if s.FixedDelay {
		errs = append(errs, &OptionError{"FixedDelay", true, "is for intervals; a schedule says itself when it is due"})
	}
	if s.Immediately {
		errs = append(errs, &OptionError{"Immediately", true, "is for intervals; RunNow gives a schedule's task a run at once"})
	}
	if st.delay && !s.NonReentrant {
		errs = append(errs, &OptionError{"NonReentrant", false, "has no meaning with a fixed-delay schedule: no tick can come during a run"})
	}
	if st.delay && s.Overlap.kind != overlapSkip {
		errs = append(errs, &OptionError{"Overlap", s.Overlap, "has no meaning with a fixed-delay schedule: no tick can come during a run"})
	}
	return errors.Join(errs...)
}

// newSeat asks the schedule, once, what it says of itself. What that panics with is an
// error.
func newSeat(schedule Schedule) (s *seat, err error) {
	if schedule == nil {
		return nil, &OptionError{"schedule", nil, "must not be nil"}
	}
	defer func() {
		if v := recover(); v != nil {
			s, err = nil, fmt.Errorf("%w: %T panicked: %w", ErrSchedule, schedule, newPanicError(v))
		}
	}()
	s = &seat{schedule: schedule}
	if f, ok := schedule.(interface {
		FixedDelay() (time.Duration, int, bool)
	}); ok {
		var runs int
		if _, runs, s.delay = f.FixedDelay(); s.delay && runs > 0 {
			s.runs = uint64(runs)
		}
	}
	if f, ok := schedule.(interface{ Manual() bool }); ok && f.Manual() {
		s.manual, s.delay, s.runs = true, false, 0
	}
	if v, ok := schedule.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", &OptionError{"schedule", guardedText(schedule), "is not valid"}, err)
		}
	}
	return s, nil
}

// firstInstant asks a schedule for its first instant, on the caller's goroutine.
func (m *TaskManager) firstInstant(s *seat) (a answer, err error) {
	if s.manual {
		return a, nil
	}
	a.asked = m.engine.hands()
	a.at, a.ok, err = s.ask(s.notBeforeStart(a.asked.wall).Round(0))
	return a, err
}

// takeSeat gives a task with a schedule its first instant. Called with engine.mu
// and the task's mu held.
func (m *TaskManager) takeSeat(t *task, a answer) {
	e := m.engine
	if t.extra.seat.manual {
		return
	}
	s := t.extra.seat
	e.seatLocked(t, s, a)
	t.extra.begins = 0
	if s.delay && !s.start.IsZero() {
		t.extra.begins = later(a.asked.mono, s.start.Sub(a.asked.wall))
	}
	if t.followsWall() {
		e.watchFor(t)
	}
}

// first is what a task's first tick comes from.
type first struct {
	jitter time.Duration // of an interval task
	answer answer        // of a Schedule
}

// schedule makes t a live task.
func (m *TaskManager) schedule(t *task, s *taskSettings, f first) (*Handle, error) {
	e := m.engine
	t.run.task, t.node.task = t, t
	t.paused = s.Paused
	t.keepStart(s.StartAt.Round(0))
	t.hash = m.names.hash(t.name)

	m.mu.Lock()
	if m.closing != nil {
		m.mu.Unlock()
		return nil, ErrClosed
	}
	m.names.fit()
	e.mu.Lock()
	place, taken := m.names.slot(t.name, t.hash)
	if taken {
		e.mu.Unlock()
		m.mu.Unlock()
		return nil, fmt.Errorf("%w: %q", ErrDuplicateName, t.name)
	}
	seated := t.seatOf() != nil
	if seated {
		t.mu.Lock() // it may be asked for its next instant already
	}
	m.names.put(place, t) // first, since what it writes to is in no cache
	m.lastID++
	t.id = m.lastID
	t.conf = m.confFor(s)
	wall, now := e.source.Now()
	if !s.EndAt.IsZero() {
		t.x().endAt = later(now, s.EndAt.Sub(wall))
		t.extra.endGiven = s.EndAt.Round(0)
	}
	if seated {
		m.takeSeat(t, f.answer)
	} else {
		t.startGrid(s, f.jitter, now, wall)
	}
	if s.Precise {
		e.makePrecise(t)
	}
	// Both locks are held until the task is filed: nobody finds it before, and an interval
	// task's own lock need not be taken.
	e.refile(t, now)
	over := t.over()
	m.events.added(t) // with the locks held: nothing can be told of the task before
	if seated {
		t.mu.Unlock()
	}
	e.mu.Unlock()
	m.mu.Unlock()
	if over {
		m.end(t, complete, nil)
	}
	return t, nil
}

// endless is a duration whose end nobody sees, and which can be added to any instant.
const endless = maxDuration / 2

// keepStart keeps what WithStartAt said: in 8 bytes if that says it all.
func (t *task) keepStart(at time.Time) {
	switch ns := at.UnixNano(); {
	case at.IsZero():
	case ns != 0 && at.Location() == time.Local && time.Unix(0, ns).Equal(at):
		t.startAt = ns
	default:
		t.x().startGiven = at
	}
}

// confFor returns a conf with these options, one that another task has if it can.
func (m *TaskManager) confFor(s *taskSettings) *conf {
	for i, c := range m.confs {
		if c != nil && c.exempt == s.exempt && c.opts.equal(&s.RecurringOptions) {
			m.confs[0], m.confs[i] = c, m.confs[0]
			return c
		}
	}
	opts := s.RecurringOptions
	opts.StartAt, opts.EndAt = time.Time{}, time.Time{} // these stand in the task
	c := &conf{m: m, opts: opts, limit: int64(min(opts.ExecutionTimeout, endless)), exempt: s.exempt}
	if g := m.tagGates[opts.Tag]; g != nil && !s.exempt {
		c.gates = append(c.gates, g)
	}
	if m.allGate != nil && !s.exempt {
		c.gates = append(c.gates, m.allGate)
	}
	c.plain = len(c.gates) == 0 && c.limit == 0
	copy(m.confs[1:], m.confs[:])
	m.confs[0] = c
	return c
}

// equal tells whether two tasks can share a conf, whatever their windows. Options with a
// policy of the user's never can, since functions cannot be compared.
func (o *RecurringOptions) equal(p *RecurringOptions) bool {
	return o.Backoff == nil && p.Backoff == nil &&
		o.Tag == p.Tag && o.NonReentrant == p.NonReentrant && o.Overlap == p.Overlap &&
		o.Jitter == p.Jitter && o.ExecutionTimeout == p.ExecutionTimeout &&
		o.FailuresBeforeBackoff == p.FailuresBeforeBackoff && o.BackoffCap == p.BackoffCap &&
		o.MaxRuns == p.MaxRuns && o.Immediately == p.Immediately && o.FixedDelay == p.FixedDelay &&
		o.Paused == p.Paused && o.Precise == p.Precise && o.SkipOverLimit == p.SkipOverLimit
}
