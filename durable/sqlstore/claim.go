package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// priorities is how many there are, from 0.
const priorities = 11

// due is when the first trigger of each priority is due, zero for none.
type due [priorities]time.Time

// first is the earliest one.
func (d *due) first() (first time.Time) {
	for _, t := range d {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Claim implements durable.Store.
func (s *Store) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	res, due, err := s.look(ctx, &r)
	if err != nil || r.Limit <= 0 || res.Next.IsZero() || res.Next.After(res.Now) {
		return res, err
	}
	seen, known := res, false
	err = s.write(ctx, func(t *txn) error {
		res = seen
		t.now = seen.Now // it goes by the time at which it looked
		err := t.claim(&r, due, &res, known)
		if isDuplicate(err) && !known {
			known = true
			err = errors.Join(errChanged, err)
		}
		return err
	})
	if err != nil {
		return durable.ClaimResult{}, err
	}
	return res, nil
}

// look is the one query of a claim that finds nothing: each of its parts is a probe
// of an index. min(due_at) over all priorities, or an OR, would be a scan.
func (s *Store) look(ctx context.Context, r *durable.ClaimRequest) (res durable.ClaimResult, due due, err error) {
	which, args := s.eligible(r)
	var q strings.Builder
	var all []any
	// CASE keeps PostgreSQL from looking for max(id) in the primary key, from its end.
	broadcast := number_(durable.StateBroadcast)
	// Without parameters it is one query to drivers that prepare those with them, too.
	q.WriteString("SELECT {now}, (SELECT lease_until FROM {node} WHERE id = " + s.dialect.literal(r.Node) + " AND dead = 0), " +
		"(SELECT max(CASE state WHEN " + broadcast + " THEN id END) FROM {trigger}{due} WHERE state = " + broadcast + ")")
	for p := range priorities {
		q.WriteString(", (SELECT due_at FROM {trigger}{due} WHERE state = " + number_(durable.StateWaiting) + " AND priority = " + strconv.Itoa(p) +
			" AND due_at > -9000000000000000000 AND " + which + " ORDER BY due_at, id LIMIT 1)")
		all = append(all, args...)
	}
	var now int64
	var lease time.Time
	var last sql.NullString
	fields := []any{&now, (*instant)(&lease), &last}
	for p := range due {
		fields = append(fields, (*instant)(&due[p]))
	}
	err = s.read(ctx, func(db querier) error { return s.one(ctx, db, fields, q.String(), all...) })
	if err != nil {
		return res, due, err
	}
	res.Now, res.Next, res.Broadcast = fromMicros(now), due.first(), last.String
	if !res.Now.Before(lease) {
		return durable.ClaimResult{}, due, durable.ErrNodeDead
	}
	return res, due, nil
}

// number_ is the number that is stored for a state or kind.
func number_[T ~uint8](n T) string { return strconv.Itoa(int(n)) }

// eligible is the condition for triggers that a claim may look at.
func (s *Store) eligible(r *durable.ClaimRequest) (string, []any) {
	which := s.dialect.literals("handler", r.Handlers)
	if len(r.Except) == 0 {
		return which, nil
	}
	except, args := s.dialect.among("id", r.Except)
	return which + " AND NOT (" + except + ")", args
}

// A claiming is a claim in its transaction.
type claiming struct {
	*txn
	node string
	res  *durable.ClaimResult
	jobs map[string]durable.JobRow
	busy map[string]bool // exclusive jobs with an active run
	left map[string]bool // of jobs with a gate to lock: whether somebody else has it

	was, is, gone []durable.TriggerRow
	runs, skipped []durable.RunRow
}

// claim is a claim in its transaction. known tells that some trigger has an active run's
// ID: it was added again by somebody who could not see the run yet, and would be in
// everybody's way for ever.
func (t *txn) claim(r *durable.ClaimRequest, due due, res *durable.ClaimResult, known bool) error {
	found, err := t.candidates(r, due)
	if err == nil && known {
		found, err = t.dropKnown(found)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	c := &claiming{txn: t, node: r.Node, res: res}
	if err := c.lockJobs(found); err != nil {
		return err
	}
	if err := c.plan(found, r.Plan); err != nil {
		return err
	}
	return c.carryOut()
}

// candidates locks due triggers, in the order of claims. There are none for a node that
// has died meanwhile.
func (t *txn) candidates(r *durable.ClaimRequest, due due) ([]durable.TriggerRow, error) {
	which, args := t.eligible(r)
	var found []durable.TriggerRow
	for p := priorities - 1; p >= 0 && len(found) < r.Limit; p-- {
		if due[p].IsZero() || due[p].After(t.now) {
			continue
		}
		args := append(append([]any{t.now.UnixMicro()}, args...), r.Node)
		some, err := find(t.ctx, t.Store, t.q, triggers, "{due} WHERE state = "+number_(durable.StateWaiting)+" AND priority = "+strconv.Itoa(p)+
			" AND due_at <= ? AND "+which+
			" AND EXISTS (SELECT 1 FROM {node} WHERE id = ? AND dead = 0 AND lease_until > {now}){timeouts}"+
			" ORDER BY due_at, id LIMIT "+strconv.Itoa(powerOfTwo(r.Limit-len(found)))+"{skip}", args...)
		if err != nil {
			return nil, err
		}
		found = append(found, some[:min(len(some), r.Limit-len(found))]...)
	}
	return found, nil
}

// powerOfTwo is the next one from n: statements of a few texts only stay prepared, and
// with a parameter for the limit PostgreSQL would not know that it is small. What is
// locked in excess is others' again with the commit.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// dropKnown deletes one-shot triggers that have an active run's ID.
func (t *txn) dropKnown(found []durable.TriggerRow) ([]durable.TriggerRow, error) {
	var ids []string
	for i := range found {
		if found[i].OneShot() {
			ids = append(ids, found[i].ID)
		}
	}
	where, args := t.dialect.among("id", ids)
	known, err := t.texts("SELECT id FROM {run} WHERE "+where, args...)
	if err != nil || len(known) == 0 {
		return found, err
	}
	where, args = t.dialect.among("id", known)
	_, err = t.exec("DELETE FROM {trigger} WHERE "+where, args...)
	return slices.DeleteFunc(found, func(r durable.TriggerRow) bool { return slices.Contains(known, r.ID) }), err
}

// lockJobs loads the triggers' jobs, and locks the gates of those for which it
// matters what others do meanwhile: runs of exclusive jobs, and a Release that would
// not see what this claim parks.
func (c *claiming) lockJobs(found []durable.TriggerRow) error {
	names := map[string]bool{}
	for i := range found {
		names[found[i].Job] = true
	}
	c.jobs = map[string]durable.JobRow{}
	if err := c.loadJobs(slices.Sorted(maps.Keys(names))); err != nil {
		return err
	}
	var toLock []string
	for name := range names {
		if j, ok := c.jobs[name]; ok && (!j.AllowConcurrent || j.Paused) {
			toLock = append(toLock, name)
		}
	}
	c.left, c.busy = map[string]bool{}, map[string]bool{}
	if len(toLock) == 0 {
		return nil
	}
	slices.Sort(toLock)
	locked, err := c.gates(toLock, "{skip}")
	if err != nil {
		return err
	}
	for _, name := range toLock {
		c.left[name] = !slices.Contains(locked, name)
		delete(c.jobs, name)
	}
	// What they were before the lock may be over.
	if err := c.loadJobs(locked); err != nil {
		return err
	}
	where, args := c.dialect.among("job", locked)
	active, err := c.texts("SELECT DISTINCT job FROM {run} WHERE "+where, args...)
	for _, name := range active {
		c.busy[name] = true
	}
	return err
}

func (c *claiming) loadJobs(names []string) error {
	where, args := c.dialect.among("name", names)
	rows, err := find(c.ctx, c.Store, c.q, jobs, " WHERE "+where, args...)
	for _, j := range rows {
		c.jobs[j.Name] = j
	}
	return err
}

// gates locks gates, in order of name, and gives those that it has. Missing ones it
// makes.
func (t *txn) gates(names []string, lock string) ([]string, error) {
	where, args := t.dialect.among("job", names)
	locked, err := t.texts("SELECT job FROM {gate}{primary} WHERE "+where+t.bounds()+" ORDER BY job"+lock, args...)
	if err != nil || len(locked) == len(names) {
		return locked, err
	}
	there, err := t.texts("SELECT job FROM {gate} WHERE "+where, args...)
	if err != nil || len(there) == len(names) {
		return locked, err
	}
	var missing [][]any
	for _, name := range names {
		if !slices.Contains(there, name) {
			missing = append(missing, []any{name})
		}
	}
	err = chunks(missing, func(rows [][]any) error {
		source, args := t.dialect.source([]column{{"job", short}}, rows)
		_, err := t.exec("INSERT INTO {gate} (job) "+source+t.dialect.ignore("job"), args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t.texts("SELECT job FROM {gate}{primary} WHERE "+where+" ORDER BY job"+lock, args...)
}

// plan gets the verdicts.
func (c *claiming) plan(found []durable.TriggerRow, plan func(durable.Due) durable.Verdict) error {
	for i := range found {
		row := &found[i]
		if c.left[row.Job] {
			continue
		}
		job := c.jobs[row.Job]
		due := durable.Due{Now: c.now, Trigger: *row, Job: job}
		due.Trigger.Data, due.Job.Data = bytes.Clone(row.Data), bytes.Clone(job.Data)
		due.Busy = job.Name != "" && !job.AllowConcurrent && c.busy[row.Job]
		if err := c.note(row, plan(due)); err != nil {
			return err
		}
	}
	return nil
}

// note notes what a verdict makes of a trigger.
func (c *claiming) note(row *durable.TriggerRow, v durable.Verdict) error {
	switch {
	case v.Leave:
		return nil
	case v.Delete:
		c.gone = append(c.gone, *row)
	case v.Trigger.ID != row.ID || v.Trigger.Job != row.Job:
		return fmt.Errorf("sqlstore: verdict on trigger %q of job %q has trigger %q of job %q",
			row.ID, row.Job, v.Trigger.ID, v.Trigger.Job)
	default:
		is := v.Trigger
		is.Version = row.Version + 1
		c.was, c.is = append(c.was, *row), append(c.is, is)
		switch is.State {
		case durable.StateBlocked, durable.StatePaused, durable.StateError:
			c.res.Parked = append(c.res.Parked, ownTrigger(is))
		}
	}
	if v.Skipped != nil {
		skipped := *v.Skipped
		skipped.Node, skipped.StartedAt, skipped.EndedAt = c.node, c.now, c.now
		c.skipped = append(c.skipped, ownRun(skipped))
	}
	if v.Run != nil {
		if v.Run.Job != row.Job {
			return fmt.Errorf("sqlstore: verdict on a trigger of job %q has a run of job %q", row.Job, v.Run.Job)
		}
		run := *v.Run
		run.Node, run.StartedAt = c.node, c.now
		c.runs = append(c.runs, ownRun(run))
		c.busy[row.Job] = true
	}
	return nil
}

// carryOut writes the verdicts. The fences come last; see the package's comment.
func (c *claiming) carryOut() error {
	if err := update(c.txn, triggers, c.was, c.is, true); err != nil {
		return err
	}
	if err := c.remove(); err != nil {
		return err
	}
	if err := insert(c.txn, history, c.skipped, true); err != nil {
		return err
	}
	c.res.Skipped = c.skipped
	if len(c.runs) == 0 {
		return nil
	}
	if err := c.takeFences(); err != nil {
		return err
	}
	err := c.insertRuns()
	if isDuplicate(err) {
		return fmt.Errorf("sqlstore: %w: %w", durable.ErrExists, err)
	}
	for _, run := range c.runs {
		job := c.jobs[run.Job]
		job.Data = bytes.Clone(job.Data)
		c.res.Claimed = append(c.res.Claimed, durable.Claimed{Run: run, Job: job})
	}
	return err
}

// remove deletes triggers, in the version that was read.
func (c *claiming) remove() error {
	values := make([][]any, len(c.gone))
	for i, t := range c.gone {
		values[i] = []any{t.ID, t.Version}
	}
	return chunks(values, func(values [][]any) error {
		batch, args := c.dialect.batch(columnsOf(triggers, "id", "version"), values)
		n, err := c.exec(c.dialect.remove("{trigger}", batch, "t.id = v.id AND t.version = v.version"), args...)
		if err == nil && n != int64(len(values)) {
			err = errChanged
		}
		return err
	})
}

// takeFences gives the runs their tokens, in their order.
func (c *claiming) takeFences() error {
	counts := map[string]int64{}
	for _, r := range c.runs {
		counts[r.Job]++
	}
	names := slices.Sorted(maps.Keys(counts))
	var values [][]any
	for _, name := range names {
		values = append(values, []any{name, counts[name]})
	}
	last := map[string]int64{}
	err := chunks(values, func(values [][]any) error { return c.addFences(values, last) })
	if err != nil {
		return err
	}
	for i := range c.runs {
		job := c.runs[i].Job
		c.runs[i].Fence = last[job] - counts[job] + 1
		counts[job]--
	}
	return nil
}

// insertRuns adds the runs, on the condition that the jobs without a gate to lock still
// allow concurrency. An edit that has them no longer do so takes the fence last: either
// it is seen here, or it waits for this claim, and whoever sees the edit sees the runs.
func (c *claiming) insertRuns() error {
	names := map[string]bool{}
	for i := range c.runs {
		job := c.runs[i].Job
		if _, gated := c.left[job]; !gated && c.jobs[job].Name != "" {
			names[job] = true
		}
	}
	condition, also := "", []any(nil)
	if len(names) > 0 && c.dialect.lock != "" {
		where, args := c.dialect.among("name", slices.Sorted(maps.Keys(names)))
		condition = " AND (SELECT count(*) FROM {job} WHERE allow_concurrent = 1 AND " + where + ") = " + strconv.Itoa(len(names))
		also = args
	}
	return chunks(valuesOf(runs, c.runs), func(values [][]any) error {
		source, args := c.dialect.source(runs.columns, values)
		n, err := c.exec("INSERT INTO {run} ("+runs.list()+") "+source+condition, append(args, also...)...)
		if err == nil && n != int64(len(values)) {
			err = errChanged
		}
		return err
	})
}

// addFences raises fences and reads what they became.
func (t *txn) addFences(values [][]any, last map[string]int64) error {
	source, args := t.dialect.source([]column{{"job", short}, {"fence", number}}, values)
	raise := "INSERT INTO {fence} AS t (job, fence) " + source + t.dialect.addFence
	read := func(rows *sql.Rows) error {
		var job string
		var fence int64
		err := rows.Scan(&job, &fence)
		last[job] = fence
		return err
	}
	if t.dialect.returning {
		return each(t.ctx, t.Store, t.q, raise, args, read)
	}
	if _, err := t.exec(strings.Replace(raise, " AS t", "", 1), args...); err != nil {
		return err
	}
	var names []string
	for _, v := range values {
		names = append(names, v[0].(string))
	}
	where, args := t.dialect.among("job", names)
	return each(t.ctx, t.Store, t.q, "SELECT job, fence FROM {fence} WHERE "+where, args, read)
}

// The own functions make rows independent of the caller's, and what they will be
// when they are read.

func ownTrigger(t durable.TriggerRow) durable.TriggerRow {
	t.Data = own(t.Data)
	t.DueAt, t.PrevAt, t.ScheduledAt = stored(t.DueAt), stored(t.PrevAt), stored(t.ScheduledAt)
	return t
}

func ownRun(r durable.RunRow) durable.RunRow {
	r.Data = own(r.Data)
	r.ScheduledAt, r.StartedAt, r.EndedAt = stored(r.ScheduledAt), stored(r.StartedAt), stored(r.EndedAt)
	return r
}

func own(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return bytes.Clone(data)
}

func stored(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return fromMicros(t.UnixMicro())
}
