package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/taskmanager-go/taskmanager/durable"
)

// Tx lets a *durable.Scheduler's Within make its changes in a transaction of the
// caller's, in the store's database: they come true with its commit. Nothing is
// repeated there: after an error of the database, roll back.
//
// The jobs that are edited are locked until the transaction ends, so let it end
// soon: their triggers are not claimed meanwhile, and the ends of their runs, of jobs that
// do not allow concurrency, wait to be recorded. To add a run of a job locks nothing.
func Tx(tx *sql.Tx) durable.Tx { return callers{tx} }

type callers struct{ tx *sql.Tx }

// Join implements durable.Tx.
func (c callers) Join(s durable.Store) (durable.Editor, error) {
	store, ok := s.(*Store)
	if !ok {
		return nil, fmt.Errorf("sqlstore: Tx with a %T, which is no store of this package", s)
	}
	if c.tx == nil {
		return nil, errors.New("sqlstore: Tx of nil")
	}
	return joined{store, c.tx}, nil
}

type joined struct {
	store *Store
	tx    *sql.Tx
}

// Runs reads runs inside the transaction: there may be no other connection.
func (j joined) Runs(ctx context.Context, q durable.RunQuery) ([]durable.RunRow, error) {
	if err := j.store.check(ctx, j.tx); err != nil {
		return nil, err
	}
	return j.store.runs(ctx, j.tx, &q)
}

// Edit implements durable.Editor.
func (j joined) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	if err := j.store.check(ctx, j.tx); err != nil {
		return err
	}
	t := &txn{Store: j.store, q: j.tx, ctx: ctx}
	// The settings of the store's transactions are not for this one.
	var now int64
	if err := t.one([]any{&now}, `SELECT {now}`); err != nil {
		return err
	}
	t.now = fromMicros(now)
	return t.edit(job, scope, change)
}

// Edit implements durable.Store.
func (s *Store) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	return s.write(ctx, func(t *txn) error {
		if err := t.start(); err != nil {
			return err
		}
		return t.edit(job, scope, change)
	})
}

func (t *txn) edit(job string, scope durable.Scope, change func(*durable.Edit) error) error {
	e, err := t.load(job, scope)
	if err != nil {
		return err
	}
	was := *e
	if e.Job != nil {
		row := *e.Job
		row.Data = bytes.Clone(row.Data)
		was.Job = &row
	}
	was.Triggers, was.Running = slices.Clone(e.Triggers), slices.Clone(e.Running)
	for i, row := range was.Triggers {
		was.Triggers[i] = ownTrigger(row)
	}
	if err := change(e); err != nil {
		return err
	}
	if err := checkEdit(job, scope, &was, e); err != nil {
		return err
	}
	if scope == durable.EditJob {
		if err := t.save(job, &was, e); err != nil {
			return err
		}
	}
	if err := t.add(job, scope, &was, e); err != nil {
		return err
	}
	if t.dialect.unshare == "" || was.Job == nil || !was.Job.AllowConcurrent || e.Job != nil && e.Job.AllowConcurrent {
		return nil
	}
	_, err = t.exec(t.dialect.unshare, job) // see shareJobs
	return err
}

// load reads what the scope shows. The rows are locked even behind the gate, since
// in a caller's REPEATABLE READ only locks show what is there now.
func (t *txn) load(job string, scope durable.Scope) (*durable.Edit, error) {
	e := &durable.Edit{Now: t.now}
	lock, current := "", ""
	if scope == durable.EditJob {
		lock, current = "{lock}", "{current}"
		if t.dialect.lock != "" {
			if _, err := t.gates([]string{job}, lock); err != nil {
				return nil, err
			}
		}
	}
	found, err := find(t.ctx, t.Store, t.q, jobs, ` WHERE name = ?`+current, job)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		e.Job = &found[0]
	}
	if scope == durable.EditJob {
		e.Triggers, err = find(t.ctx, t.Store, t.q, triggers, ` WHERE job = ? AND kind = 0 ORDER BY name, id`+lock, job)
		if err != nil {
			return nil, err
		}
		e.Running, err = find(t.ctx, t.Store, t.q, runs, ` WHERE job = ? ORDER BY id`, job)
		return e, err
	}
	ids, err := t.texts(`SELECT id FROM {run} WHERE job = ? ORDER BY id`, job)
	for _, id := range ids {
		e.Running = append(e.Running, durable.RunRow{ID: id})
	}
	return e, err
}

// checkEdit refuses an Edit that cannot be made true. Two triggers of one name that were
// there before are somebody's hand's, and no reason to refuse what else there is to change.
func checkEdit(job string, scope durable.Scope, was, e *durable.Edit) error {
	for i := range e.Add {
		if t := &e.Add[i]; t.ID == "" || t.Job != job || !t.OneShot() {
			return fmt.Errorf("sqlstore: edit of job %q adds no one-shot trigger of it: %q of job %q", job, t.ID, t.Job)
		}
	}
	if scope != durable.EditJob || e.Job == nil {
		return nil
	}
	if e.Job.Name != job {
		return fmt.Errorf("sqlstore: edit of job %q gives job %q", job, e.Job.Name)
	}
	ids, names := map[string]bool{}, map[string]int{}
	for i := range e.Triggers {
		names[e.Triggers[i].Name]++
	}
	for i := range e.Triggers {
		t := &e.Triggers[i]
		if t.ID == "" || t.Job != job || t.OneShot() {
			return fmt.Errorf("sqlstore: edit of job %q gives no schedule trigger of it: %q of job %q", job, t.ID, t.Job)
		}
		if ids[t.ID] {
			return fmt.Errorf("sqlstore: trigger with the ID %q: %w", t.ID, durable.ErrExists)
		}
		if names[t.Name] > 1 && !slices.ContainsFunc(was.Triggers, func(r durable.TriggerRow) bool { return r.ID == t.ID && r.Name == t.Name }) {
			return fmt.Errorf("sqlstore: trigger %q of job %q: %w", t.Name, job, durable.ErrExists)
		}
		ids[t.ID] = true
	}
	return nil
}

// save makes the differences in the job and its schedule triggers true.
func (t *txn) save(job string, was, e *durable.Edit) error {
	if e.Job == nil {
		if _, err := t.exec(`DELETE FROM {trigger} WHERE job = ?`, job); err != nil {
			return err
		}
		_, err := t.exec(`DELETE FROM {job} WHERE name = ?`, job)
		return err
	}
	if err := t.dropTriggers(job, was, e); err != nil {
		return err
	}
	if err := t.saveTriggers(was, e); err != nil {
		return err
	}
	if err := t.saveJob(was, e); err != nil {
		return err
	}
	if was.Job != nil && was.Job.Handler == e.Job.Handler {
		return nil
	}
	_, err := t.exec(`UPDATE {trigger} SET handler = ?, version = version + 1 WHERE job = ? AND handler <> ?`,
		e.Job.Handler, job, e.Job.Handler)
	return err
}

// dropTriggers deletes what was left out, and DropAdded.
func (t *txn) dropTriggers(job string, was, e *durable.Edit) error {
	var gone []string
	for i := range was.Triggers {
		id := was.Triggers[i].ID
		if !slices.ContainsFunc(e.Triggers, func(r durable.TriggerRow) bool { return r.ID == id }) {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		if _, err := t.removeByID("{trigger}", gone); err != nil {
			return err
		}
	}
	var kinds []string
	for _, k := range e.DropAdded {
		if k != durable.KindSchedule {
			kinds = append(kinds, numeral(k))
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	_, err := t.exec(`DELETE FROM {trigger} WHERE job = ? AND kind IN (`+strings.Join(kinds, ", ")+`)`, job)
	return err
}

func (t *txn) saveTriggers(was, e *durable.Edit) error {
	var before, after, added []durable.TriggerRow
	for i := range e.Triggers {
		row := ownTrigger(e.Triggers[i])
		k := slices.IndexFunc(was.Triggers, func(r durable.TriggerRow) bool { return r.ID == row.ID })
		if k < 0 {
			row.Version = 1
			added = append(added, row)
			continue
		}
		row.Version = was.Triggers[k].Version
		if !reflect.DeepEqual(row, was.Triggers[k]) {
			row.Version++
			before, after = append(before, was.Triggers[k]), append(after, row)
		}
		e.Triggers[i].Version = row.Version
	}
	if err := update(t, triggers, before, after, true); err != nil {
		return err
	}
	err := insert(t, triggers, added, false)
	if isDuplicate(err) {
		err = fmt.Errorf("sqlstore: trigger of job %q: %w: %w", e.Job.Name, durable.ErrExists, err)
	}
	return err
}

func (t *txn) saveJob(was, e *durable.Edit) error {
	row := *e.Job
	row.Data = own(row.Data)
	if was.Job == nil {
		row.Version, row.Created, row.Updated = 1, t.now, t.now
		*e.Job = row
		return insert(t, jobs, []durable.JobRow{row}, false)
	}
	row.Version, row.Created, row.Updated = was.Job.Version, was.Job.Created, was.Job.Updated
	if reflect.DeepEqual(row, *was.Job) {
		return nil
	}
	row.Version++
	row.Updated = t.now
	*e.Job = row
	return update(t, jobs, []durable.JobRow{*was.Job}, []durable.JobRow{row}, false)
}

// add makes the rest true, which both scopes have but for Release.
func (t *txn) add(job string, scope durable.Scope, was, e *durable.Edit) error {
	add := slices.DeleteFunc(slices.Clone(e.Add), func(r durable.TriggerRow) bool {
		return slices.ContainsFunc(was.Running, func(active durable.RunRow) bool { return active.ID == r.ID })
	})
	for i := range add {
		add[i].Version = 1
	}
	if err := insert(t, triggers, add, true); err != nil {
		return err
	}
	if scope == durable.EditJob && e.Release {
		if _, err := t.exec(`UPDATE {trigger} SET state = `+numeral(durable.StateWaiting)+`, reason = '', version = version + 1 WHERE job = ? AND (state = `+
			numeral(durable.StateBlocked)+` OR state = `+numeral(durable.StatePaused)+` AND paused = 0)`, job); err != nil {
			return err
		}
	}
	records := slices.Clone(e.Records)
	for i := range records {
		records[i].StartedAt, records[i].EndedAt = t.now, t.now
	}
	if err := insert(t, history, records, true); err != nil {
		return err
	}
	if len(e.Cancel) == 0 {
		return nil
	}
	where, args := t.dialect.among("id", e.Cancel)
	_, err := t.exec(`UPDATE {run} SET to_cancel = 1 WHERE job = ? AND `+where, append([]any{job}, args...)...)
	return err
}
