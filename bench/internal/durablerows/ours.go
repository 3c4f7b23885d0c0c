package durablerows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/durable"
)

// conns is the pool of a whole library: one connection for each claim, and one for
// each record, that can be under way at once.
const conns = 2 * claimers

// A stored is a store with what counts its ended runs.
type stored struct {
	*watched
	close func() error
	ended func(context.Context) (int64, error) // nil in memory
	place *place                               // nil in memory
}

func openStored(ctx context.Context, database string, conns int) (*stored, error) {
	if database == memory {
		return &stored{watched: &watched{Store: durable.NewMemory()}, close: func() error { return nil }}, nil
	}
	p, err := newPlace(ctx, database)
	if err != nil {
		return nil, err
	}
	s, db, err := p.store(ctx, conns)
	if err != nil {
		return nil, errors.Join(err, p.drop())
	}
	return &stored{
		watched: &watched{Store: s}, place: p,
		close: func() error { return errors.Join(db.Close(), p.drop()) },
		ended: func(ctx context.Context) (int64, error) {
			return count(ctx, db, fmt.Sprintf("SELECT count(*) FROM taskmanager_history WHERE state = %d", durable.RunSucceeded))
		},
	}, nil
}

// openFilled opens a store that has a backlog.
func openFilled(ctx context.Context, database string, conns, jobs int) (_ *stored, err error) {
	s, err := openStored(ctx, database, conns)
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, s.close)
	if err := fill(ctx, s.Store, jobs, past); err != nil {
		return nil, err
	}
	return s, s.settle(ctx)
}

// settle is done before a measurement, once the backlog is there.
func (s *stored) settle(ctx context.Context) error {
	if s.place == nil {
		return nil
	}
	db, err := s.place.open(1)
	if err != nil {
		return err
	}
	return errors.Join(s.place.analyze(ctx, db), db.Close())
}

func (s *stored) server() string {
	if s.place == nil {
		return ""
	}
	return s.place.server
}

func count(ctx context.Context, db *sql.DB, query string) (n int64, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func past(int) time.Time { return time.Now().Add(-time.Minute) }

// ours is the whole library: some nodes, real handlers, one-shot triggers of jobs that
// allow concurrency.
func ours(database string, nodes, slots int) contend {
	return func(ctx context.Context, d drain) (_ *backlog, err error) {
		s, err := openStored(ctx, database, conns)
		if err != nil {
			return nil, err
		}
		defer closeOnError(&err, s.close)
		if err := fill(ctx, s.Store, d.jobs, past); err != nil {
			return nil, err
		}
		return s.nodes(ctx, nodes, slots)
	}
}

// exclusive is the whole library with jobs that do not allow concurrency: 200 of them
// with five triggers each, which are due again a millisecond after their runs.
func exclusive(database string, nodes, slots int) contend {
	return func(ctx context.Context, d drain) (_ *backlog, err error) {
		s, err := openStored(ctx, database, conns)
		if err != nil {
			return nil, err
		}
		defer closeOnError(&err, s.close)
		if err := (scheduled{"job", 200, 5, false, "every 00:00:00.001"}).add(ctx, s.Store, past); err != nil {
			return nil, err
		}
		b, err := s.nodes(ctx, nodes, slots)
		if err == nil {
			b.endless()
		}
		return b, err
	}
}

// endless has a backlog be worked on for all of the limit.
func (b *backlog) endless() {
	b.handled = func() int64 { return math.MinInt64 }
	b.whole = true
}

func (s *stored) nodes(ctx context.Context, nodes, slots int) (*backlog, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	c, err := newCluster(s, nodes, durable.Config{MaxConcurrentRuns: slots}, nil)
	if err != nil {
		return nil, err
	}
	// The nodes are started before the clock is, and told that nothing is due.
	s.shut.Store(true)
	began := time.Now()
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	started := time.Since(began).Seconds()
	open := func(context.Context) error {
		s.shut.Store(false)
		for _, n := range c.nodes {
			n.Wake()
		}
		return nil
	}
	b := &backlog{
		start: open, handled: c.handled.Load, done: s.ended, server: s.server(),
		figures: func(o *row.Outcome) {
			s.figures(o)
			o.Values[row.StartS] = started
		},
		stop: func() error { return errors.Join(c.stop(), s.close()) },
	}
	if b.done == nil {
		b.done = func(context.Context) (int64, error) { return c.recorded(), nil }
	}
	return b, nil
}

// storeOnly is the store without the library around it: loops that claim and record.
func storeOnly(database string) contend { return storeLoops(database, claimers) }

func storeLoops(database string, n int) contend {
	return func(ctx context.Context, d drain) (*backlog, error) {
		s, err := openFilled(ctx, database, n, d.jobs)
		if err != nil {
			return nil, err
		}
		l := loops{n: n, each: func(ctx context.Context, i int) (int, error) { return s.turn(ctx, fmt.Sprint("node-", i)) }}
		l.prepare = func(ctx context.Context, i int) error {
			_, err := s.Beat(ctx, durable.NodeRow{ID: fmt.Sprint("node-", i), Name: "node"}, time.Hour)
			return err
		}
		b := l.backlog(s.server(), s.ended, s.close)
		b.figures = s.figures
		return b, nil
	}
}

// turn claims a batch and records its ends.
func (s *stored) turn(ctx context.Context, node string) (int, error) {
	res, err := s.Claim(ctx, durable.ClaimRequest{Node: node, Limit: batch, Handlers: []string{handler}, Plan: planOneShot})
	if err != nil || len(res.Claimed) == 0 {
		return 0, err
	}
	ends := make([]durable.End, len(res.Claimed))
	for i, c := range res.Claimed {
		ends[i].Run = *c.Run
		ends[i].Run.State = durable.RunSucceeded
	}
	_, err = s.Finish(ctx, durable.FinishRequest{Ends: ends})
	return len(ends), err
}

func planOneShot(d durable.Due) durable.Verdict {
	t := d.Trigger
	return durable.Verdict{Delete: true, Run: &durable.RunRow{
		ID: t.ID, Job: t.Job, Trigger: t.Origin, Kind: t.Kind, ScheduledAt: t.ScheduledAt, Attempt: t.Attempt,
		IdempotencyKey: t.IdempotencyKey, Data: t.Data, Priority: t.Priority, TriggerID: t.ID,
	}}
}

// loops are goroutines that work until they are stopped.
type loops struct {
	n       int
	prepare func(ctx context.Context, i int) error // before the clock starts; may be nil
	each    func(ctx context.Context, i int) (done int, err error)
}

func (l loops) backlog(server string, done func(context.Context) (int64, error), release func() error) *backlog {
	var handled atomic.Int64
	var failed errorList
	var wg sync.WaitGroup
	var over atomic.Bool // looked at between two turns: what is under way is not cut off
	if done == nil {
		done = func(context.Context) (int64, error) { return handled.Load(), nil }
	}
	start := func(ctx context.Context) error {
		if l.prepare != nil {
			for i := range l.n {
				if err := l.prepare(ctx, i); err != nil {
					return err
				}
			}
		}
		for i := range l.n {
			wg.Go(func() {
				for !over.Load() {
					n, err := l.each(ctx, i)
					if err != nil {
						failed.add(err)
						return
					}
					handled.Add(int64(n))
					if n == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		return nil
	}
	stop := func() error {
		over.Store(true)
		wg.Wait()
		return errors.Join(failed.err(), release())
	}
	return &backlog{start: start, handled: handled.Load, done: done, stop: stop, server: server,
		figures: func(o *row.Outcome) { o.Values[row.Errors] = float64(failed.count()) }}
}

// closeOnError releases what a contender has made when it cannot be made whole.
func closeOnError(err *error, release func() error) {
	if *err != nil {
		*err = errors.Join(*err, release())
	}
}
