package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// A where is conditions, to be joined with AND.
type where struct {
	text []string
	args []any
}

func (w *where) and(text string, args ...any) {
	w.text = append(w.text, text)
	w.args = append(w.args, args...)
}

func (w *where) String() string {
	if len(w.text) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.text, " AND ")
}

func (w *where) among(s *Store, column string, list []string) {
	text, args := s.dialect.among(column, list)
	w.and(text, args...)
}

// Jobs implements durable.Store.
func (s *Store) Jobs(ctx context.Context, q durable.JobQuery) (states []durable.JobState, err error) {
	err = s.read(ctx, func(db querier) error {
		states, err = s.jobs(ctx, db, &q)
		return err
	})
	return states, err
}

func (s *Store) jobs(ctx context.Context, db querier, q *durable.JobQuery) ([]durable.JobState, error) {
	var w where
	if len(q.Names) > 0 {
		w.among(s, "name", q.Names)
	}
	if q.EveryNode {
		w.and("every_node = 1")
	}
	if q.After != "" {
		w.and("name > ?", q.After)
	}
	limit := cmp.Or(max(q.Limit, 0), limits.DefaultJobs)
	rows, err := find(ctx, s, db, jobs, w.String()+" ORDER BY name LIMIT "+strconv.Itoa(limit), w.args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	states := make([]durable.JobState, len(rows))
	names, place := make([]string, len(rows)), make(map[string]*durable.JobState, len(rows))
	for i, row := range rows {
		states[i].Job = row
		names[i], place[row.Name] = row.Name, &states[i]
	}
	if !q.WithoutTriggers {
		own, err := s.triggersOf(ctx, db, names, q.EveryNode)
		if err != nil {
			return nil, err
		}
		added := map[string]int{}
		for _, t := range own {
			if bounded(t.Kind, q.EveryNode) {
				if added[t.Job]++; added[t.Job] > limits.MostOneShots {
					continue
				}
			}
			state := place[t.Job]
			state.Triggers = append(state.Triggers, t)
		}
	}
	if q.WithoutRuns {
		return states, nil
	}
	which, args := s.dialect.among("job", names)
	running, err := find(ctx, s, db, runs, ` WHERE `+which+` ORDER BY id`, args...)
	for _, r := range running {
		place[r.Job].Running = append(place[r.Job].Running, r)
	}
	return states, err
}

// bounded tells whether there are at most limits.MostOneShots triggers of that kind in an answer.
func bounded(kind durable.Kind, everyNode bool) bool {
	return kind != durable.KindSchedule && (kind != durable.KindBroadcast || !everyNode)
}

// triggersOf reads the triggers of jobs, of each job in the order of JobState; of one-shot
// ones perhaps more than wanted, but not all of a million.
func (s *Store) triggersOf(ctx context.Context, db querier, names []string, everyNode bool) ([]durable.TriggerRow, error) {
	which, args := s.dialect.among("j.name", names)
	many := map[string]bool{}
	err := each(ctx, s, db, `SELECT j.name FROM {job} AS j WHERE `+which+
		` AND (SELECT x.kind FROM {trigger} AS x{ofjob} WHERE x.job = j.name AND x.kind > 0 ORDER BY x.kind, x.name LIMIT 1 OFFSET `+strconv.Itoa(limits.MostOneShots)+`) IS NOT NULL`,
		args, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			many[name] = true
			return err
		})
	if err != nil {
		return nil, err
	}
	few := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return many[name] })
	which, args = s.dialect.among("job", few)
	own, err := find(ctx, s, db, triggers, `{ofjob} WHERE `+which, args...)
	for _, name := range slices.Sorted(maps.Keys(many)) {
		for kind := durable.KindSchedule; kind <= durable.KindBroadcast && err == nil; kind++ {
			limit := ""
			if bounded(kind, everyNode) {
				limit = " LIMIT " + strconv.Itoa(limits.MostOneShots)
			}
			var some []durable.TriggerRow
			some, err = find(ctx, s, db, triggers, `{ofjob} WHERE job = ? AND kind = `+numeral(kind)+` ORDER BY name`+limit, name)
			own = append(own, some...)
		}
	}
	slices.SortFunc(own, func(a, b durable.TriggerRow) int {
		if a.OneShot() != b.OneShot() {
			return cmp.Compare(min(a.Kind, 1), min(b.Kind, 1))
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return own, err
}

// Runs implements durable.Store.
func (s *Store) Runs(ctx context.Context, q durable.RunQuery) (rows []durable.RunRow, err error) {
	err = s.read(ctx, func(db querier) (err error) {
		rows, err = s.runs(ctx, db, &q)
		return err
	})
	return rows, err
}

func (s *Store) runs(ctx context.Context, db querier, q *durable.RunQuery) ([]durable.RunRow, error) {
	limit := min(cmp.Or(max(q.Limit, 0), limits.DefaultRuns), limits.MostRuns)
	w := s.runsWhere(q)
	text := w.String() + " ORDER BY started_at DESC, id DESC LIMIT " + strconv.Itoa(limit)
	// Active ones first: one that ends in between is then in both.
	active, err := find(ctx, s, db, runs, text, w.args...)
	if err != nil {
		return nil, err
	}
	if q.Job != "" && len(q.IDs) == 0 {
		text = "{pastof}" + text
	}
	rows, err := find(ctx, s, db, history, text, w.args...)
	if err != nil {
		return nil, err
	}
	ended := make(map[string]bool, len(rows))
	for i := range rows {
		ended[rows[i].ID] = true
	}
	active = slices.DeleteFunc(active, func(r durable.RunRow) bool { return ended[r.ID] })
	rows = append(rows, active...)
	slices.SortFunc(rows, func(a, b durable.RunRow) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(b.ID, a.ID))
	})
	return rows[:min(limit, len(rows))], nil
}

func (s *Store) runsWhere(q *durable.RunQuery) *where {
	w := &where{}
	if len(q.IDs) > 0 {
		w.among(s, "id", q.IDs)
	}
	if q.Job != "" {
		w.and("job = ?", q.Job)
	}
	if q.Trigger != "" {
		w.and("trigger_name = ?", q.Trigger)
	}
	if len(q.States) > 0 {
		var list []string
		for _, n := range q.States {
			list = append(list, numeral(n))
		}
		w.and("state IN (" + strings.Join(list, ", ") + ")")
	}
	if q.Node != "" {
		w.and("node = ?", q.Node)
	}
	if !q.From.IsZero() {
		w.and("started_at >= ?", roundUp(q.From))
	}
	if !q.To.IsZero() {
		w.and("started_at < ?", roundUp(q.To))
	}
	if q.Before != (durable.RunKey{}) {
		at := q.Before.StartedAt.UnixMicro()
		w.and("started_at <= ? AND (started_at < ? OR id < ?)", at, at, q.Before.ID)
	}
	return w
}

// roundUp is for bounds that are finer than what is stored.
func roundUp(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

// Purge implements durable.Store.
func (s *Store) Purge(ctx context.Context, r durable.PurgeRequest) (n int, err error) {
	err = s.write(ctx, func(t *txn) error {
		n, err = t.purge(&r)
		return err
	})
	return n, err
}

func (t *txn) purge(r *durable.PurgeRequest) (int, error) {
	if err := t.start(); err != nil {
		return 0, err
	}
	var w where
	if len(r.IDs) > 0 {
		w.among(t.Store, "id", r.IDs)
	} else {
		before := cmp.Or(r.Before, t.now.Add(-r.OlderThan)).UnixMicro()
		// What has ended by then has started by then: the index by start is enough.
		w.and("started_at <= ? AND ended_at < ?", before, before)
	}
	limit := cmp.Or(max(r.Limit, 0), limits.DefaultPurge)
	ids, err := t.texts("SELECT id FROM {history}"+w.String()+" ORDER BY started_at, id LIMIT "+strconv.Itoa(limit)+"{skip}", w.args...)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return t.removeByID("{history}", ids)
}
