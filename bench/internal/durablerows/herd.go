package durablerows

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/durable"
)

// A herd is many triggers that are due in one second, on one node with 200 slots.
type herd struct {
	database string
	// spread is over how much of that second they are due.
	spread time.Duration
	// exclusive gives each trigger a job of its own that does not allow concurrency;
	// otherwise ten share one that does.
	exclusive bool
}

var herds = map[row.Mode]int{row.Smoke: 200, row.Quick: 10_000, row.Full: 10_000}

const (
	herdSlots = 200
	// yearly is a schedule whose next instant is far away.
	yearly = "cron 0 0 0 1 1 ?"
)

func (d herd) measure(ctx context.Context, mode row.Mode) (o row.Outcome, err error) {
	s, err := openStored(ctx, d.database, claimers)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := herds[mode]
	// How long it takes to add them is found out by adding a tenth, in a year.
	start := time.Now()
	if err := d.add(ctx, s, "trial", n/10, func(int) time.Time { return start.AddDate(1, 0, 0) }); err != nil {
		return o, err
	}
	at := time.Now().Add(20*time.Since(start) + lead)
	due := func(i int) time.Time { return at.Add(d.spread * time.Duration(i) / time.Duration(n)) }
	if err := d.add(ctx, s, "job", n, due); err != nil {
		return o, err
	}
	return d.run(ctx, s, n, at)
}

func (d herd) add(ctx context.Context, s *stored, prefix string, n int, due func(int) time.Time) error {
	each := 10
	if d.exclusive {
		each = 1
	}
	return scheduled{prefix, n / each, each, !d.exclusive, yearly}.add(ctx, s.Store, due)
}

func (d herd) run(ctx context.Context, s *stored, n int, at time.Time) (o row.Outcome, err error) {
	var last atomic.Int64
	c, err := newCluster(s, 1, durable.Config{MaxConcurrentRuns: herdSlots}, func(durable.Run) { last.Store(int64(time.Since(at))) })
	if err != nil {
		return o, err
	}
	if err := s.settle(ctx); err != nil {
		return o, err
	}
	if err := c.start(ctx); err != nil {
		return o, err
	}
	late := time.Until(at) < 0
	waitFor(ctx, time.Until(at)+20*time.Second, func() bool { return c.handled.Load() >= int64(n) })
	started := time.Duration(last.Load())
	waitFor(ctx, 5*time.Second, func() bool { return c.recorded() >= int64(n) })
	ended := time.Since(at)
	handled := c.handled.Load()
	if err := c.stop(); err != nil {
		return o, err
	}
	switch {
	case late:
		return o, errors.New("bench: the node was not ready in time")
	case handled < int64(n):
		return o, fmt.Errorf("bench: %d of %d triggers fired", handled, n)
	}
	o.Values = row.Values{row.LastStart: started.Seconds(), row.LastEnd: ended.Seconds(), row.Runs: float64(handled)}
	s.figures(&o)
	return o, nil
}
