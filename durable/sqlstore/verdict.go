package sqlstore

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/taskmanager-go/taskmanager/durable"
)

// note notes what a verdict makes of a trigger.
func (c *claiming) note(row *durable.TriggerRow, v durable.Verdict) error {
	inPlace := v.Delete && v.Run != nil && takesPlace(v.Run, row)
	switch {
	case v.Leave:
		return nil
	case inPlace:
	case v.Delete:
		c.gone = append(c.gone, []any{row.ID, row.Version})
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
		run, from := ownRun(*v.Run), int64(0)
		run.Node, run.StartedAt = c.node, c.now
		if inPlace {
			from = row.Version
		}
		c.runs, c.from = append(c.runs, run), append(c.from, from)
		c.busy[row.Job] = true
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
	err := c.addRuns()
	if isDuplicate(err) {
		return fmt.Errorf("sqlstore: %w: %w", durable.ErrExists, err)
	}
	c.res.Claimed = make([]durable.Claimed, 0, len(c.runs))
	for _, run := range c.runs {
		job := c.jobs[run.Job]
		job.Data = bytes.Clone(job.Data)
		c.res.Claimed = append(c.res.Claimed, durable.Claimed{Run: run, Job: job})
	}
	return err
}

// remove deletes triggers, in the version that was read.
func (c *claiming) remove() error {
	return chunks(c.gone, func(rows [][]any) error {
		batch, args := c.dialect.batch(columnsOf(triggers, "id", "version"), rows)
		return c.all(rows, c.dialect.remove("{trigger}", batch, sameVersion), args)
	})
}

const sameVersion = "t.id = v.id AND t.version = v.version"

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
	moved := make([][]any, 0, len(c.runs))
	for i := range c.runs {
		if c.from[i] == 0 {
			others = append(others, c.runs[i])
			continue
		}
		row := append(make([]any, 0, len(placeColumns)), c.runs[i].ID, c.from[i])
		for k, f := range runs.fields(&c.runs[i]) {
			if _, taken := ofTrigger[runs.columns[k].name]; !taken {
				row = append(row, f.value())
			}
		}
		moved = append(moved, row)
	}
	if err := insert(c.txn, runs, others, false); err != nil {
		return err
	}
	return chunks(moved, c.moveTriggers)
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
	// placeColumns are which trigger it is, and the other columns.
	placeColumns, placed = placing()
)

func placing() (sent []column, list string) {
	sent = columnsOf(triggers, "id", "version")
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
	batch, args := c.dialect.batch(placeColumns, rows)
	into := "INSERT INTO {run} (" + runs.list() + ") SELECT "
	if c.dialect.moves {
		return c.all(rows, "WITH gone AS ("+c.dialect.remove("{trigger}", batch, sameVersion)+" RETURNING "+placed+") "+
			into+runs.list()+" FROM gone", args)
	}
	if err := c.all(rows, into+placed+" FROM "+batch+c.dialect.then+"{trigger} AS t{primary} ON "+sameVersion, args); err != nil {
		return err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r[0].(string)
	}
	n, err := c.removeByID("{trigger}", ids)
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
	for i := range c.runs {
		if i > 0 && i%ofOneNumber == 0 {
			c.number = 0
		}
		if c.number == 0 {
			if err := c.takeNumber(); err != nil {
				return err
			}
		}
		c.runs[i].Fence = c.number*ofOneNumber + int64(i%ofOneNumber)
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
