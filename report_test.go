package taskmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// reportedManager has one task of each kind that a report shows differently.
func reportedManager(t *testing.T) (*taskmanager.TaskManager, *tasktest.Clock) {
	t.Helper()
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	s := explainStage{t, m, clk}
	s.must(m.ScheduleRecurring("heartbeat", time.Second, succeeds, taskmanager.WithJitter(0), taskmanager.WithTag("net")))
	s.must(m.ScheduleRecurring("flush", 10*time.Second, s.takes(1500*time.Millisecond), taskmanager.WithJitter(0)))
	s.must(m.ScheduleRecurring("upload", 10*time.Second, fails, taskmanager.WithJitter(0), backingOffFor(25*time.Second), taskmanager.WithTag("net")))
	s.must(m.ScheduleRecurring("stuck", 5*time.Second, s.takes(time.Hour), taskmanager.WithJitter(0), taskmanager.WithExecutionTimeout(2*time.Second)))
	s.must(m.ScheduleRecurring("idle", time.Minute, succeeds, taskmanager.WithPaused()))
	s.must(m.Schedule("nightly", cronsched.MustParse("0 3 * * *"), succeeds))
	s.must(m.Schedule("by hand", cronsched.Manual(), succeeds))
	clk.Advance(14 * time.Second)
	return m, clk
}

func TestReportIsATableForTerminals(t *testing.T) {
	m, _ := reportedManager(t)
	const want = `2026-01-01 00:00:14 UTC: 7 live tasks, 1 running; 17 runs: 15 ok, 1 failed (0 timed out, 0 panicked), 0 cancelled; 18 ticks: 17 ran, 1 skipped, 0 missed, 0 coalesced, 0 dropped, 0 pending

NAME       TAG  SCHEDULE               STATE             RUNS  FAILED (IN A ROW)  SKIPPED  MISSED  IN FLIGHT  LAST TOOK  P99 TOOK  P99 LATE  NEXT         LAST ERROR
by hand    -    manual                 scheduled         0     0 (0)              0        0       0          -          -         -         -            -
flush      -    every 10s              scheduled         1     0 (0)              0        0       0          1.5s       1.5s      0s        in 6s        -
heartbeat  net  every 1s               scheduled         14    0 (0)              0        0       0          0s         0s        0s        in 1s        -
idle       -    every 1m0s             paused            0     0 (0)              0        0       0          -          -         -         -            -
nightly    -    cron 0 3 * * * tz=UTC  scheduled         0     0 (0)              0        0       0          -          -         -         in 2h59m46s  -
stuck      -    every 5s               running, overdue  1     0 (0)              1        0       1          -          -         -         in 1s        -
upload     net  every 10s              backing off       1     1 (1)              0        0       0          0s         0s        0s        in 21s       disk full
`
	if got := m.Report().String(); got != want {
		t.Errorf("Report() =\n%s\nwant\n%s", got, want)
	}
}

func TestReportKeepsEveryTaskToItsLine(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	s := explainStage{t, m, clk}
	for _, name := range []string{"a\nb", "tab\there", "\x1b[31mred\x1b[0m", "\u202etfel", "bad\xffutf8", strings.Repeat("long", 1000), "世界"} {
		s.must(m.ScheduleRecurring(name, time.Second, func(context.Context) error {
			return errors.New("first line\r\n\v\f\x00second " + name)
		}, taskmanager.WithJitter(0), taskmanager.WithTag(name)))
	}
	s.must(m.ScheduleRecurring("hostile", time.Second, func(context.Context) error { return hostileError{} }, taskmanager.WithJitter(0)))
	clk.Advance(time.Second)
	text := m.Report().String()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if want := 3 + 8; len(lines) != want {
		t.Errorf("the report has %d lines, want %d:\n%s", len(lines), want, text)
	}
	for _, line := range lines {
		if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x202e }); i >= 0 {
			t.Errorf("the line %q has a control character", line)
		}
		if n := len([]rune(line)); n > 500 {
			t.Errorf("a line is %d characters long", n)
		}
	}
	for _, want := range []string{`a\nb`, `tab\there`, `\x1b[31mred\x1b[0m`, `\u202etfel`, "longlong…", "世界", "(taskmanager_test.hostileError whose text panicked)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
}

// A jsonReport is a Report as somebody reads it who has only its JSON.
type jsonReport struct {
	At      time.Time          `json:"at"`
	Totals  taskmanager.Totals `json:"totals"`
	Omitted int                `json:"omitted"`
	Tasks   []struct {
		Name                string             `json:"name"`
		Tag                 string             `json:"tag"`
		Schedule            string             `json:"schedule"`
		State               string             `json:"state"`
		Runs                uint64             `json:"runs"`
		Failures            uint64             `json:"failures"`
		ConsecutiveFailures int                `json:"consecutiveFailures"`
		InFlight            int                `json:"inFlight"`
		Overdue             bool               `json:"overdue"`
		Ticks               taskmanager.Ledger `json:"ticks"`
		LastRun             time.Time          `json:"lastRun"`
		LastDuration        time.Duration      `json:"lastDuration"`
		LastError           string             `json:"lastError"`
		LastErrorAt         time.Time          `json:"lastErrorAt"`
		NextRun             time.Time          `json:"nextRun"`
		Err                 string             `json:"err"`
		Duration            struct {
			Count              uint64
			P50, P90, P99, Max time.Duration
		} `json:"duration"`
	} `json:"tasks"`
}

func TestReportSurvivesItsJSON(t *testing.T) {
	m, clk := reportedManager(t)
	report := m.Report()
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var got jsonReport
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !got.At.Equal(clk.Now()) || got.Totals != report.Totals || len(got.Tasks) != len(report.Tasks) {
		t.Fatalf("read back %+v, want %+v", got, report)
	}
	for i, s := range report.Tasks {
		g := got.Tasks[i]
		lastError := ""
		if s.LastError != nil {
			lastError = s.LastError.Error()
		}
		if g.Name != s.Name || g.Tag != s.Tag || g.Schedule != s.Schedule || g.State != s.State.String() || g.Runs != s.Runs ||
			g.Failures != s.Failures || g.ConsecutiveFailures != s.ConsecutiveFailures || g.InFlight != s.InFlight ||
			g.Overdue != s.Overdue || g.Ticks != s.Ticks || !g.LastRun.Equal(s.LastRun) || g.LastDuration != s.LastDuration ||
			g.LastError != lastError || !g.LastErrorAt.Equal(s.LastErrorAt) || !g.NextRun.Equal(s.NextRun) || g.Err != "" ||
			g.Duration.Count != s.Duration.Count || g.Duration.Max != s.Duration.Max || g.Duration.P99 != s.Duration.Quantile(0.99) {
			t.Errorf("read back %+v, want %+v", g, s)
		}
	}
}

func TestSnapshotsJSONHasItsErrorsAsText(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	s := explainStage{t, m, clk}
	h := s.every(time.Second, func(context.Context) error { return hostileError{} })
	clk.Advance(time.Second)
	h.Stop()
	text, err := json.Marshal(h.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ LastError, Err, State string }
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.LastError != "(taskmanager_test.hostileError whose text panicked)" || got.Err != taskmanager.ErrStopped.Error() || got.State != "stopped" {
		t.Errorf("JSON is %s", text)
	}
}

func TestTheSizeOfADistributionDoesNotGrowWithWhatItCounts(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	s := explainStage{t, m, clk}
	took := time.Microsecond
	h := s.every(24*time.Hour, func(ctx context.Context) error {
		if took *= 2; took > 12*time.Hour {
			took = time.Microsecond
		}
		return clk.Sleep(ctx, took)
	})
	for range 200 {
		clk.Advance(24 * time.Hour)
	}
	d := h.Duration()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]int64
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if len(fields) != 5 || fields["count"] < 199 || fields["max"] < int64(8*time.Hour) || len(text) > 150 {
		t.Errorf("JSON is %s, want count, p50, p90, p99 and max", text)
	}
	if n := testing.AllocsPerRun(10, func() { d = h.Duration() }); n > 2 {
		t.Errorf("Duration() allocates %v times", n)
	}
}

func TestReportOfManyTasksListsAThousandByName(t *testing.T) {
	const n = 100_000
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	for i := range n {
		// scheduled in an order that is not their names'
		if _, err := m.ScheduleRecurring(fmt.Sprintf("task %06d", i*7919%n), time.Minute, succeeds); err != nil {
			t.Fatal(err)
		}
	}
	clk.Advance(time.Second)
	r := m.Report()
	if len(r.Tasks) != 1000 || r.Omitted != n-1000 || r.Totals.Tasks != n {
		t.Fatalf("%d tasks listed, %d omitted, of %d", len(r.Tasks), r.Omitted, r.Totals.Tasks)
	}
	for i, s := range r.Tasks {
		if want := fmt.Sprintf("task %06d", i); s.Name != want || s.Schedule != "every 1m0s" || s.NextRun.IsZero() {
			t.Fatalf("task %d is %+v, want %s", i, s, want)
		}
	}
	if text := r.String(); !strings.HasSuffix(text, "\n… and 99000 more\n") {
		t.Errorf("the report ends in %q", text[len(text)-60:])
	}
}

func TestReportAfterShutdownHasTheTotalsAndTheTasksItEnded(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	s := explainStage{t, m, clk}
	s.every(time.Second, succeeds)
	clk.Advance(3 * time.Second)
	clk.Close(m)
	r := m.Report()
	if r.Totals.Runs != 3 || r.Totals.Ticks.Ran != 3 || r.Totals.Tasks != 0 {
		t.Errorf("Totals = %+v, want 3 runs and no live task", r.Totals)
	}
	if len(r.Tasks) != 1 || r.Tasks[0].Runs != 3 || r.Tasks[0].State != taskmanager.Stopped {
		t.Errorf("Tasks = %+v, want the one that Shutdown ended", r.Tasks)
	}
	m, _ = tasktest.New(t)
	text, err := json.Marshal(m.Report())
	if err != nil || !strings.Contains(string(text), `"tasks":[]`) {
		t.Errorf("JSON is %s, %v, want an empty list of tasks", text, err)
	}
}

func TestReportIsSafeBesideEverythingElse(t *testing.T) {
	m, err := taskmanager.New(taskmanager.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			h, err := m.ScheduleRecurring(fmt.Sprint(i), time.Microsecond, fails, taskmanager.WithJitter(0), taskmanager.WithBackoffCap(0))
			if err != nil {
				t.Error(err)
				return
			}
			_ = h.RunNow()
			if i%2 == 0 {
				h.Stop()
			}
		}
	}()
	for {
		r := m.Report()
		if !slices.IsSortedFunc(r.Tasks, func(a, b taskmanager.Snapshot) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("a report is not in order")
		}
		for _, s := range r.Tasks {
			if h, ok := m.Lookup(s.Name); ok {
				_ = h.Explain()
			}
			if s.Runs != s.Successes+s.Failures+s.Cancelled+uint64(s.InFlight) {
				t.Errorf("%+v does not add up", s)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
