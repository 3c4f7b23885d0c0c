package taskmanager

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A shutdown is the one that a manager goes through.
//
//	draining --all runs ended--> closed
//	draining --the first caller's ctx ends--> cancelling --all ended, grace over--> closed
type shutdown struct {
	closed chan struct{} // closed with the verdict
	err    error         // the verdict; written before that

	mu         sync.Mutex    // guards the fields below; leaf lock
	left       map[*run]bool // in flight
	counted    bool          // all runs in flight are in left, or have ended
	drained    chan struct{} // closed when none is left
	cancelling bool
	cancelled  []RunInfo // runs that ended since
}

// Shutdown ends the manager. No new run starts; runs in flight are waited for.
// When ctx ends, their contexts are cancelled (cause ErrClosed), and they are
// waited for as long again as WithShutdownGrace says; a run that still goes on is
// abandoned. The *ShutdownError says which runs were cancelled and which
// abandoned, and where those stand; nil means that all ended by themselves.
//
// Only the first call acts, and its ctx counts: give it one that ends. Later ones, and
// Close, wait for the same verdict. Called from inside a run, which is recognised by the
// context passed or by the goroutine, it does not wait for that run; and if it is not the
// first, it waits for nothing, and returns nil unless the verdict is there already. It
// does not wait for goroutines that functions have started. Called from a log handler, or
// an observer of other than runs, it takes the whole grace, since it also waits for what
// is left to be logged and observed. Afterwards calls return ErrClosed, and handles stay
// readable.
func (m *TaskManager) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	s, first := m.closing, m.closing == nil
	if first {
		s = &shutdown{closed: make(chan struct{}), left: map[*run]bool{}, drained: make(chan struct{})}
		m.closing, m.last = s, m.names.all()
		m.engine.mu.Lock()
		m.engine.draining.Store(true)
		m.engine.mu.Unlock()
	}
	m.mu.Unlock()
	if first {
		s.err = m.drain(ctx, s)
		close(s.closed)
		return s.err
	}
	select {
	case <-s.closed:
		return s.err
	default:
	}
	if len(m.ownRuns(ctx)) > 0 {
		return nil // the verdict may be waiting for this very run
	}
	<-s.closed
	return s.err
}

// Close is Shutdown with a context that has ended: runs in flight are cancelled at
// once, and waited for during the grace.
func (m *TaskManager) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return m.Shutdown(ctx)
}

// drain is the first caller's Shutdown.
func (m *TaskManager) drain(ctx context.Context, s *shutdown) error {
	own := m.ownRuns(ctx)
	for _, t := range m.tasks() {
		m.end(t, stopped, ErrClosed)
	}
	m.await(s, own)

	grace := make(chan struct{})
	timer := m.engine.source.NewTimer(func() { close(grace) })
	defer timer.Stop()
	begin := func() {
		if m.grace == 0 { // a timer would need time to move
			close(grace)
			return
		}
		timer.Reset(m.grace)
	}
	var verdict error
	if closedBefore(s.drained, ctx.Done()) {
		begin()
	} else {
		m.cancelLeft(s)
		begin()
		closedBefore(s.drained, grace)
		verdict = s.verdict(m.engine.source.Mono())
	}
	// The observer and the log have the rest of the grace for what is left.
	closedBefore(m.events.queue.Flushed(), grace)
	m.engine.close()
	return verdict
}

// closedBefore waits for one of two channels to be closed, and tells whether it was
// the first; if both are closed, it was.
func closedBefore(a, b <-chan struct{}) bool {
	select {
	case <-a:
		return true
	case <-b:
	}
	select {
	case <-a:
		return true
	default:
		return false
	}
}

// ownRuns are the runs that the caller is inside of: one, or more where a function
// calls RunOnce. A context tells the task only: if the task has a run in flight, that
// one counts as the caller's.
func (m *TaskManager) ownRuns(ctx context.Context) (own []*run) {
	ids := here()
	callers := tasksOf(ctx)
	for _, t := range m.allTasks() {
		if r := t.runOn(ids); r != nil {
			own = append(own, r)
			continue
		}
		if !slices.Contains(callers, t) {
			continue
		}
		t.mu.Lock()
		var one *run
		t.eachRun(func(r *run) {
			if r.stage == running {
				one = r
			}
		})
		t.mu.Unlock()
		if one != nil {
			own = append(own, one)
		}
	}
	return own
}

// tasksOf are the tasks whose runs the context is of: the run's, and, from RunOnce on,
// those of the context that it was given.
func tasksOf(ctx context.Context) (tasks []*task) {
	for {
		t, ok := ctx.Value(seam.RunKey{}).(*task)
		if !ok {
			return tasks
		}
		tasks = append(tasks, t)
		given := t.shared.Load()
		if given == nil || t.conf != t.conf.m.once {
			return tasks
		}
		ctx = given
	}
}

// insideRun tells whether the caller is on the goroutine of a run of the manager's, or of
// that whose context it has.
func (m *TaskManager) insideRun(ctx context.Context) bool {
	ids := here()
	return slices.ContainsFunc(append(tasksOf(ctx), m.allTasks()...), func(t *task) bool { return t.runOn(ids) != nil })
}

// allTasks are the live tasks and those that have a run in flight.
func (m *TaskManager) allTasks() []*task {
	m.mu.Lock()
	defer m.mu.Unlock()
	tasks := m.names.all()
	for t := range m.ending {
		tasks = append(tasks, t)
	}
	return tasks
}

// await has s told of the end of every run in flight, but for own. There will be no
// others: every task is over.
func (m *TaskManager) await(s *shutdown, own []*run) {
	for _, t := range m.allTasks() {
		t.mu.Lock()
		t.eachRun(func(r *run) {
			if slices.Contains(own, r) {
				return
			}
			t.x() // the end of a run of a task without an extra part tells nobody
			r.awaited = true
			s.mu.Lock()
			s.left[r] = true
			s.mu.Unlock()
		})
		t.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = true
	if len(s.left) == 0 {
		close(s.drained)
	}
}

// awaitedEnded tells the shutdown of the end of a run that it waits for.
func (m *TaskManager) awaitedEnded(r *run, lasted time.Duration) {
	m.mu.Lock()
	s := m.closing
	m.mu.Unlock()
	s.ended(r, lasted)
}

// ended takes a run off those that are left.
func (s *shutdown) ended(r *run, lasted time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left[r] {
		return
	}
	delete(s.left, r)
	if s.cancelling {
		s.cancelled = append(s.cancelled, RunInfo{Name: r.task.name, Age: lasted})
	}
	if s.counted && len(s.left) == 0 {
		close(s.drained)
	}
}

// cancelLeft cancels the contexts of the runs that are left.
func (m *TaskManager) cancelLeft(s *shutdown) {
	s.mu.Lock()
	s.cancelling = true
	tasks := map[*task]bool{}
	for r := range s.left {
		tasks[r.task] = true
	}
	s.mu.Unlock()
	for t := range tasks {
		t.mu.Lock()
		t.cancelRuns(m.closed)
		t.mu.Unlock()
		(*taskContext)(t).end(m.closed) // without locks: behind RunOnce's is its caller's
	}
}

// verdict says what became of the runs that were cancelled; nil if they all ended
// before they could be.
func (s *shutdown) verdict(now int64) error {
	s.mu.Lock()
	cancelled, left := s.cancelled, s.left
	s.left = nil // whatever ends from now on has been abandoned
	s.mu.Unlock()
	if len(cancelled)+len(left) == 0 {
		return nil
	}
	v := &ShutdownError{Cancelled: cancelled}
	ids := map[uint64]bool{}
	var goids []uint64 // of those abandoned
	for r := range left {
		since, goid := r.begun()
		ids[goid] = goid != 0
		goids = append(goids, goid)
		v.Abandoned = append(v.Abandoned, RunInfo{Name: r.task.name, Age: time.Duration(now - since)})
	}
	if len(ids) > 0 {
		where := stacks(ids)
		for i, goid := range goids {
			v.Abandoned[i].Stack = where[goid]
		}
	}
	byName := func(a, b RunInfo) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(v.Cancelled, byName)
	slices.SortFunc(v.Abandoned, byName)
	return v
}

// begun is when the run began and the goroutine that it is on. RunOnce may be about to
// begin one: then it is 0, since the call.
func (r *run) begun() (since int64, goid uint64) {
	r.task.mu.Lock()
	defer r.task.mu.Unlock()
	if r.stage == queued {
		return r.due, 0
	}
	return r.started, r.goid
}
