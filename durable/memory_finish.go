package durable

import (
	"context"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// Finish implements Store.
func (m *Memory) Finish(ctx context.Context, r FinishRequest) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	own, resumed := m.decideEnds(now, r)
	for i := range r.Ends {
		if own[i] {
			m.end(now, &r.Ends[i])
		}
	}
	for t, row := range resumed {
		m.setTrigger(t, row)
	}
	return own, nil
}

// decideEnds tells which ends are to be made true, and what becomes of the triggers
// that waited for them. It changes nothing.
func (m *Memory) decideEnds(now time.Time, r FinishRequest) ([]bool, map[*memoryTrigger]TriggerRow) {
	own := make([]bool, len(r.Ends))
	m.request++
	var resumed map[*memoryTrigger]TriggerRow
	for i := range r.Ends {
		e := &r.Ends[i]
		if e.Local {
			own[i] = true
			continue
		}
		a := m.active[e.Run.ID]
		if a == nil || a.row.Node != e.Run.Node || a.gone == m.request {
			continue
		}
		if e.Keep {
			// If it is kept already, what follows was added then.
			own[i] = a.row.State == RunRunning && a.kept != m.request
			a.kept = m.request
			continue
		}
		own[i] = true
		a.gone = m.request
		if !e.Run.Holds {
			continue
		}
		t := m.triggers[e.Run.TriggerID]
		if t == nil {
			continue
		}
		row, again := resumed[t]
		if !again {
			row = t.row
		}
		if row.State != StateRunning {
			continue
		}
		row = r.Resume(now, outTrigger(row))
		row.ID, row.Job = t.row.ID, t.row.Job
		if resumed == nil {
			resumed = map[*memoryTrigger]TriggerRow{}
		}
		resumed[t] = row
	}
	return own, resumed
}

// end makes the end of a run true, but for the trigger that it holds.
func (m *Memory) end(now time.Time, e *End) {
	if a := m.active[e.Run.ID]; e.Follow != nil && (e.Local || !a.row.Cancel) {
		row := *e.Follow
		if in := now.Add(e.FollowIn); row.DueAt.IsZero() || in.Before(row.DueAt) {
			row.DueAt = in
		}
		if job := m.name(row.Job); job.exists {
			row.Handler = job.row.Handler
		}
		m.addTrigger(row)
	}
	if e.Local {
		row := e.Run
		row.EndedAt = now
		m.addEnded(ownRun(row, nil))
		return
	}
	a := m.active[e.Run.ID]
	a.row.State, a.row.Duration = e.Run.State, e.Run.Duration
	a.row.Code, a.row.Message, a.row.Detail = e.Run.Code, e.Run.Message, e.Run.Detail
	if e.Keep {
		return
	}
	m.dropActive(a)
	a.row.EndedAt = now
	m.fileEnded(a)
	if e.Run.Exclusive {
		m.unblock(a.job, limits.Wakes)
	}
}
