package durable

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Edit implements Store.
func (m *Memory) Edit(ctx context.Context, job string, scope Scope, change func(*Edit) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.load(job, scope)
	now := e.Now
	if err := change(e); err != nil {
		return err
	}
	if err := m.check(job, scope, e); err != nil {
		return err
	}
	if scope == EditJob {
		m.save(now, job, e)
	}
	for _, row := range e.Add {
		m.addTrigger(row)
	}
	if scope == EditJob && e.Release {
		m.release(job)
	}
	for _, row := range e.Records {
		row.StartedAt, row.EndedAt = now, now
		m.addEnded(ownRun(row, nil))
	}
	for _, id := range e.Cancel {
		if r := m.active[id]; r != nil && r.row.Job == job {
			r.row.Cancel = true
		}
	}
	return nil
}

// load copies what the scope shows.
func (m *Memory) load(job string, scope Scope) *Edit {
	e := &Edit{Now: m.now()}
	j := m.named[job]
	if j == nil {
		return e
	}
	if j.exists {
		row := outJob(j.row)
		e.Job = &row
	}
	if scope == EditJob {
		e.Triggers, e.Running = scheduleTriggers(j), runningOf(j)
		return e
	}
	for r := range j.active {
		e.Running = append(e.Running, RunRow{ID: r.row.ID})
	}
	sortRuns(e.Running)
	return e
}

// scheduleTriggers are copies in order of name.
func scheduleTriggers(j *memoryJob) []TriggerRow {
	var rows []TriggerRow
	for t := range j.triggers.rising(none) {
		if t.row.OneShot() {
			break
		}
		rows = append(rows, outTrigger(t.row))
	}
	return rows
}

// runningOf are copies in order of ID.
func runningOf(j *memoryJob) []RunRow {
	var rows []RunRow
	for r := range j.active {
		rows = append(rows, outRun(r.row))
	}
	sortRuns(rows)
	return rows
}

func sortRuns(rows []RunRow) {
	slices.SortFunc(rows, func(a, b RunRow) int { return cmp.Compare(a.ID, b.ID) })
}

// check refuses an Edit that cannot be made true.
func (m *Memory) check(job string, scope Scope, e *Edit) error {
	for i := range e.Add {
		t := &e.Add[i]
		if t.ID == "" || t.Job != job || !t.OneShot() {
			return fmt.Errorf("durable: edit of job %q adds no one-shot trigger of it: %q of job %q", job, t.ID, t.Job)
		}
	}
	if scope != EditJob || e.Job == nil {
		return nil
	}
	if e.Job.Name != job {
		return fmt.Errorf("durable: edit of job %q gives job %q", job, e.Job.Name)
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for i := range e.Triggers {
		t := &e.Triggers[i]
		if t.ID == "" || t.Job != job || t.OneShot() {
			return fmt.Errorf("durable: edit of job %q gives no schedule trigger of it: %q of job %q", job, t.ID, t.Job)
		}
		if has := m.triggers[t.ID]; ids[t.ID] || has != nil && (has.row.Job != job || has.row.OneShot()) {
			return fmt.Errorf("durable: trigger with the ID %q: %w", t.ID, ErrExists)
		}
		if names[t.Name] {
			return fmt.Errorf("durable: trigger %q of job %q: %w", t.Name, job, ErrExists)
		}
		ids[t.ID], names[t.Name] = true, true
	}
	return nil
}

// save makes the differences in the job and its triggers true.
func (m *Memory) save(now time.Time, job string, e *Edit) {
	if e.Job == nil {
		if j := m.named[job]; j != nil {
			m.removeJob(j)
		}
		return
	}
	j := m.name(job)
	keep := map[string]bool{}
	for i := range e.Triggers {
		keep[e.Triggers[i].ID] = true
	}
	m.deleteTriggers(j, func(t *memoryTrigger) bool {
		return !t.row.OneShot() && !keep[t.row.ID] || t.row.OneShot() && slices.Contains(e.DropAdded, t.row.Kind)
	})
	for _, row := range e.Triggers {
		if t := m.triggers[row.ID]; t == nil {
			m.addTrigger(row)
		} else if !sameTrigger(t.row, ownTrigger(row, t.row.Data)) {
			m.setTrigger(t, row)
		}
	}
	known := j.exists && j.row.Handler == e.Job.Handler
	m.saveJob(now, j, *e.Job)
	if known {
		return
	}
	// Claims go by what triggers say about the job.
	for t := range j.triggers.rising(none) {
		if row := t.row; row.Handler != j.row.Handler {
			row.Handler = j.row.Handler
			m.setTrigger(t, row)
		}
	}
}

func (m *Memory) saveJob(now time.Time, j *memoryJob, row JobRow) {
	row = ownJob(row, j.row.Data)
	if j.exists {
		row.Version, row.Created, row.Updated = j.row.Version, j.row.Created, j.row.Updated
		if reflect.DeepEqual(j.row, row) {
			return
		}
		row.Version++
		row.Updated = now
		j.row = row
		return
	}
	row.Version, row.Created, row.Updated = 1, now, now
	j.row, j.exists = row, true
	m.jobs.insert(j)
}

// sameTrigger compares what the store does not set itself.
func sameTrigger(a, b TriggerRow) bool {
	b.Version = a.Version
	return reflect.DeepEqual(a, b)
}

func (m *Memory) removeJob(j *memoryJob) {
	m.deleteTriggers(j, all[*memoryTrigger])
	if j.exists {
		m.jobs.remove(j)
		j.row, j.exists = JobRow{Name: j.row.Name}, false
	}
}

func (m *Memory) deleteTriggers(j *memoryJob, which func(*memoryTrigger) bool) {
	for _, t := range triggersOf(j) {
		if which(t) {
			m.deleteTrigger(t)
		}
	}
}

// release is Edit.Release.
func (m *Memory) release(job string) {
	j := m.named[job]
	if j == nil {
		return
	}
	for _, t := range triggersOf(j) {
		if t.row.State == StateBlocked || t.row.State == StatePaused && !t.row.Paused {
			m.setTrigger(t, released(t.row))
		}
	}
}

// triggersOf lists triggers so that they can be deleted and changed on the way.
func triggersOf(j *memoryJob) []*memoryTrigger {
	return slices.Collect(j.triggers.rising(none))
}
