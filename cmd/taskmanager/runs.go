package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var runsCommand = command{
	name:    "runs",
	summary: "list the runs of durable jobs, newest first",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var f storeFlags
		f.flags(fs)
		var r runsFlags
		fs.StringVar(&r.job, "job", "", "only runs of this `job`")
		fs.StringVar(&r.states, "state", "", "only runs in these `states`: running, succeeded, failed, cancelled, lost, interrupted, skipped, snoozed; several with commas")
		fs.StringVar(&r.node, "node", "", "only runs of the node with this `ID`, as runs and jobs print it")
		fs.StringVar(&r.since, "since", "", "only runs that started since an RFC 3339 `time`, or for a duration as in 24h")
		fs.StringVar(&r.before, "before", "", "the next page: only runs that come after the one with this `ID`")
		fs.IntVar(&r.n, "n", 20, "how `many`, 1 to 1000")
		return func(c *call, words []string) error {
			if len(words) > 0 {
				return fmt.Errorf("unexpected %q", words)
			}
			q, err := r.query(c.now())
			if err != nil {
				return err
			}
			return f.with(func(ctx context.Context, d *desk) error { return listRuns(ctx, c, d, q, r.before) })
		}
	},
}

type runsFlags struct {
	job, states, node, since, before string
	n                                int
}

func (r *runsFlags) query(now time.Time) (q durable.RunQuery, err error) {
	if r.n < 1 || r.n > 1000 {
		return q, fmt.Errorf("-n is %d, want 1 to 1000", r.n)
	}
	q = durable.RunQuery{Job: r.job, Node: r.node, Limit: r.n}
	if r.job != "" {
		if err := validName("job", r.job); err != nil {
			return q, err
		}
	}
	if r.states != "" {
		for name := range strings.SplitSeq(r.states, ",") {
			state, err := durable.ParseRunState(strings.TrimSpace(name))
			if err != nil {
				return q, err
			}
			q.States = append(q.States, state)
		}
	}
	if r.since != "" {
		if d, err := time.ParseDuration(r.since); err == nil {
			q.From = now.Add(-d)
		} else if err := q.From.UnmarshalText([]byte(r.since)); err != nil {
			return q, fmt.Errorf("-since is %q, want an RFC 3339 time, or a duration", r.since)
		}
	}
	return q, nil
}

// A runLine is a run.
type runLine struct {
	ID             string           `json:"id"`
	Job            string           `json:"job"`
	Trigger        string           `json:"trigger,omitempty"`
	Kind           durable.Kind     `json:"kind"`
	State          durable.RunState `json:"state"`
	Scheduled      time.Time        `json:"scheduled"`
	Started        time.Time        `json:"started"`
	Ended          *time.Time       `json:"ended,omitempty"`
	Duration       string           `json:"duration,omitempty"`
	Node           string           `json:"node"`
	Attempt        int              `json:"attempt"`
	RetryOf        string           `json:"retryOf,omitempty"`
	IdempotencyKey string           `json:"idempotencyKey"`
	Data           json.RawMessage  `json:"data,omitempty"`
	Passed         int64            `json:"passed,omitempty"`
	Code           durable.Code     `json:"code,omitempty"`
	Error          string           `json:"error,omitempty"`
	Detail         string           `json:"detail,omitempty"`
}

func runLineOf(r durable.RunRow) runLine {
	l := runLine{
		ID: r.ID, Job: r.Job, Trigger: r.Trigger, Kind: r.Kind, State: r.State, Scheduled: r.ScheduledAt, Started: r.StartedAt,
		Ended: ref(r.EndedAt), Node: r.Node, Attempt: r.Attempt, RetryOf: r.RetryOf, IdempotencyKey: r.IdempotencyKey,
		Data: r.Data, Passed: r.Passed, Code: r.Code, Error: r.Message, Detail: r.Detail,
	}
	if r.State != durable.RunRunning {
		l.Duration = short(r.Duration)
	}
	return l
}

type runsAnswer struct {
	Runs []runLine `json:"runs"`
	// Before is for the next page, "" if this is the last.
	Before string `json:"before,omitempty"`
}

func listRuns(ctx context.Context, c *call, d *desk, q durable.RunQuery, before string) error {
	if before != "" {
		last, err := d.run(ctx, before)
		if err != nil {
			return err
		}
		q.Before = last.Key()
	}
	rows, err := d.Runs(ctx, q)
	if err != nil {
		return err
	}
	a := runsAnswer{Runs: []runLine{}}
	for _, r := range rows {
		a.Runs = append(a.Runs, runLineOf(r))
	}
	if len(rows) == q.Limit { // is there another page?
		last := rows[len(rows)-1]
		q.Before, q.Limit = last.Key(), 1
		if rows, err = d.Runs(ctx, q); err != nil {
			return err
		}
		if len(rows) > 0 {
			a.Before = last.ID
		}
	}
	return c.print(a, a.text())
}

// run reads one run.
func (d *desk) run(ctx context.Context, id string) (durable.RunRow, error) {
	rows, err := d.Runs(ctx, durable.RunQuery{IDs: []string{id}})
	if err == nil && len(rows) == 0 {
		err = failed("run %q: %w", id, durable.ErrNotFound)
	}
	if err != nil {
		return durable.RunRow{}, err
	}
	return rows[0], nil
}

func (a *runsAnswer) text() string {
	if len(a.Runs) == 0 {
		return "no runs\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STARTED\tJOB\tKIND\tATTEMPT\tSTATE\tTOOK\tNODE\tID\tERROR")
	for _, r := range a.Runs {
		kind := r.Kind.String()
		if r.Trigger != "" {
			kind += " (" + r.Trigger + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", timeText(r.Started), r.Job, kind, r.Attempt, r.State, r.Duration, r.Node, r.ID,
			strings.ReplaceAll(r.Error, "\n", "; "))
	}
	w.Flush()
	text := trimLines(b.String())
	if a.Before != "" {
		text += "more: -before " + a.Before + "\n"
	}
	return text
}

// short is a duration with as much precision as one reads.
func short(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
