package durable

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// Jobs implements Store.
func (m *Memory) Jobs(ctx context.Context, q JobQuery) ([]JobState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := cmp.Or(max(q.Limit, 0), limits.DefaultJobs)
	var states []JobState
	for j := range m.jobsFor(&q) {
		if len(states) == limit {
			break
		}
		if !q.EveryNode || j.row.RunOnEveryNode {
			states = append(states, stateOf(j, &q))
		}
	}
	return states, nil
}

// jobsFor gives jobs in order of name, among them all that the query selects.
func (m *Memory) jobsFor(q *JobQuery) iter.Seq[*memoryJob] {
	before := func(j *memoryJob) bool { return q.After != "" && j.row.Name <= q.After }
	if len(q.Names) == 0 {
		return m.jobs.rising(before)
	}
	var jobs []*memoryJob
	for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Names))) {
		if j := m.named[name]; j != nil && j.exists && !before(j) {
			jobs = append(jobs, j)
		}
	}
	return slices.Values(jobs)
}

func stateOf(j *memoryJob, q *JobQuery) JobState {
	s := JobState{Job: outJob(j.row)}
	if !q.WithoutTriggers {
		s.Triggers = triggersFor(j, q)
	}
	if !q.WithoutRuns {
		s.Running = runningOf(j)
	}
	return s
}

func triggersFor(j *memoryJob, q *JobQuery) (rows []TriggerRow) {
	added := 0
	for t := range j.triggers.rising(none) {
		if t.row.OneShot() && (!q.EveryNode || t.row.Kind != KindBroadcast) {
			if added++; added > limits.MostOneShots {
				if q.EveryNode {
					continue
				}
				break
			}
		}
		rows = append(rows, outTrigger(t.row))
	}
	return rows
}

// Runs implements Store.
func (m *Memory) Runs(ctx context.Context, q RunQuery) ([]RunRow, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := min(cmp.Or(max(q.Limit, 0), limits.DefaultRuns), limits.MostRuns)
	var found []*memoryRun
	for _, r := range m.active {
		if q.selects(&r.row) {
			found = append(found, r)
		}
	}
	n := 0
	for r := range m.endedFor(q) {
		if n == limit {
			break
		}
		if q.selects(&r.row) {
			found = append(found, r)
			n++
		}
	}
	slices.SortFunc(found, newestFirst)
	var rows []RunRow
	for _, r := range found[:min(limit, len(found))] {
		rows = append(rows, outRun(r.row))
	}
	return rows, nil
}

func newestFirst(a, b *memoryRun) int {
	return cmp.Or(b.row.StartedAt.Compare(a.row.StartedAt), cmp.Compare(b.row.ID, a.row.ID))
}

// endedFor gives ended runs, newest first, among them all that the query selects.
func (m *Memory) endedFor(q RunQuery) func(yield func(*memoryRun) bool) {
	if len(q.IDs) > 0 {
		var rows []*memoryRun
		for _, id := range q.IDs {
			if r := m.ended[id]; r != nil && !slices.Contains(rows, r) {
				rows = append(rows, r)
			}
		}
		slices.SortFunc(rows, newestFirst)
		return slices.Values(rows)
	}
	list := &m.byStart
	if q.Job != "" {
		j := m.named[q.Job]
		if j == nil {
			return slices.Values([]*memoryRun(nil))
		}
		list = &j.ended
	}
	return func(yield func(*memoryRun) bool) {
		for r := range list.falling(func(r *memoryRun) bool { return q.before(&r.row) }) {
			if !q.From.IsZero() && r.row.StartedAt.Before(q.From) || !yield(r) {
				return
			}
		}
	}
}

// before tells whether the run is old enough for the query.
func (q *RunQuery) before(r *RunRow) bool {
	if q.Before != (RunKey{}) && !r.Key().before(q.Before) {
		return false
	}
	return q.To.IsZero() || r.StartedAt.Before(q.To)
}

func (q *RunQuery) selects(r *RunRow) bool {
	return q.before(r) &&
		(q.From.IsZero() || !r.StartedAt.Before(q.From)) &&
		(len(q.IDs) == 0 || slices.Contains(q.IDs, r.ID)) &&
		(q.Job == "" || q.Job == r.Job) &&
		(q.Trigger == "" || q.Trigger == r.Trigger) &&
		(len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Node == "" || q.Node == r.Node)
}

// Purge implements Store.
func (m *Memory) Purge(ctx context.Context, r PurgeRequest) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	doomed := m.toPurge(r)
	for _, run := range doomed {
		m.dropEnded(run)
	}
	return len(doomed), nil
}

func (m *Memory) toPurge(r PurgeRequest) []*memoryRun {
	limit := cmp.Or(max(r.Limit, 0), limits.DefaultPurge)
	var doomed []*memoryRun
	if len(r.IDs) > 0 {
		for _, id := range r.IDs {
			if run := m.ended[id]; run != nil && !slices.Contains(doomed, run) {
				doomed = append(doomed, run)
			}
		}
		slices.SortFunc(doomed, func(a, b *memoryRun) int {
			return cmp.Or(a.row.StartedAt.Compare(b.row.StartedAt), cmp.Compare(a.row.ID, b.row.ID))
		})
		return doomed[:min(limit, len(doomed))]
	}
	before := instant(r.Before)
	if before.IsZero() {
		before = m.now().Add(-r.OlderThan).Truncate(time.Microsecond)
	}
	for run := range m.byStart.rising(none) {
		if len(doomed) == limit || run.row.StartedAt.After(before) {
			break
		}
		if run.row.EndedAt.Before(before) {
			doomed = append(doomed, run)
		}
	}
	return doomed
}

var _ Store = (*Memory)(nil)
