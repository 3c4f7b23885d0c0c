package taskmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// slowRun is the duration from which a run is moved aside: the task's next runs
// go on goroutines of their own, until it has been faster slowMemory times. Below
// it, running on the goroutine that found the tick due is cheaper than starting
// another and delays the rest of the batch less than they notice.
const (
	slowRun    = 100 * time.Microsecond
	slowMemory = 8
)

// execute does a queued run on the calling goroutine, whose id is goid, and
// returns the time at its end. at is the time now. More than one goroutine may
// hold r for a while (a batch from which it was taken by Pause, then queued
// again): only the first finds it queued.
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
	return end, e.finish(r, at, end, err)
}

// begin takes r from queued to running, if it still is queued.
func (e *engine) begin(r *run, goid uint64, at int64) bool {
	t := r.task
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.stage != queued {
		return false
	}
	r.stage, r.started, r.goid = running, at, goid
	t.run.started = at
	if r.index < 0 {
		t.x().counts.manual++
	}
	if limit := t.conf.limit; limit > 0 {
		r.ctx = &limitContext{task: t, deadline: e.wallAt(at + limit)}
	}
	return true
}

// A call is one call of user code as a task's function.
type call struct {
	engine  *engine
	run     *run
	started int64
	over    bool // finish has been called already
}

func (c *call) do() (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = newPanicError(v)
			return
		}
		// Goexit: this goroutine unwinds to its end and runs nothing but deferred
		// functions, so the run has to be finished here.
		c.over = true
		e := c.engine
		if r := e.finish(c.run, c.started, e.source.Mono(), ErrGoexit); r != nil {
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

// judge says what became of a run that returned err. It asks the error, which is
// user code, so no lock is held.
func (e *engine) judge(r *run, lasted time.Duration, err error) result {
	res := result{err: err, lasted: lasted}
	limit := r.task.conf.limit
	res.timedOut = limit > 0 && int64(lasted) >= limit
	_, res.panicked = err.(*PanicError)
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

// finish accounts for a run that has ended, and returns the run that has to
// follow it at once, if there is one.
func (e *engine) finish(r *run, started, end int64, err error) (follow *run) {
	clean := false
	defer func() {
		if !clean {
			e.surface("finish", recover())
			e.forceFree(r)
		}
	}()
	follow = e.account(r, started, end, err)
	clean = true
	return follow
}

// forceFree is for a panic of our own in the middle of finish.
func (e *engine) forceFree(r *run) {
	t := r.task
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.stage == free {
		return
	}
	t.x().counts.failures++
	t.freed(r)
	e.leave(r)
	e.refile(t, e.source.Mono())
}

func (e *engine) account(r *run, started, end int64, err error) (follow *run) {
	if e.fault != nil {
		e.fault("finish")
	}
	if r.ctx != nil {
		r.ctx.cancel(context.Canceled, context.Canceled)
	}
	res := e.judge(r, time.Duration(end-started), err)
	switch res.outcome {
	case succeeded:
		if e.finishWell(r, res) {
			return nil
		}
	case failed:
		e.backOff(r.task, end, err)
	}
	return e.finishOther(r, end, res)
}

// finishWell ends a run that succeeded, if that is all there is to do: what nearly
// every run of nearly every task goes through, with one lock.
func (e *engine) finishWell(r *run, res result) bool {
	t := r.task
	news, ok := t.endWell(r, res)
	if ok {
		e.m.events.deliver(t, news)
	}
	return ok
}

func (t *task) endWell(r *run, res result) (news delivery, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.conf.plain || t.extra != nil && t.needsMore() {
		return delivery{}, false
	}
	t.record(r, res.lasted)
	t.successes++
	t.freed(r)
	return t.conf.m.events.runEvent(r, res), true
}

// needsMore tells whether the end of a successful run changes more than counters.
func (t *task) needsMore() bool {
	x := t.extra
	return t.life != live || x.held.n > 0 || x.streak > 0 || x.unwell || x.endAt != never || t.delayed()
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
	after := fmt.Errorf("%w of %v passed, run took %v", ErrExecutionTimeout, time.Duration(limit), lasted)
	if err == nil {
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

// backOff counts a failure and sets the floor before which no tick may start. The
// policy is user code and called with no lock of the engine's held.
func (e *engine) backOff(t *task, end int64, err error) {
	opts := &t.conf.opts
	t.mu.Lock()
	x := t.x()
	x.streak++
	streak := x.streak
	t.mu.Unlock()
	if streak < opts.FailuresBeforeBackoff {
		return
	}
	var delay time.Duration
	if opts.Backoff == nil {
		power := streak - opts.FailuresBeforeBackoff
		delay = e.m.entropy.upTo(backoffCeiling(e.m.backoffBase, opts.BackoffCap, power, e.m.maxPower))
	} else {
		var giveUp error
		if delay, giveUp = t.askPolicy(opts.Backoff); giveUp != nil {
			e.m.end(t, stopped, fmt.Errorf("%w: %w", giveUp, err))
			return
		}
	}
	floor := end + int64(delay)
	if floor < end {
		floor = never - 1
	}
	t.mu.Lock()
	x.floor = max(x.floor, floor)
	t.mu.Unlock()
}

// askPolicy asks the user's policy for the next delay; an error means that it
// ends the task.
func (t *task) askPolicy(newPolicy func() backoff.BackOff) (delay time.Duration, giveUp error) {
	x := t.extra
	x.policyMu.Lock()
	defer x.policyMu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			giveUp = errors.Join(ErrBackoffStop, newPanicError(v))
		}
	}()
	if x.policy == nil {
		x.policy = newPolicy()
	}
	switch delay = x.policy.NextBackOff(); {
	case delay == backoff.Stop:
		return 0, ErrBackoffStop
	case delay < 0:
		return 0, nil
	}
	return delay, nil
}

// finishOther ends a run with all that can hang on it.
func (e *engine) finishOther(r *run, end int64, res result) (follow *run) {
	m, t := e.m, r.task
	if res.outcome == succeeded {
		t.forgetPolicy()
	}
	left := e.endRun(r, end, res)
	m.events.health(t, left.change, res.err)
	if left.over {
		m.end(t, complete, nil)
	} else if left.done {
		t.closeDone()
	}
	m.events.deliver(t, left.news)
	if left.awaiting != nil {
		left.awaiting.ended(r, res.lasted)
	}
	return left.follow
}

// An ending is what the end of a run leaves to do when the locks are released.
type ending struct {
	change     health
	news       delivery
	follow     *run
	awaiting   *shutdown
	over, done bool // the task has nothing left to do; is over, and this was its last run
}

func (e *engine) endRun(r *run, end int64, res result) (left ending) {
	t := r.task
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.nextTurns(t.conf.gates) // when the task is unlocked
	t.mu.Lock()
	defer t.mu.Unlock()
	t.record(r, res.lasted)
	left.change = t.book(res, end)
	left.news = e.m.events.runEvent(r, res)
	left.awaiting = r.awaiting
	t.freed(r)
	e.leave(r)
	e.armLimit(t)
	left.follow = e.next(t, end)
	if left.follow != nil && !e.admit(left.follow) {
		left.follow = nil
	}
	e.refile(t, end)
	left.over = t.over()
	left.done = t.life != live && !t.busy()
	return left
}

// next decides what a task does when a run of it ends.
func (e *engine) next(t *task, now int64) *run {
	if t.delayed() && t.life == live && !t.busy() && !t.paused {
		// A tick can have fallen due beside a run by RunNow.
		t.account(now)
		if n, last, _ := t.takeDue(now); n > 0 {
			t.skip(KindSkippedRunning, &t.extra.counts.skippedRunning, uint64(n), last)
		}
		if !t.holding() {
			t.dueAfter(now)
		}
	}
	if t.extra.held.n == 0 || t.busy() || t.floor() > now {
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
		if x.unwell {
			x.unwell = false
			return healthRecovered
		}
		return healthSame
	}
	x.counts.failures++
	x.lastErr, x.lastErrAt = res.err, end
	if res.timedOut {
		x.counts.timeouts++
	}
	if res.panicked {
		x.counts.panics++
	}
	if x.unwell {
		return healthSame
	}
	x.unwell = true
	return healthFailing
}

// forgetPolicy drops the user's policy at the end of a streak of failures.
func (t *task) forgetPolicy() {
	if t.conf.opts.Backoff == nil || t.extra == nil {
		return
	}
	t.extra.policyMu.Lock()
	t.extra.policy = nil
	t.extra.policyMu.Unlock()
}
