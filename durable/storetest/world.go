package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A clock is the store's.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock {
	return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A world is a store with a clock, and what tests do with them. Whatever fails
// unexpectedly ends the test.
type world struct {
	testing.TB
	*clock
	ctx   context.Context
	store durable.Store
	last  atomic.Int64 // of the numbers in IDs
}

func newWorld(t *testing.T, open Open) *world {
	c := newClock()
	return &world{TB: t, clock: c, ctx: context.Background(), store: open(t, c.now)}
}

// id makes IDs in rising order.
func (w *world) id() string { return idOf(w.last.Add(1)) }

func idOf(n int64) string { return fmt.Sprintf("t%025d", n) }

// in gives an instant from now.
func (w *world) in(d time.Duration) time.Time { return w.now().Add(d) }

// A change fits a row to a test.
type change[T any] func(*T)

func concurrent(j *durable.JobRow)  { j.AllowConcurrent = true }
func onEveryNode(j *durable.JobRow) { j.RunOnEveryNode = true }

func handler(name string) change[durable.JobRow] {
	return func(j *durable.JobRow) { j.Handler = name }
}

func priority(p int) change[durable.TriggerRow] {
	return func(t *durable.TriggerRow) { t.Priority = p }
}

func state(s durable.TriggerState) change[durable.TriggerRow] {
	return func(t *durable.TriggerRow) { t.State = s }
}

func kind(k durable.Kind) change[durable.TriggerRow] {
	return func(t *durable.TriggerRow) { t.Kind = k }
}

func triggerID(id string) change[durable.TriggerRow] {
	return func(t *durable.TriggerRow) { t.ID = id }
}

func every(t *durable.TriggerRow) { t.Schedule = "every 1m" }

// job adds a job without triggers. Its handler is "h", unless changed.
func (w *world) job(name string, changes ...change[durable.JobRow]) durable.JobRow {
	w.Helper()
	w.edit(name, func(e *durable.Edit) {
		e.Job = &durable.JobRow{Name: name, Group: "default", Handler: "h", Source: durable.SourceAPI}
		for _, c := range changes {
			c(e.Job)
		}
	})
	return w.state(name).Job
}

// trigger adds a schedule trigger to a job, and gives it as stored.
func (w *world) trigger(job, name string, due time.Time, changes ...change[durable.TriggerRow]) durable.TriggerRow {
	w.Helper()
	row := w.newTrigger(job, name, due, changes...)
	w.edit(job, func(e *durable.Edit) {
		row.Handler = e.Job.Handler
		e.Triggers = append(e.Triggers, row)
	})
	return w.row(job, name)
}

func (w *world) newTrigger(job, name string, due time.Time, changes ...change[durable.TriggerRow]) durable.TriggerRow {
	row := durable.TriggerRow{
		ID: w.id(), Job: job, Name: name, Handler: "h", Priority: 5, DueAt: due,
		Schedule: "cron 0 * * * * ?",
	}
	for _, c := range changes {
		c(&row)
	}
	return row
}

// oneShot makes a one-shot trigger of kind manual, and of handler "h", unless changed.
func (w *world) oneShot(job string, due time.Time, changes ...change[durable.TriggerRow]) durable.TriggerRow {
	row := w.newTrigger(job, "", due)
	row.Name, row.Schedule, row.Kind, row.Attempt = "by-hand-"+row.ID, "", durable.KindManual, 1
	row.ScheduledAt = due
	for _, c := range changes {
		c(&row)
	}
	return row
}

// add adds one-shot triggers to a job.
func (w *world) add(job string, rows ...durable.TriggerRow) {
	w.Helper()
	w.enqueue(job, func(e *durable.Edit) { e.Add = rows })
}

func (w *world) edit(job string, change func(*durable.Edit)) {
	w.Helper()
	w.editScope(job, durable.EditJob, change)
}

func (w *world) enqueue(job string, change func(*durable.Edit)) {
	w.Helper()
	w.editScope(job, durable.EnqueueOnly, change)
}

func (w *world) editScope(job string, scope durable.Scope, change func(*durable.Edit)) {
	w.Helper()
	err := w.store.Edit(w.ctx, job, scope, func(e *durable.Edit) error {
		change(e)
		return nil
	})
	if err != nil {
		w.Fatalf("Edit(%q) = %v, want nil", job, err)
	}
}

// node registers a node for an hour.
func (w *world) node(id string) { w.Helper(); w.beat(id, time.Hour) }

func (w *world) beat(id string, ttl time.Duration) durable.BeatResult {
	w.Helper()
	res, err := w.store.Beat(w.ctx, durable.NodeRow{ID: id, Name: "node " + id, StartedAt: w.now()}, ttl)
	if err != nil {
		w.Fatalf("Beat(%q) = %v, want nil", id, err)
	}
	return res
}

// claim claims at most limit triggers of handler "h" with the plan of this package.
func (w *world) claim(node string, limit int) durable.ClaimResult {
	w.Helper()
	return w.claimWith(durable.ClaimRequest{Node: node, Limit: limit, Handlers: []string{"h"}, Plan: w.plan})
}

func (w *world) claimWith(r durable.ClaimRequest) durable.ClaimResult {
	w.Helper()
	res, err := w.store.Claim(w.ctx, r)
	if err != nil {
		w.Fatalf("Claim(%q, limit %d) = %v, want nil", r.Node, r.Limit, err)
	}
	res.Next = nextOf(res)
	return res
}

// nextOf is Next, or Now if that is past: all that is promised if something is due.
func nextOf(res durable.ClaimResult) time.Time {
	if !res.Next.IsZero() && res.Next.Before(res.Now) {
		return res.Now
	}
	return res.Next
}

// plan is a plain Plan: a busy trigger is blocked; others lead to a run, and are due
// again a minute after they were, once their run has ended if they are "every" ones.
func (w *world) plan(d durable.Due) durable.Verdict {
	t := d.Trigger
	if d.Job.Name == "" {
		return durable.Verdict{Delete: true}
	}
	if d.Busy {
		t.State, t.Reason = durable.StateBlocked, "busy"
		return durable.Verdict{Trigger: t}
	}
	run := w.runOf(d)
	if t.OneShot() {
		return durable.Verdict{Delete: true, Run: run}
	}
	t.PrevAt, t.Fired = t.DueAt, t.Fired+1
	t.DueAt = t.DueAt.Add(time.Minute)
	if t.Schedule == "every 1m" {
		t.State, run.Holds = durable.StateRunning, true
	}
	return durable.Verdict{Trigger: t, Run: run}
}

// runOf makes the run that a due trigger leads to.
func (w *world) runOf(d durable.Due) *durable.RunRow {
	t := d.Trigger
	run := &durable.RunRow{
		Job: t.Job, Trigger: t.Name, Kind: t.Kind, ScheduledAt: t.DueAt, Attempt: 1,
		Data: t.Data, Priority: t.Priority, TriggerID: t.ID, Exclusive: !d.Job.AllowConcurrent,
		Recover: d.Job.RequestsRecovery,
	}
	if t.OneShot() {
		run.ID, run.Trigger, run.ScheduledAt = t.ID, t.Origin, t.ScheduledAt
		run.Attempt, run.RetryOf, run.IdempotencyKey = t.Attempt, t.RetryOf, t.IdempotencyKey
	} else {
		run.ID = runID(t)
	}
	return run
}

// runID is the ID of a schedule trigger's next run, the same on each call.
func runID(t durable.TriggerRow) string {
	return fmt.Sprintf("r%s%08d", t.ID[len(t.ID)-17:], t.Fired)
}

// start claims what is due and wants it to be one run.
func (w *world) start(node string) durable.RunRow {
	w.Helper()
	runs := w.runsOf(w.claim(node, 100))
	if len(runs) != 1 {
		w.Fatalf("Claim(%q) = %d runs, want 1", node, len(runs))
	}
	return runs[0]
}

func (w *world) runsOf(res durable.ClaimResult) []durable.RunRow {
	var runs []durable.RunRow
	for _, c := range res.Claimed {
		runs = append(runs, *c.Run)
	}
	return runs
}

// ended is the end of a run that succeeded.
func ended(run durable.RunRow) durable.End {
	run.State, run.Duration = durable.RunSucceeded, time.Second
	return durable.End{Run: run}
}

func (w *world) finish(ends ...durable.End) []bool {
	w.Helper()
	own, err := w.store.Finish(w.ctx, durable.FinishRequest{Ends: ends, Resume: resume})
	if err != nil || len(own) != len(ends) {
		w.Fatalf("Finish(%d ends) = %v, %v, want %d answers, nil", len(ends), own, err, len(ends))
	}
	return own
}

// resume is a plain Resume: due a minute from now.
func resume(now time.Time, t durable.TriggerRow) durable.TriggerRow {
	t.State, t.DueAt = durable.StateWaiting, now.Add(time.Minute)
	return t
}

func (w *world) expire(grace time.Duration) durable.ExpireResult {
	w.Helper()
	res, err := w.store.Expire(w.ctx, durable.ExpireRequest{Grace: grace, Limit: 100})
	if err != nil {
		w.Fatalf("Expire(%v) = %v, want nil", grace, err)
	}
	return res
}

func (w *world) jobs(q durable.JobQuery) []durable.JobState {
	w.Helper()
	states, err := w.store.Jobs(w.ctx, q)
	if err != nil {
		w.Fatalf("Jobs(%+v) = %v, want nil", q, err)
	}
	return states
}

// state is that of a job, which must exist.
func (w *world) state(job string) durable.JobState {
	w.Helper()
	states := w.jobs(durable.JobQuery{Names: []string{job}})
	if len(states) != 1 {
		w.Fatalf("Jobs(%q) = %d jobs, want 1", job, len(states))
	}
	return states[0]
}

// row is a trigger of a job, which must exist.
// waiting are the names of a job's waiting triggers.
func (w *world) waiting(job string) (names []string) {
	w.Helper()
	for _, t := range w.state(job).Triggers {
		if t.State == durable.StateWaiting {
			names = append(names, t.Name)
		}
	}
	return names
}

func (w *world) row(job, trigger string) durable.TriggerRow {
	w.Helper()
	for _, t := range w.state(job).Triggers {
		if t.Name == trigger {
			return t
		}
	}
	w.Fatalf("Jobs(%q) has no trigger %q", job, trigger)
	panic("not reached")
}

func (w *world) runs(q durable.RunQuery) []durable.RunRow {
	w.Helper()
	rows, err := w.store.Runs(w.ctx, q)
	if err != nil {
		w.Fatalf("Runs(%+v) = %v, want nil", q, err)
	}
	return rows
}

// run is a run, which must be there.
func (w *world) run(id string) durable.RunRow {
	w.Helper()
	rows := w.runs(durable.RunQuery{IDs: []string{id}})
	if len(rows) != 1 {
		w.Fatalf("Runs(%q) = %d runs, want 1", id, len(rows))
	}
	return rows[0]
}

func (w *world) purge(r durable.PurgeRequest) int {
	w.Helper()
	n, err := w.store.Purge(w.ctx, r)
	if err != nil {
		w.Fatalf("Purge(%+v) = %v, want nil", r, err)
	}
	return n
}

func (w *world) nodes() []durable.NodeRow {
	w.Helper()
	rows, _, err := w.store.Nodes(w.ctx)
	if err != nil {
		w.Fatalf("Nodes() = %v, want nil", err)
	}
	return rows
}
