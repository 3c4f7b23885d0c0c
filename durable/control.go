package durable

import (
	"context"
	"errors"
	"fmt"
)

// A control changes jobs through an Editor: the store's, or a transaction's.
type control struct {
	s      *Scheduler
	editor Editor
	// commits tells that an edit that returned is there for others to see.
	commits bool
}

// A Within is what can be done in a transaction of the caller's: nothing of it is
// true before the commit. Other nodes, and this one, find it at their next poll, and
// a Cancel at their next heartbeat; a call of Scheduler.Wake after the commit spares
// them the wait (other nodes if there is a Waker). Of a job that runs on every node
// nothing can be cancelled here.
type Within struct{ control }

// Within gives the operations that join tx.
func (s *Scheduler) Within(tx Tx) (*Within, error) {
	if tx == nil {
		return nil, &FieldError{Field: "Tx", Value: nil, Reason: "must not be nil"}
	}
	editor, err := tx.Join(s.store)
	if err != nil {
		return nil, err
	}
	return &Within{control{s, editor, false}}, nil
}

// edit makes one change of a job and tells who has to know.
func (c control) edit(ctx context.Context, job, how string, scope Scope, change func(*Edit) error) error {
	if err := notFound(how, job); err != nil {
		return err
	}
	var everyNode bool
	err := c.editor.Edit(ctx, job, scope, func(e *Edit) error {
		everyNode = e.Job != nil && e.Job.RunOnEveryNode
		if err := change(e); err != nil {
			return err
		}
		everyNode = everyNode || e.Job != nil && e.Job.RunOnEveryNode
		return nil
	})
	if err != nil {
		switch {
		case errors.Is(err, ErrInvalid):
			return err
		case errors.Is(err, ErrNotFound) && c.s.onlyInCode(job):
			err = fmt.Errorf("%w: it is in code only, until Start writes it to the store", err)
		}
		return fmt.Errorf("durable: %s %q: %w", how, job, err)
	}
	if c.commits {
		c.s.emit(Event{Kind: EventChanged, Job: job, Detail: how})
		if scope == EditJob { // perhaps it was mended
			c.s.claimer.forgive()
		}
		c.s.changed(everyNode)
	}
	return nil
}

// AddJob adds a job. ErrExists if there is one of that name, *FieldError for each
// field that is wrong.
func (c control) AddJob(ctx context.Context, j Job) error {
	job, triggers, err := c.s.registry.rows(j, c.s.config.MaxDataSize)
	if err != nil {
		return err
	}
	job.Source = SourceAPI
	return c.edit(ctx, job.Name, "add job", EditJob, func(e *Edit) error { return c.s.planner.addJob(e, job, triggers) })
}

// ReplaceJob gives a job another definition, triggers included. Whether it and its
// triggers are paused does not change, and a trigger whose schedule did not change
// keeps its due time.
func (c control) ReplaceJob(ctx context.Context, j Job) error {
	job, triggers, err := c.s.registry.rows(j, c.s.config.MaxDataSize)
	if err != nil {
		return err
	}
	return c.edit(ctx, job.Name, "replace job", EditJob, func(e *Edit) error { return c.s.planner.replaceJob(e, job, triggers) })
}

// RemoveJob removes a job with its triggers. Runs that are under way go on, and its
// history stays.
func (c control) RemoveJob(ctx context.Context, job string) error {
	return c.edit(ctx, job, "remove job", EditJob, func(e *Edit) error {
		if e.Job == nil {
			return ErrNotFound
		}
		e.Job, e.Triggers = nil, nil
		return nil
	})
}

// PauseJob holds back what the job's triggers lead to, retries and recoveries
// included, until ResumeJob. Runs under way go on, and calls by hand are obeyed.
func (c control) PauseJob(ctx context.Context, job string) error {
	return c.edit(ctx, job, "pause job", EditJob, func(e *Edit) error { return pauseJob(e, true) })
}

// ResumeJob ends a pause. What was missed is up to the misfire policies; a job that runs
// on every node makes up for none of it.
func (c control) ResumeJob(ctx context.Context, job string) error {
	return c.edit(ctx, job, "resume job", EditJob, func(e *Edit) error { return pauseJob(e, false) })
}

// AddTrigger adds a trigger to a job.
func (c control) AddTrigger(ctx context.Context, job string, t Trigger) error {
	row, err := c.triggerRow(t)
	if err != nil {
		return err
	}
	return c.edit(ctx, job, "add trigger to", EditJob, func(e *Edit) error { return c.s.planner.addTrigger(e, row) })
}

// ReplaceTrigger gives a trigger another definition. It keeps its due time if its
// schedule did not change.
func (c control) ReplaceTrigger(ctx context.Context, job string, t Trigger) error {
	row, err := c.triggerRow(t)
	if err != nil {
		return err
	}
	return c.edit(ctx, job, "replace trigger of", EditJob, func(e *Edit) error { return c.s.planner.replaceTrigger(e, row) })
}

func (c control) triggerRow(t Trigger) (TriggerRow, error) {
	var bad check
	row := c.s.registry.triggerRow(&bad, "", t, c.s.config.MaxDataSize)
	return row, bad.err()
}

// RemoveTrigger removes a trigger.
func (c control) RemoveTrigger(ctx context.Context, job, trigger string) error {
	return c.edit(ctx, job, "remove trigger of", EditJob, func(e *Edit) error { return removeTrigger(e, trigger) })
}

// PauseTrigger keeps a trigger from firing until ResumeTrigger.
func (c control) PauseTrigger(ctx context.Context, job, trigger string) error {
	return c.edit(ctx, job, "pause trigger of", EditJob, func(e *Edit) error { return c.s.planner.pauseTrigger(e, trigger, true) })
}

// ResumeTrigger ends a pause, and gives a trigger in error another try. What was
// missed is up to the misfire policy; a job that runs on every node makes up for none of
// it.
func (c control) ResumeTrigger(ctx context.Context, job, trigger string) error {
	return c.edit(ctx, job, "resume trigger of", EditJob, func(e *Edit) error { return c.s.planner.pauseTrigger(e, trigger, false) })
}

// Trigger has a job run once, now, by hand: through the same pipeline and by the same
// rules as its triggers, whose times do not move. A paused job runs, too: it is what
// the caller says. data, as Job.Data, is merged into the job's.
//
// It returns the ID that the run will have. If the job is running and does not allow
// concurrency, that is ErrConflict, and recorded as skipped; if it starts running
// before the run is claimed, by an earlier call say, the claim records the same, and only
// the run's row and Wait tell. What must not be left out is for a job that allows
// concurrency, or for AddTrigger with a once schedule, which has its turn.
//
// A job that runs on every node runs on all that are running now, within about a poll
// interval; one that does not read the store for an hour misses it. The ID is then no run's:
// each node's has one of its own, and all of them an IdempotencyKey that ends with this one.
func (c control) Trigger(ctx context.Context, job string, data any) (id string, err error) {
	object, err := c.object(data)
	if err != nil {
		return "", err
	}
	var conflict bool
	life := broadcastLife(c.s.config.PollInterval, c.s.config.NodeTimeout)
	err = c.edit(ctx, job, "trigger", EnqueueOnly, func(e *Edit) error {
		if id == "" {
			id = newID(e.Now, c.s.planner.random)
		}
		var err error
		conflict, err = c.s.planner.byHand(e, id, object, c.s.config.MaxDataSize, life)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case conflict:
		return id, fmt.Errorf("durable: trigger %q: %w", job, ErrConflict)
	}
	return id, nil
}

func (c control) object(v any) ([]byte, error) {
	var bad check
	data := bad.object("Data", v, c.s.config.MaxDataSize)
	return data, bad.err()
}

// DropPending takes back what waits to be run once: calls by hand, retries, snoozed runs
// and recoveries of the job that have not been claimed yet. Of a job that runs on every
// node, attempts that wait in a node's process are not among them.
func (c control) DropPending(ctx context.Context, job string) error {
	return c.edit(ctx, job, "drop pending of", EditJob, func(e *Edit) error {
		if e.Job == nil {
			return ErrNotFound
		}
		e.DropAdded = []Kind{KindManual, KindRetry, KindRecovery, KindBroadcast}
		return nil
	})
}

// Cancel ends the context of a run, wherever it runs, with ErrCancelled as the cause:
// at once on this node, and by the next heartbeat (or sooner, with a Waker) on
// others; and nothing follows the run, no retry and no recovery, whatever its end is.
// what is a run's ID, or a job's name for all of its runs. It returns how
// many runs were asked to end; ErrNotFound if there is no such job or active run. Of a
// job that runs on every node it ends the runs on this node: others' are not known.
func (c control) Cancel(ctx context.Context, what string) (n int, err error) {
	if c.commits {
		n = c.s.flights.cancelAll(ErrCancelled, func(f *flight) bool { return f.local && (f.row.ID == what || f.row.Job == what) })
	}
	if err := notFound("cancel", what); err != nil {
		return n, err
	}
	job := what
	reader, reads := c.editor.(interface {
		Runs(ctx context.Context, q RunQuery) ([]RunRow, error)
	})
	if !reads {
		reader = c.s.store
	}
	runs, err := reader.Runs(ctx, RunQuery{IDs: []string{what}})
	if err != nil {
		return n, err
	}
	byID := len(runs) > 0
	if byID {
		job = runs[0].Job
	}
	var ids []string
	err = c.edit(ctx, job, "cancel", EnqueueOnly, func(e *Edit) error {
		ids = ids[:0]
		for _, r := range e.Running {
			if !byID || r.ID == what {
				ids = append(ids, r.ID)
			}
		}
		if len(ids) == 0 && (byID || e.Job == nil) {
			return ErrNotFound
		}
		e.Cancel = ids
		return nil
	})
	if err != nil {
		if n > 0 && errors.Is(err, ErrNotFound) {
			err = nil
		}
		return n, err
	}
	if c.commits {
		for _, id := range ids {
			c.s.flights.cancel(id, ErrCancelled)
		}
		c.s.notify(NoteCancel)
	}
	return n + len(ids), nil
}
