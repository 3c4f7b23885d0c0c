package taskmanager

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Handle is one scheduled task: what Schedule and its sisters return, to look
// at the task and to control it. It stays readable after the task has stopped.
// All methods are safe for concurrent use, from inside runs too.
//
// (To the engine it is the task itself: a million tasks are a million objects
// and not two.)
type Handle struct {
	// The order of the fields is that of their use, and a tick costs what its cache
	// misses cost, if there are many tasks. On 64 bits these are five cache lines with
	// a word in each that never changes, for warm; Stop needs two of them.

	node node // the next tick's place in the wheel; guarded by engine.mu

	// mu guards everything below that is not marked otherwise. It is never held
	// while user code runs. Lock order: engine.mu, then task.mu.
	mu sync.Mutex

	life   life
	paused bool
	single bool   // one instant is known at a time: a schedule, or fixed delay
	slow   uint8  // runs to go on a goroutine of their own
	place  uint32 // 1 + that in the set of names, 0 if not in it; guarded by TaskManager.mu

	extra *extra // what most tasks do not need, made when it is
	conf  *conf  // immutable

	// Tick k of an interval task is due at origin + k·interval. While single, the
	// next tick is due at origin, which is never while it is not known.
	origin    int64
	next      int64 // index of the first tick that is not accounted for
	interval  int64 // of an interval task, in nanoseconds
	successes uint64

	fn Func // immutable; nil for a TickFunc, which stands in extra
	// shared is behind the context of all runs without a time limit (taskContext),
	// nil until somebody asks for it.
	shared atomic.Pointer[cancelContext]
	run    run // the run of a non-reentrant task; also what the last run was

	name       string        // immutable
	lastLasted time.Duration // duration of the last run that ended
	startAt    int64         // as the option said, in Unix nanoseconds, 0 if not given or in extra; immutable
	profile    profile
	id         uint32 // in order of scheduling; immutable
	hash       uint32 // of name; guarded by TaskManager.mu
}

// warm reads a word of each cache line that a tick of the task will need, one that
// never changes (that of the node has been read by whoever popped it). Called for all
// that is popped in one tight loop, so that these misses overlap, which the ticks
// themselves, one after the other, cannot do.
func (t *task) warm() int64 {
	sum := int64(len(t.name)) + t.startAt + int64(t.id)
	if t.fn != nil {
		sum++
	}
	return sum
}

type task = Handle

// A Func is what a task does. Its context ends when the task is stopped, when
// Shutdown gives up waiting, and when the run's time limit passes.
type Func func(ctx context.Context) error

// A TickFunc is a Func that wants to know which tick it serves.
type TickFunc func(ctx context.Context, tick Tick) error

// A Tick is one due instant of a task.
type Tick struct {
	// Index counts the instants of the task's grid: 1 for the first, or 0 with
	// WithImmediately. Gaps are ticks that did not run. -1 for RunNow.
	Index int64
	// Scheduled is the exact instant; for RunNow, the instant of the call.
	Scheduled time.Time
	// Lateness is how long after it the run started; after backoff, how long
	// after the end of the delay.
	Lateness time.Duration
}

// A life is where a task stands for good. Only endLocked changes it.
//
//	live --Stop, StopTag, Shutdown, a bad schedule, backoff.Stop--> stopped
//	live --last run ended, or no instant left-----------------> complete
type life uint8

const (
	live life = iota
	stopped
	complete
)

// A stage is where one run stands.
//
//	free --a tick falls due, RunNow--> queued --start--> running --end--> free
//	queued --Stop, limit with SkipOverLimit, Pause if of a tick--> free
type stage uint8

const (
	free stage = iota
	queued
	running
)

// A run is one call of a task's function, to come, going on, or just over. It is
// guarded by its task's mu.
type run struct {
	task    *task
	stage   stage
	warned  bool          // "timed out, still running" has been said
	stopped bool          // its context was cancelled because the task or manager stops
	awaited bool          // Shutdown waits for its end
	prior   bool          // queued before the task got its Schedule: none of that one's number of runs
	aside   bool          // it goes on a goroutine of its own
	placed  bool          // it holds a place at every gate of its task
	index   int64         // of the tick it serves; -1 for RunNow
	tick    int64         // the instant of that tick, or of the call
	due     int64         // the instant its lateness counts from: later, if backoff held the tick
	started int64         // 0: not yet
	goid    uint64        // of the goroutine it is on, or that one's mark
	ctx     *limitContext // nil without a time limit
}

// extra is the part of a task that is made when it is first needed.
type extra struct {
	tickFn   TickFunc  // immutable
	seat     *seat     // of a task with a Schedule
	endAt    int64     // no tick after this instant; never by default
	spentAt  int64     // nor after this: the start of the last of MaxRuns; never before
	begins   int64     // of a delayed task: its StartAt; 0 if it has none
	endGiven time.Time // as the option said
	// startGiven is so, too, if it does not fit in startAt.
	startGiven time.Time
	maxRuns    uint64 // the run after which a schedule's own number of runs is reached; 0 if it has none

	counts   counts
	held     backlog
	streak   int   // consecutive failures
	failing  int   // runs that have failed and are about to be counted
	floor    int64 // no tick starts before this instant, 0 if there is no backoff
	policy   backoff.BackOff
	policyMu sync.Mutex // serialises calls of policy; taken with no other lock held

	lastErr   error
	lastErrAt int64
	unwell    bool // a failure has been logged and no recovery yet
	panicked  bool // and since the last success a panic
	observing bool // the observer is being told of a run's end

	limit  node   // the earliest end of a run's time; guarded by engine.mu
	others []*run // of a reentrant task: runs queued or going on beside task.run
	// othersStarted is the start of the last of those, 0 if there was none.
	othersStarted int64
	// turn is its place in the queue of a gate. It is written with engine.mu and the
	// task's mu held, so either is enough to read it; what it points to is engine.mu's.
	turn       *turn
	done       chan struct{} // closed when the task is over and no run in flight
	doneClosed bool
	reason     error // why it is over
	precise    *preciseTimer
}

// conf is what tasks scheduled with equal options share. Immutable.
type conf struct {
	m      *TaskManager
	opts   RecurringOptions // effective, but for StartAt and EndAt
	gates  []*gate
	limit  int64 // ExecutionTimeout
	plain  bool  // no gates and no limit: the end of a run changes only counters
	exempt bool  // from the gates
}

// x returns the task's extra part, making it if needed.
func (t *task) x() *extra {
	if t.extra == nil {
		t.extra = &extra{endAt: never, spentAt: never}
	}
	return t.extra
}

// at is the instant of tick k, never if it is out of reach.
func (t *task) at(k int64) int64 {
	if t.single {
		return t.origin
	}
	hi, lo := bits.Mul64(uint64(t.interval), uint64(k))
	if hi != 0 || lo > math.MaxInt64 {
		return never
	}
	if when := t.origin + int64(lo); when >= t.origin {
		return when
	}
	return never
}

// end is the last instant at which a tick may be due.
func (t *task) end() int64 {
	if t.extra == nil {
		return never
	}
	return min(t.extra.endAt, t.extra.spentAt)
}

// begins is the instant before which no tick of a delayed task is due.
func (t *task) begins() int64 {
	if t.extra == nil {
		return 0
	}
	return t.extra.begins
}

// nextDue is the instant of the next tick, never if none is known.
func (t *task) nextDue() int64 {
	if due := t.at(t.next); due <= t.end() {
		return due
	}
	return never
}

// latest is the index of the last tick due at or before now.
func (t *task) latest(now int64) int64 {
	now = min(now, t.end())
	if t.single {
		if t.origin <= now && t.origin != never {
			return t.next
		}
		return t.next - 1
	}
	if now < t.origin {
		return t.next - 1
	}
	return (now - t.origin) / t.interval
}

// busy tells whether a run is queued or going on.
func (t *task) busy() bool {
	return t.run.stage != free || t.extra != nil && len(t.extra.others) > 0
}

// eachRun calls f for every run that is queued or going on.
func (t *task) eachRun(f func(*run)) {
	if t.run.stage != free {
		f(&t.run)
	}
	if t.extra != nil {
		for _, r := range t.extra.others {
			f(r)
		}
	}
}

func (t *task) inFlight() (n uint64) {
	t.eachRun(func(r *run) {
		if r.stage == running {
			n++
		}
	})
	return n
}

// freed makes r free again.
func (t *task) freed(r *run) {
	r.stage = free
	if r != &t.run {
		t.extra.others = slices.DeleteFunc(t.extra.others, func(o *run) bool { return o == r })
	}
}

// floor is the instant before which no tick may start, 0 if there is none.
func (t *task) floor() int64 {
	if t.extra == nil {
		return 0
	}
	return t.extra.floor
}

// holding tells whether ticks are held, by backoff or for the end of a run.
func (t *task) holding() bool { return t.heldCount() > 0 }

func (t *task) heldCount() int64 {
	if t.extra == nil {
		return 0
	}
	return t.extra.held.n
}

// asking tells whether the task's Schedule is being asked for the next instant.
func (t *task) asking() bool {
	s := t.seatOf()
	return s != nil && s.asking
}

// blocked tells whether a run keeps a tick from starting another: one that goes on,
// if the task is not reentrant, or one of any task's that waits its turn at a gate.
func (t *task) blocked() bool {
	return t.waits() || t.conf.opts.NonReentrant && t.busy()
}
