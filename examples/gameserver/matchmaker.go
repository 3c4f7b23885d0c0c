package main

import (
	"context"
	"errors"
	"time"
)

var errUpstream = errors.New("upstream: connection refused")

// A matchmaker stands for a service that others run, and that is not always there:
// two seconds in each outageCycle it refuses.
type matchmaker struct {
	world *world
	since time.Time
	open  int // seats offered to it; of the sync task, whose runs do not overlap
}

const (
	outageCycle = 12 * time.Second
	outageFrom  = 2 * time.Second
	outageTo    = 4 * time.Second
	worldSeats  = 1000
)

func newMatchmaker(w *world) *matchmaker { return &matchmaker{world: w, since: time.Now()} }

// sync is the task that tells the matchmaker how many may come. It says what went
// wrong and returns: when to try again, and to log the change once, is not its
// business.
func (m *matchmaker) sync(context.Context) error {
	if at := time.Since(m.since) % outageCycle; at >= outageFrom && at < outageTo {
		return errUpstream
	}
	m.open = worldSeats - m.world.size()
	return nil
}
