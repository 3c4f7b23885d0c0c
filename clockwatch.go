package taskmanager

import "time"

const (
	watchEvery = int64(time.Second)
	// A step is what the two hands come apart by between two looks. Slewing by NTP
	// is a half of a millisecond a second at most.
	leastStep = 100 * time.Millisecond
	// leastDrift is the distance, gathered by slewing, from which schedules are
	// seated anew without a word.
	leastDrift = 20 * time.Millisecond
)

// A clockWatch looks at the wall clock once a second while there is a task that
// follows it, on a clock that has two hands; on one that tells of steps, only in the
// second after one. Guarded by engine.mu.
type clockWatch struct {
	node  node
	told  bool  // by the clock; immutable
	first int64 // when it began to look
	tasks []*task
	zero  time.Time     // what offsets count from
	seen  time.Duration // wall minus monotonic at the last look
	used  time.Duration // the same when the tasks were last seated anew
	steps uint64
}

// offset is how far the wall clock is ahead of the monotonic hand.
func (e *engine) offset() time.Duration {
	wall, mono := e.source.Now()
	return wall.Round(0).Sub(e.watch.zero) - time.Duration(mono)
}

// watchFor adds a task that follows the wall clock.
func (e *engine) watchFor(t *task) {
	w := &e.watch
	t.extra.seat.place = len(w.tasks)
	w.tasks = append(w.tasks, t)
	if len(w.tasks) == 1 && e.source.TwoHands() {
		wall, now := e.source.Now()
		if w.zero.IsZero() {
			w.zero = wall.Round(0)
		}
		w.seen = e.offset()
		w.used = w.seen
		w.node.kind = nodeWatch
		w.first = now
		e.wheel.remove(&w.node)
		if !w.told {
			e.file(&w.node, now+watchEvery, now)
		}
	}
}

// stepped is called when the clock tells of a step.
func (e *engine) stepped() {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &e.watch
	if len(w.tasks) == 0 || w.node.filed() {
		return
	}
	now := e.source.Mono()
	e.file(&w.node, now+watchEvery-(now-w.first)%watchEvery, now)
}

// unwatch takes a task out again.
func (e *engine) unwatch(t *task) {
	w := &e.watch
	s := t.extra.seat
	if s.place >= len(w.tasks) || w.tasks[s.place] != t {
		return
	}
	last := len(w.tasks) - 1
	moved := w.tasks[last]
	w.tasks[s.place] = moved
	moved.extra.seat.place = s.place
	w.tasks[last] = nil
	w.tasks = w.tasks[:last]
	if last == 0 {
		e.wheel.remove(&w.node)
	}
}

// watchClock is the look.
func (e *engine) watchClock() {
	w := &e.watch
	if !w.told {
		now := e.source.Mono()
		e.file(&w.node, now+watchEvery, now)
	}
	offset := e.offset()
	step, drift := offset-w.seen, offset-w.used
	w.seen = offset
	if step.Abs() >= leastStep {
		w.steps++
		e.m.events.clockStep(step)
	} else if drift.Abs() < leastDrift {
		return
	}
	w.used = offset
	for _, t := range w.tasks {
		t.mu.Lock()
		if step < -replayLimit {
			t.extra.seat.served = time.Time{}
		}
		e.reseat(t, drift < 0)
		t.mu.Unlock()
	}
}

// reseat makes a task follow the wall clock to where it is now. If that went
// forward, the instant seated is still the next, and late if it was passed. If it
// went back, there may be an earlier one, so the schedule is asked again.
func (e *engine) reseat(t *task, back bool) {
	x := t.extra
	s := x.seat
	if t.life != live {
		return
	}
	t.followEnd(e.hands())
	if s.asking {
		return // see seatLocked
	}
	if back {
		t.account(e.source.Mono()) // what was due, and backoff or a pause held, was due
		s.at, s.ended, t.origin = time.Time{}, false, never
	} else if !s.at.IsZero() {
		e.follow(t)
	}
	e.refile(t, e.source.Mono())
	e.endIfOver(t)
}
