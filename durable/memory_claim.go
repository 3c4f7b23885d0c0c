package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// Claim implements Store.
func (m *Memory) Claim(ctx context.Context, r ClaimRequest) (ClaimResult, error) {
	if err := ctx.Err(); err != nil {
		return ClaimResult{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if n := m.nodes[r.Node]; n == nil || !alive(n, now) {
		return ClaimResult{}, ErrNodeDead
	}
	defer m.hide(r.Except)()
	res := ClaimResult{Now: now, Next: m.nextDue(r.Handlers)}
	for t := range m.broadcasts.falling(all) {
		res.Broadcast = t.row.ID
		break
	}
	verdicts, err := m.plan(now, r)
	if err != nil {
		return ClaimResult{}, err
	}
	if n := len(m.newRuns); n > 0 {
		res.Claimed = make([]Claimed, 0, n)
	}
	for i := range verdicts {
		m.carryOut(&verdicts[i], r.Node, &res)
	}
	// What waits behind triggers that do not run would wait for an end that never comes.
	for _, p := range verdicts {
		if j := p.t.job; len(j.active) == 0 && j.exists && !j.row.AllowConcurrent && !j.row.Paused {
			m.unblock(j, limits.WakesBehind)
		}
	}
	clear(verdicts) // they refer to what may be deleted
	return res, nil
}

// hide takes triggers out, and gives what puts them back.
func (m *Memory) hide(ids []string) (show func()) {
	hidden := make(map[*memoryTrigger]bool, len(ids))
	for _, id := range ids {
		if t := m.triggers[id]; t != nil && t.row.State == StateWaiting && !hidden[t] {
			hidden[t] = true
			m.takeOut(t)
		}
	}
	return func() {
		for t := range hidden {
			m.put(t)
		}
	}
}

// nextDue is when the next trigger of these handlers is due.
func (m *Memory) nextDue(handlers []string) time.Time {
	var next time.Time
	for _, name := range handlers {
		q := m.waiting[name]
		if q == nil {
			continue
		}
		for p := range q {
			if h := q[p]; len(h) > 0 && (next.IsZero() || h[0].t.row.DueAt.Before(next)) {
				next = h[0].t.row.DueAt
			}
		}
	}
	return next
}

// A planned is a trigger, taken out of its heap, with the verdict on it.
type planned struct {
	t *memoryTrigger
	v Verdict
}

// plan takes due triggers out and gets the verdicts on them. If it fails or panics, it
// puts them back.
func (m *Memory) plan(now time.Time, r ClaimRequest) (_ []planned, err error) {
	clear(m.newRuns)
	m.taken = m.taken[:0]
	m.request++
	done := false
	defer func() {
		if !done {
			for _, p := range m.taken {
				m.put(p.t)
			}
			clear(m.taken)
		}
	}()
	for t := range m.due(now, r.Handlers, r.Limit) {
		m.taken = append(m.taken, planned{t: t})
		due := Due{Now: now, Trigger: outTrigger(t.row)}
		if t.job.exists {
			due.Job = outJob(t.job.row)
			due.Busy = t.job.busy() || !t.job.row.AllowConcurrent && t.job.claimed == m.request
		}
		v := r.Plan(due)
		if err := m.judge(t, &v); err != nil {
			return nil, err
		}
		if !v.Leave && v.Run != nil {
			t.job.claimed = m.request
		}
		m.taken[len(m.taken)-1].v = v
	}
	done = true
	return m.taken, nil
}

// judge refuses verdicts that cannot be carried out.
func (m *Memory) judge(t *memoryTrigger, v *Verdict) error {
	if v.Leave {
		return nil
	}
	if !v.Delete && (v.Trigger.ID != t.row.ID || v.Trigger.Job != t.row.Job) {
		return fmt.Errorf("durable: verdict on trigger %q of job %q has trigger %q of job %q",
			t.row.ID, t.row.Job, v.Trigger.ID, v.Trigger.Job)
	}
	if v.Run == nil {
		return nil
	}
	if v.Run.Job != t.row.Job {
		return fmt.Errorf("durable: verdict on a trigger of job %q has a run of job %q", t.row.Job, v.Run.Job)
	}
	if m.active[v.Run.ID] != nil || m.newRuns[v.Run.ID] {
		return fmt.Errorf("durable: run %q: %w", v.Run.ID, ErrExists)
	}
	m.newRuns[v.Run.ID] = true
	return nil
}

// due takes out due triggers of these handlers, at most limit, in the order of
// claims.
func (m *Memory) due(now time.Time, handlers []string, limit int) func(yield func(*memoryTrigger) bool) {
	return func(yield func(*memoryTrigger) bool) {
		until := now.UnixMicro()
		var heaps []*dueHeap // of one priority, with due triggers
		for p := limits.Priorities - 1; p >= 0; p-- {
			heaps = heaps[:0]
			for _, name := range handlers {
				if q := m.waiting[name]; q != nil && q[p].isDue(until) {
					heaps = append(heaps, &q[p])
				}
			}
			for ; limit > 0; limit-- {
				h := firstDue(heaps, until)
				if h == nil {
					break
				}
				t := (*h)[0].t
				h.remove(t)
				if !yield(t) {
					return
				}
			}
		}
	}
}

func (h dueHeap) isDue(until int64) bool { return len(h) > 0 && h[0].due <= until }

// firstDue is the heap with the first trigger, nil if none is due.
func firstDue(heaps []*dueHeap, until int64) (first *dueHeap) {
	for _, h := range heaps {
		if h.isDue(until) && (first == nil || (*h)[0].before((*first)[0])) {
			first = h
		}
	}
	return first
}

// outJobOf is the row of a run's job as it is handed out: that of the run claimed before,
// if that is of the same job.
func outJobOf(j *memoryJob, claimed []Claimed) *JobRow {
	if !j.exists {
		return &JobRow{}
	}
	if n := len(claimed); n > 0 && claimed[n-1].Job.Name == j.row.Name {
		return claimed[n-1].Job
	}
	row := outJob(j.row)
	return &row
}

// carryOut makes a verdict true.
func (m *Memory) carryOut(p *planned, node string, res *ClaimResult) {
	t, v := p.t, &p.v
	if v.Leave {
		m.put(t)
		return
	}
	if v.Skipped != nil {
		row := *v.Skipped
		row.Node, row.StartedAt, row.EndedAt = node, res.Now, res.Now
		row = ownRun(row, t.row.Data)
		m.addEnded(row)
		res.Skipped = append(res.Skipped, outRun(row))
	}
	if v.Run != nil {
		t.job.fence++
		row := v.Run
		row.Node, row.StartedAt, row.Fence = node, res.Now, t.job.fence
		own := ownRun(*row, t.row.Data)
		m.addActive(own)
		*row = outRun(own)
		res.Claimed = append(res.Claimed, Claimed{row, outJobOf(t.job, res.Claimed)})
	}
	if v.Delete {
		m.forgetTrigger(t)
		return
	}
	m.becomeTrigger(t, v.Trigger)
	switch t.row.State {
	case StateBlocked, StatePaused, StateError:
		res.Parked = append(res.Parked, outTrigger(t.row))
	}
}
