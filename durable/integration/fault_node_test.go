package integration

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// A nodeSpec is a node of a fault test: in the test's process, or in one of its own,
// which gets the spec as JSON.
type nodeSpec struct {
	Driver, DSN string
	Journal     string
	Name        string
	Timeout     time.Duration   // NodeTimeout; 0 is 3 s
	Poll        time.Duration   // 0 is 250 ms
	Misfire     durable.Misfire `json:"-"`
	Slots       int             // 0 is 10
	Pool        int             // 0 is 4
	Skew        time.Duration   // of the node's clock
	Jobs        []jobSpec
	Handlers    []string // more of them, of jobs that the node does not add
	Call        []string // jobs to be triggered by hand after the start

	// Point is where the process kills itself, in a run of Target: see the points.
	Point, Target string

	// Of nodes in the test's process.
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	wrap     func(durable.Store) durable.Store
	options  []sqlstore.Option
	waker    durable.Waker
	observer func(durable.Event)
	logger   *slog.Logger
	db       *sql.DB // used instead of one of its own
}

// A jobSpec is a job, with at most one trigger. Its handler's name begins with what it
// does: "quick", "hold" (until its context ends, or the test lets it go), "short" (a
// few milliseconds), "slow" (a third of a second).
type jobSpec struct {
	Name, Handler string
	Schedule      string          // "" for none
	Misfire       durable.Misfire `json:"-"` // of nodes in the test's process
	Concurrent    bool
	Recover       bool
}

func (j jobSpec) job() (durable.Job, error) {
	job := durable.Job{Name: j.Name, Handler: j.Handler, AllowConcurrent: j.Concurrent, RequestsRecovery: j.Recover}
	if j.Schedule == "" {
		return job, nil
	}
	s, err := cronsched.Parse(j.Schedule)
	job.Triggers = []durable.Trigger{{Schedule: s, Misfire: j.Misfire}}
	return job, err
}

// The points at which a process kills itself.
const (
	beforeClaim  = "before the claim's commit"
	claimSent    = "claim's commit sent" // servers only
	afterClaim   = "after the claim"
	inHandler    = "in the handler"
	afterHandler = "after the handler"
	inFinish     = "in the end's transaction"
	finishSent   = "end's commit sent" // servers only
	afterFinish  = "after the end"
)

// dieHere ends the process as kill -9 does. Nothing after it is done.
func dieHere() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// open opens the node's pool.
func (n *nodeSpec) open(onWrite func([]byte) (after func())) (*sql.DB, error) {
	dial := n.dial
	if onWrite != nil {
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &tappedConn{conn, onWrite}, nil
		}
	}
	if dial == nil {
		return sql.Open(n.Driver, n.DSN)
	}
	switch n.Driver {
	case "pgx":
		config, err := pgx.ParseConfig(n.DSN)
		if err != nil {
			return nil, err
		}
		config.DialFunc = dial
		return stdlib.OpenDB(*config), nil
	case "mysql":
		config, err := mysql.ParseDSN(n.DSN)
		if err != nil {
			return nil, err
		}
		config.DialFunc = dial
		config.Logger = log0{}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	return sql.Open(n.Driver, n.DSN)
}

// log0 is no log: the driver tells of every connection that fails.
type log0 struct{}

func (log0) Print(...any) {}

// A tappedConn tells of what is written. What is returned is called after the writing.
type tappedConn struct {
	net.Conn
	onWrite func([]byte) (after func())
}

func (c *tappedConn) Write(b []byte) (int, error) {
	after := c.onWrite(b)
	n, err := c.Conn.Write(b)
	if after != nil {
		after()
	}
	return n, err
}

// isCommit tells whether what goes to a server commits. A transaction that is READ
// COMMITTED does not when it begins.
func isCommit(b []byte) bool {
	b = bytes.ToLower(b)
	return bytes.Contains(b, []byte("commit")) && !bytes.Contains(b, []byte("committed"))
}

// dialectOf is the dialect for a driver.
func dialectOf(driver string) sqlstore.Dialect {
	switch driver {
	case "pgx":
		return sqlstore.PostgreSQL()
	case "mysql":
		return sqlstore.MySQL()
	}
	return sqlstore.SQLite()
}

// via gives the data source name with another address of the server.
func via(driver, dsn, addr string) (string, error) {
	if driver == "mysql" {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			return "", err
		}
		config.Net, config.Addr = "tcp", addr
		return config.FormatDSN(), nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Host = addr
	return u.String(), nil
}

// A faultStore is a store in which faults happen.
type faultStore struct {
	durable.Store
	gate sync.RWMutex // held to read for each call

	point, target string
	serial        sync.Mutex // held for each call if serially
	serially      bool
	armed         atomic.Bool // the next commit is the target's
}

func (f *faultStore) enter() (leave func()) {
	f.gate.RLock()
	if f.serially {
		f.serial.Lock()
	}
	return func() {
		if f.serially {
			f.serial.Unlock()
		}
		f.gate.RUnlock()
	}
}

func (f *faultStore) is(job string) bool { return f.target == "*" || f.target == job }

func (f *faultStore) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	defer f.enter()()
	plan := r.Plan
	r.Plan = func(d durable.Due) durable.Verdict {
		v := plan(d)
		if v.Run != nil && f.is(v.Run.Job) {
			switch f.point {
			case beforeClaim:
				dieHere()
			case claimSent:
				f.armed.Store(true)
			}
		}
		return v
	}
	res, err := f.Store.Claim(ctx, r)
	for _, c := range res.Claimed {
		if f.point == afterClaim && f.is(c.Run.Job) {
			dieHere()
		}
	}
	return res, err
}

func (f *faultStore) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	defer f.enter()()
	hit := false
	for _, e := range r.Ends {
		hit = hit || f.is(e.Run.Job)
	}
	if hit {
		switch f.point {
		case afterHandler:
			dieHere()
		case finishSent:
			f.armed.Store(true)
		case inFinish:
			r.Resume = func(time.Time, durable.TriggerRow) durable.TriggerRow { dieHere(); panic("dead") }
		}
	}
	own, err := f.Store.Finish(ctx, r)
	if hit && f.point == afterFinish && err == nil {
		dieHere()
	}
	return own, err
}

func (f *faultStore) Beat(ctx context.Context, n durable.NodeRow, ttl time.Duration) (durable.BeatResult, error) {
	defer f.enter()()
	return f.Store.Beat(ctx, n, ttl)
}

func (f *faultStore) Expire(ctx context.Context, r durable.ExpireRequest) (durable.ExpireResult, error) {
	defer f.enter()()
	return f.Store.Expire(ctx, r)
}

func (f *faultStore) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	defer f.enter()()
	return f.Store.Edit(ctx, job, scope, change)
}

func (f *faultStore) Jobs(ctx context.Context, q durable.JobQuery) ([]durable.JobState, error) {
	defer f.enter()()
	return f.Store.Jobs(ctx, q)
}

func (f *faultStore) Runs(ctx context.Context, q durable.RunQuery) ([]durable.RunRow, error) {
	defer f.enter()()
	return f.Store.Runs(ctx, q)
}

func (f *faultStore) Lease(ctx context.Context, name, holder string, ttl time.Duration) (durable.LeaseRow, error) {
	defer f.enter()()
	return f.Store.Lease(ctx, name, holder, ttl)
}

// onWrite is for a tappedConn: it kills the process once a commit that is waited for has
// been sent.
func (f *faultStore) onWrite(b []byte) (after func()) {
	if isCommit(b) && f.armed.Load() {
		return dieHere
	}
	return nil
}

// build makes the node.
func (n *nodeSpec) build(say func(format string, args ...any)) (s *durable.Scheduler, f *faultStore, closeDB func() error, err error) {
	f = &faultStore{point: n.Point, target: n.Target}
	var onWrite func([]byte) func()
	if n.Point == claimSent || n.Point == finishSent {
		f.serially, onWrite = true, f.onWrite
	}
	db, closeDB := n.db, func() error { return nil }
	if db == nil {
		if db, err = n.open(onWrite); err != nil {
			return nil, nil, nil, err
		}
		pool := n.Pool
		if pool == 0 {
			pool = 4
		}
		db.SetMaxOpenConns(pool)
		db.SetMaxIdleConns(pool)
		closeDB = db.Close
	}
	inner, err := sqlstore.Open(db, dialectOf(n.Driver), n.options...)
	if err != nil {
		return nil, nil, nil, err
	}
	f.Store = inner
	if n.wrap != nil {
		f.Store = n.wrap(inner)
	}
	config := durable.Config{
		Node: n.Name, NodeTimeout: n.Timeout, PollInterval: n.Poll, MaxConcurrentRuns: n.Slots, Misfire: n.Misfire,
		Retention: -1, Waker: n.waker, Logger: n.logger,
	}
	if config.NodeTimeout == 0 {
		config.NodeTimeout = 3 * time.Second
	}
	if config.PollInterval == 0 {
		config.PollInterval = 250 * time.Millisecond
	}
	config.Observer = durable.ObserverFunc(func(e durable.Event) {
		if n.observer != nil {
			n.observer(e)
		}
		say("event %v %s %s", e.Kind, e.Job, e.Detail)
	})
	if n.Skew != 0 {
		m, err := taskmanager.New(taskmanager.WithClock(skewedClock{clock.New(), n.Skew}), taskmanager.WithLogger(n.logger))
		if err != nil {
			return nil, nil, nil, err
		}
		config.Manager = m
		closePool := closeDB
		closeDB = func() error { return errors.Join(m.Close(), closePool()) }
	}
	if s, err = durable.New(f, config); err != nil {
		return nil, nil, nil, err
	}
	handlers := n.Handlers
	for _, j := range n.Jobs {
		handlers = append(handlers, j.Handler)
	}
	known := map[string]bool{}
	for _, name := range handlers {
		if known[name] {
			continue
		}
		known[name] = true
		if err := durable.Handle(s, name, n.handler(name, say)); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, j := range n.Jobs {
		job, err := j.job()
		if err != nil {
			return nil, nil, nil, err
		}
		if err := s.AddJob(context.Background(), job); err != nil {
			return nil, nil, nil, err
		}
	}
	return s, f, closeDB, nil
}

// A skewedClock is off, and goes as fast as the real one.
type skewedClock struct {
	clock.Clock
	by time.Duration
}

func (c skewedClock) Now() time.Time                  { return c.Clock.Now().Add(c.by) }
func (c skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c skewedClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// handler writes the journal, and does what its name says.
func (n *nodeSpec) handler(name string, say func(string, ...any)) func(context.Context, durable.Run, struct{}) error {
	j := journal(n.Journal)
	return func(ctx context.Context, run durable.Run, _ struct{}) error {
		j.add(entryOf("start", run))
		say("run %s %s %v", run.Job, run.ID, run.Kind)
		if n.Point == inHandler && n.Target == run.Job {
			dieHere()
		}
		switch {
		case strings.HasPrefix(name, "hold"):
			j.hold(ctx, run.Job)
		case strings.HasPrefix(name, "short"):
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(run.Fence%5+1) * time.Millisecond):
			}
		case strings.HasPrefix(name, "slow"):
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
		end := entryOf("end", run)
		if ctx.Err() != nil {
			end.Cause = context.Cause(ctx).Error()
			say("ctx %s %s %s", run.Job, run.ID, end.Cause)
		}
		j.add(end)
		return context.Cause(ctx)
	}
}

// A journal is the handlers' own log: a file that everybody appends to.
type journal string

// An entry is a line of the journal.
type entry struct {
	At        time.Time
	Pid       int
	What      string // start, end; killed, frozen: of the process
	Node      string
	Run       string
	Job       string
	Trigger   string
	Kind      string
	Scheduled time.Time
	Key       string
	Fence     int64
	Cause     string // of the end of its context
}

func entryOf(what string, r durable.Run) entry {
	return entry{What: what, Node: r.Node, Run: r.ID, Job: r.Job, Trigger: r.Trigger, Kind: r.Kind.String(), Scheduled: r.ScheduledAt,
		Key: r.IdempotencyKey, Fence: r.Fence}
}

func (j journal) add(e entry) {
	e.At = time.Now()
	if e.Pid == 0 {
		e.Pid = os.Getpid()
	}
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(string(j), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// read gives the entries. A process killed while it wrote may have left half a line.
func (j journal) read() (list []entry, err error) {
	data, err := os.ReadFile(string(j))
	if os.IsNotExist(err) {
		return nil, nil
	}
	for line := range bytes.Lines(data) {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			list = append(list, e)
		}
	}
	return list, err
}

// hold waits until let is called for the job, or ctx ends.
func (j journal) hold(ctx context.Context, job string) {
	for {
		if _, err := os.Stat(string(j) + "." + job); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// let ends the holding of a job's runs, in whatever process.
func (j journal) let(job string) error { return os.WriteFile(string(j)+"."+job, nil, 0o644) }

// A process of a test's own is this binary with the spec in a variable: then the tests
// are not run.
const childVariable = "TASKMANAGER_FAULT_NODE"

func init() {
	if text := os.Getenv(childVariable); text != "" {
		os.Exit(child(text))
	}
}

// child is a node in a process of its own. It tells on its output what happens, and does
// what its input says; the end of that ends it, so that none outlives the test.
func child(text string) int {
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	n := &nodeSpec{}
	if err := json.Unmarshal([]byte(text), n); err != nil {
		say("failed %v", err)
		return 2
	}
	n.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	s, f, _, err := n.build(say)
	if err != nil {
		say("failed %v", err)
		return 2
	}
	ctx := context.Background()
	if err := s.Start(ctx); err != nil {
		say("failed %v", err)
		return 2
	}
	say("started %s", s.Node())
	go listen(os.Stdin, f, say)
	for _, job := range n.Call {
		id, err := s.Trigger(ctx, job, nil)
		say("called %s %s %v", job, id, err)
	}
	<-term
	err = s.Shutdown(ctx)
	say("stopped %v", err)
	if err != nil {
		return 1
	}
	return 0
}

func listen(in io.Reader, f *faultStore, say func(string, ...any)) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "freeze" { // with no call of the store under way
			f.gate.Lock()
			say("freezing")
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			say("thawed")
			f.gate.Unlock()
		}
	}
	os.Exit(3)
}
