package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// This file has what changes of jobs come down to: functions on an Edit, without I/O.

// codeHash identifies a definition in code: what it says, not how it stands.
func codeHash(job JobRow, triggers []TriggerRow) string {
	// Spelled out, so that another field of a row, which is zero in all definitions,
	// does not make all of them new.
	said := []any{
		job.Name, job.Group, job.Description, job.Handler, job.Data, job.Retry, job.Timeout,
		job.AllowConcurrent, job.RunOnEveryNode, job.RequestsRecovery,
	}
	for _, t := range triggers {
		said = append(said, t.Name, t.Description, t.Schedule, t.Data, t.Priority, t.Misfire, t.MaxCatchUp)
	}
	text, err := json.Marshal(said)
	if err != nil { // rows are plain data
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// addJob adds a job that must be new.
func (p *planner) addJob(e *Edit, job JobRow, triggers []TriggerRow) error {
	if e.Job != nil {
		return ErrExists
	}
	e.Job = &job
	e.Triggers = make([]TriggerRow, len(triggers))
	for i, t := range triggers {
		e.Triggers[i] = p.newTrigger(e.Now, t, job)
	}
	return nil
}

// replaceJob gives a job that exists another definition. It stays paused or not, as
// do its triggers; a trigger whose schedule did not change keeps its due time.
func (p *planner) replaceJob(e *Edit, job JobRow, triggers []TriggerRow) error {
	old := e.Job
	if old == nil {
		return ErrNotFound
	}
	job.Paused, job.Source, job.CodeHash = old.Paused, old.Source, old.CodeHash
	job.Version, job.Created, job.Updated = old.Version, old.Created, old.Updated
	e.Job = &job
	if job.AllowConcurrent && !old.AllowConcurrent {
		e.Release = true
	}
	rows := make([]TriggerRow, len(triggers))
	for i, t := range triggers {
		at := slices.IndexFunc(e.Triggers, func(o TriggerRow) bool { return o.Name == t.Name })
		if at < 0 {
			rows[i] = p.newTrigger(e.Now, t, job)
			continue
		}
		rows[i] = p.changedTrigger(e.Now, e.Triggers[at], t, job)
	}
	e.Triggers = rows
	return nil
}

// syncJob makes a definition in code true, as far as it has changed since the last
// one in code.
func (p *planner) syncJob(e *Edit, job JobRow, triggers []TriggerRow) error {
	hash := codeHash(job, triggers)
	if e.Job == nil {
		job.Source, job.CodeHash = SourceCode, hash
		return p.addJob(e, job, triggers)
	}
	if e.Job.CodeHash == hash {
		return nil
	}
	if err := p.replaceJob(e, job, triggers); err != nil {
		return err
	}
	e.Job.Source, e.Job.CodeHash = SourceCode, hash
	return nil
}

// newTrigger is a trigger at its beginning.
func (p *planner) newTrigger(now time.Time, t TriggerRow, job JobRow) TriggerRow {
	t.ID = newID(now, p.random)
	t.Job, t.Handler = job.Name, job.Handler
	return p.seat(now, t, job)
}

// changedTrigger is a trigger with another definition.
func (p *planner) changedTrigger(now time.Time, old, t TriggerRow, job JobRow) TriggerRow {
	row := old
	row.Handler, row.Description, row.Data = job.Handler, t.Description, t.Data
	row.Priority, row.Misfire, row.MaxCatchUp = t.Priority, t.Misfire, t.MaxCatchUp
	local := old.State == StateLocal
	if old.Schedule == t.Schedule && local == job.RunOnEveryNode && old.State != StateError {
		return row
	}
	if old.Schedule != t.Schedule {
		row.Schedule, row.Fired = t.Schedule, 0
	}
	if old.State == StateRunning && !job.RunOnEveryNode {
		row.DueAt = time.Time{} // computed when its run ends
		return row
	}
	return p.seat(now, row, job)
}

// seat computes where a trigger stands that begins anew.
func (p *planner) seat(now time.Time, t TriggerRow, job JobRow) TriggerRow {
	t.State, t.Reason, t.DueAt = StateWaiting, "", time.Time{}
	if job.RunOnEveryNode {
		t.State = StateLocal
		return t
	}
	t = p.due(now, t)
	if t.Paused && t.State == StateWaiting {
		t.State, t.Reason = StatePaused, reasonPaused
	}
	return t
}

func pauseJob(e *Edit, paused bool) error {
	if e.Job == nil {
		return ErrNotFound
	}
	e.Job.Paused = paused
	e.Release = !paused
	return nil
}

// trigger gives the edit's trigger of that name.
func (e *Edit) trigger(name string) (*TriggerRow, error) {
	for i := range e.Triggers {
		if e.Triggers[i].Name == name {
			return &e.Triggers[i], nil
		}
	}
	return nil, fmt.Errorf("trigger %q: %w", name, ErrNotFound)
}

func (p *planner) pauseTrigger(e *Edit, name string, paused bool) error {
	t, err := e.trigger(name)
	if err != nil {
		return err
	}
	t.Paused = paused
	switch {
	case paused && (t.State == StateWaiting || t.State == StateBlocked || t.State == StatePaused):
		t.State, t.Reason = StatePaused, reasonPaused
	case !paused && t.State == StatePaused: // misfire decides about what was missed
		t.State, t.Reason = StateWaiting, ""
	case !paused && t.State == StateError:
		*t = p.seat(e.Now, *t, *e.Job)
	}
	return nil
}

func (p *planner) addTrigger(e *Edit, t TriggerRow) error {
	switch {
	case e.Job == nil:
		return ErrNotFound
	case slices.ContainsFunc(e.Triggers, func(o TriggerRow) bool { return o.Name == t.Name }):
		return ErrExists
	}
	e.Triggers = append(e.Triggers, p.newTrigger(e.Now, t, *e.Job))
	return nil
}

func (p *planner) replaceTrigger(e *Edit, t TriggerRow) error {
	old, err := e.trigger(t.Name)
	if err != nil {
		return err
	}
	*old = p.changedTrigger(e.Now, *old, t, *e.Job)
	return nil
}

func removeTrigger(e *Edit, name string) error {
	if _, err := e.trigger(name); err != nil {
		return err
	}
	e.Triggers = slices.DeleteFunc(e.Triggers, func(t TriggerRow) bool { return t.Name == name })
	return nil
}

// repair gives a waiting trigger without a due instant one, and tells whether it did. The
// condition is looked at again in the transaction, so that one node does it.
func (p *planner) repair(e *Edit, id string) (repaired bool) {
	lacks := func(t *TriggerRow) bool { return t.State == StateWaiting && t.DueAt.IsZero() }
	for i := range e.Triggers {
		if t := &e.Triggers[i]; t.ID == id && lacks(t) {
			*t = p.seat(e.Now, *t, *e.Job)
			repaired = !lacks(t)
		}
	}
	return repaired
}

// toldFor is how long nodes are told of a broadcast at the least, since the caller need
// not poll as seldom as they do. Those that are started meanwhile know by locals.prime that
// it is not theirs.
const toldFor = time.Hour

// broadcastLife is how long nodes may take to notice a broadcast.
func broadcastLife(poll, node time.Duration) time.Duration { return max(toldFor, 2*poll+node) }

// byHand adds the one-shot trigger of a call by hand; conflict tells that it only
// recorded one.
func (p *planner) byHand(e *Edit, id string, data json.RawMessage, maxData int, life time.Duration) (conflict bool, err error) {
	job := e.Job
	if job == nil {
		return false, ErrNotFound
	}
	merged, err := merge(job.Data, data)
	if err != nil {
		return false, &FieldError{Field: "Data", Value: string(data), Reason: err.Error(), Err: err}
	}
	if len(merged) > maxData {
		return false, &FieldError{Field: "Data", Value: len(merged), Reason: "is too large when merged with the job's"}
	}
	t := TriggerRow{
		ID: id, Job: job.Name, Handler: job.Handler, Kind: KindManual, Name: "manual-" + id, Data: merged,
		Priority: DefaultPriority, DueAt: e.Now, ScheduledAt: e.Now, Attempt: 1, IdempotencyKey: job.Name + "//" + id,
	}
	switch {
	case job.RunOnEveryNode:
		t.Kind, t.Name, t.State, t.DueAt = KindBroadcast, "broadcast-"+id, StateBroadcast, e.Now.Add(life)
	case !job.AllowConcurrent && len(e.Running) > 0:
		e.Records = append(e.Records, RunRow{
			ID: id, Job: job.Name, Kind: KindManual, State: RunSkipped, ScheduledAt: e.Now, Attempt: 1,
			IdempotencyKey: t.IdempotencyKey, Data: merged, Priority: t.Priority, Code: CodeConflict, Message: reasonBusy,
		})
		return true, nil
	}
	e.Add = append(e.Add, t)
	return false, nil
}
