package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// An ending is how a handler came to its end.
type ending struct {
	err    error // what it returned
	cause  error // with which the scheduler ended its context, nil if it did not
	lasted time.Duration
}

// conclude says what is recorded of a run, and what follows it. It is the only place
// where outcomes are made, whoever finds the run ended.
func (p *planner) conclude(r RunRow, job JobRow, e ending, now time.Time) End {
	r.Duration = e.lasted
	end := End{Run: r}
	if e.err == nil && e.cause == nil { // as nearly all
		end.Run.State = RunSucceeded
		return end
	}
	set := func(state RunState, code Code, err error) {
		end.Run.State, end.Run.Code = state, code
		if err != nil {
			end.Run.Message = cut(errText(err), maxMessage)
		}
	}
	var snooze *snoozeError
	switch {
	case errors.Is(e.cause, ErrTimeout):
		set(RunFailed, CodeTimeout, fmt.Errorf("timed out after %v", job.Timeout))
		if e.err != nil {
			end.Run.Detail = cut("the handler returned: "+errText(e.err), maxDetail)
		}
	case errors.Is(e.cause, ErrCancelled):
		set(RunCancelled, CodeCancelled, e.err)
	case errors.Is(e.cause, ErrStopping):
		set(RunCancelled, CodeInterrupted, e.cause)
		p.recoverRun(&end, job, now)
		return end
	case errors.Is(e.cause, ErrLeaseLost):
		set(RunLost, CodeLost, e.cause)
		p.recoverRun(&end, job, now)
		return end
	case e.err == nil:
		set(RunSucceeded, CodeNone, nil)
		return end
	case errors.As(e.err, &snooze) && panicOf(e.err) == nil && !permanent(e.err):
		set(RunSnoozed, CodeNone, e.err)
		end.Follow, end.FollowIn = p.follow(r, job, KindRetry, r.Attempt, now), snooze.delay
		return end
	default:
		fail(&end.Run, e.err, set)
	}
	if end.Run.State == RunFailed {
		p.retry(&end, job, e.err, now)
	}
	return end
}

// fail records an error of the handler's.
func fail(r *RunRow, err error, set func(RunState, Code, error)) {
	var data *dataError
	caught := panicOf(err)
	switch {
	case caught != nil:
		set(RunFailed, CodePanic, err)
		r.Detail = cut(string(caught.Stack), maxDetail)
	case errors.Is(err, taskmanager.ErrGoexit):
		set(RunFailed, CodePanic, err)
	case errors.As(err, &data):
		set(RunFailed, CodeValidation, err)
	default:
		set(RunFailed, CodeError, err)
		if text := errText(err); len(text) > len(r.Message) {
			r.Detail = cut(text, maxDetail)
		}
	}
}

// retry grants a failed run another attempt, if its job's Retry has one left.
func (p *planner) retry(end *End, job JobRow, err error, now time.Time) {
	r := end.Run
	if r.Attempt > job.Retry.MaxRetries || permanent(err) || r.Code == CodeValidation {
		return
	}
	end.FollowIn = job.Retry.delay(r.Attempt, p.uniform())
	if after := (*retryAfterError)(nil); errors.As(err, &after) {
		end.FollowIn = after.delay
	}
	end.Follow = p.follow(r, job, KindRetry, r.Attempt+1, now)
}

// recoverRun has a run that did not come to its own end followed by another, if its
// job requests that and nobody wanted it cancelled. Where runs are one at a time it has the
// run's place among what is due, so that a backlog is made up for in order. Elsewhere
// there is no order to keep, and a run that takes its node down each time is not to be
// the next one's first.
func (p *planner) recoverRun(end *End, job JobRow, now time.Time) {
	if end.Run.Recover && !end.Run.Cancel {
		end.Follow = p.follow(end.Run, job, KindRecovery, end.Run.Attempt, now)
		if !job.AllowConcurrent {
			end.Follow.DueAt = end.Run.ScheduledAt
		}
	}
}

// follow makes the one-shot trigger that leads to another run of the same firing.
func (p *planner) follow(r RunRow, job JobRow, kind Kind, attempt int, now time.Time) *TriggerRow {
	id := newID(now, p.random)
	first := r.RetryOf
	if first == "" {
		first = r.ID
	}
	return &TriggerRow{
		ID: id, Job: r.Job, Name: kind.String() + "-" + id, Handler: job.Handler, Kind: kind, Data: r.Data,
		Priority: r.Priority, Origin: r.Trigger, ScheduledAt: r.ScheduledAt, Attempt: attempt, RetryOf: first,
		IdempotencyKey: r.IdempotencyKey,
	}
}

// uniform is from [0, 1).
func (p *planner) uniform() float64 { return float64(p.random()>>11) / (1 << 53) }

// errText is the text of a user's error, whose method may panic.
func errText(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("%T, whose Error method panicked", err)
		}
	}()
	return err.Error()
}
