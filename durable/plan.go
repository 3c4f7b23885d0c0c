package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// A planner decides what becomes of due triggers and ended runs. It is a function of
// what it is given, but for fresh IDs and jitter.
type planner struct {
	registry  *registry
	misfire   Misfire       // of triggers without a policy of their own
	threshold time.Duration // later than this is a misfire
	random    func() uint64
	// unreadable is told of a trigger that this node cannot make sense of.
	unreadable func(t TriggerRow, err error)
}

// The reasons that rows give for not being due.
const (
	reasonBusy      = "another run of the job is active"
	reasonJobPaused = "the job is paused"
	reasonPaused    = "the trigger is paused"
	reasonRan       = "it has run as often as it should"
)

// plan is the Plan of a ClaimRequest. A calendar is user code and may panic: that is
// the trouble of its trigger, and not of all that is due.
func (p *planner) plan(d Due) (v Verdict) {
	t := d.Trigger
	defer func() {
		if r := recover(); r != nil {
			v = p.leave(d.Trigger, fmt.Errorf("%w: %v", errPanicked, r))
		}
	}()
	switch {
	case d.Job.Name == "":
		return Verdict{Delete: true}
	case t.Kind > KindBroadcast || t.Misfire > RunAll: // of a newer version
		return p.leave(t, fmt.Errorf("durable: %v or %v is not known to this version", t.Kind, t.Misfire))
	case t.OneShot():
		return p.planOneShot(d)
	case d.Job.RunOnEveryNode: // became that while the trigger was due
		return park(t, StateLocal, "")
	case d.Job.Paused:
		return park(t, StatePaused, reasonJobPaused)
	case p.elsewhere(d):
		t.Handler = d.Job.Handler
		return Verdict{Trigger: t}
	}
	s, err := p.registry.schedule(t.Schedule)
	if err == nil && s.Manual() {
		err = errManual
	}
	if err != nil {
		return p.leave(t, err)
	}
	if d.Busy {
		return park(t, StateBlocked, reasonBusy)
	}
	return p.fire(d, s)
}

// elsewhere tells whether the job got another handler after the trigger was made: it is
// for a node that knows that one.
func (p *planner) elsewhere(d Due) bool {
	return d.Trigger.Handler != d.Job.Handler && !p.registry.knows(d.Job.Handler)
}

var errManual = errors.New("durable: a manual schedule is none for a trigger")

// leave marks a trigger that this node cannot make sense of; it is due as before.
func (p *planner) leave(t TriggerRow, err error) Verdict {
	p.unreadable(t, err)
	reason := cut(fmt.Sprintf("a node cannot read it: %v", err), maxMessage)
	if t.Reason == reason {
		return Verdict{Leave: true}
	}
	t.Reason = reason
	return Verdict{Trigger: t}
}

// park leaves the trigger due as it is, but out of the way.
func park(t TriggerRow, state TriggerState, reason string) Verdict {
	t.State, t.Reason = state, reason
	return Verdict{Trigger: t}
}

// planOneShot takes a one-shot trigger. No misfire policy applies to it.
func (p *planner) planOneShot(d Due) Verdict {
	t := d.Trigger
	run := RunRow{
		ID: t.ID, Job: t.Job, Trigger: t.Origin, Kind: t.Kind, ScheduledAt: t.ScheduledAt,
		Attempt: t.Attempt, RetryOf: t.RetryOf, IdempotencyKey: t.IdempotencyKey,
		Data: t.Data, Priority: t.Priority, TriggerID: t.ID,
		Exclusive: !d.Job.AllowConcurrent, Recover: d.Job.RequestsRecovery,
	}
	switch {
	case t.Kind == KindManual && t.RetryOf == "" && d.Busy: // one that was handed back has its turn
		run.State, run.Code, run.Message = RunSkipped, CodeConflict, reasonBusy
		return Verdict{Delete: true, Skipped: &run}
	case t.Kind != KindManual && d.Job.Paused:
		return park(t, StatePaused, reasonJobPaused)
	case d.Busy:
		return park(t, StateBlocked, reasonBusy)
	case p.elsewhere(d):
		t.Handler = d.Job.Handler
		return Verdict{Trigger: t}
	}
	return Verdict{Delete: true, Run: &run}
}

// policy is the trigger's misfire policy, or the scheduler's.
func (p *planner) policy(t TriggerRow) Misfire {
	if t.Misfire == MisfireDefault {
		return p.misfire
	}
	return t.Misfire
}

// fire takes a trigger whose job is free.
func (p *planner) fire(d Due, s cronsched.Schedule) Verdict {
	t, now := d.Trigger, d.Now
	t.Reason, t.Handler = "", d.Job.Handler
	late := now.Sub(t.DueAt) > p.threshold
	policy := p.policy(t)
	var skipped *RunRow
	var standsFor int64
	at := t.DueAt
	_, _, every := s.FixedDelay()
	if _, end := s.Window(); late && policy != RunAll && !end.IsZero() && now.After(end) {
		policy = Skip // a run now would be past its end
	}
	switch {
	case late && policy == Skip:
		n := countMissed(s, at, now)
		t.Passed += n
		return Verdict{Trigger: p.next(t, s, now), Skipped: p.passedOver(d, at, n)}
	case late && policy == RunOnce:
		standsFor = countMissed(s, at, now)
		at = now
	case late && policy == RunAll && t.MaxCatchUp > 0 && !every: // of which there is one
		if first := lastMissed(s, at, now, t.MaxCatchUp); first.After(at) {
			n := countMissed(s, at, first.Add(-1))
			t.Passed += n
			skipped = p.passedOver(d, at, n)
			at = first
		}
	}
	t.Fired++
	t.PrevAt = at
	run := &RunRow{
		ID: newID(now, p.random), Job: t.Job, Trigger: t.Name, Kind: KindSchedule, ScheduledAt: at,
		Attempt: 1, IdempotencyKey: idempotencyKey(t.Job, t.Name, at), Data: mergedOrBad(d.Job.Data, t.Data), Priority: t.Priority,
		TriggerID: t.ID, Exclusive: !d.Job.AllowConcurrent, Recover: d.Job.RequestsRecovery, Passed: standsFor,
	}
	if every { // from the end of the run
		t.State, t.DueAt = StateRunning, time.Time{}
	} else {
		t = p.next(t, s, at)
		if policy == RunAll && t.State == StateWaiting && !t.DueAt.After(now) { // one at a time
			t.State = StateRunning
		}
	}
	run.Holds = t.State == StateRunning
	return Verdict{Trigger: t, Run: run, Skipped: skipped}
}

// next has the trigger due at the next instant of its schedule after the given one.
func (p *planner) next(t TriggerRow, s cronsched.Schedule, after time.Time) TriggerRow {
	due, ok := following(s, after)
	if !ok {
		t.State, t.DueAt, t.Reason = StateComplete, time.Time{}, complete(s, after)
		return t
	}
	t.State, t.DueAt = StateWaiting, micros(due)
	return t
}

// following is the schedule's first instant after that one, as stores keep them: one of
// finer than whole microseconds comes after itself once it is stored.
func following(s cronsched.Schedule, after time.Time) (time.Time, bool) {
	at, ok := s.Next(after)
	if ok && !micros(at).After(after) {
		return s.Next(at)
	}
	return at, ok
}

// resume is the Resume of a FinishRequest: now its run has ended.
func (p *planner) resume(now time.Time, t TriggerRow) TriggerRow {
	t.State = StateWaiting
	if t.DueAt.IsZero() {
		t = p.due(now, t)
	}
	if t.Paused && t.State == StateWaiting {
		t.State, t.Reason = StatePaused, reasonPaused
	}
	return t
}

// due computes when a trigger without a due instant is due, as of now.
func (p *planner) due(now time.Time, t TriggerRow) (due TriggerRow) {
	defer func() { // a calendar is user code
		if r := recover(); r != nil {
			err := fmt.Errorf("%w: %v", errPanicked, r)
			due = t
			due.State, due.DueAt, due.Reason = StateError, time.Time{}, cut(err.Error(), maxMessage)
			p.unreadable(t, err)
		}
	}()
	s, err := p.registry.schedule(t.Schedule)
	if err != nil { // it waits for a node that can read it
		t.Reason = cut(err.Error(), maxMessage)
		p.unreadable(t, err)
		return t
	}
	if _, runs, every := s.FixedDelay(); every && runs > 0 && t.Fired >= int64(runs) {
		t.State, t.Reason = StateComplete, reasonRan
		return t
	}
	// Also if it is past: then it misfires. But not if it was that of another schedule, and
	// has run.
	if at, once := onceAt(s); once && t.Fired == 0 && !micros(at).Equal(t.PrevAt) {
		t.DueAt = micros(at)
		return t
	}
	return p.next(t, s, now)
}

// onceAt gives the only instant of a once schedule.
func onceAt(s cronsched.Schedule) (time.Time, bool) {
	if _, _, every := s.FixedDelay(); every || s.Manual() || s.Expression() != nil {
		return time.Time{}, false
	}
	return s.Next(time.Time{})
}

// passedOver is the record of firings that a policy passed over, the first due at at.
func (p *planner) passedOver(d Due, at time.Time, n int64) *RunRow {
	return &RunRow{
		ID: newID(d.Now, p.random), Job: d.Trigger.Job, Trigger: d.Trigger.Name, Kind: KindSchedule,
		State: RunSkipped, ScheduledAt: at, Attempt: 1, Passed: n, Code: CodeMisfire, Priority: d.Trigger.Priority,
		Message: fmt.Sprintf("%s firings passed over, the first %v late", atLeast(n), d.Now.Sub(at).Round(time.Millisecond)),
	}
}

func atLeast(n int64) string {
	if n == maxMissed {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}

// maxMissed bounds the counting of missed firings: years of a trigger of every second
// must not hold up a claim. One costs about 50 ns.
const maxMissed = 1_000_000

// countMissed counts the firings from first until now, at most maxMissed.
func countMissed(s cronsched.Schedule, first, now time.Time) (n int64) {
	if _, _, every := s.FixedDelay(); every {
		return 1
	}
	for at := first; n < maxMissed && !at.After(now); n++ {
		next, ok := following(s, at)
		if !ok {
			return n + 1
		}
		at = next
	}
	return n
}

// lastMissed gives the first of the last n firings after since until now, or the zero
// Time if there are not as many. It looks at maxMissed of them at most.
func lastMissed(s cronsched.Schedule, since, now time.Time, n int) time.Time {
	at := now.Add(1)
	for range min(n, maxMissed) {
		prev, ok := s.Prev(at)
		if !ok || !prev.After(since) {
			return time.Time{}
		}
		at = prev
	}
	return micros(at)
}

// complete says why nothing is due any more.
func complete(s cronsched.Schedule, after time.Time) string {
	if reason := s.Reason(after); reason != "" {
		return cut(reason, maxMessage)
	}
	return "nothing is due any more"
}

// micros is t as stores keep it.
func micros(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// idempotencyKey names one firing.
func idempotencyKey(job, trigger string, at time.Time) string {
	return job + "/" + trigger + "/" + micros(at).Format("2006-01-02T15:04:05.999999Z")
}
