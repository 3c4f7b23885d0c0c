package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// Finish implements durable.Store.
func (s *Store) Finish(ctx context.Context, r durable.FinishRequest) (own []bool, err error) {
	if len(r.Ends) == 0 {
		return []bool{}, ctx.Err()
	}
	clash := false
	// onceMore repeats it if the history has a run's ID already.
	onceMore := func(err error) error {
		if isDuplicate(err) && !clash {
			clash = true
			err = errors.Join(errChanged, err)
		}
		return err
	}
	transact := s.transact
	more := slices.ContainsFunc(r.Ends, needsMore)
	if more {
		transact = s.write
	}
	if s.dialect.moves && !more && fits(r.Ends) {
		err = s.read(ctx, func(db querier) (err error) { // a single statement is a transaction by itself
			own, err = (&txn{Store: s, q: db, ctx: ctx}).takeRuns(r.Ends, clash)
			return onceMore(err)
		})
	} else {
		err = transact(ctx, func(t *txn) (err error) {
			own, err = t.finish(&r, clash)
			return onceMore(err)
		})
	}
	if err != nil {
		return nil, err
	}
	return own, nil
}

// finish is a Finish in its transaction. clash tells that the history has the ID of some
// run already: another one ended under it. To look for that costs, and it is next to never
// so.
func (t *txn) finish(r *durable.FinishRequest, clash bool) ([]bool, error) {
	if slices.ContainsFunc(r.Ends, needsTime) {
		if err := t.start(); err != nil {
			return nil, err
		}
	}
	if err := t.lockEnds(r.Ends); err != nil {
		return nil, err
	}
	cancelled, err := t.cancelled(r.Ends)
	if err != nil {
		return nil, err
	}
	own, err := t.takeRuns(r.Ends, clash)
	if err != nil {
		return nil, err
	}
	var local []durable.RunRow
	var follow []durable.TriggerRow
	freed, held := map[string]bool{}, map[string]bool{}
	for i := range r.Ends {
		e := &r.Ends[i]
		if !own[i] {
			continue
		}
		if e.Follow != nil && !slices.Contains(cancelled, e.Run.ID) {
			f := *e.Follow
			if in := t.now.Add(e.FollowIn); f.DueAt.IsZero() || in.Before(f.DueAt) {
				f.DueAt = in
			}
			f.Version = 1
			follow = append(follow, f)
		}
		switch {
		case e.Local:
			run := e.Run
			run.EndedAt = t.now
			local = append(local, run)
			continue
		case e.Keep:
			continue
		}
		if e.Run.Exclusive {
			freed[e.Run.Job] = true
		}
		if e.Run.Holds {
			held[e.Run.TriggerID] = true
		}
	}
	if err := insert(t, history, local, true); err != nil {
		return nil, err
	}
	if _, err := t.unblock(slices.Sorted(maps.Keys(freed)), limits.Wakes); err != nil {
		return nil, err
	}
	if err := t.resume(slices.Sorted(maps.Keys(held)), r.Resume); err != nil {
		return nil, err
	}
	return own, t.addFollowers(follow)
}

// cancelled are those of the runs that are to be followed and that somebody wanted
// cancelled. It locks their rows: nobody is to want it afterwards.
func (t *txn) cancelled(ends []durable.End) ([]string, error) {
	var ids []string
	for i := range ends {
		if ends[i].Follow != nil && !ends[i].Local {
			ids = append(ids, ends[i].Run.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	where, args := t.dialect.among("id", ids)
	var cancelled []string
	err := each(t.ctx, t.Store, t.q, "SELECT id, to_cancel FROM {run}{primary} WHERE "+where+" ORDER BY id{lock}", args, func(rows *sql.Rows) error {
		var id string
		var cancel truth
		err := rows.Scan(&id, &cancel)
		if cancel {
			cancelled = append(cancelled, id)
		}
		return err
	})
	return cancelled, err
}

// addFollowers adds what follows the ends, for the handlers that the jobs have now.
func (t *txn) addFollowers(follow []durable.TriggerRow) error {
	if len(follow) == 0 {
		return nil
	}
	names := map[string]bool{}
	for i := range follow {
		names[follow[i].Job] = true
	}
	where, args := t.dialect.among("name", slices.Sorted(maps.Keys(names)))
	handlers := map[string]string{}
	err := each(t.ctx, t.Store, t.q, "SELECT name, handler FROM {job} WHERE "+where, args, func(rows *sql.Rows) error {
		var name, handler string
		err := rows.Scan(&name, &handler)
		handlers[name] = handler
		return err
	})
	if err != nil {
		return err
	}
	for i := range follow {
		if h, ok := handlers[follow[i].Job]; ok {
			follow[i].Handler = h
		}
	}
	return insert(t, triggers, follow, true)
}

// needsMore tells whether the end takes more than to move the run to the history.
func needsMore(e durable.End) bool { return needsTime(e) || e.Keep || e.Run.Exclusive }

// fits tells whether the ends are surely one statement's: see chunks.
func fits(ends []durable.End) bool {
	size := 0
	row := make([]any, 0, len(outcome))
	for i := range ends {
		size += weight(outcomeOf(row, &ends[i].Run))
	}
	return len(ends) <= batchRows && size < batchBytes
}

// needsTime tells whether the end makes rows here of which an instant is part.
func needsTime(e durable.End) bool { return e.Local || e.Follow != nil || e.Run.Holds }

// lockEnds locks the gates behind which the ends make a difference.
func (t *txn) lockEnds(ends []durable.End) error {
	names := map[string]bool{}
	for i := range ends {
		if r := &ends[i].Run; !ends[i].Local && (r.Exclusive || r.Holds) {
			names[r.Job] = true
		}
	}
	if len(names) == 0 || t.dialect.lock == "" {
		return nil
	}
	_, err := t.gates(slices.Sorted(maps.Keys(names)), "{lock}")
	return err
}

// An owner is what a node says that it has: a run, by its ID.
type owner struct{ id, node string }

// takeRuns moves the active rows of ends that are still their node's to the history,
// or changes those that are to be kept, and tells which. Of several ends of one run the
// first counts that does not keep it.
func (t *txn) takeRuns(ends []durable.End, clash bool) ([]bool, error) {
	own := make([]bool, len(ends))
	place := make(map[owner]int, len(ends)) // of the end that takes the row
	take := make([]*durable.RunRow, 0, len(ends))
	for i := range ends {
		e := &ends[i]
		key := owner{e.Run.ID, e.Run.Node}
		_, gone := place[key]
		switch {
		case e.Local:
			own[i] = true
		case gone:
		case e.Keep:
			kept, err := t.keepRun(&e.Run)
			if err != nil {
				return nil, err
			}
			own[i] = kept
		default:
			place[key] = i
			take = append(take, &e.Run)
		}
	}
	slices.SortFunc(take, func(a, b *durable.RunRow) int { return strings.Compare(a.ID, b.ID) })
	values := grid(len(take), len(outcome))
	for i, r := range take {
		values[i] = outcomeOf(values[i], r)
	}
	err := chunks(values, func(rows [][]any) error {
		return t.moveRuns(rows, clash, func(taken owner) { own[place[taken]] = true })
	})
	return own, err
}

var (
	// outcome is what an end says of a run.
	outcome = columnsOf(runs, "id", "node", "state", "duration", "code", "message", "detail")
	// moved are the columns of an ended run: of the active row, or of the outcome.
	moved = movedColumns()
)

func outcomeOf(row []any, r *durable.RunRow) []any {
	return append(row, r.ID, r.Node, int64(r.State), int64(r.Duration), string(r.Code), r.Message, r.Detail)
}

func movedColumns() string {
	list := make([]string, len(history.columns))
	for i, c := range history.columns {
		switch {
		case c.name == "ended_at":
			list[i] = "{now} AS ended_at"
		case slices.Contains(outcome[2:], c):
			list[i] = "v." + c.name
		default:
			list[i] = "t." + c.name
		}
	}
	return strings.Join(list, ", ")
}

// moveRuns moves active rows to the history, and tells which were there. The rows are
// an outcome each.
func (t *txn) moveRuns(rows [][]any, clash bool, taken func(owner)) error {
	const on = "t.id = v.id AND t.node = v.node"
	var ids []string
	note := func(rows *sql.Rows) error {
		var o owner
		err := rows.Scan(&o.id, &o.node)
		ids = append(ids, o.id)
		taken(o)
		return err
	}
	batch, args := t.dialect.batch(outcome, rows)
	into, end := "INSERT INTO {history} ("+history.list()+") ", ""
	if clash {
		end = t.dialect.ignore("id")
	}
	if t.dialect.moves {
		text := "WITH gone AS (" + t.dialect.remove("{run}", batch, on+"{timeouts}") + " RETURNING " + moved + ")"
		move := into + "SELECT " + history.list() + " FROM gone" + end
		if clash { // RETURNING would leave out those that the history has
			text += ", kept AS (" + move + ") SELECT id, node FROM gone"
		} else {
			text += " " + move + " RETURNING id, node"
		}
		return each(t.ctx, t.Store, t.q, text, args, note)
	}
	source := " FROM " + batch + t.dialect.then + "{run} AS t{primary} ON " + on
	if err := each(t.ctx, t.Store, t.q, "SELECT t.id, t.node"+source+"{lock}", args, note); err != nil || len(ids) == 0 {
		return err
	}
	if _, err := t.exec(into+"SELECT "+moved+source+end, args...); err != nil {
		return err
	}
	_, err := t.removeByID("{run}", ids)
	return err
}

// keepRun changes a run that stays. They are few: one at a time.
func (t *txn) keepRun(end *durable.RunRow) (bool, error) {
	rows, err := find(t.ctx, t.Store, t.q, runs, " WHERE id = ? AND node = ?"+t.bounds()+"{lock}", end.ID, end.Node)
	if err != nil || len(rows) == 0 || rows[0].State != durable.RunRunning {
		return false, err // kept already: what follows was added then
	}
	row := rows[0]
	row.State, row.Duration = end.State, end.Duration
	row.Code, row.Message, row.Detail = end.Code, end.Message, end.Detail
	return true, update(t, runs, rows, []durable.RunRow{row}, false)
}

// unblock sets blocked triggers of jobs waiting, the first n of each, and tells whether
// there were any. One of them will run, and the others are blocked again: to wake them all
// at each end would cost a queue of runs the square of its length.
func (t *txn) unblock(names []string, n int) (some bool, err error) {
	ids, err := t.blocked(names, n)
	if err != nil {
		return false, err
	}
	_, err = t.wake(ids)
	return len(ids) > 0, err
}

// blocked are the IDs of the first n blocked triggers of each job, in order.
func (t *txn) blocked(names []string, n int) (ids []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	blocked := "state = " + numeral(durable.StateBlocked)
	// The index has those of a job in this order. A ranking of all would read every queue to
	// its end.
	first := func(job string) string {
		return "(SELECT t.id FROM {trigger} AS t{blocked} WHERE t.job = " + job + " AND t." + blocked +
			" ORDER BY t.priority DESC, t.due_at{nulls}, t.id LIMIT " + strconv.Itoa(n) + ") AS b"
	}
	if t.dialect.lateral {
		batch, args := t.dialect.batch([]column{{"job", short}}, listed(names))
		ids, err = t.texts("SELECT b.id FROM "+batch+" CROSS JOIN LATERAL "+first("v.job"), args...)
	} else {
		err = chunks(listed(names), func(rows [][]any) error {
			some, err := t.texts("SELECT id FROM "+strings.Join(slices.Repeat([]string{first("?")}, len(rows)), " UNION ALL SELECT id FROM "), slices.Concat(rows...)...)
			ids = append(ids, some...)
			return err
		})
	}
	slices.Sort(ids)
	return ids, err
}

// wake sets those of the triggers waiting that are blocked, and tells how many.
func (t *txn) wake(ids []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	where, args := t.dialect.among("id", ids)
	n, err := t.exec("UPDATE {trigger} SET state = "+numeral(durable.StateWaiting)+", reason = '', version = version + 1 WHERE +state = "+
		numeral(durable.StateBlocked)+" AND "+where, args...) // + has SQLite go by id
	return int(n), err
}

// resume sets triggers going that waited for the ends.
func (t *txn) resume(ids []string, f func(now time.Time, trigger durable.TriggerRow) durable.TriggerRow) error {
	if len(ids) == 0 {
		return nil
	}
	where, args := t.dialect.among("id", ids)
	was, err := find(t.ctx, t.Store, t.q, triggers, "{primary} WHERE "+where+" ORDER BY id{lock}", args...)
	if err != nil {
		return err
	}
	was = slices.DeleteFunc(was, func(r durable.TriggerRow) bool { return r.State != durable.StateRunning })
	is := make([]durable.TriggerRow, len(was))
	for i, row := range was {
		is[i] = f(t.now, ownTrigger(row))
		is[i].ID, is[i].Job, is[i].Version = row.ID, row.Job, row.Version+1
	}
	return update(t, triggers, was, is, true)
}
