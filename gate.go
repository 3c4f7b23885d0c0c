package taskmanager

import (
	"container/heap"

	"golang.org/x/sync/semaphore"
)

// A gate is a limit on runs that go on at once: the manager's, or a tag's. A
// task's run needs a place at every gate of its task. One that finds a gate full
// waits there, in order of due time, and when its turn comes tries them all
// again: it may then move on to wait at the next gate, with its due time. So no
// gate's place is held by a run that waits for another. Guarded by engine.mu.
type gate struct {
	places  *semaphore.Weighted // counts; nobody ever blocks on it
	waiting turns
}

func newGate(n int) *gate { return &gate{places: semaphore.NewWeighted(int64(n))} }

// A turn is a queued run's place in a gate's queue.
type turn struct {
	run  *run
	gate *gate
	at   int // index in gate.waiting
}

// before tells whether it is r's turn before o's.
func (r *run) before(o *run) bool {
	return r.due < o.due || r.due == o.due && r.task.id < o.task.id
}

// turns is a heap in order of due time, then of scheduling.
type turns []*turn

func (q turns) Len() int           { return len(q) }
func (q turns) Less(i, j int) bool { return q[i].run.before(q[j].run) }
func (q turns) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}
func (q *turns) Push(v any) {
	t := v.(*turn)
	t.at = len(*q)
	*q = append(*q, t)
}
func (q *turns) Pop() any {
	old := *q
	last := len(old) - 1
	t := old[last]
	old[last] = nil
	*q = old[:last]
	return t
}

// pass takes a place at every gate, or returns the first that is full.
func pass(gates []*gate) (full *gate) {
	for i, g := range gates {
		if !g.places.TryAcquire(1) {
			for _, taken := range gates[:i] {
				taken.places.Release(1)
			}
			return g
		}
	}
	return nil
}

// admit lets a queued run through its task's gates, or makes it wait its turn, as
// it must too where others wait already. A run whose task skips over a limit is let
// go of. Called with engine.mu and the task's mu held.
func (e *engine) admit(r *run) (admitted bool) {
	if r.task.conf.plain {
		return true
	}
	for _, g := range r.task.conf.gates {
		if len(g.waiting) > 0 {
			return e.enter(r, g)
		}
	}
	return e.enter(r, nil)
}

// enter is admit, past a gate that is known to be full, if not nil.
func (e *engine) enter(r *run, full *gate) bool {
	t := r.task
	if full == nil {
		full = pass(t.conf.gates)
	}
	if full == nil {
		r.placed = true
		e.armLimit(t)
		return true
	}
	if t.conf.opts.SkipOverLimit {
		e.overLimit(r)
		return false
	}
	turn := &turn{run: r, gate: full}
	t.x().turn = turn
	heap.Push(&full.waiting, turn)
	return false
}

// waits tells whether a run of the task waits its turn at a gate. Called with engine.mu
// or the task's mu held.
func (t *task) waits() bool { return t.extra != nil && t.extra.turn != nil }

// overLimit lets go of a queued run, its tick and those held behind it.
func (e *engine) overLimit(r *run) {
	t := r.task
	t.freed(r)
	if r.index >= 0 { // and not a RunNow, which has nothing to do with what is held
		t.skip(KindSkippedLimit, &t.x().counts.skippedLimit, t.dropHeld()+1, t.next-1)
	}
}

// leave takes a queued run out of the gate's queue it may stand in, or frees the
// places it has been given. Called with engine.mu and the task's mu held.
func (e *engine) leave(r *run) {
	t := r.task
	if t.extra != nil && t.extra.turn != nil && t.extra.turn.run == r {
		heap.Remove(&t.extra.turn.gate.waiting, t.extra.turn.at)
		t.extra.turn = nil
	}
	if r.placed {
		r.placed = false
		for _, g := range t.conf.gates {
			g.places.Release(1)
		}
	}
}

// behind is a gate of r's other than passed where somebody waits whose turn is before
// r's, nil if there is none: r waits there then, too.
func (r *run) behind(passed *gate) *gate {
	for _, g := range r.task.conf.gates {
		if g != passed && len(g.waiting) > 0 && g.waiting[0].run.before(r) {
			return g
		}
	}
	return nil
}

// nextTurns starts the runs that can go now that places have been freed at the
// gates. Called with engine.mu held and no task's.
func (e *engine) nextTurns(gates []*gate) {
	for _, g := range gates {
		for len(g.waiting) > 0 && g.places.TryAcquire(1) {
			g.places.Release(1)
			r := heap.Pop(&g.waiting).(*turn).run
			t := r.task
			t.mu.Lock()
			t.extra.turn = nil
			if e.enter(r, r.behind(g)) {
				e.spawn(r)
			}
			if t.holding() { // what its turn has held up
				e.refile(t, e.source.Mono())
			}
			t.mu.Unlock()
		}
	}
}
