package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

var jobsCommand = command{
	name:    "jobs",
	args:    "[JOB]",
	summary: "list the jobs of a database, or say how one stands and why it does not run",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var f storeFlags
		f.flags(fs)
		return func(c *call, words []string) error {
			if len(words) == 0 {
				return f.with(func(ctx context.Context, d *desk) error { return listJobs(ctx, c, d) })
			}
			name, err := oneName(words, "job")
			if err == nil {
				err = validName("job", name)
			}
			if err != nil {
				return err
			}
			return f.with(func(ctx context.Context, d *desk) error { return showJob(ctx, c, d, name) })
		}
	},
}

// A jobLine is a job in the list.
type jobLine struct {
	Name        string     `json:"name"`
	Group       string     `json:"group"`
	Description string     `json:"description,omitempty"`
	State       string     `json:"state"`
	Next        *time.Time `json:"next,omitempty"` // nil if nothing is due, or every node keeps its own time
	Triggers    []string   `json:"triggers"`       // schedules
}

func listJobs(ctx context.Context, c *call, d *desk) error {
	lines := []jobLine{}
	for q := (durable.JobQuery{Limit: 1000}); ; q.After = lines[len(lines)-1].Name {
		page, err := d.Jobs(ctx, q)
		if err != nil {
			return err
		}
		for _, j := range page {
			lines = append(lines, lineOf(j))
		}
		if len(page) < q.Limit {
			break
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tGROUP\tSTATE\tNEXT\tTRIGGERS")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Name, l.Group, l.State, timeText(deref(l.Next)), strings.Join(l.Triggers, "; "))
	}
	w.Flush()
	if len(lines) == 0 {
		b.Reset()
		b.WriteString("no jobs\n")
	}
	return c.print(lines, b.String())
}

// lineOf sums a job up. Its state is what keeps it from running first, then what it
// waits for.
func lineOf(j durable.JobState) jobLine {
	l := jobLine{Name: j.Job.Name, Group: j.Job.Group, Description: j.Job.Description, Triggers: []string{}}
	states := map[durable.TriggerState]bool{}
	for _, t := range j.Triggers {
		states[t.State] = true
		if !t.OneShot() {
			l.Triggers = append(l.Triggers, t.Schedule)
		}
		if t.State == durable.StateWaiting && !t.DueAt.IsZero() && (l.Next == nil || t.DueAt.Before(*l.Next)) {
			l.Next = &t.DueAt
		}
	}
	switch {
	case len(j.Running) > 0:
		l.State = "running"
	case j.Job.Paused:
		l.State = "paused"
	case j.Job.RunOnEveryNode:
		l.State = "every node"
	case len(j.Triggers) == 0:
		l.State = "by hand"
	default:
		for _, s := range []durable.TriggerState{durable.StateError, durable.StateBlocked, durable.StateWaiting, durable.StateRunning, durable.StatePaused, durable.StateComplete} {
			if states[s] {
				l.State = s.String()
				break
			}
		}
	}
	return l
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// A jobAnswer is how a job stands.
type jobAnswer struct {
	Name             string          `json:"name"`
	Group            string          `json:"group"`
	Description      string          `json:"description,omitempty"`
	Handler          string          `json:"handler"`
	Data             json.RawMessage `json:"data,omitempty"`
	Source           durable.Source  `json:"source"`
	Paused           bool            `json:"paused"`
	AllowConcurrent  bool            `json:"allowConcurrent"`
	RunOnEveryNode   bool            `json:"runOnEveryNode"`
	RequestsRecovery bool            `json:"requestsRecovery"`
	Timeout          string          `json:"timeout,omitempty"`
	MaxRetries       int             `json:"maxRetries"`
	Triggers         []triggerLine   `json:"triggers"`
	Pending          []triggerLine   `json:"pending"`
	Running          []runLine       `json:"running"`
	Last             *runLine        `json:"last,omitempty"`
	Nodes            []string        `json:"nodes"` // IDs of those that are alive
	Why              string          `json:"why"`
}

// A triggerLine is one of its triggers.
type triggerLine struct {
	Name        string               `json:"name"`
	Description string               `json:"description,omitempty"`
	Schedule    string               `json:"schedule,omitempty"`
	State       durable.TriggerState `json:"state"`
	Why         string               `json:"why,omitempty"`
	Next        *time.Time           `json:"next,omitempty"`
	Until       *time.Time           `json:"until,omitempty"` // nodes are told of a broadcast
	Previous    *time.Time           `json:"previous,omitempty"`
	Fired       int64                `json:"fired"`
	Passed      int64                `json:"passed"`
	Priority    int                  `json:"priority"`
	Misfire     durable.Misfire      `json:"misfire"`
}

func showJob(ctx context.Context, c *call, d *desk, name string) error {
	if err := d.pretendToKnow(ctx, name); err != nil {
		return err
	}
	st, err := d.Status(ctx, name)
	if err != nil {
		return err
	}
	nodes, err := d.alive(ctx)
	if err != nil {
		return err
	}
	j := st.Job
	a := jobAnswer{
		Name: j.Name, Group: j.Group, Description: j.Description, Handler: j.Handler, Data: j.Data, Source: j.Source,
		Paused: j.Paused, AllowConcurrent: j.AllowConcurrent, RunOnEveryNode: j.RunOnEveryNode,
		RequestsRecovery: j.RequestsRecovery, MaxRetries: j.Retry.MaxRetries,
		Triggers: []triggerLine{}, Pending: []triggerLine{}, Running: []runLine{}, Nodes: []string{}, Why: st.Why,
	}
	if j.Timeout > 0 {
		a.Timeout = j.Timeout.String()
	}
	for _, t := range st.Triggers {
		a.Triggers = append(a.Triggers, triggerLineOf(t.TriggerRow, t.Next, t.Why))
	}
	for _, t := range st.Pending {
		line := triggerLineOf(t, t.DueAt, t.Reason)
		if t.State == durable.StateBroadcast {
			line.Next, line.Until = nil, line.Next
		}
		a.Pending = append(a.Pending, line)
	}
	for _, r := range st.Running {
		a.Running = append(a.Running, runLineOf(r))
	}
	if st.Last != nil {
		last := runLineOf(*st.Last)
		a.Last = &last
	}
	for _, n := range nodes {
		a.Nodes = append(a.Nodes, n.ID)
	}
	if len(nodes) == 0 {
		a.Why = strings.TrimPrefix(a.Why+"; no node is alive", "; ")
	}
	return c.print(a, a.text())
}

// pretendToKnow registers the job's handler and calendars, so that Status does not
// tell that this program has none, which is nobody's concern.
func (d *desk) pretendToKnow(ctx context.Context, job string) error {
	states, err := d.Jobs(ctx, durable.JobQuery{Names: []string{job}, WithoutRuns: true})
	if err != nil || len(states) == 0 {
		return err // Status will say so
	}
	j := states[0]
	err = durable.Handle(d.Scheduler, j.Job.Handler, func(context.Context, durable.Run, struct{}) error { return nil })
	if err != nil && j.Job.Handler != durable.HousekeepingJob { // which every scheduler has
		return err
	}
	var calendar cronsched.Calendar = anyDay{}
	if j.Job.RunOnEveryNode { // the next instant would be computed by the calendar
		calendar = noDay{}
	}
	known := map[string]bool{}
	for _, t := range j.Triggers {
		s, err := cronsched.Parse(t.Schedule)
		if err != nil {
			continue
		}
		if name, _ := s.Calendar(); name != "" && !known[name] {
			known[name] = true
			if err := d.AddCalendar(name, calendar); err != nil {
				return err
			}
		}
	}
	return nil
}

// anyDay is a calendar for schedules whose next instants are known already.
type anyDay struct{}

func (anyDay) Excludes(time.Time) bool { return false }

// noDay is a calendar for schedules whose next instants only the nodes can tell.
type noDay struct{}

func (noDay) Excludes(time.Time) bool { return true }

func triggerLineOf(t durable.TriggerRow, next time.Time, why string) triggerLine {
	return triggerLine{
		Name: t.Name, Description: t.Description, Schedule: t.Schedule, State: t.State, Why: why,
		Next: ref(next), Previous: ref(t.PrevAt), Fired: t.Fired, Passed: t.Passed, Priority: t.Priority, Misfire: t.Misfire,
	}
}

func ref(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (a *jobAnswer) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	say := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	say("job", "%s (group %s, from %s)", a.Name, a.Group, a.Source)
	if a.Description != "" {
		say("", "%s", a.Description)
	}
	say("handler", "%s", a.Handler)
	if len(a.Data) > 0 {
		say("data", "%s", a.Data)
	}
	if rules := a.rules(); rules != "" {
		say("rules", "%s", rules)
	}
	for _, t := range a.Triggers {
		say("trigger", "%s: %s", t.Name, t.Schedule)
		say("", "%s, next %s, previous %s, fired %d, passed over %d", t.State, timeText(deref(t.Next)), timeText(deref(t.Previous)), t.Fired, t.Passed)
	}
	for _, t := range a.Pending {
		if t.Until != nil {
			say("pending", "%s: told to nodes until %s", t.Name, timeText(*t.Until))
			continue
		}
		say("pending", "%s: %s, due %s", t.Name, t.State, timeText(deref(t.Next)))
	}
	for _, r := range a.Running {
		say("running", "%s on %s since %s, attempt %d", r.ID, r.Node, timeText(r.Started), r.Attempt)
	}
	if a.Last != nil {
		say("last run", "%s %s at %s after %s %s", a.Last.ID, a.Last.State, timeText(deref(a.Last.Ended)), a.Last.Duration, a.Last.Error)
	}
	nodes := "none"
	if len(a.Nodes) > 0 {
		nodes = strings.Join(a.Nodes, ", ")
	}
	say("nodes", "%s", nodes)
	say("why", "%s", a.Why)
	w.Flush()
	return trimLines(b.String())
}

func (a *jobAnswer) rules() string {
	var rules []string
	for _, r := range []struct {
		holds bool
		text  string
	}{
		{a.Paused, "paused"},
		{a.RunOnEveryNode, "runs on every node"},
		{a.AllowConcurrent, "runs may overlap"},
		{a.RequestsRecovery, "recovered if its node dies"},
		{a.Timeout != "", "at most " + a.Timeout},
		{a.MaxRetries > 0, fmt.Sprintf("%d retries", a.MaxRetries)},
	} {
		if r.holds {
			rules = append(rules, r.text)
		}
	}
	return strings.Join(rules, ", ")
}

// trimLines takes blanks off the ends of lines.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n"))
		b.WriteByte('\n')
	}
	return b.String()
}
