package taskmanager

import "time"

// A Ledger counts what became of a task's ticks. Each due instant ends in exactly
// one of these, so that Due is, for an interval task, the number of instants of
// its grid since it was scheduled, and for a schedule the number of instants that
// the engine has had from it. Runs by RunNow are not ticks.
type Ledger struct {
	Ran            uint64 `json:"ran"`            // a run started for it
	SkippedRunning uint64 `json:"skippedRunning"` // the previous run was still going on
	SkippedBackoff uint64 `json:"skippedBackoff"` // it came during backoff, and a later one was served
	SkippedLimit   uint64 `json:"skippedLimit"`   // a concurrency limit was reached
	SkippedPaused  uint64 `json:"skippedPaused"`  // the task was paused
	Missed         uint64 `json:"missed"`         // too late to be served, folded into a later run; or left when the task ended
	Coalesced      uint64 `json:"coalesced"`      // folded into the one run of Coalesce
	Dropped        uint64 `json:"dropped"`        // beyond the bound of CatchUp
	Pending        uint64 `json:"pending"`        // due, and not decided yet: held or waiting its turn
}

// Due is the number of instants that have fallen due.
func (l Ledger) Due() uint64 {
	return l.Ran + l.Skipped() + l.Missed + l.Coalesced + l.Dropped + l.Pending
}

// Skipped is the number of ticks skipped for any reason.
func (l Ledger) Skipped() uint64 {
	return l.SkippedRunning + l.SkippedBackoff + l.SkippedLimit + l.SkippedPaused
}

// counts are the counters of a task that stay zero while all goes well.
type counts struct {
	skippedRunning, skippedBackoff, skippedLimit, skippedPaused uint64
	missed, coalesced, dropped                                  uint64

	failures, cancelled, timeouts, panics uint64
	manual                                uint64 // runs started by RunNow
	gaps                                  uint64 // stretches a schedule was not asked about
}

func (t *task) counts() counts {
	if t.extra == nil {
		return counts{}
	}
	return t.extra.counts
}

// starts is the number of runs that have started.
func (t *task) starts() uint64 {
	c := t.counts()
	return t.successes + c.failures + c.cancelled + t.inFlight()
}

func (t *task) ledger() Ledger {
	c := t.counts()
	l := Ledger{
		Ran:            t.starts() - c.manual,
		SkippedRunning: c.skippedRunning,
		SkippedBackoff: c.skippedBackoff,
		SkippedLimit:   c.skippedLimit,
		SkippedPaused:  c.skippedPaused,
		Missed:         c.missed,
		Coalesced:      c.coalesced,
		Dropped:        c.dropped,
	}
	t.eachRun(func(r *run) {
		if r.stage == queued && r.index >= 0 {
			l.Pending++
		}
	})
	l.Pending += uint64(t.heldCount())
	return l
}

// A backlog is the ticks of a task that are due and held: by Coalesce or CatchUp
// while a run goes on, or by backoff. They are the n ticks up to last.
type backlog struct {
	n    int64
	last int64
	due  int64 // the last one's instant: the grid may be another one by now
	// dues has their instants where they cannot be computed (task.single).
	dues []int64
	// floor is the end of the last backoff, which held those that were due before.
	floor int64
}

// hold adds the n ticks up to last, the last of which is due at due.
func (t *task) hold(n, last, due int64) {
	b := &t.x().held
	b.n += n
	b.last, b.due = last, due
	if t.single {
		b.dues = append(b.dues, due)
	}
}

// takeHeld removes the k oldest held ticks and returns the last of them.
func (t *task) takeHeld(k int64) (index, due int64) {
	b := &t.extra.held
	index = b.last - b.n + k
	if t.single {
		due = b.dues[k-1]
		b.dues = append(b.dues[:0], b.dues[k:]...)
	} else if due = b.due; index < b.last {
		due = t.at(index)
	}
	b.n -= k
	return index, due
}

// dropHeld forgets all held ticks and returns how many there were.
func (t *task) dropHeld() uint64 {
	if t.extra == nil {
		return 0
	}
	n := t.extra.held.n
	t.extra.held = backlog{}
	return uint64(n)
}

// fall is the heart of the ledger: it accounts for every tick due at or before
// now that has not been accounted for, and returns the run to start, queued, if
// there is one. It takes the same time whatever the number of ticks. Called with
// engine.mu held too, since what it leaves in task.node's place is the caller's; except
// by account, whose task's node stands where it belongs all the same.
func (t *task) fall(now int64) *run {
	if t.life != live || t.conf.m.engine.draining.Load() {
		return nil
	}
	return t.decide(now)
}

// endGridIfSpent ends the grid with the start of the last of MaxRuns.
func (t *task) endGridIfSpent(now int64) {
	if limit := t.runLimit(); limit == 0 || t.starts() < limit {
		return
	}
	x := t.x()
	x.spentAt = min(x.spentAt, now)
	last := x.held.last
	t.skip(KindMissed, &x.counts.missed, t.dropHeld(), last)
}

func (t *task) decide(now int64) *run {
	if floor := t.floor(); floor > 0 && floor <= now && !t.paused {
		t.fallDuringBackoff(floor)
		t.extra.floor, t.extra.held.floor = 0, floor
		if r := t.fallAfterBackoff(now); r != nil {
			return r
		}
	}
	n, last, due := t.takeDue(now)
	held := t.heldCount()
	switch {
	case n+held == 0:
		return nil
	case t.paused:
		t.skip(KindSkippedPaused, &t.x().counts.skippedPaused, uint64(n)+t.dropHeld(), last)
		return nil
	case t.spentRuns():
		t.skip(KindMissed, &t.x().counts.missed, uint64(n)+t.dropHeld(), last)
		return nil
	case t.floor() > now:
		t.holdInBackoff(n, last, due)
		return nil
	case t.blocked():
		t.fallDuringRun(n, last, due)
		return nil
	}
	return t.fallIdle(n, held, last, due)
}

// takeDue takes the ticks due at now off the grid: their number, the index of the
// last, and its instant.
func (t *task) takeDue(now int64) (n, last, due int64) {
	last = t.latest(now)
	if n = last - t.next + 1; n <= 0 {
		return 0, last, 0
	}
	due = t.at(last)
	t.next = last + 1
	if t.single {
		t.origin = never
		if s := t.seatOf(); s != nil {
			s.served, s.at = s.at, time.Time{}
		}
	}
	return n, last, due
}

// fallIdle serves a tick of a task that no run keeps from it.
func (t *task) fallIdle(n, held, last, due int64) *run {
	policy := t.conf.opts.Overlap
	if policy.kind == overlapCatchUp && n+held > 1 {
		if n > 0 {
			t.hold(n, last, due)
		}
		t.dropBeyond(int64(policy.bound) + 1) // one starts at once
		return t.serveHeld(t.takeHeld(1))
	}
	if n == 0 { // the run that Coalesce held ticks for has just ended
		index, due := t.takeHeld(held)
		t.skip(KindCoalesced, &t.extra.counts.coalesced, uint64(held-1), index-1)
		return t.serveHeld(index, due)
	}
	if held > 0 && policy.kind == overlapCoalesce {
		t.skip(KindCoalesced, &t.extra.counts.coalesced, t.dropHeld(), last-n)
	} else if held > 0 { // held by backoff, then kept by a RunNow
		t.skip(KindMissed, &t.extra.counts.missed, t.dropHeld(), last-n)
	}
	if n > 1 {
		t.skip(KindMissed, &t.x().counts.missed, uint64(n-1), last-1)
	}
	return t.serve(last, due)
}

// fallDuringRun keeps a second run of a non-reentrant task from starting, or
// another tick of any task from queueing beside the one that waits its turn.
func (t *task) fallDuringRun(n, last, due int64) {
	if n == 0 {
		return
	}
	c := &t.x().counts
	switch policy := t.conf.opts.Overlap; {
	case policy.kind == overlapCatchUp:
		t.hold(n, last, due)
		t.dropBeyond(int64(policy.bound))
	case t.run.stage == queued || t.waits():
		t.skip(KindMissed, &c.missed, uint64(n), last)
	case policy.kind == overlapCoalesce:
		t.holdLatest(n, last, due, KindCoalesced, &c.coalesced)
	default:
		t.skip(KindSkippedRunning, &c.skippedRunning, uint64(n), last)
	}
}

func (t *task) dropBeyond(bound int64) {
	if over := t.extra.held.n - bound; over > 0 {
		index, _ := t.takeHeld(over)
		t.skip(KindDropped, &t.extra.counts.dropped, uint64(over), index)
	}
}

// fallDuringBackoff accounts for the ticks up to the floor: the latest is held.
func (t *task) fallDuringBackoff(floor int64) {
	n, last, due := t.takeDue(floor)
	t.holdInBackoff(n, last, due)
}

func (t *task) holdInBackoff(n, last, due int64) {
	t.holdLatest(n, last, due, KindSkippedBackoff, &t.x().counts.skippedBackoff)
}

// holdLatest holds the last of n ticks and those held before, and skips the rest. There
// may be others between those held before and the n, so they are told of by themselves.
func (t *task) holdLatest(n, last, due int64, kind Kind, counter *uint64) {
	b := &t.x().held
	if n > 0 {
		before := b.last
		t.skip(kind, counter, t.dropHeld(), before)
		t.hold(n, last, due)
	}
	if before := b.n - 1; before > 0 {
		index, _ := t.takeHeld(before)
		t.skip(kind, counter, uint64(before), index)
	}
}

// fallAfterBackoff serves the tick that backoff held, unless a later one is due
// by now, which then counts as late.
func (t *task) fallAfterBackoff(now int64) *run {
	if t.extra.held.n == 0 || t.blocked() || t.spentRuns() || t.conf.opts.Overlap.kind == overlapCatchUp {
		return nil // decide sees to it, as without a backoff
	}
	index, tick := t.takeHeld(t.extra.held.n)
	if n, last, due := t.takeDue(now); n > 0 {
		t.skip(KindMissed, &t.extra.counts.missed, uint64(n), last-1)
		return t.serve(last, due)
	}
	return t.serveHeld(index, tick)
}

// spentRuns tells whether MaxRuns leaves no further start.
func (t *task) spentRuns() bool {
	limit := t.runLimit()
	return limit > 0 && t.committed() >= limit
}

// committed is the number of runs that have started or are queued.
func (t *task) committed() uint64 {
	n := t.starts()
	t.eachRun(func(r *run) {
		if r.stage == queued {
			n++
		}
	})
	return n
}

// runLimit is the number of runs after which the task is complete, 0 for none.
func (t *task) runLimit() uint64 {
	limit := t.conf.opts.MaxRuns
	if t.extra != nil && t.extra.maxRuns > 0 && (limit == 0 || t.extra.maxRuns < limit) {
		return t.extra.maxRuns
	}
	return limit
}

// serve queues a run for the tick. Whoever holds the run's pointer from an earlier
// time may look at its task without a lock: that never changes.
func (t *task) serve(index, tick int64) *run {
	r := &t.run
	if r.stage != free { // a reentrant task
		r = &run{task: t}
		t.x().others = append(t.extra.others, r)
	}
	r.stage, r.index, r.tick, r.due = queued, index, tick, tick
	r.goid, r.ctx = 0, nil
	r.warned, r.stopped, r.placed, r.prior = false, false, false, false
	r.aside = t.slow > 0 || !t.conf.opts.NonReentrant
	return r
}

// serveHeld is serve for a tick that was held. What backoff held it for is no lateness.
func (t *task) serveHeld(index, tick int64) *run {
	r := t.serve(index, tick)
	r.due = max(tick, t.extra.held.floor)
	return r
}

// skip counts n ticks, the last of which is index, and tells the observer.
func (t *task) skip(kind Kind, counter *uint64, n uint64, index int64) {
	if n == 0 {
		return
	}
	*counter += n
	t.conf.m.events.tick(t, kind, n, index)
}

// account brings the counters of a task that nothing wakes up to date: a paused
// one, or one in backoff.
func (t *task) account(now int64) {
	if t.paused || t.floor() > now {
		t.fall(now)
	}
}

// wakeAt is the instant at which fall has something to decide.
func (t *task) wakeAt() int64 {
	if t.life == live && t.asking() {
		return t.extra.seat.until
	}
	if t.life != live || t.paused {
		return never
	}
	due := t.nextDue()
	if t.extra == nil {
		return due
	}
	if t.extra.held.n > 0 && !t.blocked() {
		return t.extra.floor
	}
	return max(due, t.extra.floor)
}

// over tells whether a live task has nothing left to do.
func (t *task) over() bool {
	if t.life != live || t.busy() || t.extra == nil || t.extra.held.n > 0 {
		return false
	}
	if t.spentRuns() {
		return true
	}
	if t.single && t.origin == never {
		s := t.extra.seat
		return s != nil && s.ended && !t.paused
	}
	return t.end() != never && t.nextDue() == never && !t.paused // else it is out of reach
}
