package storetest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// What the model test does. Whatever is random is decided before the operation, or by
// a source that starts anew with each call, so that both stores get the same.

var (
	modelHandlers = []string{"h", "g", "x"}
	modelJobs     = []string{"a", "a-b", "ab", "b", "c"}
	modelNodes    = []string{"n1", "n2", "n3", "N1"}
)

// id makes IDs in no order.
func (m *model) id() string {
	m.ids++
	return fmt.Sprintf("m%07d%018d", m.random.IntN(10_000_000), m.ids)
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// fresh gives a source that starts anew with each call.
func (m *model) fresh() func() *rand.Rand {
	n := m.random.Uint64()
	return func() *rand.Rand { return rand.New(rand.NewPCG(m.seed, n)) }
}

func (m *model) pass() (string, operation) {
	d := time.Duration(m.random.IntN(90_000_000)) * time.Microsecond
	if m.random.IntN(3) == 0 {
		d = time.Duration(m.random.IntN(3)) * time.Microsecond
	}
	m.advance(d)
	return fmt.Sprintf("advance(%v)", d), func(w *world) any {
		_, now, err := w.store.Nodes(w.ctx)
		return []any{now, errText(err)}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "an error"
}

func (m *model) node(id string) (durable.NodeRow, bool) {
	for _, n := range m.known.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return durable.NodeRow{}, false
}

func (m *model) beatNode() (string, operation) {
	id := pick(m.random, modelNodes)
	n, _ := m.node(id)
	ttl := pick(m.random, []time.Duration{time.Minute, 2 * time.Minute, time.Hour})
	if n.Dead { // has another life under another ID
		id = fmt.Sprintf("%s-%d", id, m.random.IntN(3))
	} else if m.random.IntN(8) == 0 {
		ttl = 0
	}
	if n, _ := m.node(id); n.Dead {
		ttl = time.Hour
	}
	return fmt.Sprintf("Beat(%q, %v)", id, ttl), func(w *world) any {
		res := w.beat(id, ttl)
		if res.Dead {
			res.Runs = nil
		}
		slices.SortFunc(res.Runs, func(a, b durable.OwnRun) int { return strings.Compare(a.ID, b.ID) })
		return res
	}
}

func (m *model) someNode() string {
	if len(m.known.Nodes) > 0 && m.random.IntN(10) > 0 {
		return pick(m.random, m.known.Nodes).ID
	}
	return pick(m.random, modelNodes)
}

func (m *model) claimSome() (string, operation) {
	r := durable.ClaimRequest{Node: m.someNode(), Limit: m.random.IntN(7)}
	for _, h := range modelHandlers {
		if m.random.IntN(4) > 0 {
			r.Handlers = append(r.Handlers, h)
		}
	}
	for _, s := range m.known.Jobs {
		for _, t := range s.Triggers {
			if m.random.IntN(12) == 0 {
				r.Except = append(r.Except, t.ID)
			}
		}
	}
	what := fmt.Sprintf("Claim(%q, %d, %q, except %q)", r.Node, r.Limit, r.Handlers, r.Except)
	due := false // a store may find a dead node only when it has something to claim
	return what, func(w *world) any {
		var saw []durable.Due
		r.Plan = func(d durable.Due) durable.Verdict {
			seen := d
			seen.Trigger = plainTrigger(d.Trigger)
			saw = append(saw, seen)
			return modelPlan(w, d)
		}
		res, err := w.store.Claim(w.ctx, r)
		if n, ok := m.node(r.Node); !ok || n.Dead || !n.LeaseUntil.After(w.now()) {
			return []any{len(res.Claimed), len(saw), err == nil && due}
		}
		return []any{plainClaim(res), saw, errText(err), errors.Is(err, durable.ErrNodeDead)}
	}
}

// modelPlan decides by what the trigger says, and nothing else.
func modelPlan(w *world, d durable.Due) durable.Verdict {
	t := d.Trigger
	h := fnv.New64a()
	fmt.Fprint(h, t.ID, t.Fired, t.DueAt.UnixMicro())
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	if d.Job.Name == "" {
		return durable.Verdict{Delete: true}
	}
	n := r.IntN(20)
	v := w.plan(d)
	switch {
	case n == 0:
		return durable.Verdict{Leave: true}
	case n == 1 && !t.OneShot():
		t.State, t.Reason = pick(r, []durable.TriggerState{durable.StateError, durable.StatePaused, durable.StateComplete}), "so"
		return durable.Verdict{Trigger: t}
	case n == 2 || d.Busy && t.Kind == durable.KindManual:
		run := w.runOf(d)
		run.State, run.Code, run.Passed = durable.RunSkipped, durable.CodeMisfire, 3
		t.DueAt, t.Passed = t.DueAt.Add(time.Hour), t.Passed+3
		t.Fired++ // for the ID of the next
		return durable.Verdict{Delete: t.OneShot(), Trigger: t, Skipped: run}
	case n == 3 && v.Run != nil:
		skipped := w.runOf(d)
		skipped.ID, skipped.State = "s"+skipped.ID[1:], durable.RunSkipped
		v.Skipped = skipped
	}
	return v
}

func (m *model) active() []durable.RunRow {
	var rows []durable.RunRow
	for _, r := range m.known.Runs {
		if r.EndedAt.IsZero() {
			rows = append(rows, r)
		}
	}
	return rows
}

func (m *model) finishSome() (string, operation) {
	active := m.active()
	var es []durable.End
	var what []string
	for range m.random.IntN(5) {
		if len(active) == 0 && m.random.IntN(4) > 0 {
			break
		}
		e := m.someEnd(active)
		es = append(es, e)
		what = append(what, fmt.Sprintf("{%q of %q, state %d, keep %v, local %v, follow %v, holds %v}",
			e.Run.ID, e.Run.Node, e.Run.State, e.Keep, e.Local, e.Follow != nil, e.Run.Holds))
	}
	return fmt.Sprintf("Finish(%s)", strings.Join(what, ", ")), func(w *world) any {
		var resumed []durable.TriggerRow
		own, err := w.store.Finish(w.ctx, durable.FinishRequest{Ends: es, Resume: func(now time.Time, t durable.TriggerRow) durable.TriggerRow {
			resumed = append(resumed, plainTrigger(t))
			t.State, t.DueAt = durable.StateWaiting, now.Add(time.Duration(t.Fired%4)*time.Minute)
			return t
		}})
		slices.SortFunc(resumed, func(a, b durable.TriggerRow) int { return strings.Compare(a.ID, b.ID) })
		return []any{own, errText(err), resumed}
	}
}

func (m *model) someEnd(active []durable.RunRow) durable.End {
	r := m.random
	states := []durable.RunState{durable.RunSucceeded, durable.RunFailed, durable.RunCancelled, durable.RunLost}
	if len(active) == 0 || r.IntN(8) == 0 {
		job := pick(r, modelJobs)
		return durable.End{Local: true, Run: durable.RunRow{
			ID: m.id(), Job: job, Trigger: "local", State: pick(r, states), StartedAt: m.in(-time.Duration(r.IntN(5)) * time.Second),
			Node: pick(r, modelNodes), Attempt: 1, Holds: true, Exclusive: true, TriggerID: m.id(),
		}}
	}
	e := durable.End{Run: pick(r, active)}
	e.Run.State, e.Run.Duration, e.Run.Message = pick(r, states), time.Duration(r.IntN(1000)), "so"
	switch r.IntN(10) {
	case 0:
		e.Run.Node = pick(r, modelNodes)
	case 1:
		e.Run.ID = m.id()
	case 2:
		e.Keep, e.Run.State, e.Run.Code = true, durable.RunInterrupted, durable.CodeInterrupted
	}
	if r.IntN(4) == 0 {
		row := m.oneShot(e.Run.Job, kindOf(r))
		e.Follow, e.FollowIn = &row, time.Duration(r.IntN(60))*time.Second
	}
	return e
}

func kindOf(r *rand.Rand) durable.Kind {
	return pick(r, []durable.Kind{durable.KindManual, durable.KindRetry, durable.KindRecovery})
}

// oneShot makes a one-shot trigger with the handler that its job has.
func (m *model) oneShot(job string, k durable.Kind) durable.TriggerRow {
	row := m.world.oneShot(job, m.in(time.Duration(m.random.IntN(20)-10)*time.Second), kind(k), triggerID(m.id()), priority(m.random.IntN(11)))
	row.Name, row.Handler = "one-"+row.ID, "h"
	if m.random.IntN(10) == 0 {
		row.DueAt = time.Time{}
	}
	for _, s := range m.known.Jobs {
		if s.Job.Name == job {
			row.Handler = s.Job.Handler
		}
	}
	return row
}

func (m *model) expireSome() (string, operation) {
	r := durable.ExpireRequest{Grace: time.Duration(m.random.IntN(3)) * 30 * time.Second, Limit: 1000}
	if m.random.IntN(4) == 0 {
		r.Limit = m.random.IntN(3)
	}
	for _, s := range m.known.Jobs {
		if n := len(s.Triggers); n > 0 && m.random.IntN(8) == 0 {
			r.After = s.Triggers[m.random.IntN(n)].ID
		}
	}
	return fmt.Sprintf("Expire(%+v)", r), func(w *world) any {
		res, err := w.store.Expire(w.ctx, r)
		return []any{plainExpiry(res), errText(err)}
	}
}

func (m *model) enqueueSome() (string, operation) {
	job := pick(m.random, modelJobs)
	if len(m.known.Jobs) > 0 && m.random.IntN(10) > 0 {
		job = pick(m.random, m.known.Jobs).Job.Name
	}
	add := []durable.TriggerRow{m.oneShot(job, kindOf(m.random))}
	for _, s := range m.known.Jobs {
		for _, t := range s.Triggers {
			if s.Job.Name == job && t.OneShot() && m.random.IntN(3) == 0 {
				t.Priority, t.Description = 10, "known"
				add = append(add, t)
			}
		}
	}
	records, cancel := m.someRecords(job)
	return fmt.Sprintf("Edit(%q, EnqueueOnly, add %d, record %d, cancel %q)", job, len(add), len(records), cancel), func(w *world) any {
		var saw []any
		err := w.store.Edit(w.ctx, job, durable.EnqueueOnly, func(e *durable.Edit) error {
			saw = []any{e.Now, jobOf(e), plainRuns(e.Running)}
			e.Add, e.Records, e.Cancel = add, records, cancel
			return nil
		})
		return []any{saw, errText(err)}
	}
}

func jobOf(e *durable.Edit) durable.JobRow {
	if e.Job == nil {
		return durable.JobRow{}
	}
	return *e.Job
}

// someRecords are records, and runs to be cancelled, of a job.
func (m *model) someRecords(job string) (records []durable.RunRow, cancel []string) {
	if m.random.IntN(4) == 0 {
		records = append(records, durable.RunRow{ID: m.id(), Job: job, State: durable.RunSkipped, Node: "n1", Attempt: 1, Code: durable.CodeConflict})
	}
	for _, r := range m.active() {
		if r.Job == job && m.random.IntN(4) == 0 {
			cancel = append(cancel, r.ID)
		}
	}
	return records, cancel
}

func (m *model) purgeSome() (string, operation) {
	r := durable.PurgeRequest{OlderThan: time.Duration(m.random.IntN(300)) * time.Second, Limit: m.random.IntN(8)}
	switch m.random.IntN(4) {
	case 0:
		r.Before = m.in(-time.Duration(m.random.IntN(300)) * time.Second)
	case 1:
		r.Limit = 0
		for _, run := range m.known.Runs {
			if m.random.IntN(10) == 0 {
				r.IDs = append(r.IDs, run.ID)
			}
		}
	}
	return fmt.Sprintf("Purge(%+v)", r), func(w *world) any {
		n, err := w.store.Purge(w.ctx, r)
		return []any{n, errText(err)}
	}
}

func (m *model) leaseOne() (string, operation) {
	name, holder := pick(m.random, []string{"x", "X"}), pick(m.random, modelNodes)
	ttl := time.Duration(m.random.IntN(4)) * 20 * time.Second
	return fmt.Sprintf("Lease(%q, %q, %v)", name, holder, ttl), func(w *world) any {
		row, err := w.store.Lease(w.ctx, name, holder, ttl)
		if row.Holder == "" {
			row.Until = time.Time{}
		}
		return []any{row, errText(err)}
	}
}

func (m *model) query() (string, operation) {
	r := m.random
	q := durable.RunQuery{Limit: r.IntN(6)}
	if r.IntN(2) == 0 {
		q.Job = pick(r, modelJobs)
	}
	if r.IntN(3) == 0 {
		q.States = []durable.RunState{durable.RunState(r.IntN(8)), durable.RunState(r.IntN(8))}
	}
	if r.IntN(3) == 0 {
		q.Node = pick(r, modelNodes)
	}
	if len(m.known.Runs) > 0 {
		if r.IntN(3) == 0 {
			run := pick(r, m.known.Runs)
			q.Before = run.Key()
		}
		if r.IntN(3) == 0 {
			q.From = pick(r, m.known.Runs).StartedAt
		}
		if r.IntN(3) == 0 {
			q.To = pick(r, m.known.Runs).StartedAt
		}
	}
	jq := durable.JobQuery{After: pick(r, modelJobs), Limit: r.IntN(3), EveryNode: r.IntN(3) == 0, WithoutRuns: r.IntN(2) == 0}
	return fmt.Sprintf("Runs(%+v), Jobs(%+v)", q, jq), func(w *world) any {
		return []any{plainRuns(w.runs(q)), each(w.jobs(jq), plainState)}
	}
}
