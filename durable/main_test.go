package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the store is away")

// A cluster is several nodes on one memory store and one fake clock.
type cluster struct {
	t      *testing.T
	clk    *tasktest.Clock
	store  *durable.Memory
	offset time.Duration // the store's clock less the nodes'; set before the start
	ms     []*taskmanager.TaskManager
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, clk: tasktest.NewClock(t)}
	c.store = durable.NewMemory(durable.MemoryNow(func() time.Time { return c.clk.Now().Add(c.offset) }))
	t.Cleanup(func() { c.clk.Close(c.ms...) })
	return c
}

// A node is a scheduler whose store can be tampered with, and what it does.
type node struct {
	*durable.Scheduler
	c      *cluster
	store  *hooked
	events *events
	log    *logs
}

func (c *cluster) node(name string, config durable.Config) *node {
	c.t.Helper()
	n := &node{c: c, store: &hooked{Store: c.store, calls: map[string]int{}}, events: &events{}, log: &logs{}}
	m, err := taskmanager.New(c.clk.Option(), taskmanager.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.ms = append(c.ms, m)
	config.Manager, config.Node = m, name
	if config.Retention == 0 {
		config.Retention = -1
	}
	if config.Observer == nil {
		config.Observer = n.events
	}
	if config.Logger == nil {
		config.Logger = slog.New(n.log)
	}
	if n.Scheduler, err = durable.New(n.store, config); err != nil {
		c.t.Fatalf("New: %v", err)
	}
	return n
}

func (n *node) handle(name string, fn func(ctx context.Context, run durable.Run) error) *node {
	n.c.t.Helper()
	err := durable.Handle(n.Scheduler, name, func(ctx context.Context, run durable.Run, _ noArgs) error { return fn(ctx, run) })
	if err != nil {
		n.c.t.Fatal(err)
	}
	return n
}

func (n *node) add(j durable.Job) *node {
	n.c.t.Helper()
	if err := n.AddJob(context.Background(), j); err != nil {
		n.c.t.Fatal(err)
	}
	return n
}

func (n *node) start() *node {
	n.c.t.Helper()
	if err := n.Start(context.Background()); err != nil {
		n.c.t.Fatalf("Start: %v", err)
	}
	n.c.clk.Advance(0)
	return n
}

func (n *node) trigger(job string) string {
	n.c.t.Helper()
	id, err := n.Trigger(context.Background(), job, nil)
	if err != nil {
		n.c.t.Fatalf("Trigger(%q): %v", job, err)
	}
	n.c.clk.Advance(0)
	return id
}

// cut takes the node off the store, or puts it back.
func (n *node) cut(away bool) {
	if !away {
		n.store.set(nil)
		return
	}
	n.store.set(func(context.Context, string, func() error) error { return errAway })
}

func (c *cluster) runs(q durable.RunQuery) []durable.RunRow {
	c.t.Helper()
	q.Limit = 1000
	rows, err := c.store.Runs(context.Background(), q)
	if err != nil {
		c.t.Fatal(err)
	}
	slices.Reverse(rows) // oldest first
	return rows
}

// states gives what became of the job's runs, oldest first, as "kind:state".
func (c *cluster) states(job string) []string {
	c.t.Helper()
	var l []string
	for _, r := range c.runs(durable.RunQuery{Job: job}) {
		l = append(l, r.Kind.String()+":"+r.State.String())
	}
	return l
}

func (c *cluster) wantStates(job string, want ...string) {
	c.t.Helper()
	if got := c.states(job); !slices.Equal(got, want) {
		c.t.Errorf("runs of %s = %v, want %v", job, got, want)
	}
}

func cron(text string) cronsched.Schedule { return cronsched.MustParse("cron " + text) }

func every(text string) cronsched.Schedule { return cronsched.MustParse("every " + text) }

// A hooked is a Store whose calls go through a hook.
type hooked struct {
	durable.Store
	mu    sync.Mutex
	hook  func(ctx context.Context, call string, do func() error) error
	calls map[string]int
}

func (h *hooked) set(hook func(ctx context.Context, call string, do func() error) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

func (h *hooked) count(calls ...string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for call, k := range h.calls {
		if len(calls) == 0 || slices.Contains(calls, call) {
			n += k
		}
	}
	return n
}

func (h *hooked) through(ctx context.Context, call string, do func() error) error {
	h.mu.Lock()
	h.calls[call]++
	hook := h.hook
	h.mu.Unlock()
	if hook == nil {
		return do()
	}
	return hook(ctx, call, do)
}

func (h *hooked) Claim(ctx context.Context, r durable.ClaimRequest) (res durable.ClaimResult, err error) {
	err = h.through(ctx, "claim", func() (err error) { res, err = h.Store.Claim(ctx, r); return err })
	if err != nil {
		res = durable.ClaimResult{}
	}
	return res, err
}

func (h *hooked) Finish(ctx context.Context, r durable.FinishRequest) (ok []bool, err error) {
	err = h.through(ctx, "finish", func() (err error) { ok, err = h.Store.Finish(ctx, r); return err })
	if err != nil {
		ok = nil
	}
	return ok, err
}

func (h *hooked) Beat(ctx context.Context, n durable.NodeRow, ttl time.Duration) (res durable.BeatResult, err error) {
	call := "beat"
	if ttl <= 0 {
		call = "leave"
	}
	err = h.through(ctx, call, func() (err error) { res, err = h.Store.Beat(ctx, n, ttl); return err })
	return res, err
}

func (h *hooked) Expire(ctx context.Context, r durable.ExpireRequest) (res durable.ExpireResult, err error) {
	err = h.through(ctx, "expire", func() (err error) { res, err = h.Store.Expire(ctx, r); return err })
	return res, err
}

func (h *hooked) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	return h.through(ctx, "edit", func() error { return h.Store.Edit(ctx, job, scope, change) })
}

func (h *hooked) Jobs(ctx context.Context, q durable.JobQuery) (l []durable.JobState, err error) {
	err = h.through(ctx, "jobs", func() (err error) { l, err = h.Store.Jobs(ctx, q); return err })
	return l, err
}

func (h *hooked) Runs(ctx context.Context, q durable.RunQuery) (l []durable.RunRow, err error) {
	err = h.through(ctx, "runs", func() (err error) { l, err = h.Store.Runs(ctx, q); return err })
	return l, err
}

func (h *hooked) Purge(ctx context.Context, r durable.PurgeRequest) (n int, err error) {
	err = h.through(ctx, "purge", func() (err error) { n, err = h.Store.Purge(ctx, r); return err })
	return n, err
}

func (h *hooked) Lease(ctx context.Context, name, holder string, ttl time.Duration) (l durable.LeaseRow, err error) {
	err = h.through(ctx, "lease", func() (err error) { l, err = h.Store.Lease(ctx, name, holder, ttl); return err })
	return l, err
}

// events remembers what an Observer is told.
type events struct {
	mu  sync.Mutex
	all []durable.Event
}

func (e *events) Observe(ev durable.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) of(kind durable.EventKind) (l []durable.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == kind {
			l = append(l, ev)
		}
	}
	return l
}

// logs is a slog.Handler that remembers lines, as "LEVEL message key=value …".
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }
func (l *logs) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logs) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// A tally is what handlers on several goroutines note.
type tally struct {
	mu   sync.Mutex
	runs []durable.Run
	errs []error
	now  int // handlers inside
	most int
}

func (y *tally) begin(r durable.Run) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs = append(y.runs, r)
	y.now++
	y.most = max(y.most, y.now)
}

func (y *tally) end(err error) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.now--
	y.errs = append(y.errs, err)
	return err
}

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.runs)
}

func (y *tally) all() []durable.Run {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.runs)
}

func (y *tally) ended() []error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.errs)
}

// quick is a handler that ends at once.
func (y *tally) quick(_ context.Context, r durable.Run) error {
	y.begin(r)
	return y.end(nil)
}

// held is a handler that waits for the gate, and obeys its context.
func (y *tally) held(g *tasktest.Gate) func(context.Context, durable.Run) error {
	return func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(g.Wait(ctx))
	}
}

// deaf is a handler that waits for the gate, whatever its context says, and returns the
// cause of its context's end.
func (y *tally) deaf(g *tasktest.Gate) func(context.Context, durable.Run) error {
	return func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		_ = g.Wait(context.WithoutCancel(ctx))
		return y.end(context.Cause(ctx))
	}
}

// stop begins a Shutdown. Only in a bubble of synctest.
func (n *node) stop(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- n.Shutdown(ctx) }()
	n.c.clk.Advance(0)
	return done
}

// await moves the clock on until a stop has ended, and tells how long that took.
func (c *cluster) await(done <-chan error) (took time.Duration, err error) {
	c.t.Helper()
	for range 3000 {
		c.clk.Advance(0)
		select {
		case err := <-done:
			return took, err
		default:
		}
		c.clk.Advance(100 * time.Millisecond)
		took += 100 * time.Millisecond
	}
	c.t.Fatal("Shutdown takes more than 5 min")
	return took, nil
}

// shut stops the node and wants no error.
func (n *node) shut() {
	n.c.t.Helper()
	if _, err := n.c.await(n.stop(context.Background())); err != nil {
		n.c.t.Errorf("Shutdown = %v, want nil", err)
	}
}
