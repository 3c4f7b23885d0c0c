package taskmanager

import (
	"context"
	"fmt"
	"time"
)

// slowRun is the duration from which a run is moved aside: the task's next runs
// go on goroutines of their own, until it has been faster slowMemory times. Below
// it, running on the goroutine that found the tick due is cheaper than starting
// another and delays the rest of the batch less than they notice.
const (
	slowRun    = 100 * time.Microsecond
	slowMemory = 8
)

// execute does a queued run on the calling goroutine, whose id or mark is goid, and
// returns the time at its end, or after what user code was called then. at is the time
// now. More than one goroutine may hold r for a while (a batch from which it was taken
// by Pause, then queued again): only the first finds it queued.
func (e *engine) execute(r *run, goid uint64, at int64) (end int64, follow *run) {
	if !e.begin(r, goid, at) {
		return at, nil
	}
	call := call{engine: e, run: r, started: at}
	err := call.do()
	if call.over { // runtime.Goexit under a runtime that hides it from recover
		return e.source.Mono(), nil
	}
	end = e.source.Mono()
	follow, brief := e.finish(r, at, end, err, call.panicked)
	if !brief {
		end = e.source.Mono()
	}
	return end, follow
}

// begin takes r from queued to running, if it still is queued.
func (e *engine) begin(r *run, goid uint64, at int64) bool {
	t := r.task
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.stage != queued || !t.conf.plain && !r.placed || t.conf != e.m.once && e.draining.Load() {
		return false
	}
	r.stage, r.started, r.goid = running, at, goid
	if r != &t.run {
		t.extra.othersStarted = at
	}
	if r.index < 0 {
		t.x().counts.manual++
	}
	t.endGridIfSpent(at)
	if limit := t.conf.limit; limit > 0 {
		r.ctx = &limitContext{task: t, deadline: e.wallAt(at + limit)}
	}
	return true
}

// A call is one call of user code as a task's function.
type call struct {
	engine   *engine
	run      *run
	started  int64
	panicked bool
	over     bool // finish has been called already
}

func (c *call) do() (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err, c.panicked = newPanicError(v), true
			return
		}
		// Goexit: this goroutine unwinds to its end and runs nothing but deferred
		// functions, so the run has to be finished here.
		c.over = true
		e := c.engine
		if r, _ := e.finish(c.run, c.started, e.source.Mono(), ErrGoexit, false); r != nil {
			e.spawnLocking(r)
		}
	}()
	r := c.run // what is read of it here changes only when it ends
	t := r.task
	ctx := context.Context((*taskContext)(t))
	if r.ctx != nil {
		ctx = r.ctx
	}
	if t.fn != nil {
		err = t.fn(ctx)
	} else {
		err = t.extra.tickFn(ctx, c.engine.tick(r, c.started))
	}
	returned = true
	return err
}

// tick describes the tick that r serves.
func (e *engine) tick(r *run, at int64) Tick {
	return Tick{Index: r.index, Scheduled: e.wallAt(r.tick), Lateness: max(0, time.Duration(at-r.due))}
}

// An outcome is what became of a run.
type outcome uint8

const (
	succeeded outcome = iota
	failed
	cancelled
)

// A result is an outcome with its particulars.
type result struct {
	outcome            outcome
	err                error // nil if succeeded
	lasted             time.Duration
	timedOut, panicked bool
}

// judge says what became of a run that returned err, or panicked with it. It asks the
// error, which is user code, so no lock is held.
func (e *engine) judge(r *run, lasted time.Duration, err error, panicked bool) result {
	res := result{err: err, lasted: lasted, panicked: panicked}
	limit := r.task.conf.limit
	res.timedOut = limit > 0 && int64(lasted) >= limit
	switch {
	case res.timedOut:
		res.outcome, res.err = failed, timeoutError(limit, lasted, err)
	case err == nil:
	case !res.panicked && e.wasCancelled(r, err):
		res.outcome = cancelled
	default:
		res.outcome = failed
	}
	return res
}

// progress is how far the end of a run has come.
type progress struct {
	freed   bool // from then on it may be the task's next run, and not ours to touch
	awaited bool // Shutdown waits for it, and has not been told
}

// finish accounts for a run that has ended, and returns the run that has to
// follow it at once, if there is one. brief tells that no user code (a policy, an
// error, an observer) can have taken its time.
func (e *engine) finish(r *run, started, end int64, err error, panicked bool) (follow *run, brief bool) {
	clean := false
	var so progress
	defer func() {
		if clean {
			return
		}
		if v := recover(); v != nil {
			e.surface("finish", v)
		} // else an error, a policy or an observer of the user's called Goexit
		e.forceFree(r, started, end, so)
	}()
	follow, brief = e.account(r, started, end, err, panicked, &so)
	clean = true
	return follow, brief
}

// forceFree is for a run whose end could not be accounted for as it should be.
func (e *engine) forceFree(r *run, started, end int64, so progress) {
	over, done := e.freeNow(r, end, &so)
	e.m.runEnded(r.task, over, done)
	if so.awaited {
		e.m.awaitedEnded(r, time.Duration(end-started))
	}
}

func (e *engine) freeNow(r *run, end int64, so *progress) (over, done bool) {
	t := r.task
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.nextTurns(t.conf.gates)
	t.mu.Lock()
	defer t.mu.Unlock()
	if so.freed {
		return t.overNow()
	}
	so.awaited = r.awaited
	if r.ctx != nil {
		r.ctx.cancel(e.m.ended)
	}
	t.record(r, time.Duration(end-r.started))
	x := t.x()
	x.counts.failures++
	x.failing = max(0, x.failing-1)
	x.streak++
	t.freed(r)
	e.leave(r)
	e.armLimit(t)
	e.refile(t, e.source.Mono())
	return t.overNow()
}

// overNow is asked at the end of a run: whether the task has nothing left to do, and
// whether it is over and that was its last run.
func (t *task) overNow() (over, done bool) {
	if done = t.life != live && !t.busy(); done {
		t.endShared()
	}
	return t.over(), done
}

// runEnded does what overNow finds left to do when the locks are released.
func (m *TaskManager) runEnded(t *task, over, done bool) {
	if over {
		m.end(t, complete, nil)
	} else if done {
		t.closeDone()
	}
}

func (e *engine) account(r *run, started, end int64, err error, panicked bool, so *progress) (follow *run, brief bool) {
	if e.fault != nil {
		e.fault("finish")
	}
	if r.ctx != nil {
		r.ctx.cancel(e.m.ended)
	}
	res := e.judge(r, time.Duration(end-started), err, panicked)
	switch res.outcome {
	case succeeded:
		if e.finishWell(r, res, so) {
			return nil, e.m.observer == nil
		}
	case failed:
		e.backOff(r.task, end, err)
	}
	return e.finishOther(r, end, res, so), false
}

// finishWell ends a run that succeeded, if that is all there is to do: what nearly
// every run of nearly every task goes through, with one lock.
func (e *engine) finishWell(r *run, res result, so *progress) bool {
	t := r.task
	news, ok := t.endWell(r, res, so)
	if ok {
		e.m.events.deliver(t, news)
	}
	return ok
}

func (t *task) endWell(r *run, res result, so *progress) (news delivery, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != live || !t.conf.plain || t.delayed() || t.extra != nil && t.needsMore() {
		return delivery{}, false
	}
	t.record(r, res.lasted)
	t.successes++
	t.freed(r)
	so.freed = true
	return t.conf.m.events.runEvent(r, res), true
}

// needsMore tells whether the end of a successful run changes more than counters.
func (t *task) needsMore() bool {
	x := t.extra
	return x.held.n > 0 || x.streak > 0 || x.unwell || x.endAt != never || x.spentAt != never ||
		x.seat != nil && x.seat.ended // this may have been the last run
}

// record keeps the run's figures.
func (t *task) record(r *run, lasted time.Duration) {
	t.lastLasted = lasted
	t.profile.record(max(0, time.Duration(r.started-r.due)), lasted)
	if lasted >= slowRun {
		t.slow = slowMemory
	} else if t.slow > 0 {
		t.slow--
	}
}

// timeoutError says that the run outlived its limit. What the function returned
// is its cause, unless there is nothing in it that the limit did not put there.
func timeoutError(limit int64, lasted time.Duration, err error) error {
	after := fmt.Errorf("%w of %v passed, run took %v", ErrExecutionTimeout, time.Duration(limit), lasted.Round(time.Microsecond))
	if err == nil || err == ErrExecutionTimeout {
		return after
	}
	return fmt.Errorf("%w: %w", after, err)
}

// wasCancelled tells whether err comes from the end of the run's context because
// the task or the manager stopped.
func (e *engine) wasCancelled(r *run, err error) bool {
	r.task.mu.Lock()
	stopped := r.stopped
	r.task.mu.Unlock()
	return stopped && (guardedIs(err, context.Canceled) || guardedIs(err, ErrStopped) || guardedIs(err, ErrClosed))
}

// finishOther ends a run with all that can hang on it.
func (e *engine) finishOther(r *run, end int64, res result, so *progress) (follow *run) {
	m, t := e.m, r.task
	if res.outcome == succeeded {
		t.forgetPolicy()
	}
	left := e.endRun(r, end, res, so)
	m.events.health(t, left.change, res)
	m.runEnded(t, left.over, left.done)
	if so.awaited { // before the observer, which may take its time
		so.awaited = false
		m.awaitedEnded(r, res.lasted)
	}
	if left.follow != nil && left.news.event.Kind != 0 { // the observer may block: it does not wait
		e.spawnLocking(left.follow)
		left.follow = nil
	}
	m.events.deliver(t, left.news)
	return left.follow
}

// An ending is what the end of a run leaves to do when the locks are released.
type ending struct {
	change     health
	news       delivery
	follow     *run
	over, done bool // as of overNow
}

func (e *engine) endRun(r *run, end int64, res result, so *progress) (left ending) {
	t := r.task
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.nextTurns(t.conf.gates) // when the task is unlocked
	t.mu.Lock()
	defer t.mu.Unlock()
	t.record(r, res.lasted)
	left.change = t.book(res, end)
	left.news = e.m.events.runEvent(r, res)
	t.freed(r)
	so.freed, so.awaited = true, r.awaited
	e.leave(r)
	e.holdWaiting(t, end)
	e.armLimit(t)
	left.follow = e.next(t, end)
	if left.follow != nil && !e.admit(left.follow) {
		left.follow = nil
	}
	e.refile(t, end)
	left.over, left.done = t.overNow()
	return left
}

// holdWaiting has backoff hold the tick of a run that waits its turn at a gate, as it
// does all others that are due before the delay is over. (A RunNow's waits on.)
func (e *engine) holdWaiting(t *task, now int64) {
	if t.life != live || t.floor() <= now || !t.waits() || t.extra.turn.run.index < 0 {
		return
	}
	r := t.extra.turn.run
	e.leave(r)
	t.freed(r)
	t.hold(1, r.index, r.tick)
}

// next decides what a task does when a run of it ends.
func (e *engine) next(t *task, now int64) *run {
	switch {
	case !t.delayed() || t.life != live || t.busy():
	case now < t.begins(): // it was by RunNow, and does not move the first tick
	case t.paused:
		t.account(now)
		t.forgetDue() // Resume sets the next
	default:
		// A tick can have fallen due beside a run by RunNow.
		t.account(now)
		if n, last, _ := t.takeDue(now); n > 0 {
			t.skip(KindSkippedRunning, &t.extra.counts.skippedRunning, uint64(n), last)
		}
		if !t.holding() {
			t.dueAfter(now)
		}
	}
	if t.extra.held.n == 0 || t.blocked() || t.floor() > now {
		return nil
	}
	return t.fall(now)
}

// A health is a change in how a task fares that is worth a line in the log.
type health uint8

const (
	healthSame health = iota
	healthFailing
	healthRecovered
)

// book counts the result and returns what changed.
func (t *task) book(res result, end int64) health {
	x := t.x()
	switch res.outcome {
	case cancelled:
		x.counts.cancelled++
		return healthSame
	case succeeded:
		t.successes++
		x.streak = 0 // the floor stays: it binds whatever overlapping runs do
		x.panicked = false
		if x.unwell {
			x.unwell = false
			return healthRecovered
		}
		return healthSame
	}
	x.counts.failures++
	x.failing--
	x.streak++
	x.lastErr, x.lastErrAt = res.err, end
	if res.timedOut {
		x.counts.timeouts++
	}
	first := !x.unwell && x.streak >= t.conf.opts.FailuresBeforeBackoff // fewer were to be expected
	if res.panicked {
		x.counts.panics++
		first = !x.panicked // whatever is known of it already
		x.panicked = true
	}
	if !first {
		return healthSame
	}
	x.unwell = true
	return healthFailing
}
