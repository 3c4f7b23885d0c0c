package taskmanager

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/queue"
)

// An Observer is told of every Event. Adapters to metrics and tracing stand on it.
//
// The event of a run is delivered on the run's goroutine, after the run has been
// accounted for; all others by one goroutine from a bounded queue. Of a task, those of
// its runs come in order, and so do the others, from KindAdded on; a run that was in
// flight when the task was stopped ends after KindRemoved. An Observer that panics or
// blocks harms neither ticks nor other tasks: the first panic is logged, and what
// overflows the queue, and the events of a task's runs that end while one of its events
// is still being observed, are dropped and counted.
type Observer interface{ Observe(Event) }

// An ObserverFunc is a function as an Observer.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// A Kind says what an Event tells of. There may be more in later versions.
type Kind uint8

const (
	// KindRan, KindFailed and KindCancelled end a run. (None begins one: it would
	// stand between the tick and the function. Event.Time less Duration is when it
	// began.)
	KindRan Kind = iota + 1
	KindFailed
	KindCancelled
	// The next ones are ticks that no run was started for, Count of them up to
	// Index: see Ledger.
	KindSkippedRunning
	KindSkippedBackoff
	KindSkippedLimit
	KindSkippedPaused
	KindMissed
	KindCoalesced
	KindDropped
	// KindGap is a stretch, From to To, that a schedule was not asked about: after
	// a pause or backoff, a late wake-up, a step of the clock.
	KindGap
	// KindOverdue is a run that goes on although its time limit has passed.
	KindOverdue
	// KindAdded and KindRemoved are a task's beginning and end; Err says why a
	// task was stopped, if not by Stop.
	KindAdded
	KindRemoved
	// KindClockStep is a step of the wall clock by Duration.
	KindClockStep
)

var kindNames = [...]string{
	"", "ran", "failed", "cancelled", "skipped running", "skipped backoff", "skipped limit", "skipped paused",
	"missed", "coalesced", "dropped", "gap", "overdue", "added", "removed", "clock step",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", k)
}

// An Event is something that happened in a manager. Fields without a meaning for
// its Kind are zero.
type Event struct {
	Kind     Kind
	Task     string
	Tag      string
	Time     time.Time     // when it happened
	Index    int64         // of the tick; -1 for RunNow and RunOnce
	Count    uint64        // of ticks
	Lateness time.Duration // of a run's start
	Duration time.Duration // of a run; of a step of the clock
	Err      error         // of a run; why a task is over
	From, To time.Time     // of a gap
}

// events delivers to the observer and the log.
type events struct {
	m     *TaskManager
	log   *slog.Logger
	queue *queue.Queue
}

func newEvents(m *TaskManager, log *slog.Logger) *events {
	v := &events{m: m, log: log}
	v.queue = queue.New(func(drain func()) {
		m.engine.begun()
		go func() {
			defer m.engine.ended()
			drain()
		}()
	}, v.userPanicked)
	return v
}

// post queues f, which may call user code. Locks may be held.
func (v *events) post(f func()) { v.queue.Post(f) }

// observed tells whether there is somebody to emit events to: if not, they are not
// even made.
func (v *events) observed() bool { return v.m.observer != nil }

// emit queues an event for the observer.
func (v *events) emit(e Event) {
	e.Time, _ = v.m.engine.source.Now()
	v.post(func() { v.m.observer.Observe(e) })
}

// line queues a line for the log.
func (v *events) line(level slog.Level, msg string, attrs ...slog.Attr) {
	v.post(func() { v.log.LogAttrs(context.Background(), level, msg, attrs...) })
}

func (t *task) event(kind Kind) Event { return Event{Kind: kind, Task: t.name, Tag: t.conf.opts.Tag} }

func (v *events) tick(t *task, kind Kind, n uint64, index int64) {
	if !v.observed() {
		return
	}
	e := t.event(kind)
	e.Count, e.Index = n, index
	v.emit(e)
}

// A delivery is the event of a run, on its way. The zero value is none.
type delivery struct{ event Event }

// runEvent makes the event of a run that has ended, if anybody wants it. Called
// with the task's mu held, so that they are made in order.
func (v *events) runEvent(r *run, res result) delivery {
	if !v.observed() {
		return delivery{}
	}
	t := r.task
	x := t.x()
	if x.observing {
		v.queue.Drop()
		return delivery{}
	}
	x.observing = true
	e := t.event([...]Kind{KindRan, KindFailed, KindCancelled}[res.outcome])
	e.Time = v.m.engine.wallAt(r.started + int64(res.lasted))
	e.Index, e.Lateness = r.index, max(0, time.Duration(r.started-r.due))
	e.Duration, e.Err = res.lasted, res.err
	return delivery{e}
}

// deliver calls the observer on the run's goroutine.
func (v *events) deliver(t *task, d delivery) {
	if d.event.Kind == 0 {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			v.queue.Panicked(p)
		}
		t.mu.Lock()
		t.extra.observing = false
		t.mu.Unlock()
	}()
	v.m.observer.Observe(d.event)
}

func (v *events) added(t *task) {
	if v.observed() {
		v.emit(t.event(KindAdded))
	}
}

func (v *events) ended(t *task, how life, reason error) {
	if v.observed() {
		e := t.event(KindRemoved)
		e.Err = reason
		v.emit(e)
	}
	if reason != nil && how == stopped && reason != ErrClosed {
		v.post(func() { // locks are held, and the reason's text is user code
			v.log.LogAttrs(context.Background(), slog.LevelError, "task stopped", slog.String("task", t.name), errAttr(reason))
		})
	}
}

func (v *events) gap(t *task, from, to time.Time) {
	if v.observed() {
		e := t.event(KindGap)
		e.From, e.To = from, to
		v.emit(e)
	}
}

func (v *events) overdue(t *task, age time.Duration) {
	if v.observed() {
		e := t.event(KindOverdue)
		e.Duration = age
		v.emit(e)
	}
	v.line(slog.LevelWarn, "task timed out and is still running", slog.String("task", t.name), slog.Duration("age", age))
}

func (v *events) clockStep(by time.Duration) {
	if v.observed() {
		v.emit(Event{Kind: KindClockStep, Duration: by})
	}
	v.line(slog.LevelWarn, "wall clock stepped", slog.Duration("by", by))
}

func (v *events) randomFailed(err error) {
	v.line(slog.LevelWarn, "crypto/rand failed, jitter and backoff go on with math/rand", errAttr(err))
}

func (v *events) enginePanic(loop string, p any) {
	v.line(slog.LevelError, "taskmanager: panic in the engine, please report it",
		slog.String("loop", loop), slog.String("panic", guardedText(p)), slog.String("stack", string(debug.Stack())))
}

// userPanicked tells of the first panic of the observer or the log handler. (If it is
// the handler's, of this line too, that is all.)
func (v *events) userPanicked(p any) {
	stack := string(debug.Stack())
	v.post(func() { // the text of what it panicked with is user code, too
		v.log.LogAttrs(context.Background(), slog.LevelError, "observer or log handler panicked, further panics are not logged",
			slog.String("panic", guardedText(p)), slog.String("stack", stack))
	})
}

// health logs a change in how a task fares.
func (v *events) health(t *task, change health, res result) {
	switch change {
	case healthRecovered:
		v.line(slog.LevelInfo, "task recovered", slog.String("task", t.name))
	case healthFailing:
		v.post(func() { // the error's text is user code
			attrs := []slog.Attr{slog.String("task", t.name), errAttr(res.err)}
			level, msg := slog.LevelWarn, "task failing"
			if p, ok := res.err.(*PanicError); ok && res.panicked {
				level, msg = slog.LevelError, "task panicked"
				attrs = append(attrs, slog.String("stack", string(p.Stack)))
			}
			v.log.LogAttrs(context.Background(), level, msg, attrs...)
		})
	}
}

func errAttr(err error) slog.Attr { return slog.String("error", guardedText(err)) }
