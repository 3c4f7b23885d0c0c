package durable

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A loop is one of the scheduler's own recurring tasks. A round of it is run every
// interval, and when it is woken; after a round that failed, the manager's backoff
// decides, and wakes are ignored, so that a database that is away is not stormed.
type loop struct {
	s        *Scheduler
	name     string
	interval time.Duration // immutable
	work     func(ctx context.Context) error
	giveUp   func() // called before the loop is revived; may be nil

	mu     sync.Mutex // held before the manager's locks and that of nodeLease
	handle *taskmanager.Handle
	life   int   // counts its tasks: a round of one that was given up on is ignored
	active bool  // a round is under way
	asked  bool  // for another round after it
	kicked bool  // a wake is on its way to the manager
	failed bool  // the last round did
	since  int64 // monotonic: end of the last round, or the loop's start
	ended  bool
	alarm  func() // stops what will wake the loop before its next tick; nil for none
	alarms int    // made so far, for their names
}

// A loop whose round takes patience intervals, and the time limit of its work twice,
// is revived.
const patience = 5

func (s *Scheduler) newLoop(name string, interval time.Duration, work func(context.Context) error) *loop {
	return &loop{s: s, name: name, interval: interval, work: work}
}

// exempt is the first option of all the scheduler's tasks: limits and default options
// of the manager are for its owner's. A heartbeat that waited its turn behind other
// people's runs would cost the node its lease.
func exempt() taskmanager.TaskOption { return seam.Exempt.(taskmanager.TaskOption) }

// start makes the loop a task of the manager.
func (l *loop) start() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = false
	return l.startLocked()
}

func (l *loop) startLocked() error {
	name := fmt.Sprintf("durable/%s/%s", l.s.instance, l.name)
	if l.life++; l.life > 1 {
		name = fmt.Sprintf("%s#%d", name, l.life)
	}
	l.active, l.asked, l.failed = false, false, false
	_, l.since = l.s.host.Now()
	life := l.life
	h, err := l.s.manager.ScheduleRecurring(name, l.interval, func(ctx context.Context) error { return l.run(ctx, life) },
		exempt(), taskmanager.WithTag("durable"), taskmanager.WithJitter(0), taskmanager.WithExecutionTimeout(l.s.opTimeout),
		taskmanager.WithNonReentrant(false), // enter sees to it
		taskmanager.WithBackoff(l.s.loopBackoff))
	if err != nil {
		return err
	}
	l.handle = h
	return nil
}

// stop ends the loop; a round under way has its context cancelled.
func (l *loop) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.silenceLocked()
	if l.handle != nil {
		l.handle.Stop()
	}
}

// run is one call by the manager: a round. If the loop is woken meanwhile, another
// follows as a call of its own, with a time limit of its own.
func (l *loop) run(ctx context.Context, life int) (err error) {
	if !l.enter(life) {
		return nil
	}
	returned := false
	defer func() { // a panic goes on to the manager, which logs it
		l.leave(life, returned && err == nil)
	}()
	err = l.work(ctx)
	returned = true
	return err
}

// enter begins a round, unless one is under way: then another follows.
func (l *loop) enter(life int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.life != life || l.ended:
		return false
	case l.active:
		l.asked = true
		return false
	}
	l.active, l.asked = true, false
	if l.failed && l.handle != nil {
		_ = l.handle.Reschedule(l.interval)
	}
	return true
}

// leave ends a round. It is the only place where one ends, so that no wake is lost
// between the last look at asked and the end.
func (l *loop) leave(life int, ok bool) {
	if !ok {
		l.s.stats.loopErrors.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life != life {
		return
	}
	l.active, l.failed = false, !ok
	_, l.since = l.s.host.Now()
	switch {
	case l.asked && ok:
		l.wakeLocked()
	case !ok && !l.ended && l.handle != nil: // the backoff says when, not the interval
		_ = l.handle.Reschedule(min(l.interval, minLoopBackoff))
	}
}

// wake asks for a round now, unless the last one failed.
func (l *loop) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
}

func (l *loop) wakeLocked() {
	l.asked = true
	if l.active || l.kicked || l.failed || l.ended || l.handle == nil {
		return
	}
	l.kicked = true
	l.s.host.Go(l.kick)
}

func (l *loop) kick() {
	l.mu.Lock()
	h := l.handle
	l.kicked = false
	l.mu.Unlock()
	_ = h.RunNow() // it refuses only if the loop is over
}

// in has a round begin after d, if no tick comes before. Called by the loop's own
// round. (The task's own interval is not for that: its ticks would go on at that pace
// beside the next round.)
func (l *loop) in(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silenceLocked()
	if l.handle == nil || l.ended || d >= l.interval {
		return
	}
	l.alarms++
	stop, err := l.s.after(fmt.Sprintf("durable/%s/%s/alarm#%d", l.s.instance, l.name, l.alarms), d, l.wake)
	if err == nil {
		l.alarm = stop
	}
}

// silenceLocked stops the alarm.
func (l *loop) silenceLocked() {
	if l.alarm != nil {
		l.alarm()
		l.alarm = nil
	}
}

// watch revives the loop if it has not ended a round for too long, or its task is over.
func (l *loop) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.handle == nil {
		return
	}
	_, now := l.s.host.Now()
	silent := time.Duration(now - l.since)
	state := l.handle.State()
	dead := state == taskmanager.Stopped || state == taskmanager.Complete
	// A loop that fails is silent for as long as the manager backs off.
	if !dead && silent <= max(patience*l.interval, 2*l.s.opTimeout)+maxLoopBackoff {
		return
	}
	l.handle.Stop()
	if l.giveUp != nil {
		l.giveUp()
	}
	l.s.stats.revived.Add(1)
	err := l.startLocked()
	attrs := []slog.Attr{slog.String("loop", l.name), slog.Duration("silent", silent)}
	if err != nil {
		attrs = append(attrs, errAttr(err))
	}
	l.s.log(slog.LevelError, "loop revived", attrs...)
	l.s.emit(Event{Kind: EventRevived, Detail: l.name})
}
