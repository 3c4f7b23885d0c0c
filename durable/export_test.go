package durable

import "github.com/cenkalti/backoff/v4"

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
