package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

// The test binary is the program, too.
func TestMain(m *testing.M) {
	if os.Getenv("REPORTS_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the program in a process of its own.
func program(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), "REPORTS_TEST_MAIN=1")
	return cmd
}

// recorded gives all runs of a database, newest first.
func recorded(t *testing.T, url string) []durable.RunRow {
	t.Helper()
	o, err := storeurl.OpenExisting(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	runs, err := o.Store.Runs(t.Context(), durable.RunQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// Two copies on one file, until their time is up; then what they recorded tells all.
func TestTwoCopiesShareTheWork(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "reports.db")
	var out [2]bytes.Buffer
	var copies []*exec.Cmd
	for i, name := range []string{"one", "two"} {
		cmd := program(t.Context(), t, "-db", url, "-node", name, "-demo", "1s", "-for", "10s")
		cmd.Stdout, cmd.Stderr = &out[i], &out[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, cmd)
	}
	for i, cmd := range copies {
		if err := cmd.Wait(); err != nil || !strings.Contains(out[i].String(), "stopped: every run of this node has come to its end") {
			t.Errorf("copy %d: %v, want a clean end", i, err)
		}
	}
	runs := recorded(t, url)
	checkShares(t, runs)
	checkAlone(t, runs, "report.nightly")
	checkData(t, runs)
	checkMails(t, runs)
	checkBroadcast(t, runs)
	if t.Failed() {
		t.Logf("%s\n%s", &out[0], &out[1])
	}
}

func checkShares(t *testing.T, runs []durable.RunRow) {
	nodes, jobs := map[string]int{}, map[string]int{}
	for _, r := range runs {
		nodes[nodeName(r.Node)]++
		if r.State == durable.RunSucceeded {
			jobs[r.Job]++
		}
		if r.State == durable.RunRunning { // a lost one may be, on a machine that is busy for seconds
			t.Errorf("%s is recorded as %v, want no such run after a clean stop", r.Job, r.State)
		}
	}
	if nodes["one"] == 0 || nodes["two"] == 0 || len(nodes) != 2 {
		t.Errorf("runs by node: %v, want some of one and of two", nodes)
	}
	for _, job := range []string{"hello", "report.nightly", "mail.send", "cache.refresh", "tenants.usage", "history.cleanup"} {
		if jobs[job] == 0 {
			t.Errorf("no run of %s succeeded", job)
		}
	}
}

// checkAlone: at most one run of the job at any moment, on both nodes together.
func checkAlone(t *testing.T, runs []durable.RunRow, job string) {
	var later *durable.RunRow
	for i := range runs {
		r := &runs[i]
		if r.Job != job {
			continue
		}
		if later != nil && r.EndedAt.After(later.StartedAt) {
			t.Errorf("%s ran from %v until %v, and again at %v", job, r.StartedAt, r.EndedAt, later.StartedAt)
		}
		later = r
	}
}

// checkData: the trigger's data is merged into the job's.
func checkData(t *testing.T, runs []durable.RunRow) {
	for _, r := range runs {
		if r.Job != "report.nightly" {
			continue
		}
		var args ReportArgs
		if err := json.Unmarshal(r.Data, &args); err != nil || args.Title != "Nightly report" || args.Period != "1h" || len(args.Recipients) != 2 {
			t.Errorf("data of a report: %s, %v, want the job's title and recipients, the trigger's period", r.Data, err)
		}
	}
}

// checkMails: that to the board comes through at the third attempt.
func checkMails(t *testing.T, runs []durable.RunRow) {
	states := map[string]string{} // of the attempts, by the first run
	for _, r := range runs {
		if r.Job == "mail.send" && strings.Contains(string(r.Data), "board@") {
			first := r.RetryOf
			if first == "" {
				first = r.ID
			}
			states[first] = r.State.String() + " " + states[first]
		}
	}
	for _, s := range states {
		if s == "failed failed succeeded " {
			return
		}
	}
	t.Errorf("attempts of mails to the board: %v, want one that failed twice and then succeeded", states)
}

// checkBroadcast: both nodes did it, for the same call.
func checkBroadcast(t *testing.T, runs []durable.RunRow) {
	nodes := map[string]map[string]bool{}
	for _, r := range runs {
		if r.Job == "cache.refresh" && r.State == durable.RunSucceeded {
			if nodes[r.IdempotencyKey] == nil {
				nodes[r.IdempotencyKey] = map[string]bool{}
			}
			nodes[r.IdempotencyKey][r.Node] = true
		}
	}
	for _, n := range nodes {
		if len(n) == 2 {
			return
		}
	}
	t.Errorf("cache.refresh by call: %v, want one that both nodes did", nodes)
}

// A node is killed in the midst of a report. The other one finds out, does it again,
// and ends at an interrupt.
func TestAKilledNodesReportIsTakenOver(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("processes cannot be interrupted there")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "reports.db")
	names := []string{"one", "two"}
	type said struct {
		who  int
		line string
	}
	lines := make(chan said)
	var copies []*exec.Cmd
	for i, name := range names {
		cmd := program(ctx, t, "-db", url, "-node", name, "-demo", "3s")
		out, in := io.Pipe()
		cmd.Stdout, cmd.Stderr = in, in
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- said{i, s.Text()}
			}
		}()
		copies = append(copies, cmd)
	}
	var log strings.Builder
	// await gives who says it; who is -1 for either.
	await := func(who int, what string) int {
		t.Helper()
		for {
			select {
			case s := <-lines:
				log.WriteString(s.line + "\n")
				if (who < 0 || s.who == who) && strings.Contains(s.line, what) {
					return s.who
				}
			case <-ctx.Done():
				t.Fatalf("nobody says %q:\n%s", what, &log)
			}
		}
	}
	dead := await(-1, "section 2 of 5")
	if err := copies[dead].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	other := 1 - dead
	await(other, "report.nightly  ! taken off a dead node")
	await(other, "report.nightly  > recovery, trigger demo")
	await(other, "report.nightly  = succeeded")
	if err := copies[other].Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await(other, "stopped: every run")
	go func() {
		for range lines { // the rest
		}
	}()
	_ = copies[dead].Wait()
	if err := copies[other].Wait(); err != nil {
		t.Errorf("the other copy: %v, want a clean end\n%s", err, &log)
	}
	checkTakenOver(t, recorded(t, url), names[dead], names[other])
}

func checkTakenOver(t *testing.T, runs []durable.RunRow, dead, other string) {
	for _, lost := range runs {
		if lost.Job != "report.nightly" || lost.State != durable.RunLost {
			continue
		}
		for _, r := range runs {
			if r.RetryOf == lost.ID && r.Kind == durable.KindRecovery && r.State == durable.RunSucceeded &&
				r.IdempotencyKey == lost.IdempotencyKey && nodeName(lost.Node) == dead && nodeName(r.Node) == other {
				return
			}
		}
	}
	t.Errorf("want a run of report.nightly lost on %s and recovered on %s: %+v", dead, other, runs)
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		says string // "" for nothing
	}{
		{"", ""},
		{"-for 5s -demo 0 -node x -db postgres://h/db", ""},
		{"-demo 1ms -for -1s", "reports: -demo 1ms: must be 0 or in [1s, 1h]\n-for -1s: must not be negative\n"},
		{"10s", "reports: unexpected [\"10s\"]\n"},
	} {
		var out bytes.Buffer
		_, err := parseFlags(strings.Fields(c.args), &out)
		if (err == nil) != (c.says == "") || out.String() != c.says {
			t.Errorf("parseFlags(%q) = %v and says %q, want %q", c.args, err, out.String(), c.says)
		}
	}
}
