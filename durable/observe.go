package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// An Observer is told of every Event, in order, by one goroutine from a bounded queue.
// One that panics or blocks harms no run: what overflows is dropped and counted.
type Observer interface{ Observe(Event) }

// An ObserverFunc is a function as an Observer.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// An EventKind says what an Event tells of. There may be more in later versions.
type EventKind uint8

// The kinds of events.
const (
	EventStarted    EventKind = iota + 1 // a run was claimed and begins; Lateness
	EventEnded                           // a run ended; State, Code, Duration; Detail has its message
	EventSkipped                         // firings were passed over, or a call by hand met a running job; Code, Count
	EventBlocked                         // a due trigger waits for another run of its job
	EventParked                          // a due trigger was set aside: its job is paused
	EventFollowed                        // another run follows: a retry, recovery or snoozed one; Detail has its kind
	EventOverdue                         // a run's time limit has passed, and its context has ended
	EventRefused                         // the end of a run was refused: it was no longer this node's
	EventLost                            // a dead node's run was taken off it
	EventNodeDead                        // another node was declared dead; Detail has its ID
	EventNodeLost                        // this node was declared dead, and lives on under a new ID
	EventFenced                          // this node cannot reach the store, and cancelled its exclusive runs; Count
	EventLeading                         // this node leads from now on
	EventFollowing                       // this node does not lead any more
	EventRevived                         // a loop of the scheduler hung and was started anew; Detail has its name
	EventOutage                          // the store does not answer; Err
	EventRestored                        // it does again; Duration
	EventSkew                            // this node's clock differs from the store's; Duration
	EventChanged                         // a job was added, changed or removed here, but not by Within; Detail says how
	EventUnreadable                      // a row that this node can make nothing of; Err
)

var eventNames = [...]string{
	"", "started", "ended", "skipped", "blocked", "parked", "followed", "overdue", "refused", "lost", "node dead", "node lost",
	"fenced", "leading", "following", "revived", "outage", "restored", "skew", "changed", "unreadable",
}

func (k EventKind) String() string { return nameOf("event", eventNames[:], uint8(k)) }

// An Event is something that happened on a node. Fields without a meaning for its Kind
// are zero.
type Event struct {
	Kind     EventKind
	Time     time.Time // of the node's clock
	Node     string
	Job      string
	Trigger  string
	Run      string
	RunKind  Kind
	State    RunState
	Code     Code
	Attempt  int
	Count    int64
	Lateness time.Duration
	Duration time.Duration
	Detail   string
	Err      error
}

// Stats are counters since the scheduler was made, and how things stand. They are for
// adapters to metrics.
type Stats struct {
	Claimed    uint64 // runs claimed
	Late       uint64 // of them, by a schedule and more than a second after ScheduledAt
	Succeeded  uint64
	Failed     uint64
	Cancelled  uint64
	Snoozed    uint64
	Skipped    uint64 // records of firings passed over and conflicts
	Misfired   uint64 // firings passed over, or runs of RunOnce that came too late
	Blocked    uint64 // due triggers that had to wait for another run
	Retried    uint64 // retries granted
	Recovered  uint64 // recovery runs asked for
	Lost       uint64 // runs of dead nodes taken off them
	Refused    uint64 // ends of runs that were refused
	NodesDead  uint64 // nodes declared dead
	Revived    uint64 // loops that hung
	LoopErrors uint64 // rounds of loops that failed
	Unreadable uint64 // rows that this node could make nothing of
	Dropped    uint64 // events and log lines dropped

	Running  int           // runs on this node
	Pending  int           // ended ones that are still to be recorded
	Leading  bool          // this node leads
	Skew     time.Duration // the store's clock less this node's, at the last heartbeat
	LeaseFor time.Duration // what is left of the node's lease

	Claim  taskmanager.Distribution // how long rounds of claiming took
	Finish taskmanager.Distribution // how long rounds of recording ends took
}

// counters are the Stats that are counted.
type counters struct {
	claimed, late, succeeded, failed, cancelled, snoozed, skipped, misfired, blocked, retried, recovered,
	lost, refused, nodesDead, revived, loopErrors, unreadable atomic.Uint64
}

// ended counts a run's end by its state.
func (c *counters) ended(s RunState) {
	switch s {
	case RunSucceeded:
		c.succeeded.Add(1)
	case RunFailed:
		c.failed.Add(1)
	case RunCancelled, RunInterrupted:
		c.cancelled.Add(1)
	case RunSnoozed:
		c.snoozed.Add(1)
	case RunLost:
		c.lost.Add(1)
	}
}

// Stats tells how the scheduler fares. Safe for concurrent use, at any time.
func (s *Scheduler) Stats() Stats {
	c := &s.stats
	st := Stats{
		Claimed: c.claimed.Load(), Late: c.late.Load(), Succeeded: c.succeeded.Load(), Failed: c.failed.Load(),
		Cancelled: c.cancelled.Load(), Snoozed: c.snoozed.Load(), Skipped: c.skipped.Load(), Misfired: c.misfired.Load(),
		Blocked: c.blocked.Load(), Retried: c.retried.Load(), Recovered: c.recovered.Load(), Lost: c.lost.Load(),
		Refused: c.refused.Load(), NodesDead: c.nodesDead.Load(), Revived: c.revived.Load(), LoopErrors: c.loopErrors.Load(),
		Unreadable: c.unreadable.Load(), Dropped: s.queue.Dropped(),
		Pending: s.finisher.pending(), Leading: s.term.leading(), Skew: time.Duration(s.skew.Load()),
		LeaseFor: s.lease.left(),
	}
	st.Running = s.flights.running()
	st.Claim, st.Finish = s.loops.claim.duration(), s.loops.finish.duration()
	return st
}

func (l *loop) duration() taskmanager.Distribution {
	l.mu.Lock()
	h := l.handle
	l.mu.Unlock()
	if h == nil {
		return taskmanager.Distribution{}
	}
	return h.Duration()
}

// emit queues an event for the observer. All locks but the nodeLease's may be held.
func (s *Scheduler) emit(e Event) {
	if s.config.Observer != nil {
		s.post(e)
	}
}

func (s *Scheduler) post(e Event) {
	e.Time, _ = s.host.Now()
	e.Node = s.nodeID()
	s.queue.Post(func() { s.config.Observer.Observe(e) })
}

// log queues a line for the log. All locks but the nodeLease's may be held.
func (s *Scheduler) log(level slog.Level, msg string, attrs ...slog.Attr) {
	node := s.nodeID()
	s.queue.Post(func() {
		s.config.Logger.LogAttrs(context.Background(), level, "durable: "+msg, append(attrs, slog.String("node", node))...)
	})
}

// userPanicked tells of the first panic of the observer or the log handler. (If it is
// the handler's, of this line too, that is all.)
func (s *Scheduler) userPanicked(p any) {
	stack := string(debug.Stack())
	s.queue.Post(func() { // the text of what it panicked with is user code, too
		s.log(slog.LevelError, "observer or log handler panicked, further panics are not logged",
			errAttr(fmt.Errorf("%w: %v", errPanicked, p)), slog.String("stack", stack))
	})
}

func errAttr(err error) slog.Attr { return slog.String("error", errText(err)) }

// quiet is how long a line that repeats itself is held back.
const quiet = time.Minute

// A throttle lets a line through once in a while for each key.
type throttle struct {
	mu   sync.Mutex
	last map[string]int64
}

// pass tells whether the line may go out at the monotonic time now.
func (t *throttle) pass(key string, now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.last[key]; known && now-at < int64(quiet) {
		return false
	}
	if t.last == nil || len(t.last) > 10_000 {
		t.last = map[string]int64{}
	}
	t.last[key] = now
	return true
}

// logSeldom is log for what could come again and again.
func (s *Scheduler) logSeldom(key string, level slog.Level, msg string, attrs ...slog.Attr) {
	if _, now := s.host.Now(); s.throttle.pass(key, now) {
		s.log(level, msg, attrs...)
	}
}

// An outage is what is known of a store that does not answer. It ends when a call
// succeeds like the one that failed first, or any, if that one has not failed for long: a
// kind of call that always fails, for want of a permission say, must not have others
// report an end again and again.
type outage struct {
	mu    sync.Mutex
	what  string // the call that failed first
	since int64  // monotonic: when; 0 if the store answers
	last  int64  // monotonic: when such a call failed last
}

// note notes how a call went, and tells since when the store had not answered, 0 if it
// had, and whether that has changed.
func (o *outage) note(what string, err error, now int64) (since int64, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since = o.since
	switch {
	case err != nil && since == 0:
		o.what, o.since, o.last = what, now, now
		return since, true
	case err != nil && what == o.what:
		o.last = now
	case err == nil && since != 0 && (what == o.what || now-o.last > int64(quiet)):
		o.since = 0
		return since, true
	}
	return since, false
}

// noteStore takes note of how a call of the store went, and wraps its error.
func (s *Scheduler) noteStore(what string, err error) error {
	if errors.Is(err, context.Canceled) && !s.running() { // a stop ended the loop in the midst of the call
		return fmt.Errorf("durable: %s: %w", what, err)
	}
	_, now := s.host.Now()
	since, changed := s.outage.note(what, err, now)
	switch {
	case err != nil:
		if changed {
			s.emit(Event{Kind: EventOutage, Detail: what, Err: err})
		}
		s.logSeldom("store/"+what, slog.LevelError, "store does not answer", slog.String("call", what), errAttr(err))
		return fmt.Errorf("durable: %s: %w", what, err)
	case changed:
		lasted := time.Duration(now - since)
		s.emit(Event{Kind: EventRestored, Duration: lasted})
		s.log(slog.LevelInfo, "store answers again", slog.Duration("after", lasted))
	}
	return nil
}
