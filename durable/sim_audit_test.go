package durable_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A violation is a promise that was found broken.
type violation struct {
	kind string
	text string
	at   time.Duration
	step int
}

func (v *violation) String() string {
	return fmt.Sprintf("%s: %s (at %v, step %d)", v.kind, v.text, v.at, v.step)
}

// An auditor keeps its own ledger of what became of each firing, from what the store
// was asked and what it did, whether or not the answer arrived. It knows the rules
// from the spec and not from the code.
type auditor struct {
	s     *sim
	store durable.Store // the one that is audited

	mu       sync.Mutex // guards the fields below
	bad      *violation
	runs     map[string]*ledgerRun
	active   map[string]map[string]*ledgerRun // by job
	pending  map[string]*ledgerShot           // one-shot triggers
	skipped  map[string]bool
	roots    map[string]string // firings: by trigger ID and instant the run's ID
	keys     map[string]string // idempotency keys of roots
	fences   map[string]int64  // by job
	nodes    map[string]*ledgerNode
	removed  map[string]int64 // when a job was last removed
	edited   map[string]int64 // when a job was last edited
	manual   map[string]string
	handlers []*handlerLog // that have not returned
	began1   map[string]int
	localKey map[string]bool // of local runs: by node and key
	number   int
	dirty    bool

	// The step's: since when something has been the case.
	since map[string]int64
}

type ledgerRun struct {
	row       durable.RunRow
	job       durable.JobRow
	by        string // name of the sim's node
	ended     bool
	kept      bool // it is interrupted, and still active
	cancelled bool // somebody has cancelled it, whether or not its node knows
	end       durable.RunRow
	follow    string // ID of the one-shot trigger that follows
	starts    int
	handler   *handlerLog
}

type ledgerShot struct {
	row  durable.TriggerRow
	pred *ledgerRun
}

type ledgerNode struct {
	lease time.Time
	dead  bool
	n     *simNode
}

// A handlerLog is the log of one handler.
type handlerLog struct {
	number    int
	n         *simNode
	run       durable.Run
	ctx       context.Context
	script    script
	exclusive bool
	excused   int64 // until when it cannot know that its lease is over
	over      bool
	told      bool
	outcome   outcome
}

func newAuditor(s *sim) *auditor {
	return &auditor{
		s: s, runs: map[string]*ledgerRun{}, active: map[string]map[string]*ledgerRun{}, pending: map[string]*ledgerShot{},
		skipped: map[string]bool{}, roots: map[string]string{}, keys: map[string]string{}, fences: map[string]int64{},
		nodes: map[string]*ledgerNode{}, removed: map[string]int64{}, edited: map[string]int64{}, manual: map[string]string{}, began1: map[string]int{},
		localKey: map[string]bool{}, since: map[string]int64{},
	}
}

// fail records the first violation.
func (a *auditor) fail(kind, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failLocked(kind, format, args...)
}

func (a *auditor) failLocked(kind, format string, args ...any) {
	if a.bad == nil {
		a.bad = &violation{kind, fmt.Sprintf(format, args...), time.Duration(a.s.nowNanos.Load()), a.s.step}
	}
}

func (a *auditor) note(n *simNode, what, format string, args ...any) {
	a.s.note(n, what, fmt.Sprintf(format, args...))
}

// An auditStore is the audited store as one node reaches it.
type auditStore struct {
	durable.Store
	a *auditor
	n *simNode
}

// A planned is a verdict with what it was on.
type planned struct {
	due durable.Due
	v   durable.Verdict
}

func (s *auditStore) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	verdicts := map[string]planned{}
	plan := r.Plan
	r.Plan = func(d durable.Due) durable.Verdict {
		v := plan(d)
		seen := v
		if v.Run != nil { // the store's from now on
			run := *v.Run
			seen.Run = &run
		}
		verdicts[d.Trigger.ID] = planned{d, seen}
		return v
	}
	res, err := s.Store.Claim(ctx, r)
	if err != nil {
		return res, err
	}
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(verdicts) > 0 {
		a.dirty = true
	}
	if n := a.nodes[r.Node]; n == nil || n.dead || !res.Now.Before(n.lease) {
		a.failLocked("lease", "node %s claims although it has no lease", r.Node)
	}
	for _, c := range res.Claimed {
		a.claimed(s.n, res.Now, c, verdicts)
	}
	for _, row := range res.Skipped {
		a.skippedRow(res.Now, row, verdicts)
	}
	for id, p := range verdicts {
		if p.v.Delete && p.v.Run == nil && p.v.Skipped == nil {
			if p.due.Job.Name != "" {
				a.failLocked("chain", "one-shot trigger %s of %s is dropped", id, p.due.Job.Name)
			}
			delete(a.pending, id)
		}
	}
	return res, nil
}

func firing(trigger string, at time.Time) string { return trigger + "@" + at.Format(time.RFC3339Nano) }

// claimed looks at a run that was just claimed.
func (a *auditor) claimed(n *simNode, now time.Time, c durable.Claimed, verdicts map[string]planned) {
	r := *c.Run
	a.note(n, "claim", "%s of %s, %v, attempt %d, for %s, fence %d", r.ID, r.Job, r.Kind, r.Attempt, r.ScheduledAt.Format("05.000"), r.Fence)
	if a.runs[r.ID] != nil {
		a.failLocked("chain", "run %s of %s is claimed twice", r.ID, r.Job)
		return
	}
	if r.Fence <= a.fences[r.Job] {
		a.failLocked("fence", "run %s of %s has fence %d after %d", r.ID, r.Job, r.Fence, a.fences[r.Job])
	}
	a.fences[r.Job] = max(a.fences[r.Job], r.Fence)
	if r.Exclusive && len(a.active[r.Job]) > 0 {
		a.failLocked("concurrency", "run %s of %s is claimed while %d runs are active", r.ID, r.Job, len(a.active[r.Job]))
	}
	l := &ledgerRun{row: r, job: *c.Job, by: n.name}
	a.runs[r.ID] = l
	if a.active[r.Job] == nil {
		a.active[r.Job] = map[string]*ledgerRun{}
	}
	a.active[r.Job][r.ID] = l
	p := verdicts[r.TriggerID]
	if r.Kind == durable.KindSchedule {
		a.root(now, l, p)
		return
	}
	shot := a.pending[r.ID]
	if shot == nil {
		a.failLocked("chain", "run %s of %s, %v, follows from nothing", r.ID, r.Job, r.Kind)
		return
	}
	delete(a.pending, r.ID)
	t := shot.row
	if !r.ScheduledAt.Equal(t.ScheduledAt.Truncate(time.Microsecond)) {
		a.failLocked("misfire", "run %s of %s, %v, is for %v, its trigger was for %v", r.ID, r.Job, r.Kind, r.ScheduledAt, t.ScheduledAt)
	}
	if r.Kind != t.Kind || r.Attempt != t.Attempt || r.RetryOf != t.RetryOf || r.IdempotencyKey != t.IdempotencyKey {
		a.failLocked("chain", "run %s of %s differs from its trigger: %+v, %+v", r.ID, r.Job, r, t)
	}
}

// root looks at the first run of a firing, by the rules for due instants and misfires.
func (a *auditor) root(now time.Time, l *ledgerRun, p planned) {
	r := l.row
	key := firing(r.TriggerID, r.ScheduledAt)
	if other := a.roots[key]; other != "" {
		a.failLocked("chain", "firing %s of %s has two chains: %s and %s", key, r.Job, other, r.ID)
	}
	a.roots[key] = r.ID
	if other := a.keys[r.IdempotencyKey]; other != "" && a.runs[other].row.TriggerID == r.TriggerID {
		a.failLocked("chain", "idempotency key %s of two firings: %s and %s", r.IdempotencyKey, other, r.ID)
	}
	a.keys[r.IdempotencyKey] = r.ID
	t := p.due.Trigger
	if t.ID == "" {
		a.failLocked("chain", "run %s of %s was not planned", r.ID, r.Job)
		return
	}
	if now.Before(t.DueAt) {
		a.failLocked("due", "run %s of %s was claimed before it was due: %v, at %v", r.ID, r.Job, t.DueAt, now)
	}
	late := now.Sub(t.DueAt) > simMisfire
	policy := cmp.Or(t.Misfire, durable.RunOnce)
	every := cronPeriod(t.Schedule)
	want := t.DueAt
	switch {
	case late && policy == durable.RunOnce:
		want = now
	case late && policy == durable.Skip:
		a.failLocked("misfire", "run %s of %s is %v late, with policy Skip", r.ID, r.Job, now.Sub(t.DueAt))
	case late && policy == durable.RunAll && t.MaxCatchUp > 0 && every > 0:
		if first := now.Truncate(every).Add(-time.Duration(t.MaxCatchUp-1) * every); first.After(want) {
			want = first
		}
	}
	if !r.ScheduledAt.Equal(want) {
		a.failLocked("misfire", "run %s of %s is for %v, want %v: due %v, policy %v, now %v", r.ID, r.Job, r.ScheduledAt, want, t.DueAt, policy, now)
	}
	if p.v.Trigger.Fired != t.Fired+1 {
		a.failLocked("counter", "trigger %s of %s has fired %d times, then %d", t.Name, r.Job, t.Fired, p.v.Trigger.Fired)
	}
	next := p.v.Trigger
	switch {
	case every == 0:
		if next.State != durable.StateRunning || !r.Holds {
			a.failLocked("due", "every trigger of %s does not wait for its run", r.Job)
		}
	default:
		if due := want.Truncate(every).Add(every); !next.DueAt.Equal(due) {
			a.failLocked("due", "trigger %s of %s is next due %v, want %v", t.Name, r.Job, next.DueAt, due)
		} else if backlog := policy == durable.RunAll && !due.After(now); backlog != r.Holds || backlog != (next.State == durable.StateRunning) {
			a.failLocked("due", "trigger %s of %s holds: %v, state %v, backlog %v", t.Name, r.Job, r.Holds, next.State, backlog)
		}
	}
}

// cronPeriod is the period of a cron trigger, 0 for an every trigger.
func cronPeriod(schedule string) time.Duration {
	var n int
	if _, err := fmt.Sscanf(schedule, "cron */%d ", &n); err != nil {
		if strings.HasPrefix(schedule, "cron") {
			panic("sim: schedule " + schedule)
		}
		return 0
	}
	return time.Duration(n) * time.Second
}

func (a *auditor) skippedRow(now time.Time, r durable.RunRow, verdicts map[string]planned) {
	a.skipped[r.ID] = true
	switch {
	case r.Kind == durable.KindSchedule && r.Code == durable.CodeMisfire:
		for _, p := range verdicts {
			if p.v.Skipped == nil || p.v.Skipped.ID != r.ID {
				continue
			}
			t := p.due.Trigger
			every := cronPeriod(t.Schedule)
			if now.Sub(t.DueAt) <= simMisfire {
				a.failLocked("misfire", "a firing of %s is passed over although it is not late", r.Job)
			}
			if every > 0 && p.v.Run == nil {
				if want := int64(now.Truncate(every).Sub(t.DueAt)/every) + 1; r.Passed != want {
					a.failLocked("misfire", "%d firings of %s passed over, want %d", r.Passed, r.Job, want)
				}
				if due := now.Truncate(every).Add(every); !p.v.Trigger.DueAt.Equal(due) {
					a.failLocked("due", "trigger of %s is next due %v, want %v", r.Job, p.v.Trigger.DueAt, due)
				}
			}
		}
	case r.Kind == durable.KindManual && r.Code == durable.CodeConflict:
		delete(a.pending, r.ID)
		if len(a.active[r.Job]) == 0 {
			a.failLocked("concurrency", "manual run %s of %s is a conflict with nothing", r.ID, r.Job)
		}
	default:
		a.failLocked("misfire", "run %s of %s, %v, is passed over: %v", r.ID, r.Job, r.Kind, r.Code)
	}
}

func (s *auditStore) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	ok, err := s.Store.Finish(ctx, r)
	if err != nil {
		return ok, err
	}
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty = true
	for i, e := range r.Ends {
		if !e.Local {
			a.finished(s.n, e, ok[i])
		}
	}
	return ok, nil
}

// finished looks at an end that was recorded or refused.
func (a *auditor) finished(n *simNode, e durable.End, ok bool) {
	r := e.Run
	a.note(n, "finish", "%s of %s, %v %s: %v", r.ID, r.Job, r.State, r.Code, ok)
	l := a.runs[r.ID]
	switch {
	case l == nil:
		a.failLocked("chain", "the end of run %s of %s, which was never claimed: %v", r.ID, r.Job, ok)
		return
	case !ok:
		if !l.ended && l.row.Node == r.Node {
			a.failLocked("chain", "the end of run %s of %s is refused although it is active", r.ID, r.Job)
		}
		return
	case l.ended || l.row.Node != r.Node:
		a.failLocked("fence", "the end of run %s of %s is accepted although it is not the node's: by %s as %v, it had ended as %v",
			r.ID, r.Job, n.name, r.State, l.end.State)
		return
	}
	own := n.name == l.by
	a.outcome(l, e, own)
	a.follows(l, e)
	if e.Keep {
		l.kept = true
		return
	}
	l.ended, l.end = true, r
	delete(a.active[r.Job], r.ID)
	if r.Exclusive && len(a.active[r.Job]) == 0 {
		a.freed(r.Job)
	}
}

// outcome compares the record with the handler's log.
func (a *auditor) outcome(l *ledgerRun, e durable.End, own bool) {
	r, h := e.Run, l.handler
	if !own || r.State == durable.RunLost || e.Keep || l.kept {
		if r.State != durable.RunLost && r.State != durable.RunInterrupted {
			a.failLocked("chain", "run %s of %s is recorded as %v by another node", r.ID, r.Job, r.State)
		}
		return
	}
	if h == nil {
		if r.State != durable.RunCancelled && r.State != durable.RunFailed {
			a.failLocked("chain", "run %s of %s is recorded as %v although no handler ran", r.ID, r.Job, r.State)
		}
		return
	}
	if !h.over {
		a.failLocked("chain", "run %s of %s is recorded as %v although its handler goes on", r.ID, r.Job, r.State)
		return
	}
	want := durable.RunFailed
	switch {
	case errors.Is(context.Cause(h.ctx), durable.ErrTimeout):
	case errors.Is(context.Cause(h.ctx), durable.ErrCancelled), errors.Is(context.Cause(h.ctx), durable.ErrStopping):
		want = durable.RunCancelled
	case h.outcome == outSuccess:
		want = durable.RunSucceeded
	case h.outcome == outSnooze:
		want = durable.RunSnoozed
	}
	if r.State != want {
		a.failLocked("chain", "run %s of %s is recorded as %v, want %v", r.ID, r.Job, r.State, want)
	}
}

// follows looks at what follows a run, by the rules for retry and recovery.
func (a *auditor) follows(l *ledgerRun, e durable.End) {
	r := l.row
	kind, attempt := durable.KindSchedule, r.Attempt // none
	maybe := false                                   // it may also be none
	switch e.Run.State {
	case durable.RunSnoozed:
		kind = durable.KindRetry
	case durable.RunFailed:
		if a.edited[r.Job] >= r.StartedAt.Sub(simStart).Nanoseconds() {
			maybe = true // a run that was adopted goes by the job as it was then
			if e.Follow != nil {
				kind, attempt = durable.KindRetry, r.Attempt+1
			}
			break
		}
		permanent := l.handler != nil && l.handler.outcome == outPermanent && l.handler.over
		if r.Attempt <= l.job.Retry.MaxRetries && !permanent {
			kind, attempt = durable.KindRetry, r.Attempt+1
		}
	case durable.RunLost, durable.RunInterrupted, durable.RunCancelled:
		if e.Run.State == durable.RunCancelled && e.Run.Code != durable.CodeInterrupted || l.kept {
			break
		}
		if e.Run.State == durable.RunCancelled && l.handler == nil { // handed back before it began
			if kind = r.Kind; kind == durable.KindSchedule {
				kind = durable.KindRetry
			}
			break
		}
		if r.Recover && !e.Run.Cancel { // what somebody wanted cancelled is not done again
			kind = durable.KindRecovery
			maybe = a.removed[r.Job] >= r.StartedAt.Sub(simStart).Nanoseconds()
		}
	}
	f := e.Follow
	if l.cancelled {
		return // the store adds nothing: should it be claimed, it follows from nothing
	}
	if f == nil {
		if kind != durable.KindSchedule && !maybe {
			a.failLocked("follow", "run %s of %s ended as %v, and no %v follows", r.ID, r.Job, e.Run.State, kind)
		}
		return
	}
	first := cmp.Or(r.RetryOf, r.ID)
	switch {
	case kind == durable.KindSchedule:
		a.failLocked("follow", "run %s of %s ended as %v, and %v follows", r.ID, r.Job, e.Run.State, f.Kind)
	case l.follow != "":
		a.failLocked("follow", "run %s of %s is followed twice: by %s and %s", r.ID, r.Job, l.follow, f.ID)
	case f.Kind != kind || f.Attempt != attempt || f.RetryOf != first || f.IdempotencyKey != r.IdempotencyKey ||
		!f.ScheduledAt.Equal(r.ScheduledAt) || f.Origin != r.Trigger:
		a.failLocked("follow", "run %s of %s is followed by %+v, want %v, attempt %d", r.ID, r.Job, *f, kind, attempt)
	}
	l.follow = f.ID
	a.pending[f.ID] = &ledgerShot{*f, l}
}

// freed looks whether the end of a job's last run has set its blocked triggers free: those
// that come first.
func (a *auditor) freed(job string) {
	states, err := a.s.mem.Jobs(context.Background(), durable.JobQuery{Names: []string{job}})
	if err != nil || len(states) == 0 {
		return
	}
	for _, t := range states[0].Triggers {
		first := func(o durable.TriggerRow) bool {
			return o.State == durable.StateWaiting && (o.Priority > t.Priority || o.Priority == t.Priority && !o.DueAt.After(t.DueAt))
		}
		if t.State == durable.StateBlocked && !slices.ContainsFunc(states[0].Triggers, first) {
			a.failLocked("blocked", "trigger %s of %s is blocked after the end of the last run, and nothing comes before it", t.Name, job)
		}
	}
}

func (s *auditStore) Beat(ctx context.Context, node durable.NodeRow, ttl time.Duration) (durable.BeatResult, error) {
	res, err := s.Store.Beat(ctx, node, ttl)
	if err != nil {
		return res, err
	}
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[node.ID]
	if n == nil {
		n = &ledgerNode{n: s.n}
		a.nodes[node.ID] = n
	}
	if n.dead != res.Dead {
		a.failLocked("lease", "node %s hears that dead is %v, it is %v", node.ID, res.Dead, n.dead)
	}
	switch {
	case res.Dead:
	case ttl > 0:
		n.lease = res.Now.Add(ttl)
	case len(res.Runs) == 0:
		delete(a.nodes, node.ID)
	}
	return res, nil
}

func (s *auditStore) Expire(ctx context.Context, r durable.ExpireRequest) (durable.ExpireResult, error) {
	res, err := s.Store.Expire(ctx, r)
	if err != nil {
		return res, err
	}
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty = true
	for _, d := range res.Dead {
		n := a.nodes[d.ID]
		a.note(s.n, "expire", "%s is dead", d.ID)
		switch {
		case n == nil:
			a.failLocked("lease", "node %s is declared dead, and was not there", d.ID)
		case n.dead || !n.lease.Add(r.Grace).Before(res.Now):
			a.failLocked("lease", "node %s is declared dead before its lease was over", d.ID)
		default:
			n.dead = true
		}
	}
	return res, nil
}

func (s *auditStore) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	var made *durable.Edit
	err := s.Store.Edit(ctx, job, scope, func(e *durable.Edit) error {
		made = e
		return change(e)
	})
	if err != nil {
		return err
	}
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty = true
	if scope == durable.EditJob {
		a.edited[job] = a.s.nowNanos.Load()
		for id, p := range a.pending {
			if p.row.Job == job && (made.Job == nil || slices.Contains(made.DropAdded, p.row.Kind)) {
				delete(a.pending, id)
				delete(a.manual, id)
			}
		}
		if made.Job == nil {
			a.removed[job] = a.s.nowNanos.Load()
		}
	}
	for _, t := range made.Add {
		if t.State != durable.StateBroadcast {
			a.pending[t.ID] = &ledgerShot{row: t}
		}
	}
	for _, r := range made.Records {
		a.skipped[r.ID] = true
	}
	for _, id := range made.Cancel {
		if l := a.runs[id]; l != nil {
			l.cancelled = true
		}
	}
	return nil
}

// triggered is told of a call by hand.
func (a *auditor) triggered(job durable.Job, id string, err error) {
	if err == nil && !job.RunOnEveryNode {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.manual[id] = job.Name
	}
}

// began is called by each handler as it begins.
func (a *auditor) began(n *simNode, run durable.Run, ctx context.Context, sc script) *handlerLog {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number++
	h := &handlerLog{number: a.number, n: n, run: run, ctx: ctx, script: sc}
	if n.killed.Load() {
		h.over = true
		return h
	}
	a.note(n, "begin", "%s of %s", run.ID, run.Job)
	if run.Fence == 0 {
		a.beganLocal(h)
		return h
	}
	l := a.runs[run.ID]
	if l == nil {
		a.failLocked("chain", "the handler of run %s of %s begins, which was never claimed", run.ID, run.Job)
		return h
	}
	l.handler = h
	if l.starts++; l.starts > 1 {
		a.failLocked("twice", "run %s of %s begins for the second time", run.ID, run.Job)
	}
	if l.by != n.name {
		a.failLocked("chain", "run %s of %s was claimed by %s and begins on %s", run.ID, run.Job, l.by, n.name)
	}
	h.exclusive = l.row.Exclusive
	now := a.s.nowNanos.Load()
	for _, o := range a.handlers {
		if !h.exclusive || !o.exclusive || o.over || o.run.Job != run.Job {
			continue
		}
		if o.n.frozen || now <= o.excused || o.ctx.Err() != nil && o.script.deaf > 0 {
			continue
		}
		a.failLocked("concurrency", "run %s of %s begins on %s while %s goes on on %s", run.ID, run.Job, n.name, o.run.ID, o.n.name)
	}
	a.handlers = append(a.handlers, h)
	return h
}

// beganLocal looks at a run of a job that runs on every node.
func (a *auditor) beganLocal(h *handlerLog) {
	for _, o := range a.handlers {
		if !o.over && o.n == h.n && o.run.Fence == 0 && o.run.Job == h.run.Job {
			a.failLocked("concurrency", "local run %s of %s begins on %s while %s goes on there", h.run.ID, h.run.Job, h.n.name, o.run.ID)
		}
	}
	key := h.n.name + "/" + h.run.IdempotencyKey
	if h.run.Kind == durable.KindSchedule { // a clock that is set to and fro has an instant more than once
		key = fmt.Sprintf("%s/%d", key, h.n.wallSteps)
	}
	if h.run.Kind != durable.KindRetry {
		if a.localKey[key] {
			a.failLocked("twice", "local firing %s runs twice on %s", h.run.IdempotencyKey, h.n.name)
		}
		a.localKey[key] = true
	}
	a.handlers = append(a.handlers, h)
}

// told is called by a handler whose context has ended.
func (a *auditor) told(h *handlerLog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.told = true
	if errors.Is(context.Cause(h.ctx), durable.ErrTimeout) {
		a.s.count(faultHandlerSlow)
	}
}

// left is called by each handler as it ends.
func (a *auditor) left(h *handlerLog, o outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.over, h.outcome = true, o
	a.note(h.n, "end", "%s of %s: %s", h.run.ID, h.run.Job, outcomeNames[o])
	a.handlers = slices.DeleteFunc(a.handlers, func(x *handlerLog) bool { return x == h })
}

// died is told that a process is gone, and its handlers with it.
func (a *auditor) died(n *simNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.handlers {
		if h.n == n {
			h.over = true
		}
	}
	a.handlers = slices.DeleteFunc(a.handlers, func(x *handlerLog) bool { return x.over })
}

// thawed gives the handlers of a process that stood still a moment to hear of it.
func (a *auditor) thawed(n *simNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := a.s.nowNanos.Load() + int64(simMaxStep+simReaction)
	for _, h := range a.handlers {
		if h.n == n {
			h.excused = until
		}
	}
}

// stopped is told that a node has shut down in good order: what it had begun is
// recorded, if the store answered.
func (a *auditor) stopped(n *simNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.s.healed.Load() && a.s.nowNanos.Load()-n.lastBad.Load() < int64(15*time.Second) {
		return
	}
	for _, active := range a.active {
		for _, l := range active {
			if l.by == n.name && l.starts > 0 && !l.kept {
				a.failLocked("stop", "node %s has stopped, and run %s of %s is still running", n.name, l.row.ID, l.row.Job)
			}
		}
	}
}

// The patience of the auditor with what nodes see to.
const (
	simSweepPatience = 10 * time.Second
	simDuePatience   = 1500 * time.Millisecond
)

// lasting tells whether something has been the case for that long.
func (a *auditor) lasting(what string, is bool, patience time.Duration) bool {
	now := a.s.nowNanos.Load()
	if !is {
		delete(a.since, what)
		return false
	}
	if _, known := a.since[what]; !known {
		a.since[what] = now
	}
	return now-a.since[what] > int64(patience)
}

// step looks at everything that is, after a step.
func (a *auditor) step() {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.s
	now := s.nowNanos.Load()
	for _, n := range s.slots {
		if n.up() {
			a.slots(n, now)
		}
	}
	sweeper := slices.ContainsFunc(s.slots, func(n *simNode) bool {
		quiet := now - int64(simSweepPatience)
		return n.healthy() && n.lastBad.Load() < quiet && n.cutUntil.Load() < quiet && s.outageUntil.Load() < quiet
	})
	if !a.dirty && s.step%4 != 0 {
		return
	}
	a.dirty = false
	states, err := s.mem.Jobs(context.Background(), durable.JobQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	taker := slices.ContainsFunc(s.slots, func(n *simNode) bool {
		return n.healthy() && n.freeSince >= 0 && now-n.freeSince > int64(simDuePatience)
	})
	seen := 0
	for _, st := range states {
		seen += len(st.Running)
		a.job(st, sweeper, taker)
	}
	for job, active := range a.active {
		if len(active) > 0 && !slices.ContainsFunc(states, func(st durable.JobState) bool { return st.Job.Name == job }) {
			seen += len(active)
		}
		for _, l := range active {
			n := a.nodes[l.row.Node]
			switch {
			case n == nil:
				a.failLocked("lease", "run %s of %s is active, its node %s is unknown", l.row.ID, job, l.row.Node)
			case a.lasting("lease/"+l.row.ID, n.dead || s.now().After(n.lease), simSweepPatience) && sweeper:
				a.failLocked("lease", "run %s of %s is active long after the lease of its node %s", l.row.ID, job, l.row.Node)
			}
		}
	}
	total := 0
	for _, active := range a.active {
		total += len(active)
	}
	if seen != total {
		a.failLocked("counter", "%d runs are active in the store, %d in the ledger", seen, total)
	}
}

// slots looks at a node's count of its own runs.
func (a *auditor) slots(n *simNode, now int64) {
	taken, runs := durable.Slots(n.sched)
	if taken < 0 || n.slow.Load() == 0 && !n.frozen && taken != runs && !n.stopping.Load() {
		a.failLocked("counter", "node %s has %d slots taken, by %d runs", n.name, taken, runs)
	}
	switch {
	case taken >= a.s.def.slots || !n.healthy():
		n.freeSince = -1
	case n.freeSince < 0:
		n.freeSince = now
	}
}

func (a *auditor) job(st durable.JobState, sweeper, taker bool) {
	job := st.Job.Name
	active := a.active[job]
	held := map[string]bool{}
	for _, r := range st.Running {
		if active[r.ID] == nil {
			a.failLocked("counter", "run %s of %s is active in the store and not in the ledger", r.ID, job)
		}
		if r.Holds {
			held[r.TriggerID] = true
		}
	}
	shots := 0
	for _, t := range st.Triggers {
		if t.OneShot() && t.State != durable.StateBroadcast {
			if shots++; a.pending[t.ID] == nil {
				a.failLocked("follow", "one-shot trigger %s of %s follows from nothing", t.Name, job)
			}
		}
		switch t.State {
		case durable.StateBlocked:
			if t.Reason == "" {
				a.failLocked("blocked", "trigger %s of %s is blocked without a reason", t.Name, job)
			}
		case durable.StatePaused:
			if t.Reason == "" || !t.Paused && !st.Job.Paused {
				a.failLocked("blocked", "trigger %s of %s is paused, and nothing says so", t.Name, job)
			}
		case durable.StateRunning:
			if !held[t.ID] {
				a.failLocked("blocked", "trigger %s of %s waits for the end of no run", t.Name, job)
			}
		case durable.StateError:
			a.failLocked("blocked", "trigger %s of %s is in error: %s", t.Name, job, t.Reason)
		}
		if a.lasting("blocked/"+t.ID, t.State == durable.StateBlocked && len(active) == 0, simSweepPatience) && sweeper {
			a.failLocked("blocked", "trigger %s of %s is blocked by nothing", t.Name, job)
		}
		waits := t.State == durable.StateWaiting
		if a.lasting("undue/"+t.ID, waits && t.DueAt.IsZero(), simSweepPatience) && sweeper {
			a.failLocked("due", "trigger %s of %s waits for nothing", t.Name, job)
		}
		isDue := waits && !t.DueAt.IsZero() && !t.DueAt.After(a.s.now())
		if a.lasting(fmt.Sprintf("due/%s/%d", t.ID, t.Version), isDue, simDuePatience) && taker {
			a.failLocked("due", "trigger %s of %s has been due since %v while slots are free", t.Name, job, t.DueAt)
		}
	}
	for _, p := range a.pending {
		if p.row.Job == job {
			shots--
		}
	}
	if shots != 0 && len(st.Triggers) < 100 {
		a.failLocked("follow", "%d more one-shot triggers of %s in the store than in the ledger", shots, job)
	}
}

// undone says what is not over.
func (a *auditor) undone() (left []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for job, active := range a.active {
		for id := range active {
			left = append(left, "run "+id+" of "+job)
		}
	}
	for id, p := range a.pending {
		left = append(left, p.row.Kind.String()+" trigger "+id+" of "+p.row.Job)
	}
	for _, h := range a.handlers {
		if h.n.up() {
			left = append(left, "handler of "+h.run.ID+" of "+h.run.Job)
		}
	}
	slices.Sort(left)
	return left
}

func (a *auditor) quiet() bool { return len(a.undone()) == 0 }

// final looks at what is left when all should be over.
func (a *auditor) final() {
	if left := a.undone(); len(left) > 0 {
		a.fail("undone", "left undone: %v", left)
		return
	}
	s := a.s
	a.mu.Lock()
	defer a.mu.Unlock()
	states, err := s.mem.Jobs(context.Background(), durable.JobQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, st := range states {
		for _, t := range st.Triggers {
			switch t.State {
			case durable.StateBlocked, durable.StateRunning, durable.StateError:
				a.failLocked("blocked", "trigger %s of %s is left %v", t.Name, t.Job, t.State)
			case durable.StateWaiting:
				a.failLocked("undone", "trigger %s of %s is left %v", t.Name, t.Job, t.State)
			}
		}
	}
	rows := map[string]durable.RunRow{}
	for q := (durable.RunQuery{Limit: 1000}); ; {
		page, err := s.mem.Runs(context.Background(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range page {
			rows[r.ID] = r
			q.Before = r.Key()
		}
		if len(page) < 1000 {
			break
		}
	}
	for id, l := range a.runs {
		r, there := rows[id]
		if !there || r.State != l.end.State || r.Node != l.row.Node {
			a.failLocked("chain", "run %s of %s ended as %v, the store has %v on %s", id, l.row.Job, l.end.State, r.State, r.Node)
		}
		if l.end.State == durable.RunSucceeded && l.starts != 1 {
			a.failLocked("chain", "run %s of %s succeeded, and began %d times", id, l.row.Job, l.starts)
		}
	}
	for id := range rows {
		if r := rows[id]; a.runs[id] == nil && !a.skipped[id] && r.Fence != 0 {
			a.failLocked("chain", "the store has run %s of %s, the ledger has not", id, r.Job)
		}
	}
	for id, job := range a.manual {
		if a.runs[id] == nil && !a.skipped[id] {
			a.failLocked("undone", "the call by hand %s of %s came to nothing", id, job)
		}
	}
	for _, n := range s.slots {
		st := n.sched.Stats()
		if taken, runs := durable.Slots(n.sched); taken != 0 || runs != 0 || st.Running != 0 || st.Pending != 0 {
			a.failLocked("counter", "node %s has nothing to do, and %d slots taken, %d runs, %d running, %d pending",
				n.name, taken, runs, st.Running, st.Pending)
		}
	}
}

// afterStop looks at what is left when all nodes have stopped.
func (a *auditor) afterStop() {
	s := a.s
	rows, now, err := s.mem.Nodes(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range rows {
		if !n.Dead && now.Before(n.LeaseUntil) {
			a.fail("stop", "node %s is still there after all have stopped", n.ID)
		}
	}
	if left := a.undone(); len(left) > 0 {
		a.fail("stop", "after all have stopped there is left: %v", left)
	}
}
