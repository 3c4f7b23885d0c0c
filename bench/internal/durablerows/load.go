package durablerows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

const (
	batch    = 100 // runs of one claim, and slots of one node
	claimers = 8   // nodes, or loops
	handler  = "h"
	payload  = `{"x":1}` // every contender's jobs carry it
	perEdit  = 5000
)

// args are the payload as handlers see it: decoding it is part of a run.
type args struct {
	X int `json:"x"`
}

// addJob adds a job that allows concurrency and has no triggers.
func addJob(ctx context.Context, store durable.Store, name string) error {
	return store.Edit(ctx, name, durable.EditJob, func(e *durable.Edit) error {
		e.Job = &durable.JobRow{Name: name, Group: "bench", Handler: handler, AllowConcurrent: true, Source: durable.SourceAPI}
		return nil
	})
}

// enqueue adds one-shot triggers, numbered from first, to a job that is there; due
// tells when the i-th is due.
func enqueue(ctx context.Context, store durable.Store, job string, first, n int, due func(i int) time.Time) error {
	for n > 0 {
		k := min(n, perEdit)
		err := store.Edit(ctx, job, durable.EnqueueOnly, func(e *durable.Edit) error {
			e.Add = make([]durable.TriggerRow, k)
			for j := range e.Add {
				id := fmt.Sprintf("%026d", first+j) // rising, as the library's are
				at := due(first + j)
				e.Add[j] = durable.TriggerRow{
					ID: id, Job: job, Name: "manual-" + id, Handler: handler, Kind: durable.KindManual,
					Priority: durable.DefaultPriority, DueAt: at, ScheduledAt: at, Attempt: 1,
					IdempotencyKey: job + "//" + id, Data: []byte(payload),
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		first, n = first+k, n-k
	}
	return nil
}

// fill adds n one-shot triggers, evenly over ten jobs.
func fill(ctx context.Context, store durable.Store, n int, due func(i int) time.Time) error {
	const jobs = 10
	for j := range jobs {
		name := fmt.Sprintf("job-%d", j)
		if err := addJob(ctx, store, name); err != nil {
			return err
		}
		from, to := n*j/jobs, n*(j+1)/jobs
		if err := enqueue(ctx, store, name, from, to-from, due); err != nil {
			return err
		}
	}
	return nil
}

// scheduled are jobs with schedule triggers.
type scheduled struct {
	prefix         string // of their names
	jobs, triggers int    // triggers of each
	concurrent     bool
	schedule       string
}

// add adds them, some at a time.
func (l scheduled) add(ctx context.Context, store durable.Store, due func(i int) time.Time) error {
	text, err := canonical(l.schedule)
	if err != nil {
		return err
	}
	var next atomic.Int64
	var failed errorList
	var wg sync.WaitGroup
	for range claimers {
		wg.Go(func() {
			for j := int(next.Add(1)) - 1; j < l.jobs && ctx.Err() == nil; j = int(next.Add(1)) - 1 {
				name := fmt.Sprintf("%s-%05d", l.prefix, j)
				failed.add(store.Edit(ctx, name, durable.EditJob, func(e *durable.Edit) error {
					e.Job = &durable.JobRow{Name: name, Group: "bench", Handler: handler, AllowConcurrent: l.concurrent,
						Source: durable.SourceAPI, Data: []byte(payload)}
					e.Triggers = make([]durable.TriggerRow, l.triggers)
					for k := range e.Triggers {
						i := j*l.triggers + k
						e.Triggers[k] = durable.TriggerRow{
							ID: fmt.Sprintf("%.6s%020d", l.prefix+"000000", i), Job: name, Name: fmt.Sprintf("t%05d", k), Handler: handler,
							Priority: durable.DefaultPriority, Schedule: text, DueAt: due(i),
						}
					}
					return nil
				}))
			}
		})
	}
	wg.Wait()
	return failed.err()
}

func canonical(schedule string) (string, error) {
	s, err := cronsched.Parse(schedule)
	if err != nil {
		return "", err
	}
	text, err := s.MarshalText()
	return string(text), err
}

// An errorList counts errors, and keeps the first few.
type errorList struct {
	mu   sync.Mutex
	list []error
	n    int
}

func (l *errorList) add(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; l.n <= 3 {
		l.list = append(l.list, err)
	}
}

func (l *errorList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *errorList) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.list...)
}

// A watched store counts what goes through it.
type watched struct {
	durable.Store
	claims, claimed, finishes, finished atomic.Int64
	claimNs, finishNs                   atomic.Int64
	errs                                errorList
	shut                                atomic.Bool // nothing is due, nodes are told
}

func (w *watched) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	if w.shut.Load() {
		return durable.ClaimResult{Now: time.Now()}, nil
	}
	start := time.Now()
	res, err := w.Store.Claim(ctx, r)
	took := time.Since(start)
	w.note(err)
	if n := len(res.Claimed); n > 0 {
		w.claims.Add(1)
		w.claimed.Add(int64(n))
		w.claimNs.Add(int64(took))
	}
	return res, err
}

func (w *watched) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	start := time.Now()
	own, err := w.Store.Finish(ctx, r)
	w.finishes.Add(1)
	w.finished.Add(int64(len(own)))
	w.finishNs.Add(int64(time.Since(start)))
	w.note(err)
	return own, err
}

func (w *watched) Beat(ctx context.Context, n durable.NodeRow, ttl time.Duration) (durable.BeatResult, error) {
	res, err := w.Store.Beat(ctx, n, ttl)
	w.note(err)
	return res, err
}

func (w *watched) Expire(ctx context.Context, r durable.ExpireRequest) (durable.ExpireResult, error) {
	res, err := w.Store.Expire(ctx, r)
	w.note(err)
	return res, err
}

// note leaves out what the end of a measurement brings about.
func (w *watched) note(err error) {
	if !errors.Is(err, context.Canceled) {
		w.errs.add(err)
	}
}

// figures adds what was counted.
func (w *watched) figures(o *row.Outcome) {
	mean := func(sum, n *atomic.Int64) float64 { return float64(sum.Load()) / float64(n.Load()) }
	o.Values[row.PerClaim] = mean(&w.claimed, &w.claims)
	o.Values[row.PerFinish] = mean(&w.finished, &w.finishes)
	o.Values[row.ClaimMs] = mean(&w.claimNs, &w.claims) / 1e6
	o.Values[row.FinishMs] = mean(&w.finishNs, &w.finishes) / 1e6
	o.Values[row.Errors] = float64(w.errs.count())
	if err := w.errs.err(); err != nil {
		o.Notef("errors: %.300v", err)
	}
}

// A cluster is some nodes of the whole library in this process.
type cluster struct {
	nodes   []*durable.Scheduler
	handled atomic.Int64
}

// newCluster makes nodes whose runs call f, which may be nil.
func newCluster(store durable.Store, nodes int, config durable.Config, f func(run durable.Run)) (*cluster, error) {
	c := &cluster{}
	config.Logger = slog.New(slog.DiscardHandler)
	config.Retention = -1 // no housekeeping in the midst of it
	for i := range nodes {
		config := config
		config.Node = fmt.Sprintf("bench-%d", i)
		s, err := durable.New(store, config)
		if err != nil {
			return nil, err
		}
		err = durable.Handle(s, handler, func(_ context.Context, run durable.Run, _ args) error {
			if f != nil {
				f(run)
			}
			c.handled.Add(1)
			return nil
		})
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, s)
	}
	return c, nil
}

// bare makes one node without handlers: it can call jobs, and not run them.
func bare(store durable.Store, waker durable.Waker) (*cluster, error) {
	s, err := durable.New(store, durable.Config{
		Node: "bare", PollInterval: wakePoll, Waker: waker, Retention: -1, Logger: slog.New(slog.DiscardHandler),
	})
	return &cluster{nodes: []*durable.Scheduler{s}}, err
}

// start starts all nodes at once.
func (c *cluster) start(ctx context.Context) error {
	var failed errorList
	var wg sync.WaitGroup
	for _, s := range c.nodes {
		wg.Go(func() { failed.add(s.Start(ctx)) })
	}
	wg.Wait()
	return failed.err()
}

func (c *cluster) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var failed errorList
	var wg sync.WaitGroup
	for _, s := range c.nodes {
		wg.Go(func() { failed.add(s.Shutdown(ctx)) })
	}
	wg.Wait()
	return failed.err()
}

// recorded is how many runs the nodes know to be recorded.
func (c *cluster) recorded() (n int64) {
	for _, s := range c.nodes {
		n += int64(s.Stats().Succeeded)
	}
	return n
}
