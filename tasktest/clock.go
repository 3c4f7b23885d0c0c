package tasktest

import (
	"container/heap"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// defaultPatience is the real time that Advance waits without progress.
const defaultPatience = 10 * time.Second

// ErrClosed is returned by waits on a clock whose test has ended.
var ErrClosed = errors.New("tasktest: the test has ended")

// New returns a manager on a new Clock. Both are closed when the test ends; runs
// that are parked then are woken.
func New(t testing.TB, opts ...taskmanager.Option) (*taskmanager.TaskManager, *Clock) {
	t.Helper()
	c := NewClock(t)
	m, err := taskmanager.New(append([]taskmanager.Option{c.Option()}, opts...)...)
	if err != nil {
		t.Fatalf("tasktest: %v", err)
	}
	t.Cleanup(func() { c.Close(m) })
	return m, c
}

// A Clock is a fake clock with a wall and a monotonic hand, both moved by the test
// alone. It starts at 2026-01-01T00:00:00Z. Its moves (Advance, Stall, StepWall,
// Close) are for one goroutine at a time, and not for one inside a run; all else is
// safe for concurrent use.
type Clock struct {
	t      testing.TB
	bubble bool // made in a synctest bubble
	// patience is the real time that a move waits without progress. Immutable.
	patience time.Duration

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond
	wall     time.Time // at monotonic 0
	mono     int64
	timers   timerHeap
	seq      uint64
	busy     int              // pieces of the engine's work not parked
	waiters  map[*waiter]bool // parked
	told     []func()         // what to call when the wall clock is set; only grows
	progress uint64           // counts all that happens, for the watchdog
	moving   bool
	closed   bool
	failed   bool // the watchdog has ended the test
}

// NewClock returns a clock for managers made with its Option. Close it at the end of the
// test; New does that by itself.
func NewClock(t testing.TB) *Clock {
	c := &Clock{
		t:        t,
		bubble:   inBubble(),
		patience: defaultPatience,
		wall:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		mono:     1,
		waiters:  map[*waiter]bool{},
	}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// inBubble tells whether the caller is in a synctest bubble, by the only way there
// is: Wait panics elsewhere.
func inBubble() (is bool) {
	defer func() { is = recover() == nil }()
	synctest.Wait()
	return
}

// Option makes a manager live on this clock. Several managers may.
func (c *Clock) Option() taskmanager.Option {
	return seam.WithSource((*source)(c)).(taskmanager.Option)
}

// Now is the wall clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time { return c.wall.Add(time.Duration(c.mono - 1)) }

// Advance moves both hands on by d, stopping at each instant at which something is
// due. When it returns, all that fell due has been started at its exact instant, in
// order, and has ended or is parked. Advance(0) settles what is due now.
func (c *Clock) Advance(d time.Duration) {
	c.t.Helper()
	c.forward("Advance", d)
	defer c.begin()()
	c.mu.Lock()
	target := c.after(d)
	c.mu.Unlock()
	c.settle()
	for c.fireNext(target) {
		c.settle()
	}
	c.mu.Lock()
	c.mono = max(c.mono, target)
	c.mu.Unlock()
}

// Stall moves both hands on by d at once, and only then starts what fell due: what
// a process sees that was stopped, or starved, for that long.
func (c *Clock) Stall(d time.Duration) {
	c.t.Helper()
	c.forward("Stall", d)
	c.mu.Lock()
	c.mono = c.after(d)
	c.mu.Unlock()
	c.Advance(0)
}

// forward fails the test if a move is back.
func (c *Clock) forward(move string, d time.Duration) {
	c.t.Helper()
	if d < 0 {
		c.t.Fatalf("tasktest: %s(%v): time does not go back; StepWall moves the wall clock", move, d)
	}
}

// after is the monotonic instant d from now, or as late as can be.
func (c *Clock) after(d time.Duration) int64 {
	if at := c.mono + int64(d); at >= c.mono {
		return at
	}
	return math.MaxInt64
}

// StepWall moves the wall clock alone by d, which may be negative: what an
// administrator does, and what a process on Linux sees of a suspended machine,
// whose monotonic clock stands still.
func (c *Clock) StepWall(d time.Duration) {
	c.mu.Lock()
	c.wall = c.wall.Add(d)
	told := c.told
	c.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// begin starts a move.
func (c *Clock) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moving {
		panic("tasktest: the clock is moved from inside a run, or by two goroutines")
	}
	c.moving = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moving = false
	}
}

// fireNext moves to the next timer due by target and calls it, on this goroutine:
// the engine's callback settles what it starts, and a sleeper is only woken.
func (c *Clock) fireNext(target int64) bool {
	c.mu.Lock()
	if len(c.timers) == 0 || c.timers[0].when > target {
		c.mu.Unlock()
		return false
	}
	t := heap.Pop(&c.timers).(*timer)
	c.mono = max(c.mono, t.when)
	c.progress++
	c.mu.Unlock()
	t.f()
	return true
}

// settle returns when all of the engine's work has ended or is parked.
func (c *Clock) settle() {
	if c.bubble {
		synctest.Wait()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until(c.settled)
}

// until waits for what c.mu guards, and fails the test if nothing happens for too long.
// Called with c.mu held.
func (c *Clock) until(done func() bool) {
	c.t.Helper()
	if c.failed || done() {
		return
	}
	stuck := false
	seen := c.progress
	var watchdog *time.Timer
	watchdog = time.AfterFunc(c.patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if stuck = c.progress == seen; !stuck {
			seen = c.progress
			watchdog.Reset(c.patience)
		}
		c.changed.Broadcast()
	})
	defer watchdog.Stop()
	for !done() {
		if stuck {
			c.failed = true
			c.t.Fatalf("tasktest: no progress for %v: a run waits for something other than Clock.Sleep or Gate.Wait, or there with a context that is not made from its own (context.WithoutCancel makes one that does not end).\n%s", c.patience, allStacks())
		}
		c.changed.Wait()
	}
}

// settled tells whether nothing can happen without another move. A parked run whose
// context has ended, or that has been woken, is about to go on.
func (c *Clock) settled() bool {
	if c.busy > 0 {
		return false
	}
	for w := range c.waiters {
		if w.ctx.Err() != nil {
			return false
		}
	}
	return true
}

func allStacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// Close closes managers on this clock, ending the grace of their shutdown at once,
// and wakes what is parked. New does it when the test ends.
func (c *Clock) Close(managers ...*taskmanager.TaskManager) {
	defer c.begin()()
	for _, m := range managers {
		c.mu.Lock()
		before := c.seq
		c.mu.Unlock()
		closed := false
		go func() {
			_ = m.Close()
			c.mu.Lock()
			defer c.mu.Unlock()
			closed = true
			c.changed.Broadcast()
		}()
		for t := c.awaitTimer(before, &closed); t != nil; t = c.awaitTimer(before, &closed) {
			t.f()
		}
	}
	c.mu.Lock()
	c.closed = true
	for w := range c.waiters {
		c.wake(w, ErrClosed)
	}
	c.mu.Unlock()
	c.settle()
}

// awaitTimer waits for done, or until there is nothing left to wait for but a timer
// that was armed after the one counted before, which it takes: nothing that had been
// due later is run any more, but a shutdown may sit out its grace.
func (c *Clock) awaitTimer(before uint64, done *bool) (next *timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	armed := func() bool {
		for _, t := range c.timers {
			if t.seq > before && (next == nil || t.seq < next.seq) {
				next = t // the first one armed: others may be armed again and again
			}
		}
		if next != nil {
			next.remove()
		}
		return next != nil
	}
	for c.bubble || c.failed {
		if c.bubble {
			c.mu.Unlock()
			synctest.Wait() // what is blocked there is parked
			c.mu.Lock()
		}
		if *done || armed() {
			return next
		}
		c.changed.Wait()
	}
	c.until(func() bool { return *done || c.settled() && armed() })
	return next
}
