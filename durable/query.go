package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Status is how a job stands: the first thing to look at when it does not run.
type Status struct {
	Job      JobRow
	Triggers []TriggerStatus // schedule triggers in order of name
	Pending  []TriggerRow    // one-shot ones that wait: calls by hand, retries, recoveries; and broadcasts
	Running  []RunRow
	Last     *RunRow // of the runs that ended, the one that started last; nil without one
	// Why says in words why the job is not running now, and what would have it run.
	Why string
}

// A TriggerStatus is how a trigger stands.
type TriggerStatus struct {
	TriggerRow
	// Next is zero if nothing is due, or not known: as of an `every` trigger of a job that
	// runs on every node, each of which counts from the end of its own run.
	Next time.Time
	Why  string // why it is not due, "" if it just waits for Next
}

// Status tells how a job stands. ErrNotFound if there is none of that name.
func (s *Scheduler) Status(ctx context.Context, job string) (Status, error) {
	if err := notFound("status of", job); err != nil {
		return Status{}, err
	}
	states, err := s.store.Jobs(ctx, JobQuery{Names: []string{job}})
	if err != nil {
		return Status{}, err
	}
	if len(states) == 0 {
		return Status{}, fmt.Errorf("durable: status of %q: %w", job, ErrNotFound)
	}
	st := Status{Job: states[0].Job, Running: states[0].Running}
	now, _ := s.host.Now()
	now = now.Add(time.Duration(s.skew.Load()))
	for _, t := range states[0].Triggers {
		if t.OneShot() {
			st.Pending = append(st.Pending, t)
			continue
		}
		st.Triggers = append(st.Triggers, s.triggerStatus(t, st.Job, now))
	}
	ended, err := s.store.Runs(ctx, RunQuery{
		Job: job, Limit: 1,
		States: []RunState{RunSucceeded, RunFailed, RunCancelled, RunLost, RunInterrupted, RunSkipped, RunSnoozed},
	})
	if err != nil {
		return Status{}, err
	}
	if len(ended) > 0 {
		st.Last = &ended[0]
	}
	st.Why = s.why(st, now)
	return st, nil
}

func (s *Scheduler) triggerStatus(t TriggerRow, job JobRow, now time.Time) TriggerStatus {
	st := TriggerStatus{TriggerRow: t, Next: t.DueAt, Why: t.Reason}
	sched, err := s.registry.schedule(t.Schedule)
	switch {
	case err != nil:
		st.Why = fmt.Sprintf("this node cannot read its schedule: %v", err)
	case t.State == StateLocal && t.Paused:
		st.Why = reasonPaused
	case t.State == StateLocal && job.Paused:
		st.Why = reasonJobPaused
	case t.State == StateLocal:
		if _, _, every := sched.FixedDelay(); every {
			break
		}
		if err := guarded(func() error { st.Next, _ = sched.Next(now); return nil }); err != nil {
			st.Why = err.Error()
		}
	case t.State == StateRunning:
		st.Why = "it waits for the end of its run"
	case t.State == StateWaiting && job.Paused:
		st.Why = reasonJobPaused
	}
	return st
}

// why puts the reasons in order: the first that holds is the answer.
func (s *Scheduler) why(st Status, now time.Time) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch n := len(st.Running); {
	case n == 1:
		say("a run is active on %s", st.Running[0].Node)
	case n > 1:
		say("%d runs are active", n)
	}
	if st.Job.Paused {
		say(reasonJobPaused)
	}
	if !s.registry.knows(st.Job.Handler) {
		say("this node does not know its handler %q", st.Job.Handler)
	}
	if len(st.Triggers) == 0 && len(st.Pending) == 0 {
		say("it has no trigger and runs by hand only")
	}
	for _, t := range st.Triggers {
		switch {
		case t.Why != "":
			say("trigger %s is %v: %s", t.Name, t.State, t.Why)
		case t.Next.IsZero():
			say("trigger %s is %v", t.Name, t.State)
		case t.Next.After(now):
			say("trigger %s is due in %v, at %s", t.Name, t.Next.Sub(now).Round(time.Second), t.Next.Format(time.RFC3339))
		case len(st.Running) > 0 && !st.Job.AllowConcurrent:
			say("trigger %s has been due for %v, and waits for the active run", t.Name, now.Sub(t.Next).Round(time.Second))
		default:
			say("trigger %s has been due for %v: no node has taken it (are slots free, and is its handler known anywhere?)",
				t.Name, now.Sub(t.Next).Round(time.Second))
		}
	}
	for _, t := range st.Pending {
		if t.State == StateBroadcast {
			say("%s is told to nodes until %s", t.Name, t.DueAt.Format(time.RFC3339))
			continue
		}
		say("%s is %v, due at %s", t.Name, t.State, t.DueAt.Format(time.RFC3339))
	}
	return strings.Join(parts, "; ")
}

// Jobs reads jobs in order of name. Nothing comes after what is no text.
func (s *Scheduler) Jobs(ctx context.Context, q JobQuery) ([]JobState, error) {
	if !onlyNames(&q.Names) || !storable(q.After) {
		return nil, ctx.Err()
	}
	return s.store.Jobs(ctx, q)
}

// Runs reads runs, active and ended, newest first. For the next page give the Key of
// the last run as Before.
func (s *Scheduler) Runs(ctx context.Context, q RunQuery) ([]RunRow, error) {
	if !onlyNames(&q.IDs) || q.Job != "" && !ValidName(q.Job) || q.Trigger != "" && !ValidName(q.Trigger) ||
		!storable(q.Node) || !storable(q.Before.ID) {
		return nil, ctx.Err()
	}
	return s.store.Runs(ctx, q)
}

// onlyNames leaves out what can neither be a name nor an ID; false if nothing remains.
func onlyNames(list *[]string) bool {
	if !slices.ContainsFunc(*list, func(s string) bool { return !ValidName(s) }) {
		return true
	}
	*list = slices.DeleteFunc(slices.Clone(*list), func(s string) bool { return !ValidName(s) })
	return len(*list) > 0
}

// Nodes reads the nodes in order of ID.
func (s *Scheduler) Nodes(ctx context.Context) ([]NodeRow, error) {
	nodes, _, err := s.store.Nodes(ctx)
	return nodes, err
}

// DeleteRun deletes the record of a run that has ended; ErrNotFound if there is none.
func (s *Scheduler) DeleteRun(ctx context.Context, id string) error {
	if err := notFound("delete run", id); err != nil {
		return err
	}
	n, err := s.store.Purge(ctx, PurgeRequest{IDs: []string{id}, Limit: 1})
	if err == nil && n == 0 {
		return fmt.Errorf("durable: delete run %s: %w", id, ErrNotFound)
	}
	return err
}

// Purge deletes the records of all runs that ended before that instant, in batches,
// and returns how many, also if it fails half-way.
func (s *Scheduler) Purge(ctx context.Context, before time.Time) (n int, err error) {
	if before.IsZero() { // to a Store that is "none", and all that has ended would go
		return 0, &FieldError{Field: "Before", Value: before, Reason: "must not be the zero Time"}
	}
	return purge(ctx, s.store, PurgeRequest{Before: before, Limit: purgeBatch})
}

// purgeBatch is how many records one transaction deletes.
const purgeBatch = 5000

func purge(ctx context.Context, store Store, r PurgeRequest) (n int, err error) {
	for {
		deleted, err := store.Purge(ctx, r)
		n += deleted
		if err != nil || deleted < r.Limit {
			return n, err
		}
	}
}
