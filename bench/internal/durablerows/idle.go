package durablerows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// An idle measures polls that find nothing, among few triggers that wait and among ten
// times as many.
type idle struct {
	few    map[row.Mode]int
	polls  int
	listen map[row.Mode]time.Duration // to a whole node that polls, for the queries
}

var idles = idle{
	few:    map[row.Mode]int{row.Smoke: 100, row.Quick: 10_000, row.Full: 100_000},
	polls:  400,
	listen: map[row.Mode]time.Duration{row.Smoke: 200 * time.Millisecond, row.Quick: time.Second, row.Full: 2 * time.Second},
}

func (d idle) measure(database string) measurement {
	return func(ctx context.Context, mode row.Mode) (o row.Outcome, err error) {
		s, err := openStored(ctx, database, claimers)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		few := d.few[mode]
		start := time.Now()
		waits := func(i int) time.Time { return start.Add(time.Hour + time.Duration(i)*time.Millisecond) }
		if err := fill(ctx, s.Store, few, waits); err != nil {
			return o, err
		}
		first, err := d.poll(ctx, s)
		if err != nil {
			return o, err
		}
		if err := enqueue(ctx, s.Store, "job-0", few, 9*few, waits); err != nil {
			return o, err
		}
		o.Notef("%d and %d triggers waiting", few, 10*few)
		second, err := d.poll(ctx, s)
		if err != nil {
			return o, err
		}
		o.Values = row.Values{row.PollFew: micros(first), row.PollMany: micros(second), row.PollGrowth: float64(second) / float64(first)}
		if s.place != nil {
			o.Values[row.PerPoll], err = queriesPerPoll(ctx, s, d.listen[mode])
		}
		return o, err
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// poll is the median of polls one after the other, with pauses in between.
func (d idle) poll(ctx context.Context, s *stored) (time.Duration, error) {
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	if _, err := s.Beat(ctx, durable.NodeRow{ID: "poller", Name: "poller"}, time.Hour); err != nil {
		return 0, err
	}
	var took []time.Duration
	for range d.polls {
		start := time.Now()
		res, err := s.Store.Claim(ctx, durable.ClaimRequest{Node: "poller", Limit: batch, Handlers: []string{handler}, Plan: planOneShot})
		took = append(took, time.Since(start))
		if err != nil || len(res.Claimed) > 0 {
			return 0, errors.Join(err, errors.New("bench: an idle poll claimed something"))
		}
		time.Sleep(time.Millisecond)
	}
	took = took[d.polls/4:] // the first ones plan statements
	slices.Sort(took)
	return took[len(took)/2], nil
}

// queriesPerPoll has a whole node poll every 10 ms, and counts what its polls ask the
// database.
func queriesPerPoll(ctx context.Context, s *stored, listen time.Duration) (_ float64, err error) {
	db, err := s.place.open(2)
	if err != nil {
		return 0, err
	}
	var asked atomic.Int64
	counted := sql.OpenDB(counter{db, &asked})
	store, err := sqlstore.Open(counted, s.place.dialect)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, counted.Close(), db.Close()) }()
	p := &polling{Store: s.Store, polls: store, asked: &asked}
	w := &watched{Store: p}
	c, err := newCluster(w, 1, durable.Config{PollInterval: 10 * time.Millisecond}, nil)
	if err != nil {
		return 0, err
	}
	if err := c.start(ctx); err != nil {
		return 0, err
	}
	time.Sleep(listen)
	if err := errors.Join(c.stop(), w.errs.err()); err != nil {
		return 0, err
	}
	if p.n < 2 {
		return 0, errors.New("bench: the node did not poll")
	}
	return float64(p.queries) / float64(p.n), nil
}

// A polling store claims by another store, whose connections count.
type polling struct {
	durable.Store
	polls durable.Store
	asked *atomic.Int64

	first      bool  // the first poll, which looks at the schema's version, was made
	n, queries int64 // of later polls, of which a node makes one at a time
}

func (p *polling) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	before := p.asked.Load()
	res, err := p.polls.Claim(ctx, r)
	if p.first {
		p.n, p.queries = p.n+1, p.queries+p.asked.Load()-before
	}
	p.first = true
	return res, err
}

// A counter is a connector whose connections are borrowed from another pool. They can
// do no more than a poll that finds nothing needs.
type counter struct {
	db *sql.DB
	n  *atomic.Int64
}

func (c counter) Connect(ctx context.Context) (driver.Conn, error) {
	lent, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConn{lent, c.n}, nil
}

func (c counter) Driver() driver.Driver { return nil }

type countedConn struct {
	lent *sql.Conn
	n    *atomic.Int64
}

var errNotAPoll = errors.New("bench: a poll that finds nothing wants more than a query")

func (c *countedConn) Close() error { return c.lent.Close() }

func (c *countedConn) Begin() (driver.Tx, error) {
	c.n.Add(1)
	return nil, errNotAPoll
}

func (c *countedConn) Prepare(string) (driver.Stmt, error) {
	c.n.Add(1)
	return nil, errNotAPoll
}

func (c *countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.n.Add(1)
	var rows driver.Rows
	err := c.lent.Raw(func(conn any) (err error) {
		rows, err = conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}
