package sqlstore

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// note notes what a verdict makes of a trigger.
func (c *claiming) note(row *candidate, job *durable.JobRow, v durable.Verdict) error {
	inPlace := v.Delete && v.Run != nil && takesPlace(v.Run, &row.TriggerRow)
	switch {
	case v.Leave:
		c.still = true
		return nil
	case inPlace:
	case v.Delete:
		c.gone = append(c.gone, row)
	case v.Trigger.ID != row.ID || v.Trigger.Job != row.Job:
		return fmt.Errorf("sqlstore: verdict on trigger %q of job %q has trigger %q of job %q",
			row.ID, row.Job, v.Trigger.ID, v.Trigger.Job)
	default:
		is := v.Trigger
		is.Version = row.Version + 1
		c.was, c.is = append(c.was, row.TriggerRow), append(c.is, is)
		if is.State == durable.StateWaiting && (is.Priority != row.Priority || !is.DueAt.After(c.now)) {
			c.still = true // it may come before the next
		}
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
		run := v.Run
		*run = ownRun(*run)
		run.Node, run.StartedAt = c.node, c.now
		if !inPlace {
			row = nil
		}
		c.res.Claimed, c.from = append(c.res.Claimed, durable.Claimed{Run: run, Job: job}), append(c.from, row)
		c.busy[run.Job] = true
	}
	return nil
}

// carryOut writes the verdicts.
func (c *claiming) carryOut() error {
	if err := update(c.txn, triggers, c.was, c.is, true); err != nil {
		return err
	}
	if err := c.remove(); err != nil {
		return err
	}
	// What waits behind triggers that do not run would wait for an end that never comes.
	some, err := c.unblock(slices.Sorted(maps.Keys(c.turns)), limits.WakesBehind)
	if err != nil {
		return err
	}
	c.still = c.still || some
	if err := insert(c.txn, history, c.skipped, true); err != nil {
		return err
	}
	c.res.Skipped = c.skipped
	if len(c.from) == 0 {
		return nil
	}
	if err := c.takeFences(); err != nil {
		return err
	}
	err = c.addRuns()
	if isDuplicate(err) {
		return fmt.Errorf("sqlstore: %w: %w", durable.ErrExists, err)
	}
	return err
}

// remove deletes triggers, in the version that was read.
func (c *claiming) remove() error {
	rows := grid(len(c.gone), 2)
	for i, t := range c.gone {
		rows[i] = append(rows[i], t.place, t.Version)
	}
	return chunks(rows, func(rows [][]any) error {
		batch, args := c.dialect.batch(c.dialect.version(), rows)
		return c.all(rows, c.dialect.remove("{trigger}", batch, c.dialect.sameVersion()), args)
	})
}

// version are the columns that tell a row that was read from any other.
func (d *Dialect) version() []column { return []column{{"place", d.place.kind}, {"version", number}} }

func (d *Dialect) sameVersion() string {
	return "t." + d.place.name + " = v.place AND t.version = v.version"
}

// all runs a statement that is to change as many rows as there are.
func (t *txn) all(rows [][]any, text string, args []any) error {
	n, err := t.exec(text, args...)
	if err == nil && n != int64(len(rows)) {
		err = errChanged
	}
	return err
}

// addRuns adds the runs. Most take the place of a trigger, and what they have of it need
// not be sent again.
func (c *claiming) addRuns() error {
	var others []durable.RunRow
	moved, n := grid(len(c.from), 2+len(sent)), 0
	run, fields := runs.scratch()
	for i, from := range c.from {
		*run = *c.res.Claimed[i].Run
		if from == nil {
			others = append(others, *run)
			continue
		}
		row := append(moved[n], from.place, from.Version)
		for k, f := range fields {
			if _, taken := ofTrigger[runs.columns[k].name]; !taken {
				row = append(row, f.value())
			}
		}
		moved[n] = row
		n++
	}
	if err := insert(c.txn, runs, others, false); err != nil {
		return err
	}
	return chunks(moved[:n], c.moveTriggers)
}

// takesPlace tells whether a run has all of a trigger that there is in both: see
// ofTrigger.
func takesPlace(run *durable.RunRow, t *durable.TriggerRow) bool {
	return run.ID == t.ID && run.TriggerID == t.ID && run.Job == t.Job && run.Trigger == t.Origin && run.Kind == t.Kind &&
		run.ScheduledAt.Equal(t.ScheduledAt) && run.Attempt == t.Attempt && run.RetryOf == t.RetryOf &&
		run.IdempotencyKey == t.IdempotencyKey && run.Priority == t.Priority && bytes.Equal(run.Data, t.Data)
}

var (
	// ofTrigger are the columns of a run that takes the place of a trigger, as they are
	// called there.
	ofTrigger = map[string]string{
		"id": "id", "trigger_id": "id", "job": "job", "trigger_name": "origin", "kind": "kind",
		"scheduled_at": "scheduled_at", "attempt": "attempt", "retry_of": "retry_of",
		"idempotency_key": "idempotency_key", "priority": "priority", "data": "data",
	}
	// sent are the other columns, and placed is where they all come from.
	sent, placed = placing()
)

func placing() (sent []column, list string) {
	all := make([]string, len(runs.columns))
	for i, c := range runs.columns {
		if of, taken := ofTrigger[c.name]; taken {
			all[i] = "t." + of + " AS " + c.name
		} else {
			all[i] = "v." + c.name
			sent = append(sent, c)
		}
	}
	return sent, strings.Join(all, ", ")
}

// moveTriggers has runs take the place of triggers.
func (c *claiming) moveTriggers(rows [][]any) error {
	batch, args := c.dialect.batch(append(c.dialect.version(), sent...), rows)
	same := c.dialect.sameVersion()
	into := "INSERT INTO {run} (" + runs.list() + ") SELECT "
	if c.dialect.moves {
		return c.all(rows, "WITH gone AS ("+c.dialect.remove("{trigger}", batch, same)+" RETURNING "+placed+") "+
			into+runs.list()+" FROM gone", args)
	}
	if err := c.all(rows, into+placed+" FROM "+batch+c.dialect.then+"{trigger} AS t{primary} ON "+same, args); err != nil {
		return err
	}
	places := make([]string, len(rows))
	for i, r := range rows {
		places[i] = r[0].(string)
	}
	n, err := c.removeBy(c.dialect.place, "{trigger}", places)
	if err == nil && n != len(rows) {
		err = errChanged
	}
	return err
}

// ofOneNumber is how many fences there are of each number that the database gives.
const ofOneNumber = 1024

// takeFences gives the runs their tokens, in their order. Numbers rise over all jobs and
// claims, and nobody waits for them: a token of each job's own would be a row that all
// claims of a job have to wait for. The gates of exclusive jobs are locked by now.
func (c *claiming) takeFences() error {
	for i := range c.res.Claimed {
		if i > 0 && i%ofOneNumber == 0 {
			c.number = 0
		}
		if c.number == 0 {
			if err := c.takeNumber(); err != nil {
				return err
			}
		}
		c.res.Claimed[i].Run.Fence = c.number*ofOneNumber + int64(i%ofOneNumber)
	}
	return nil
}

// takeNumber takes one that is larger than any that was taken before.
func (c *claiming) takeNumber() error {
	statements := c.dialect.numbers
	last := len(statements) - 1
	for _, text := range statements[:last] {
		if _, err := c.exec(text); err != nil {
			return err
		}
	}
	return c.one([]any{&c.number}, statements[last])
}
