package main

import (
	"context"
	"fmt"
	"time"
)

// analytics stands for a query to a store that is sometimes slow: every fourth one
// takes longer than its task allows.
type analytics struct {
	world   *world
	queries int     // these two are of the rollup task, whose runs do not overlap
	mean    float64 // score
}

const (
	quickQuery = 30 * time.Millisecond
	slowQuery  = 800 * time.Millisecond
)

// rollup is the task. It heeds its context, as everything that waits should: when
// the time limit passes, it gives up and leaves the old result in place.
func (a *analytics) rollup(ctx context.Context) error {
	players := a.world.state().Players
	a.queries++
	takes := quickQuery
	if a.queries%4 == 0 {
		takes = slowQuery
	}
	if !pause(ctx, takes) {
		return fmt.Errorf("query of %d players: %w", len(players), ctx.Err())
	}
	sum := 0
	for _, p := range players {
		sum += p.Score
	}
	a.mean = float64(sum) / float64(max(1, len(players)))
	return nil
}
