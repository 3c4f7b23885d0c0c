package durable

import (
	"context"
	"fmt"
	"sync"

	"github.com/taskmanager-go/taskmanager"
)

// waits are calls that wait for the end of a run.
type waits struct {
	s *Scheduler

	mu   sync.Mutex // held before that of flights
	runs map[string][]chan RunRow
	// polled is when the store was last asked: not at each of the claims that follow
	// each other while there is much to do.
	polled int64
}

// TriggerAndWait is Trigger, and waits until the first attempt has ended, on whatever
// node. Its end is what the RunRow tells; the error is of the call. A run that ends on
// another node is found at this node's polls. ErrConflict if the job was running, for
// a job that runs on every node ErrInvalid: there is no one end to wait for. If the
// waiting ends before the run, the RunRow has its ID and Job alone.
func (s *Scheduler) TriggerAndWait(ctx context.Context, job string, data any) (RunRow, error) {
	if !s.running() {
		return RunRow{}, ErrStopped
	}
	if err := notFound("trigger", job); err != nil {
		return RunRow{}, err
	}
	jobs, err := s.jobsByName(ctx, []string{job})
	if err != nil {
		return RunRow{}, err
	}
	if jobs[job].RunOnEveryNode {
		return RunRow{}, &FieldError{Field: "Job", Value: job, Reason: "runs on every node: there is no one end to wait for"}
	}
	id, err := s.Trigger(ctx, job, data)
	if err != nil {
		return RunRow{}, err
	}
	row, err := s.Wait(ctx, id)
	if err != nil && row.ID == "" {
		row.ID, row.Job = id, job
	}
	return row, err
}

// Wait waits until the run of that ID has ended, on whatever node. It may not have
// been claimed yet; the ID of a run that never comes, which that of a call of a job on
// every node is, is waited for until ctx ends, whose cause is then the error. ErrNotFound
// for what can be no ID, ErrStopped if the scheduler stops,
// taskmanager.ErrOwnRun if it is the run whose handler calls, with its own context.
func (s *Scheduler) Wait(ctx context.Context, id string) (RunRow, error) {
	if own, inside := RunFrom(ctx); inside && own.ID == id {
		return RunRow{}, fmt.Errorf("durable: wait for run %s: %w", id, taskmanager.ErrOwnRun)
	}
	if err := notFound("wait for run", id); err != nil {
		return RunRow{}, err
	}
	w := &s.waits
	ended := make(chan RunRow, 1)
	w.mu.Lock()
	if w.runs == nil {
		w.runs = map[string][]chan RunRow{}
	}
	w.runs[id] = append(w.runs[id], ended)
	w.mu.Unlock()
	defer w.forget(id, ended)
	if err := w.look(ctx, []string{id}); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return RunRow{}, err
	}
	var err error
	select {
	case r := <-ended:
		return r, conflict(r)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.stopped:
		err = ErrStopped
	}
	select {
	case r := <-ended: // both have happened: the end is what was asked for
		return r, conflict(r)
	default:
		return RunRow{}, err
	}
}

// conflict is the error of waiting for a run that did not come about.
func conflict(r RunRow) error {
	if r.State == RunSkipped && r.Code == CodeConflict {
		return fmt.Errorf("durable: run %s of %q: %w", r.ID, r.Job, ErrConflict)
	}
	return nil
}

func (w *waits) forget(id string, ended chan RunRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.runs[id]
	for i := range l {
		if l[i] == ended {
			l = append(l[:i:i], l[i+1:]...)
			break
		}
	}
	if len(l) == 0 {
		delete(w.runs, id)
		return
	}
	w.runs[id] = l
}

// done tells those who wait for the run.
func (w *waits) done(r RunRow) {
	w.mu.Lock()
	l := w.runs[r.ID]
	delete(w.runs, r.ID)
	w.mu.Unlock()
	for _, ended := range l {
		ended <- r
	}
}

// poll looks in the store for runs that are waited for and not here. It costs nothing
// while nobody waits.
func (w *waits) poll(ctx context.Context) error {
	_, now := w.s.host.Now()
	w.mu.Lock()
	if len(w.runs) == 0 || now-w.polled < int64(w.s.config.PollInterval/2) {
		w.mu.Unlock()
		return nil
	}
	w.polled = now
	ids := make([]string, 0, len(w.runs))
	for id := range w.runs {
		if !w.s.flights.has(id) {
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	sortBy(ids, func(id string) string { return id })
	return w.look(ctx, ids)
}

func (w *waits) look(ctx context.Context, ids []string) error {
	for len(ids) > 0 {
		n := min(len(ids), 1000)
		rows, err := w.s.store.Runs(ctx, RunQuery{IDs: ids[:n], Limit: n})
		if err != nil {
			return fmt.Errorf("durable: wait: %w", err)
		}
		for _, r := range rows {
			if r.State != RunRunning {
				w.done(r)
			}
		}
		ids = ids[n:]
	}
	return nil
}
