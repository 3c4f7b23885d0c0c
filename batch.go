package taskmanager

import (
	"slices"
	"sync/atomic"
	"time"
)

// rescueAfter is how long the runs of an open batch wait, at most, for a goroutine
// that is stuck in one of their number.
const rescueAfter = int64(time.Millisecond)

// A batch is runs that fell due together. Goroutines take them off it one by one;
// it is open until the last is taken.
type batch struct {
	runs  []*run
	taken atomic.Int64 // runs taken, or more when all are
	users int          // goroutines working on it; guarded by engine.mu
	waits uint         // rescues that found it open; guarded by engine.mu
}

// batches are the engine's open batches, oldest first, and spare ones. Guarded by
// engine.mu.
type batches struct {
	opened []*batch
	spare  []*batch
}

func (bs *batches) pending() bool { return len(bs.opened) > 0 }

func (bs *batches) get() *batch {
	if n := len(bs.spare); n > 0 {
		b := bs.spare[n-1]
		bs.spare = bs.spare[:n-1]
		return b
	}
	return &batch{}
}

func (bs *batches) put(b *batch) {
	clear(b.runs)
	b.runs = b.runs[:0]
	b.taken.Store(0)
	b.waits = 0
	bs.spare = append(bs.spare, b)
}

func (bs *batches) open(b *batch) { bs.opened = append(bs.opened, b) }

// close takes b off the open ones, if another goroutine has not done so.
func (bs *batches) close(b *batch) {
	if i := slices.Index(bs.opened, b); i >= 0 {
		bs.opened = slices.Delete(bs.opened, i, i+1)
	}
}

// help starts n more goroutines on the open batches.
func (bs *batches) help(e *engine, n int) {
	for range n {
		go e.drainAside()
	}
}

// drain runs what is left of the open batches on this goroutine. No lock is held
// while it does, and none is left to a deferred call: a task may call Goexit.
func (e *engine) drain(goid uint64) {
	for b := e.join(); b != nil; b = e.join() {
		e.work(b, goid)
		e.done(b)
	}
}

// join takes part in the oldest open batch; nil if there is none.
func (e *engine) join() *batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.batches.pending() || e.closed {
		if e.rescue {
			e.rearm(e.source.Mono(), false)
		}
		return nil
	}
	b := e.batches.opened[0]
	e.escalate(b)
	b.users++
	return b
}

// done is called when there is nothing left to take from b.
func (e *engine) done(b *batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches.close(b)
	if b.users--; b.users == 0 {
		e.batches.put(b)
	}
}

// escalate doubles the help each time that a goroutine comes upon a batch that
// others are on: if all of them are stuck in tasks not yet known to be slow, one
// more a millisecond would not be enough for the rest.
func (e *engine) escalate(b *batch) {
	if b.users == 0 {
		return
	}
	left := len(b.runs) - int(b.taken.Load())
	e.batches.help(e, min(left, 1<<min(b.waits, 10))-1)
	b.waits++
}

// work takes runs off b until there are none. The time at the end of a run is that
// of the next one's start, as a rule: the clock is read once a run.
func (e *engine) work(b *batch, goid uint64) {
	for at := e.source.Mono(); ; {
		i := int(b.taken.Add(1)) - 1
		if i >= len(b.runs) {
			return
		}
		var follow *run
		if at, follow = e.execute(b.runs[i], goid, at); follow != nil {
			e.spawnLocking(follow)
		}
	}
}

// drainAside is a goroutine that helps with the open batches.
func (e *engine) drainAside() {
	clean := false
	defer func() {
		if clean {
			return
		}
		if v := recover(); v != nil {
			e.surface("drain", v)
		}
		go e.drainAside()
	}()
	if e.fault != nil {
		e.fault("drain")
	}
	e.drain(goroutineID())
	clean = true
}
