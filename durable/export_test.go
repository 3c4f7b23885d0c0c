package durable

import (
	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// Deterministic makes all of the scheduler's randomness come from random, its ID
// included, and the waits of failing loops from b. Before Start only.
func Deterministic(s *Scheduler, random func() uint64, b func() backoff.BackOff) {
	s.random, s.loopBackoff = random, b
	s.lease.init(s)
}

// Slots tells how many slots are taken, reserved ones included, and how many claimed
// runs are here.
func Slots(s *Scheduler) (taken, runs int) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for _, fl := range s.flights.byID {
		if !fl.local {
			runs++
		}
	}
	return s.flights.claimed, runs
}

// Workers are a scheduler's, for flights that are numbers.
type Workers struct{ w workers }

func NewWorkers(m *taskmanager.TaskManager, run func(n int)) *Workers {
	return &Workers{workers{host: seam.HostOf(m), run: func(fl *flight, _ uint64) { run(fl.row.Attempt) }}}
}

func (w *Workers) Do(n int) { w.w.do(&flight{row: &RunRow{Attempt: n}}) }
func (w *Workers) Trim()    { w.w.trim() }
func (w *Workers) Close()   { w.w.close() }

// Idle is how many sleep, queued how many flights wait for one.
func (w *Workers) Idle() (idle, queued int) {
	w.w.mu.Lock()
	defer w.w.mu.Unlock()
	return len(w.w.idle), len(w.w.queue) - w.w.taken
}
