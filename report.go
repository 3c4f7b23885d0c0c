package taskmanager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// reportLimit is how many tasks a report lists unless it is asked for more: there
// may be a million of them, and a snapshot is the better part of a kilobyte.
const reportLimit = 1000

// A Report is how a manager and its tasks stood at one moment. Print it (String
// gives a table for terminals), or marshal it: in JSON durations are in
// nanoseconds and errors are text. The zero value is the report of nothing. It is
// a value of its own, which nothing changes later.
type Report struct {
	At     time.Time `json:"at"`     // on the manager's clock
	Totals Totals    `json:"totals"` // of all tasks, those that are gone and those not listed included
	// Tasks are the live tasks, or those that Shutdown ended; at most 1,000, by
	// name. Each snapshot is consistent with itself; they are taken one after the
	// other.
	Tasks []Snapshot `json:"tasks"`
	// Omitted is the number of live tasks that were left out for their number;
	// TaskManager.Tasks has them all.
	Omitted int `json:"omitted"`
}

// Report tells how the manager and its tasks stand. It holds up no tick, and takes
// time in proportion to the number of tasks. Safe for concurrent use, after
// Shutdown too.
func (m *TaskManager) Report() Report {
	return m.report(selection{column: &columns[0], limit: reportLimit})
}

// String is the report as a text table: a line of totals, a line a task.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.summary())
	b.WriteString("\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range columns {
		fmt.Fprint(w, columnSeparator(i), strings.ToUpper(columns[i].title))
	}
	fmt.Fprintln(w)
	for t := range r.Tasks {
		for i := range columns {
			fmt.Fprint(w, columnSeparator(i), columns[i].cell(&r.Tasks[t], r.At))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // a strings.Builder takes everything
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "… and %d more\n", r.Omitted)
	}
	return b.String()
}

func columnSeparator(i int) string {
	if i == 0 {
		return ""
	}
	return "\t"
}

// summary is the totals in one line.
func (r Report) summary() string {
	t := &r.Totals
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d live tasks, %d running; %d runs: %d ok, %d failed (%d timed out, %d panicked), %d cancelled; %d ticks: %d ran, %d skipped, %d missed, %d coalesced, %d dropped, %d pending",
		instantText(r.At), t.Tasks, t.Running,
		t.Runs, t.Successes, t.Failures, t.Timeouts, t.Panics, t.Cancelled,
		t.Ticks.Due(), t.Ticks.Ran, t.Ticks.Skipped(), t.Ticks.Missed, t.Ticks.Coalesced, t.Ticks.Dropped, t.Ticks.Pending)
	for _, extra := range []struct {
		n    uint64
		what string
	}{{t.ClockSteps, "clock steps"}, {t.EventsDropped, "events dropped"}, {t.EnginePanics, "PANICS OF THE ENGINE"}} {
		if extra.n > 0 {
			fmt.Fprintf(&b, "; %d %s", extra.n, extra.what)
		}
	}
	return b.String()
}

// MarshalJSON writes all fields, the two errors as text under "lastError" and
// "err" (left out if nil), durations in nanoseconds, and a distribution as its
// count, p50, p90, p99 and max: an object of bounded size, whatever was counted. A next
// run after the year 9999 is the zero Time.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot          // without this method
	if s.NextRun.Year() > 9999 { // which JSON's form of times cannot say
		s.NextRun = time.Time{}
	}
	return json.Marshal(struct {
		plain
		LastError string `json:"lastError,omitempty"`
		Err       string `json:"err,omitempty"`
	}{plain(s), errorText(s.LastError), errorText(s.Err)})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return guardedText(err)
}

// A selection says which tasks a report lists, and in which order.
type selection struct {
	column *column // sorted by
	desc   bool
	limit  int
	tag    *string // nil: any
	state  *State  // nil: any
	text   string  // in lower case: what name or tag must contain; "" is anything
}

// A row is a task on its way into a report.
type row struct {
	task *task
	snap Snapshot
	rhythm
}

// report makes a report of what q selects.
func (m *TaskManager) report(q selection) Report {
	now := m.engine.hands()
	r := Report{At: now.wall, Totals: m.Totals(), Tasks: []Snapshot{}}
	// Name and tag can be had without the task's lock, and so in no time.
	static := q.column.static && q.state == nil
	look := func(row *row) {
		t := row.task
		t.mu.Lock()
		defer t.mu.Unlock()
		row.snap = t.snapshotLocked(now)
		row.rhythm = t.rhythm()
	}
	m.mu.Lock()
	tasks := m.names.all()
	if m.closing != nil {
		tasks = slices.Clone(m.last)
	}
	m.mu.Unlock()
	rows, matched := q.choose(tasks, func(row *row) {
		if row.snap = (Snapshot{Name: row.task.name, Tag: row.task.conf.opts.Tag}); static {
			return
		}
		look(row)
		if q.column.schedule {
			row.snap.Schedule = row.rhythm.text() // user code
		}
	})
	for _, row := range rows {
		if static {
			look(row)
		}
		row.snap.Schedule = row.rhythm.text()
		r.Tasks = append(r.Tasks, row.snap)
	}
	r.Omitted = matched - len(rows)
	return r
}

// choose returns the first q.limit rows of those that match, in order, and how
// many match. It keeps at most twice q.limit of them at a time.
func (q *selection) choose(tasks []*task, look func(*row)) (rows []*row, matched int) {
	var worst *row
	var scratch row // most tasks of a million get no further than this
	for _, t := range tasks {
		scratch = row{task: t}
		look(&scratch)
		if !q.matches(&scratch) {
			continue
		}
		matched++
		if worst != nil && q.compare(&scratch, worst) > 0 {
			continue
		}
		kept := scratch
		rows = append(rows, &kept)
		if len(rows) == 2*q.limit {
			slices.SortFunc(rows, q.compare)
			clear(rows[q.limit:])
			rows = rows[:q.limit]
			worst = rows[q.limit-1]
		}
	}
	slices.SortFunc(rows, q.compare)
	return rows[:min(q.limit, len(rows))], matched
}

func (q *selection) matches(r *row) bool {
	s := &r.snap
	return (q.tag == nil || *q.tag == s.Tag) && (q.state == nil || *q.state == s.State) &&
		(q.text == "" || strings.Contains(strings.ToLower(s.Name), q.text) || strings.Contains(strings.ToLower(s.Tag), q.text))
}

func (q *selection) compare(a, b *row) int {
	c := q.column.compare(a, b)
	if q.desc {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(a.snap.Name, b.snap.Name))
}

// A column of the table, in text and HTML.
type column struct {
	id, title string // id is what ?sort= says
	static    bool   // compare needs no more than name and tag
	schedule  bool   // compare needs the schedule's text
	number    bool   // stands to the right in HTML
	compare   func(a, b *row) int
	cell      func(s *Snapshot, now time.Time) string
}

// by makes a compare function of a key.
func by[K cmp.Ordered](key func(s *Snapshot) K) func(a, b *row) int {
	return func(a, b *row) int { return cmp.Compare(key(&a.snap), key(&b.snap)) }
}

var columns = []column{
	{id: "name", title: "name", static: true, compare: by(func(s *Snapshot) string { return s.Name }),
		cell: func(s *Snapshot, _ time.Time) string { return oneLine(s.Name, 60) }},
	{id: "tag", title: "tag", static: true, compare: by(func(s *Snapshot) string { return s.Tag }),
		cell: func(s *Snapshot, _ time.Time) string { return cmp.Or(oneLine(s.Tag, 30), "-") }},
	{id: "schedule", title: "schedule", schedule: true, compare: compareSchedules,
		cell: func(s *Snapshot, _ time.Time) string { return oneLine(s.Schedule, 40) }},
	{id: "state", title: "state", compare: by(func(s *Snapshot) State { return s.State }), cell: stateCell},
	{id: "runs", title: "runs", number: true, compare: by(func(s *Snapshot) uint64 { return s.Runs }),
		cell: func(s *Snapshot, _ time.Time) string { return strconv.FormatUint(s.Runs, 10) }},
	{id: "failures", title: "failed (in a row)", number: true, compare: by(func(s *Snapshot) uint64 { return s.Failures }),
		cell: func(s *Snapshot, _ time.Time) string {
			return fmt.Sprintf("%d (%d)", s.Failures, s.ConsecutiveFailures)
		}},
	{id: "skipped", title: "skipped", number: true, compare: by(func(s *Snapshot) uint64 { return s.Ticks.Skipped() }),
		cell: func(s *Snapshot, _ time.Time) string { return strconv.FormatUint(s.Ticks.Skipped(), 10) }},
	{id: "missed", title: "missed", number: true, compare: by(lost),
		cell: func(s *Snapshot, _ time.Time) string { return strconv.FormatUint(lost(s), 10) }},
	{id: "inflight", title: "in flight", number: true, compare: by(func(s *Snapshot) int { return s.InFlight }),
		cell: func(s *Snapshot, _ time.Time) string { return strconv.Itoa(s.InFlight) }},
	{id: "last", title: "last took", number: true, compare: by(func(s *Snapshot) time.Duration { return s.LastDuration }),
		cell: func(s *Snapshot, _ time.Time) string { return countedCell(s, s.LastDuration) }},
	{id: "p99", title: "p99 took", number: true, compare: by(func(s *Snapshot) time.Duration { return s.Duration.Quantile(0.99) }),
		cell: func(s *Snapshot, _ time.Time) string { return countedCell(s, s.Duration.Quantile(0.99)) }},
	{id: "late", title: "p99 late", number: true, compare: by(func(s *Snapshot) time.Duration { return s.Lateness.Quantile(0.99) }),
		cell: func(s *Snapshot, _ time.Time) string { return countedCell(s, s.Lateness.Quantile(0.99)) }},
	{id: "next", title: "next", number: true, compare: compareNext, cell: nextCell},
	{id: "error", title: "last error", // the latest is the largest: errors themselves are user code
		compare: func(a, b *row) int { return a.snap.LastErrorAt.Compare(b.snap.LastErrorAt) },
		cell:    func(s *Snapshot, _ time.Time) string { return cmp.Or(oneLine(errorText(s.LastError), 80), "-") }},
}

// compareSchedules puts intervals, by length, before all others, by text.
func compareSchedules(a, b *row) int {
	if a.seat != nil && b.seat != nil {
		return cmp.Compare(a.snap.Schedule, b.snap.Schedule)
	}
	return cmp.Or(cmp.Compare(boolToInt(a.seat != nil), boolToInt(b.seat != nil)), cmp.Compare(a.interval, b.interval))
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compareNext puts tasks without a next run last.
func compareNext(a, b *row) int {
	x, y := a.snap.NextRun, b.snap.NextRun
	return cmp.Or(cmp.Compare(boolToInt(x.IsZero()), boolToInt(y.IsZero())), x.Compare(y))
}

func stateCell(s *Snapshot, _ time.Time) string {
	if s.Overdue {
		return s.State.String() + ", overdue"
	}
	return s.State.String()
}

func countedCell(s *Snapshot, d time.Duration) string {
	if s.Duration.Count == 0 {
		return "-"
	}
	return durationCell(d)
}

func nextCell(s *Snapshot, now time.Time) string {
	if s.NextRun.IsZero() {
		return "-"
	}
	return relative(s.NextRun.Sub(now))
}

// relative says when something is that is d from now.
func relative(d time.Duration) string {
	switch {
	case d > 0:
		return "in " + durationCell(d)
	case d == 0:
		return "now"
	}
	return durationCell(-d) + " ago"
}

// durationCell is a duration with about three digits.
func durationCell(d time.Duration) string {
	unit := time.Duration(1)
	switch {
	case d >= 10*time.Minute:
		unit = time.Second
	case d > 0:
		for unit*1000 <= d {
			unit *= 10
		}
	}
	text := d.Round(unit).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// instantText is an instant for people, in its own location.
func instantText(t time.Time) string { return t.Format("2006-01-02 15:04:05.999999999 MST") }

// oneLine makes the text of a user's, whatever is in it, fit a line of a terminal:
// what does not print is escaped, and what is beyond limit characters cut.
func oneLine(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > limit {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// lost is what the table has in one column: ticks that were due and will not run.
func lost(s *Snapshot) uint64 { return s.Ticks.Missed + s.Ticks.Dropped }
