package taskmanager

import (
	"context"
	"slices"
	"time"
)

// Pause keeps the task from running until Resume: its ticks are counted as
// skipped. A run in flight goes on, and so does one of RunNow that has not begun yet.
// ErrStopped if the task is over, ErrClosed after Shutdown.
func (t *Handle) Pause() error {
	return t.change(func(e *engine, now int64) {
		if t.paused {
			return
		}
		t.account(now)
		n, last, _ := t.takeDue(now)
		t.skip(KindSkippedPaused, &t.x().counts.skippedPaused, uint64(n)+t.dropHeld(), last)
		t.paused = true
		e.dequeue(t, false, KindSkippedPaused, func(c *counts) *uint64 { return &c.skippedPaused })
	})
}

// Resume ends a pause. Nothing that was due during it is made up for: the next tick
// is the next one on the grid, or one fixed delay from now if that has passed or a RunNow
// has come between. ErrStopped if the task is over, ErrClosed after
// Shutdown.
func (t *Handle) Resume() error {
	return t.change(func(e *engine, now int64) {
		if !t.paused {
			return
		}
		if s := t.seatOf(); s != nil && !s.delay && !s.at.IsZero() {
			e.follow(t) // the wall clock may have been set
		}
		t.account(now)
		t.paused = false
	})
}

// Reschedule gives the task a new interval, in place: a new grid starts now, with
// a jitter of its own, whatever WithStartAt and WithImmediately said of the first,
// and the counters go on. A run in flight goes on. An *OptionError if the interval is
// not positive, ErrStopped if the task is over, ErrClosed after Shutdown.
func (t *Handle) Reschedule(interval time.Duration) error {
	if err := checkInterval(interval); err != nil {
		return err
	}
	opts := t.Options()
	s := &taskSettings{RecurringOptions: opts}
	s.StartAt, s.Immediately = time.Time{}, false // they were for the grid before
	jitter := t.conf.m.entropy.below(opts.Jitter)
	return t.change(func(e *engine, now int64) {
		t.leaveGrid(e, now)
		t.interval = int64(interval)
		t.single = opts.FixedDelay
		t.extra.seat = nil // leaveGrid has made extra
		t.startGrid(s, jitter, now, time.Time{})
	})
}

// RescheduleWith gives the task a Schedule instead of what it has, in place, whatever
// WithStartAt and WithImmediately said of the first, and the counters go on; WithEndAt and
// WithMaxRuns hold. A run in flight goes on. The Schedule's instants have a new jitter if
// the task had a Schedule and WithJitter before; that of an interval is not for them.
// Errors as for TaskManager.Schedule: among them, FixedDelay has no meaning with a
// Schedule. ErrStopped if the task is over, ErrClosed after Shutdown.
func (t *Handle) RescheduleWith(schedule Schedule) error {
	st, err := newSeat(schedule)
	if err != nil {
		return err
	}
	s := &taskSettings{RecurringOptions: t.Options()}
	s.Immediately = false // it was for the grid before
	if err := s.checkFor(st); err != nil {
		return err
	}
	m := t.conf.m
	if t.Schedule() != nil { // else the jitter is an interval's
		st.shift = m.entropy.below(s.Jitter)
	}
	next, err := m.firstInstant(st)
	if err != nil {
		return err
	}
	return t.change(func(e *engine, now int64) {
		t.leaveGrid(e, now)
		t.interval, t.single, t.origin = 0, true, never
		t.x().seat = st
		if st.runs > 0 {
			t.extra.maxRuns = t.committed() + st.runs
			t.eachRun(func(r *run) { r.prior = r.stage == queued })
		}
		m.takeSeat(t, next)
	})
}

// leaveGrid accounts for all that was due on the grid that the task leaves.
func (t *task) leaveGrid(e *engine, now int64) {
	t.account(now)
	n, last, _ := t.takeDue(now)
	t.skip(KindMissed, &t.x().counts.missed, uint64(n)+t.dropHeld(), last)
	if t.followsWall() {
		e.unwatch(t)
	}
	t.extra.maxRuns, t.extra.spentAt = 0, never
	t.endGridIfSpent(now) // by the option, all the same
}

// change does what f does to a live task, with engine.mu and the task's mu held,
// and files it anew.
func (t *Handle) change(f func(e *engine, now int64)) error {
	m := t.conf.m
	e := m.engine
	e.mu.Lock()
	t.mu.Lock()
	if t.life != live || e.draining.Load() {
		err := t.overErr()
		t.mu.Unlock()
		e.mu.Unlock()
		return err
	}
	now := e.source.Mono()
	f(e, now)
	e.refile(t, now)
	over := t.over()
	t.mu.Unlock()
	e.nextTurns(t.conf.gates)
	e.mu.Unlock()
	if over {
		m.end(t, complete, nil)
	}
	return nil
}

// RunNow starts a run beside the ticks, and returns without waiting for it. It ignores
// Pause and backoff, and obeys limits: over one it waits its turn, or with
// WithSkipOverLimit returns ErrLimitReached. It refuses with ErrAlreadyRunning if a run
// of the task waits its turn, or, unless the task is reentrant, is in flight; with
// ErrStopped if the task is over or WithMaxRuns leaves no run; with ErrClosed after
// Shutdown.
func (t *Handle) RunNow() error {
	e := t.conf.m.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.life != live || t.spentRuns() || e.draining.Load():
		return t.overErr()
	case t.waits(), t.conf.opts.NonReentrant && t.busy():
		return ErrAlreadyRunning
	}
	now := e.source.Mono()
	r := t.serve(-1, now)
	switch {
	case e.admit(r):
		e.spawn(r)
	case r.stage == free:
		return ErrLimitReached
	}
	return nil
}

// Stop ends the task for good, and returns at once: no run starts any more, the
// context of a run in flight is cancelled with cause ErrStopped, and the name is
// free. Wait and Done tell when the run has ended. Stopping again does nothing.
func (t *Handle) Stop() { t.conf.m.end(t, stopped, nil) }

// Done is closed when the task is stopped or complete and no run is in flight.
func (t *Handle) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.x()
	if x.done == nil {
		x.done = make(chan struct{})
		if t.life != live && !t.busy() {
			t.signalDone()
		}
	}
	return x.done
}

// Wait returns nil when Done is closed, or the cause of ctx's end. From inside a
// run of the task itself it returns ErrOwnRun at once.
func (t *Handle) Wait(ctx context.Context) error {
	if t.calledFromRun(ctx) {
		return ErrOwnRun
	}
	if closedBefore(t.Done(), ctx.Done()) {
		return nil
	}
	return context.Cause(ctx)
}

// calledFromRun tells whether the caller is inside a run of the task: by the
// context it passes, or by the goroutine it is on.
func (t *task) calledFromRun(ctx context.Context) bool {
	if t.runOn(here()) != nil {
		return true
	}
	if !slices.Contains(tasksOf(ctx), t) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inFlight() > 0
}

// runOn is the task's run that goes on on the goroutine with these identities, nil
// if none does.
func (t *task) runOn(ids []uint64) (found *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eachRun(func(r *run) {
		if r.stage == running && r.goid != 0 && slices.Contains(ids, r.goid) {
			found = r
		}
	})
	return found
}

// Name is the task's name.
func (t *Handle) Name() string { return t.name }

// String is the task's name, for logs: what else a handle has is not to be read without
// its locks.
func (t *Handle) String() string { return t.name }

// Tag is the task's tag, "" if it has none.
func (t *Handle) Tag() string { return t.conf.opts.Tag }

// Interval is the task's interval, 0 if it has a Schedule.
func (t *Handle) Interval() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(t.interval)
}

// Schedule is the task's Schedule, nil if it has an interval.
func (t *Handle) Schedule() Schedule {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.seatOf(); s != nil {
		return s.schedule
	}
	return nil
}

// Options are the options in effect, defaults included. What a Schedule says of
// itself, like its own number of runs, is not among them. StartAt, Immediately and
// Paused are as they were given: they were for the task's beginning.
func (t *Handle) Options() RecurringOptions {
	t.mu.Lock()
	defer t.mu.Unlock()
	opts := t.conf.opts
	if t.startAt != 0 {
		opts.StartAt = time.Unix(0, t.startAt)
	}
	if x := t.extra; x != nil {
		if !x.startGiven.IsZero() {
			opts.StartAt = x.startGiven
		}
		opts.EndAt = x.endGiven
	}
	return opts
}

// overErr is what a call that needs a live task returns when there is none.
func (t *task) overErr() error {
	if t.life == live && t.conf.m.engine.draining.Load() || t.extra != nil && t.extra.reason == ErrClosed {
		return ErrClosed
	}
	return ErrStopped
}

// Err says why the task is over: nil while it is live or when it has completed,
// ErrStopped after Stop, ErrClosed after Shutdown, else what stopped it
// (ErrBackoffStop, ErrSchedule).
func (t *Handle) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err()
}
