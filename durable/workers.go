package durable

import (
	"slices"
	"sync"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// workers are goroutines that do flights: a goroutine that is there already has the
// stack that handlers need, and knows its identity, which together are half of what a
// run that does nothing costs. There are as many as there were runs at once since the
// last trim.
//
// A flight in the queue waits for nobody: whoever takes one wakes another worker first,
// if there are more. But only one is on its way at a time, so that where handlers return
// sooner than it comes, a few workers do many flights, and the others sleep on.
type workers struct {
	host seam.Host
	run  func(fl *flight, goid uint64) // on the goroutine of that identity

	mu     sync.Mutex // a leaf lock; guards the fields below
	queue  []*flight
	taken  int             // of the queue, at its front
	waking bool            // a worker is on its way to the queue; always, if there is something in it
	idle   []chan struct{} // those asleep; a message wakes one, and the end of its channel ends it
	low    int             // the fewest idle ones since the last trim
	closed bool
}

// do has a worker do the flight at once.
func (w *workers) do(fl *flight) {
	if w.host.Settles() { // fake time has to know of each run
		w.host.Go(func() { w.run(fl, w.host.Identity()) })
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, fl)
	w.wakeLocked()
}

func (w *workers) wakeLocked() {
	if w.waking {
		return
	}
	w.waking = true
	n := len(w.idle) - 1
	if n < 0 {
		go w.work()
		return
	}
	w.idle[n] <- struct{}{}
	w.idle[n] = nil
	w.idle = w.idle[:n]
	w.low = min(w.low, n)
}

// work is a worker's life. One whose handler calls runtime.Goexit is gone.
func (w *workers) work() {
	id := w.host.Identity()
	woken := make(chan struct{}, 1)
	woken <- struct{}{}
	for range woken {
		for fl := w.arrive(woken); fl != nil; fl = w.next(woken) {
			w.run(fl, id)
		}
	}
}

// arrive is next for a worker that was on its way to the queue.
func (w *workers) arrive(woken chan struct{}) *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waking = false
	return w.nextLocked(woken)
}

// next takes a flight from the queue. If there is none the worker is idle, or is to end.
func (w *workers) next(woken chan struct{}) *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nextLocked(woken)
}

func (w *workers) nextLocked(woken chan struct{}) *flight {
	if len(w.queue) == 0 {
		if w.closed {
			close(woken)
		} else {
			w.idle = append(w.idle, woken)
		}
		return nil
	}
	fl := w.queue[w.taken]
	w.queue[w.taken] = nil
	if w.taken++; 2*w.taken >= len(w.queue) {
		w.queue, w.taken = slices.Delete(w.queue, 0, w.taken), 0
	}
	if len(w.queue) > 0 {
		w.wakeLocked()
	}
	return fl
}

// trim ends the workers that were idle all the time since the last trim.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(min(w.low, len(w.idle)))
}

// close ends all workers, those at work when they are done with it.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.endLocked(len(w.idle))
}

// endLocked ends n idle workers, those that have been idle for longest.
func (w *workers) endLocked(n int) {
	for _, woken := range w.idle[:n] {
		close(woken)
	}
	w.idle = append([]chan struct{}(nil), w.idle[n:]...)
	w.low = len(w.idle)
}
