// Package queue delivers to user code that may block and panic: observers and log
// handlers. What is posted is called in order, one at a time, off the poster's
// goroutine.
package queue

import "sync"

// length bounds what waits to be delivered.
const length = 1024

// A Queue is a bounded queue of calls. While it is empty it has no goroutine.
type Queue struct {
	spawn    func(f func()) // calls f on another goroutine; immutable
	panicked func(v any)    // is told of the first panic; immutable
	first    sync.Once

	mu       sync.Mutex // a leaf lock; guards the fields below
	waiting  []func()
	draining bool          // there is a goroutine that empties the queue
	idle     chan struct{} // closed when it is gone; nil if nobody waits
	dropped  uint64
}

// New returns an empty queue, whose goroutine spawn starts when there is need of one.
// The first time that user code panics, panicked is told, which may post.
func New(spawn func(f func()), panicked func(v any)) *Queue {
	return &Queue{spawn: spawn, panicked: panicked}
}

// Panicked notes a panic of user code that was not called by the queue.
func (q *Queue) Panicked(v any) { q.first.Do(func() { q.panicked(v) }) }

// Post queues f. If the queue is full, f is dropped and counted. The caller may hold
// locks.
func (q *Queue) Post(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= length {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, f)
	if !q.draining {
		q.draining = true
		q.spawn(q.drain)
	}
}

// drain empties the queue and ends.
func (q *Queue) drain() {
	for f := q.next(); f != nil; f = q.next() {
		q.guard(f)
	}
}

func (q *Queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.draining = false
		q.waiting = nil
		if q.idle != nil {
			close(q.idle)
			q.idle = nil
		}
		return nil
	}
	f := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	return f
}

// guard calls f on a goroutine that has to survive it.
func (q *Queue) guard(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			q.Panicked(v)
		} else { // Goexit: this goroutine ends, so another goes on
			q.spawn(q.drain)
		}
	}()
	f()
	returned = true
}

// Flushed is closed once the queue is empty.
func (q *Queue) Flushed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.draining {
		done := make(chan struct{})
		close(done)
		return done
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	return q.idle
}

// Drop counts something as dropped that was not even posted.
func (q *Queue) Drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped++
}

// Dropped is how many calls were dropped.
func (q *Queue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
