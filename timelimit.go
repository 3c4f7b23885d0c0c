package taskmanager

import "time"

// A time limit costs no timer and, most of the time, nothing at a run's start: a
// task has one node for it, which is filed no later than the earliest end of its
// runs' time. A run that ends leaves it where it is if another run will have
// begun by then. When it comes due it looks at the runs that are there, and is
// filed for the next.

// overdueAfter is how long after its time was over a run is reported as still
// running: as long again as it had, at most a second.
func overdueAfter(limit int64) int64 { return min(limit, int64(time.Second)) }

// nextLimit is the earliest instant at which a run of the task needs attention.
func (t *task) nextLimit(now int64) int64 {
	limit, next := t.conf.limit, never
	t.eachRun(func(r *run) {
		switch {
		case r.stage == queued:
			if r.placed {
				next = min(next, now+limit)
			}
		case r.ctx.Err() == nil:
			next = min(next, r.started+limit)
		case !r.warned:
			next = min(next, r.started+limit+overdueAfter(limit))
		}
	})
	return next
}

// armLimit files the task's limit node for its runs. Called with engine.mu and the
// task's mu held.
func (e *engine) armLimit(t *task) {
	if t.conf.limit == 0 {
		return
	}
	now := e.source.Mono()
	n := &t.x().limit
	next := t.nextLimit(now)
	if next == never {
		if t.life == live && n.filed() && t.nextDue() <= n.when {
			return // the next run will be glad of it
		}
		e.wheel.remove(n)
		return
	}
	if n.filed() && n.when <= next {
		return
	}
	e.wheel.remove(n)
	n.task, n.kind = t, nodeLimit
	e.file(n, next, now)
}

// limitPassed ends the time of the runs that are over their limit, and says once
// of one that goes on all the same that it does. Called with engine.mu held.
func (e *engine) limitPassed(t *task, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := t.conf.limit
	t.eachRun(func(r *run) {
		if r.stage != running || r.started+limit > now {
			return
		}
		if r.ctx.Err() == nil {
			r.ctx.cancel(e.m.timedOut)
			return
		}
		if !r.warned && r.started+limit+overdueAfter(limit) <= now {
			r.warned = true
			e.m.events.overdue(t, time.Duration(now-r.started))
		}
	})
	if next := t.nextLimit(now); next != never {
		e.file(&t.extra.limit, next, now)
	}
}
