package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// Beat implements durable.Store.
func (s *Store) Beat(ctx context.Context, node durable.NodeRow, ttl time.Duration) (res durable.BeatResult, err error) {
	err = s.write(ctx, func(t *txn) (err error) {
		res, err = t.beat(node, ttl)
		return err
	})
	return res, err
}

func (t *txn) beat(node durable.NodeRow, ttl time.Duration) (res durable.BeatResult, err error) {
	if err := t.start(); err != nil {
		return res, err
	}
	res.Now = t.now
	var dead bool
	err = t.one([]any{&dead}, `SELECT dead FROM {node} WHERE id = ?{lock}`, node.ID)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return res, err
	}
	res.Dead = dead
	switch {
	case dead:
	case ttl <= 0:
		_, err = t.exec(`DELETE FROM {node} WHERE id = ? AND NOT EXISTS (SELECT 1 FROM {run} WHERE node = ?)`, node.ID, node.ID)
	case known:
		_, err = t.exec(`UPDATE {node} SET heartbeat_at = ?, lease_until = ? WHERE id = ?`,
			t.now.UnixMicro(), t.now.Add(ttl).UnixMicro(), node.ID)
	default:
		err = insert(t, nodes, []durable.NodeRow{{
			ID: node.ID, Name: node.Name, StartedAt: t.now, Heartbeat: t.now, LeaseUntil: t.now.Add(ttl),
		}}, false)
		if isDuplicate(err) {
			err = errors.Join(errChanged, err) // two beats at once: see the other's
		}
	}
	if err != nil {
		return res, err
	}
	if err := t.one([]any{&res.Alive}, `SELECT count(*) FROM {node} WHERE dead = 0 AND lease_until > ?`, t.now.UnixMicro()); err != nil {
		return res, err
	}
	err = each(t.ctx, t.Store, t.q, `SELECT id, to_cancel FROM {run} WHERE node = ? ORDER BY id`, []any{node.ID}, func(rows *sql.Rows) error {
		var r durable.OwnRun
		err := rows.Scan(&r.ID, &r.Cancel)
		res.Runs = append(res.Runs, r)
		return err
	})
	return res, err
}

// Expire implements durable.Store.
func (s *Store) Expire(ctx context.Context, r durable.ExpireRequest) (res durable.ExpireResult, err error) {
	err = s.write(ctx, func(t *txn) (err error) {
		res, err = t.expire(&r)
		return err
	})
	return res, err
}

func (t *txn) expire(r *durable.ExpireRequest) (res durable.ExpireResult, err error) {
	if err := t.start(); err != nil {
		return res, err
	}
	res.Now = t.now
	if _, err := t.exec(`DELETE FROM {node} WHERE dead = 1 AND lease_until < ? AND NOT EXISTS (SELECT 1 FROM {run} AS r WHERE r.node = {node}.id)`,
		t.now.Add(-limits.DeadNodeKept).UnixMicro()); err != nil {
		return res, err
	}
	// A beat that was first has moved the lease by the time we have the lock.
	res.Dead, err = find(t.ctx, t.Store, t.q, nodes, ` WHERE dead = 0 AND lease_until < ? ORDER BY id{lock}`,
		t.now.Add(-r.Grace).UnixMicro())
	if err != nil {
		return res, err
	}
	was := append([]durable.NodeRow(nil), res.Dead...)
	for i := range res.Dead {
		res.Dead[i].Dead = true
	}
	if err := update(t, nodes, was, res.Dead, false); err != nil {
		return res, err
	}
	limit := max(r.Limit, 0)
	res.Runs, err = find(t.ctx, t.Store, t.q, runs, ` WHERE NOT EXISTS (SELECT 1 FROM {node} AS n WHERE n.id = t.node AND n.dead = 0) ORDER BY t.id LIMIT ?`, limit)
	if err != nil {
		return res, err
	}
	// Nothing from here on waits for what others have locked, in transactions of the caller's
	// perhaps, that edit jobs and last: dead nodes would stay undeclared until they end.
	unheld, err := t.dropHolds()
	if err != nil {
		return res, err
	}
	undue, err := find(t.ctx, t.Store, t.q, triggers, `{due} WHERE state = `+numeral(durable.StateWaiting)+
		` AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND due_at IS NULL AND id > ? ORDER BY id LIMIT ?`, r.After, limit)
	if err != nil {
		return res, err
	}
	var oneShots []durable.TriggerRow
	for _, row := range undue {
		if row.OneShot() {
			oneShots = append(oneShots, row)
		} else {
			res.Undue = append(res.Undue, row)
		}
	}
	due, err := t.change(oneShots, func(row *durable.TriggerRow) { row.DueAt = t.now })
	if err != nil {
		return res, err
	}
	released, err := t.wakeIdle()
	if err != nil {
		return res, err
	}
	res.Released = unheld + len(due) + released
	return res, t.removeBroadcasts()
}

// dropHolds has triggers wait again that are to wait for the end of a run that is not
// there, and tells how many may be due. A claim makes both in one transaction, and the
// query sees it whole or not at all; one that comes in between has given the trigger another
// version. A single UPDATE would see the trigger as it is by now, on MySQL, and the runs as
// they were.
func (t *txn) dropHolds() (n int, err error) {
	orphans, err := find(t.ctx, t.Store, t.q, triggers, `{due} WHERE state = `+numeral(durable.StateRunning)+
		` AND NOT EXISTS (SELECT 1 FROM {run} AS r WHERE r.job = t.job AND r.trigger_id = t.id) ORDER BY id`)
	if err != nil {
		return 0, err
	}
	changed, err := t.change(orphans, func(row *durable.TriggerRow) {
		row.State, row.Reason = durable.StateWaiting, ""
		if row.Paused { // whoever repairs it sees to that
			row.DueAt = time.Time{}
		}
	})
	for _, row := range changed {
		if !row.DueAt.IsZero() {
			n++
		}
	}
	return n, err
}

// wakeIdle wakes triggers of jobs that have no active run, as the end of one would have, and
// tells how many.
func (t *txn) wakeIdle() (int, error) {
	idle, err := t.idle()
	if err != nil {
		return 0, err
	}
	ids, err := t.blocked(idle, limits.Wakes)
	if err != nil {
		return 0, err
	}
	if ids, err = t.unlocked(ids); err != nil {
		return 0, err
	}
	return t.wake(ids)
}

// idle are jobs with blocked triggers and without an active run. It looks at the queues a
// piece at a time, and passes over what is left of a job's that it has come to.
func (t *txn) idle() (idle []string, err error) {
	const piece = 200
	for last, more := "", true; more && err == nil; {
		more = false
		err = each(t.ctx, t.Store, t.q, `SELECT b.job, CASE WHEN EXISTS (SELECT 1 FROM {run} AS r WHERE r.job = b.job) THEN 1 ELSE 0 END FROM
			(SELECT DISTINCT p.job FROM (SELECT t.job FROM {trigger} AS t{blocked} WHERE t.state = `+numeral(durable.StateBlocked)+
			` AND t.job > ? ORDER BY t.job LIMIT `+strconv.Itoa(piece)+`) AS p) AS b ORDER BY b.job`, []any{last}, func(rows *sql.Rows) error {
			var job string
			var busy truth
			err := rows.Scan(&job, &busy)
			if !busy {
				idle = append(idle, job)
			}
			last, more = job, true
			return err
		})
	}
	return idle, err
}

// removeBroadcasts deletes those whose time is over.
func (t *txn) removeBroadcasts() error {
	over, err := t.texts(`SELECT t.id FROM {trigger} AS t{due} WHERE t.state = `+numeral(durable.StateBroadcast)+` AND t.due_at < ?`, t.now.UnixMicro())
	if err != nil {
		return err
	}
	if over, err = t.unlocked(over); err != nil {
		return err
	}
	_, err = t.removeByID("{trigger}", over)
	return err
}

// change changes triggers that are still as they were read and that nobody else has locked,
// and returns them.
func (t *txn) change(read []durable.TriggerRow, f func(*durable.TriggerRow)) (is []durable.TriggerRow, err error) {
	versions := make(map[string]int64, len(read))
	ids := make([]string, len(read))
	for i, row := range read {
		ids[i], versions[row.ID] = row.ID, row.Version
	}
	was, err := t.unlockedRows(ids)
	if err != nil {
		return nil, err
	}
	was = slices.DeleteFunc(was, func(row durable.TriggerRow) bool { return row.Version != versions[row.ID] })
	is = slices.Clone(was)
	for i := range is {
		f(&is[i])
		is[i].Version++
	}
	return is, update(t, triggers, was, is, true)
}

// unlockedRows are those of the triggers that nobody else has locked, as they are now. They
// are locked then.
func (t *txn) unlockedRows(ids []string) ([]durable.TriggerRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	where, args := t.dialect.among("t.id", ids)
	return find(t.ctx, t.Store, t.q, triggers, "{primary} WHERE "+where+" ORDER BY t.id{skip}", args...)
}

func (t *txn) unlocked(ids []string) ([]string, error) {
	rows, err := t.unlockedRows(ids)
	ids = ids[:0]
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, err
}

// Nodes implements durable.Store.
func (s *Store) Nodes(ctx context.Context) (rows []durable.NodeRow, now time.Time, err error) {
	err = s.read(ctx, func(q querier) error {
		var micros int64
		if err := s.one(ctx, q, []any{&micros}, `SELECT {now}`); err != nil {
			return err
		}
		now = fromMicros(micros)
		rows, err = find(ctx, s, q, nodes, ` ORDER BY id`)
		return err
	})
	return rows, now, err
}

// Lease implements durable.Store.
func (s *Store) Lease(ctx context.Context, name, holder string, ttl time.Duration) (row durable.LeaseRow, err error) {
	err = s.write(ctx, func(t *txn) (err error) {
		row, err = t.lease(name, holder, ttl)
		return err
	})
	return row, err
}

func (t *txn) lease(name, holder string, ttl time.Duration) (durable.LeaseRow, error) {
	none := durable.LeaseRow{Name: name}
	if err := t.start(); err != nil {
		return none, err
	}
	for {
		rows, err := find(t.ctx, t.Store, t.q, leases, ` WHERE name = ?{lock}`, name)
		if err != nil {
			return none, err
		}
		if len(rows) > 0 {
			row := nextLease(rows[0], holder, t.now, ttl)
			return row, update(t, leases, rows, []durable.LeaseRow{row}, false)
		}
		if ttl <= 0 {
			return none, nil
		}
		if err := insert(t, leases, []durable.LeaseRow{none}, true); err != nil {
			return none, err
		}
	}
}

func nextLease(l durable.LeaseRow, holder string, now time.Time, ttl time.Duration) durable.LeaseRow {
	if !now.Before(l.Until) {
		l.Holder, l.Until = "", time.Time{}
	}
	switch {
	case l.Holder == "" && ttl > 0:
		l.Holder, l.Until = holder, stored(now.Add(ttl))
		l.Token++
	case l.Holder == holder && ttl > 0:
		l.Until = stored(now.Add(ttl))
	case l.Holder == holder:
		l.Holder, l.Until = "", time.Time{}
	}
	return l
}
