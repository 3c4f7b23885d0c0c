package durablerows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
)

// samples are how many starts a mode looks at, and gap the mean time between them: an
// idle system.
var samples = map[row.Mode]int{row.Smoke: 10, row.Quick: 100, row.Full: 500}

const (
	gap  = 20 * time.Millisecond
	lead = time.Second // before the first one, in which the nodes settle
	// wakePoll is how often nodes poll that are to be woken: not within a measurement.
	wakePoll = 30 * time.Second
)

func lateness(o *row.Outcome, h *stats.Histogram) {
	s := h.Since(stats.Snapshot{})
	ms := func(ns float64) float64 { return ns / 1e6 }
	o.Values = row.Values{
		row.Runs: float64(s.N), row.P50: ms(s.Quantile(0.5)), row.P99: ms(s.Quantile(0.99)), row.MaxLate: ms(float64(s.Max)),
	}
}

// punctual measures how late runs start whose instants the nodes know in advance.
func punctual(database string, nodes int) measurement {
	return func(ctx context.Context, mode row.Mode) (o row.Outcome, err error) {
		s, err := openStored(ctx, database, conns)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		var h stats.Histogram
		c, err := newCluster(s, nodes, durable.Config{MaxConcurrentRuns: batch}, func(run durable.Run) {
			h.Observe(int64(time.Since(run.ScheduledAt)))
		})
		if err != nil {
			return o, err
		}
		n, random := samples[mode], rand.New(rand.NewPCG(1, 2))
		at := time.Now().Add(lead)
		if err := addJob(ctx, s.Store, "job"); err != nil {
			return o, err
		}
		err = enqueue(ctx, s.Store, "job", 0, n, func(int) time.Time {
			at = at.Add(time.Duration(random.Int64N(int64(2 * gap))))
			return at
		})
		if err == nil {
			err = s.settle(ctx)
		}
		if err != nil {
			return o, err
		}
		if err := c.start(ctx); err != nil {
			return o, err
		}
		waitFor(ctx, time.Until(at)+5*time.Second, func() bool { return c.handled.Load() >= int64(n) })
		err = c.stop()
		lateness(&o, &h)
		s.figures(&o)
		return o, err
	}
}

// waitFor waits until f holds, at most for so long.
func waitFor(ctx context.Context, most time.Duration, f func() bool) {
	for end := time.Now().Add(most); !f() && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(look)
	}
}

// woken measures the time from a call by hand on one node, its commit included, to the
// start of the handler on another, which does not poll meanwhile.
func woken(ctx context.Context, mode row.Mode) (o row.Outcome, err error) {
	s, err := openStored(ctx, postgres, conns)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	config, err := pgx.ParseConfig(s.place.dsn)
	if err != nil {
		return o, err
	}
	var called atomic.Int64 // when
	var h stats.Histogram
	started := make(chan struct{}, 1)
	var wakers [2]*pgnotify.Waker
	for i := range wakers {
		w, err := pgnotify.NewFromConfig(config, placePrefix+"channel")
		if err != nil {
			return o, err
		}
		wakers[i] = w
	}
	defer func() { err = errors.Join(err, wakers[0].Close(), wakers[1].Close()) }()
	caller, err := bare(s, wakers[0])
	if err != nil {
		return o, err
	}
	runner, err := newCluster(s, 1, durable.Config{PollInterval: wakePoll, MisfireThreshold: time.Hour, Waker: wakers[1]}, func(durable.Run) {
		h.Observe(time.Now().UnixNano() - called.Load())
		started <- struct{}{}
	})
	if err != nil {
		return o, err
	}
	clusters := []*cluster{caller, runner}
	defer func() { err = errors.Join(err, caller.stop(), runner.stop()) }()
	if err := addJob(ctx, s.Store, "job"); err != nil {
		return o, err
	}
	for _, c := range clusters {
		if err := c.start(ctx); err != nil {
			return o, err
		}
	}
	time.Sleep(lead / 2) // to be connected
	for range samples[mode] {
		called.Store(time.Now().UnixNano())
		if _, err := caller.nodes[0].Trigger(ctx, "job", nil); err != nil {
			return o, err
		}
		select {
		case <-started:
		case <-time.After(5 * time.Second):
			return o, fmt.Errorf("bench: not woken within 5 s, after %d times", h.Since(stats.Snapshot{}).N)
		}
		time.Sleep(gap)
	}
	lateness(&o, &h)
	s.figures(&o)
	return o, nil
}
