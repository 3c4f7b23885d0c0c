package durable

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// maxSweep bounds the time from a node's death to its being noticed.
	maxSweep = 2 * time.Second
	// sweepGrace is how long the leader has for it before any node does it.
	sweepGrace = 5 * time.Second
	// noDeath is a grace that no lease of a store that is in use is past.
	noDeath = 10 * 365 * 24 * time.Hour
)

// sweep is a loop's work: it declares nodes dead whose lease is over, takes their runs
// off them, and repairs what has come to a halt. The leader does it at once, any other
// node when the leader has not.
func (s *Scheduler) sweep(ctx context.Context) error {
	if !s.running() {
		return nil
	}
	grace := min(sweepGrace, s.config.NodeTimeout)
	steady := s.lease.steadyFor() >= s.config.NodeTimeout
	switch {
	case !steady: // nodes that live may not have been able to say so: nobody is dead yet
		grace = noDeath
	case s.term.leading():
		grace = 0
	}
	for more := true; more && s.running(); {
		after, _ := s.undueAfter.Load().(string)
		res, err := s.store.Expire(ctx, ExpireRequest{Grace: grace, After: after, Limit: batch})
		if err := s.noteStore("expire", err); err != nil {
			return err
		}
		for _, n := range res.Dead {
			s.stats.nodesDead.Add(1)
			s.emit(Event{Kind: EventNodeDead, Detail: n.ID})
			s.log(slog.LevelWarn, "node declared dead", slog.String("dead", n.ID), slog.Time("heartbeat", n.Heartbeat))
		}
		if !steady {
			res.Runs = nil
		}
		taken, err := s.takeOff(ctx, res)
		repaired, repairErr := s.repairAll(ctx, res.Undue)
		if taken || repaired || res.Released > 0 {
			s.loops.claim.wake()
		}
		if err := errors.Join(err, repairErr); err != nil {
			return err
		}
		more = taken && len(res.Runs) == batch
	}
	return nil
}

// takeOff ends runs of dead nodes.
func (s *Scheduler) takeOff(ctx context.Context, res ExpireResult) (taken bool, err error) {
	if len(res.Runs) == 0 {
		return false, nil
	}
	var names []string
	for _, r := range res.Runs {
		names = append(names, r.Job)
	}
	jobs, err := s.jobsByName(ctx, names)
	if err != nil {
		return false, err
	}
	var ends []End
	for _, r := range res.Runs {
		ends = append(ends, s.lostEnd(r, jobs, res.Now))
	}
	patience := s.opTimeout
	if len(ends) > 1 {
		patience /= 4
	}
	return s.takeEnds(ctx, ends, patience)
}

// takeEnds records ends of runs of dead nodes. Whoever comes first ends a run, with what
// follows, in one transaction: the others are refused. What the store fails is tried again
// in halves, since it may be for the sake of one end, whose job somebody has locked; to find
// one that it hangs for takes less than four times the patience.
func (s *Scheduler) takeEnds(ctx context.Context, ends []End, patience time.Duration) (taken bool, err error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	ok, err := s.store.Finish(limited, FinishRequest{Ends: ends, Resume: s.planner.resume})
	cancel()
	if err != nil && len(ends) > 1 && ctx.Err() == nil {
		half := len(ends) / 2
		some, err := s.takeEnds(ctx, ends[:half], patience*3/4)
		others, more := s.takeEnds(ctx, ends[half:], patience*3/4)
		return some || others, errors.Join(err, more)
	}
	if err := s.noteStore("finish", err); err != nil {
		return false, err
	}
	for i, e := range ends {
		if ok[i] {
			taken = true
			s.landed(&landing{end: e}, true)
		}
	}
	return taken, nil
}

// lostEnd is the end of a dead node's run.
func (s *Scheduler) lostEnd(r RunRow, jobs map[string]JobRow, now time.Time) End {
	if r.State == RunInterrupted { // by a stop, which has seen to its recovery
		return End{Run: r}
	}
	job, there := jobs[r.Job]
	r.Recover = r.Recover && there
	return s.planner.conclude(r, job, ending{cause: ErrLeaseLost, lasted: now.Sub(r.StartedAt)}, now)
}

// repairAll repairs triggers, each on its own. The next sweep looks at those behind them,
// since there may be many that this node cannot repair.
func (s *Scheduler) repairAll(ctx context.Context, undue []TriggerRow) (some bool, err error) {
	last := ""
	if len(undue) == batch {
		last = undue[batch-1].ID
	}
	s.undueAfter.Store(last)
	var errs []error
	for _, t := range undue {
		repaired, err := s.repair(ctx, t)
		some = some || repaired
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return some, errors.Join(errs...)
}

// repair gives a trigger that waits for nothing a due instant, if this node can.
func (s *Scheduler) repair(ctx context.Context, t TriggerRow) (repaired bool, err error) {
	if _, err := s.registry.schedule(t.Schedule); err != nil && t.Reason != "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opTimeout/8) // somebody may have locked the job
	defer cancel()
	err = s.store.Edit(ctx, t.Job, EditJob, func(e *Edit) error {
		if e.Job == nil {
			return ErrNotFound
		}
		repaired = s.planner.repair(e, t.ID)
		return nil
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case errors.Is(err, ErrExists), errors.Is(err, ErrInvalid): // of the job, not of the store
		s.logSeldom("repair/"+t.ID, slog.LevelWarn, "trigger has no due time, and could not be repaired",
			slog.String("job", t.Job), slog.String("trigger", t.Name), errAttr(err))
		return false, nil
	case err == nil && repaired:
		s.log(slog.LevelWarn, "trigger had no due time, it was computed", slog.String("job", t.Job), slog.String("trigger", t.Name))
	}
	return repaired && err == nil, s.noteStore("repair", err)
}
