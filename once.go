package taskmanager

import "context"

// A once is the task of one run, in one piece: durable runs are many. Its context has
// no parent of its own, and so costs nothing until somebody asks for it.
type once struct {
	task     task
	extra    extra
	f        Func
	returned error
}

func (m *TaskManager) newOnce(name string, f Func) *once {
	o := &once{f: f, extra: extra{endAt: never, spentAt: never}}
	o.task.name, o.task.conf, o.task.extra = name, m.once, &o.extra
	o.task.single, o.task.origin, o.task.life = true, never, complete
	o.task.fn = o.call
	return o
}

// Context is the run's.
func (o *once) Context() context.Context { return (*taskContext)(&o.task) }

// End ends the context with that cause, or as that of a run that is over if it is nil.
// The first cause counts.
func (o *once) End(cause error) {
	ended := o.task.conf.m.ended
	if cause != nil {
		ended = endedContext(cause)
	}
	(*taskContext)(&o.task).end(ended)
}

// Run is the run, on the goroutine of that identity.
func (o *once) Run(goid uint64) error {
	t := &o.task
	m := t.conf.m
	now := m.engine.source.Mono()
	t.run = run{task: t, index: -1, due: now, stage: queued}
	if !m.enter(t) {
		return ErrClosed
	}
	defer t.closeDone() // the end of a run that succeeded does not see to it
	m.engine.execute(&t.run, goid, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.extra.lastErr != nil {
		return o.extra.lastErr
	}
	return o.returned
}

func (o *once) call(ctx context.Context) error {
	o.returned = o.f(ctx)
	return o.returned
}

// enter notes a task that has no name to be found by, while it has a run in flight;
// false if the manager is shut down.
func (m *TaskManager) enter(t *task) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing != nil {
		return false
	}
	m.ending[t] = struct{}{}
	return true
}
