package durable

import "sync"

// workers are goroutines that do one flight after the other: a goroutine that is there
// already has the stack that handlers need, and knows its identity, which together are
// half of what a run that does nothing costs. There are as many as there were runs at
// once since the last trim.
type workers struct {
	f *flights

	mu     sync.Mutex // a leaf lock; guards the fields below
	idle   []chan *flight
	low    int // the fewest idle ones since the last trim
	closed bool
}

// do has a worker do the flight at once.
func (w *workers) do(fl *flight) {
	if w.f.s.host.Settles() { // fake time has to know of each run
		w.f.s.host.Go(func() { w.f.run(fl, w.f.s.host.Identity()) })
		return
	}
	if worker := w.take(); worker != nil {
		worker <- fl
		return
	}
	worker := make(chan *flight, 1)
	worker <- fl
	go w.work(worker)
}

// work is a worker's life. One whose handler calls runtime.Goexit is gone.
func (w *workers) work(worker chan *flight) {
	id := w.f.s.host.Identity()
	for fl := range worker {
		w.f.run(fl, id)
		if !w.park(worker) {
			return
		}
	}
}

func (w *workers) take() chan *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.idle) - 1
	if n < 0 {
		return nil
	}
	worker := w.idle[n]
	w.idle[n] = nil
	w.idle = w.idle[:n]
	w.low = min(w.low, n)
	return worker
}

func (w *workers) park(worker chan *flight) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.idle = append(w.idle, worker)
	return true
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
	for _, worker := range w.idle[:n] {
		close(worker)
	}
	w.idle = append([]chan *flight(nil), w.idle[n:]...)
	w.low = len(w.idle)
}
