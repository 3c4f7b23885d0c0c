package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// due is when the first trigger of each priority is due, zero for none.
type due [limits.Priorities]time.Time

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
	of := s.eligible(&r)
	seen, known := s.ahead.get(of.key, r.Limit > 0)
	if known {
		res, some, err := s.claim(ctx, &r, &of, seen)
		if err != nil || some {
			return res, err
		}
	}
	if err := s.look(ctx, r.Node, &of, &seen); err != nil {
		return durable.ClaimResult{}, err
	}
	if first := seen.due.first(); r.Limit <= 0 || first.IsZero() || first.After(seen.now) {
		return durable.ClaimResult{Now: seen.now, Next: first, Broadcast: seen.broadcast}, nil
	}
	res, _, err := s.claim(ctx, &r, &of, seen)
	return res, err
}

// claim claims what is due as far as it was seen, and tells whether that was something.
func (s *Store) claim(ctx context.Context, r *durable.ClaimRequest, of *eligible, seen sight) (res durable.ClaimResult, some bool, err error) {
	var c *claiming
	clash := false
	err = s.transact(ctx, func(t *txn) error {
		if c != nil { // others have gone past what the attempt before had locked
			seen.edits = s.ahead.edited()
		}
		t.now = s.timeAfter(&seen)
		res = durable.ClaimResult{Now: t.now, Next: seen.due.first(), Broadcast: seen.broadcast}
		c = &claiming{
			txn: t, node: r.Node, res: &res, of: of, seen: seen,
			jobs: map[string]*durable.JobRow{}, busy: map[string]bool{}, left: map[string]bool{}, turns: map[string]bool{},
		}
		err := c.claim(r, clash)
		if isDuplicate(err) && !clash {
			clash = true
			err = errors.Join(errChanged, err)
		}
		return err
	})
	if err != nil {
		s.ahead.edited()
		return durable.ClaimResult{}, false, err
	}
	if c.still {
		s.ahead.edited()
	}
	return res, c.some, nil
}

// look is the one query of a claim that finds nothing: each of its parts is a probe
// of an index. min(due_at) over all priorities, or an OR, would be a scan.
func (s *Store) look(ctx context.Context, node string, of *eligible, seen *sight) (err error) {
	var q strings.Builder
	var all []any
	// CASE keeps PostgreSQL from looking for max(id) in the primary key, from its end.
	broadcast := numeral(durable.StateBroadcast)
	// Without parameters it is one query to drivers that prepare those with them, too.
	q.WriteString("SELECT {now}, (SELECT lease_until FROM {node} WHERE id = " + s.dialect.literal(node) + " AND dead = 0), " +
		"(SELECT max(CASE state WHEN " + broadcast + " THEN id END) FROM {trigger}{due} WHERE state = " + broadcast + ")")
	for p := range limits.Priorities {
		q.WriteString(", (SELECT due_at FROM {trigger}{due} WHERE state = " + numeral(durable.StateWaiting) + " AND priority = " + strconv.Itoa(p) +
			" AND due_at > -9000000000000000000 AND " + of.where + " ORDER BY due_at, id LIMIT 1)")
		all = append(all, of.args...)
	}
	var now int64
	var lease time.Time
	var last sql.NullString
	fields := []any{&now, (*instant)(&lease), &last}
	for p := range seen.due {
		fields = append(fields, (*instant)(&seen.due[p]))
	}
	err = s.read(ctx, func(db querier) error { return s.one(ctx, db, fields, q.String(), all...) })
	if err != nil {
		return err
	}
	seen.now, seen.looked, seen.broadcast = fromMicros(now), time.Now(), last.String
	if !seen.now.Before(lease) {
		return durable.ErrNodeDead
	}
	return nil
}

// numeral is the number that is stored for a state or kind.
func numeral[T ~uint8](n T) string { return strconv.Itoa(int(n)) }

// An eligible is the condition for triggers that a claim may look at.
type eligible struct {
	where string
	args  []any
	key   string // tells it from others
}

func (s *Store) eligible(r *durable.ClaimRequest) eligible {
	e := eligible{where: s.dialect.literals("handler", r.Handlers)}
	if len(r.Except) > 0 {
		var except string
		except, e.args = s.dialect.among("id", r.Except)
		e.where += " AND NOT (" + except + ")"
	}
	e.key = fmt.Sprint(e.where, e.args)
	return e
}

// A claiming is a claim in its transaction.
type claiming struct {
	*txn
	node string
	res  *durable.ClaimResult
	of   *eligible
	// seen is what was seen of them; then, if there are more, where the next claim goes on.
	seen  sight
	more  bool
	still bool // some that it has seen to are due as before
	some  bool // it found some that are its own
	jobs  map[string]*durable.JobRow
	busy  map[string]bool // exclusive jobs with an active run
	left  map[string]bool // jobs that somebody else has locked
	// turns are jobs that do not allow concurrency and whose turn it was, but nothing runs.
	turns map[string]bool
	// number is the claim's, of which its fences are made, 0 for none yet.
	number int64

	was, is []durable.TriggerRow // triggers that change
	gone    []*candidate         // those that go
	from    []*candidate         // of each claimed run: what it takes the place of, or nil
	skipped []durable.RunRow
}

// A candidate is a trigger that is due, and locked.
type candidate struct {
	durable.TriggerRow
	place string // see Dialect
}

// claim is a claim in its transaction. clash tells that some trigger has an active run's
// ID: it was added again by somebody who could not see the run yet, and would be in
// everybody's way for ever.
func (c *claiming) claim(r *durable.ClaimRequest, clash bool) (err error) {
	room := rooms.Get().(*[]candidate)
	found := *room
	defer func() {
		clear(found)
		*room = found[:0]
		rooms.Put(room)
	}()
	for {
		found, err = c.candidates(found[:0], r)
		if err == nil && clash {
			found, err = c.dropKnown(found)
		}
		if err == nil {
			err = c.lockJobs(found)
		}
		if err != nil {
			return err
		}
		full := len(found) >= min(r.Limit, mostCandidates)
		if c.more = full; full {
			last := &found[len(found)-1]
			c.seen.due[last.Priority] = last.DueAt
		}
		found = slices.DeleteFunc(found, func(t candidate) bool { return c.left[t.Job] })
		if len(found) == 0 && full {
			continue // behind those that somebody else has, there may be more
		}
		c.some = len(found) > 0
		if err := c.plan(found, r.Plan); err != nil {
			return err
		}
		if !c.still {
			c.ahead.set(c.of.key, c.seen, c.more)
		}
		return c.carryOut()
	}
}

// rooms are for the candidates of a claim, most of which are as many as those before.
var rooms = sync.Pool{New: func() any { return new([]candidate) }}

// mostCandidates bounds what a claim looks at, however much it may claim.
const mostCandidates = 10_000

// candidates adds due triggers, in the order of claims, locks them, and shares their jobs
// where that is done by a function: see shareJobs. There are none for a node that has died
// meanwhile. The index begins with what is left of rows that are gone: to look from due on
// passes over that.
func (c *claiming) candidates(found []candidate, r *durable.ClaimRequest) ([]candidate, error) {
	which, args := c.of.where, c.of.args
	if left := slices.Sorted(maps.Keys(c.left)); len(left) > 0 {
		where, also := c.dialect.among("job", left)
		which, args = which+" AND NOT ("+where+")", slices.Concat(args, also)
	}
	limit := min(r.Limit, mostCandidates)
	row, into := triggers.reader()
	var place text
	var shared truth
	into = append(into, &place, &shared)
	columns := triggers.own() + ", " + c.dialect.readPlace
	for p := limits.Priorities - 1; p >= 0 && len(found) < limit; p-- {
		if first := c.seen.due[p]; first.IsZero() || first.After(c.now) {
			continue
		}
		from := triggers.from() + "{due} WHERE state = " + numeral(durable.StateWaiting) + " AND priority = " + strconv.Itoa(p) +
			" AND due_at >= ? AND due_at <= ? AND " + which +
			" AND EXISTS (SELECT 1 FROM {node} WHERE id = ? AND dead = 0 AND lease_until > {now}){timeouts} ORDER BY due_at, id"
		n := limit - len(found)
		found = slices.Grow(found, min(n, 1000))
		args := slices.Concat([]any{c.seen.due[p].UnixMicro(), c.now.UnixMicro()}, args, []any{r.Node, n})
		err := each(c.ctx, c.Store, c.q, c.dialect.first(columns, from, n), args, func(rows *sql.Rows) error {
			err := rows.Scan(into...)
			found = append(found, candidate{*row, string(place)})
			if !shared {
				c.left[row.Job] = true
			}
			return err
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// dropKnown deletes one-shot triggers that have an active run's ID.
func (t *txn) dropKnown(found []candidate) ([]candidate, error) {
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
	_, err = t.removeByID("{trigger}", known)
	return slices.DeleteFunc(found, func(r candidate) bool { return slices.Contains(known, r.ID) }), err
}

// lockJobs loads the triggers' jobs, and locks the gates of those for which it
// matters what others do meanwhile: runs of exclusive jobs, and a Release that would
// not see what this claim parks.
func (c *claiming) lockJobs(found []candidate) error {
	names := map[string]bool{}
	for i := range found {
		if job := found[i].Job; !c.left[job] {
			names[job] = true
		}
	}
	if err := c.shareJobs(slices.Sorted(maps.Keys(names))); err != nil {
		return err
	}
	var toLock []string
	for name, j := range c.jobs {
		if !j.AllowConcurrent || j.Paused {
			toLock = append(toLock, name)
		}
	}
	if len(toLock) == 0 {
		return nil
	}
	slices.Sort(toLock)
	locked, err := c.gates(toLock, "{skip}")
	if err != nil {
		return err
	}
	for _, name := range toLock {
		if !slices.Contains(locked, name) {
			c.left[name] = true
		}
		delete(c.jobs, name)
	}
	// What they were before the lock may be over.
	if err := c.loadJobs(locked, ""); err != nil {
		return err
	}
	where, args := c.dialect.among("job", locked)
	active, err := c.texts("SELECT DISTINCT job FROM {run} WHERE "+where, args...)
	for _, name := range active {
		c.busy[name] = true
	}
	return err
}

// shareJobs loads jobs that no edit is about to make exclusive, and keeps edits from
// doing so until the claim has been committed: whoever then sees the job as exclusive
// sees the runs of this claim.
func (c *claiming) shareJobs(names []string) error {
	if err := c.loadJobs(names, "{share}"); err != nil || c.dialect.share == "" || len(c.jobs) == len(names) {
		return err
	}
	where, args := c.dialect.among("name", names)
	there, err := c.texts("SELECT name FROM {job} WHERE "+where, args...)
	for _, name := range there {
		if _, ours := c.jobs[name]; !ours {
			c.left[name] = true
		}
	}
	return err
}

// loadJobs reads jobs, and takes a number, if a query can have one besides.
func (c *claiming) loadJobs(names []string, lock string) error {
	if len(names) == 0 {
		return nil
	}
	where, args := c.dialect.among("name", names)
	row, into := jobs.reader()
	into = append(into, &c.number)
	return each(c.ctx, c.Store, c.q, "SELECT "+jobs.own()+", {number}"+jobs.from()+"{primary} WHERE "+where+lock, args, func(rows *sql.Rows) error {
		err := rows.Scan(into...)
		job := *row
		c.jobs[job.Name] = &job
		return err
	})
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
func (c *claiming) plan(found []candidate, plan func(durable.Due) durable.Verdict) error {
	c.res.Claimed, c.from = make([]durable.Claimed, 0, len(found)), make([]*candidate, 0, len(found))
	for i := range found {
		row := &found[i]
		job := c.jobs[row.Job]
		if job == nil {
			job = &durable.JobRow{}
		}
		due := durable.Due{Now: c.now, Trigger: row.TriggerRow, Job: *job}
		due.Trigger.Data, due.Job.Data = bytes.Clone(row.Data), bytes.Clone(job.Data)
		due.Busy = job.Name != "" && !job.AllowConcurrent && c.busy[row.Job]
		if err := c.note(row, job, plan(due)); err != nil {
			return err
		}
		if job.Name != "" && !job.AllowConcurrent && !job.Paused { // it has the gate
			c.turns[row.Job] = true
		}
	}
	maps.DeleteFunc(c.turns, func(job string, _ bool) bool { return c.busy[job] })
	return nil
}
