package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

type noArgs struct{}

// A cluster is a database with one node, which runs or does not.
type cluster struct {
	*durable.Scheduler
	url  string
	slow chan struct{} // a run of "slow" has begun
}

// newCluster migrates by the program itself, as everybody has to.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{url: "sqlite:" + filepath.Join(t.TempDir(), "jobs.db"), slow: make(chan struct{})}
	t.Setenv("TASKMANAGER_DB", c.url)
	if code, stdout, stderr := runWith("", "migrate"); code != exitOK || !strings.HasSuffix(stdout, ": tables made, version 1\n") {
		t.Fatalf("migrate = %d, %q, %q", code, stdout, stderr)
	}
	return c
}

// start has a node run until stop.
func (c *cluster) start(t *testing.T) (stop func()) {
	t.Helper()
	o, err := storeurl.Open(t.Context(), c.url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := durable.New(o.Store, durable.Config{
		Node: "n", PollInterval: 50 * time.Millisecond, NodeTimeout: 4 * time.Second, Retention: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Scheduler = s
	nothing := func(context.Context, durable.Run, noArgs) error { return nil }
	yearly := cronsched.MustParse("cron 0 0 0 1 1 * calendar=holidays")
	err = errors.Join(
		durable.Handle(s, "ok", nothing),
		durable.Handle(s, "bad", func(context.Context, durable.Run, noArgs) error { return errors.New("out of order") }),
		durable.Handle(s, "slow", func(ctx context.Context, _ durable.Run, _ noArgs) error {
			select {
			case c.slow <- struct{}{}:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}),
		s.AddCalendar("holidays", anyDay{}),
		s.AddJob(t.Context(), durable.Job{Name: "bad", Handler: "bad"}),
		s.AddJob(t.Context(), durable.Job{
			Name: "everywhere", Handler: "ok", RunOnEveryNode: true,
			Triggers: []durable.Trigger{{Name: "yearly", Schedule: yearly}},
		}),
		s.AddJob(t.Context(), durable.Job{
			Name: "ok", Handler: "ok", Group: "g", Description: "Does nothing.", Data: map[string]int{"a": 1},
			Triggers: []durable.Trigger{{Name: "yearly", Schedule: yearly}},
		}),
		s.AddJob(t.Context(), durable.Job{Name: "slow", Handler: "slow"}),
		s.Start(t.Context()),
	)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(s.Shutdown(context.WithoutCancel(t.Context())), o.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A step is one call of the program.
type step struct {
	args   string
	code   int
	stdout string // a pattern for the whole of it
	stderr string // a part of it
}

func (s step) do(t *testing.T) string {
	t.Helper()
	args := strings.Fields(s.args)
	code, stdout, stderr := runWith("", args...)
	if code != s.code || !regexp.MustCompile("^(?s:"+s.stdout+")$").MatchString(stdout) ||
		!strings.Contains(stderr, s.stderr) || s.stderr == "" && stderr != "" {
		t.Errorf("taskmanager %s = %d\n%s%swant %d\n%s\nand on stderr %q", s.args, code, stdout, stderr, s.code, s.stdout, s.stderr)
	}
	return stdout
}

func TestJobsWithoutANode(t *testing.T) {
	newCluster(t).start(t)()
	for _, s := range []step{
		{args: "migrate", stdout: `sqlite:.*: the tables are up to date\n`},
		{args: "jobs", stdout: `JOB +GROUP +STATE +NEXT +TRIGGERS\n` +
			`bad +default +by hand +- *\n` +
			`everywhere +default +every node +- +cron 0 0 0 1 1 \* tz=UTC calendar=holidays\n` +
			`ok +g +waiting +\d{4}-01-01 00:00:00Z +cron 0 0 0 1 1 \* tz=UTC calendar=holidays\n` +
			`slow +default +by hand +- *\n`},
		{args: "jobs ok", stdout: `job +ok \(group g, from code\)\n +Does nothing\.\nhandler +ok\ndata +{"a":1}\n` +
			`trigger +yearly: cron 0 0 0 1 1 \* tz=UTC calendar=holidays\n +waiting, next \d{4}-01-01 00:00:00Z, previous -, fired 0, passed over 0\n` +
			`nodes +none\nwhy +trigger yearly is due in [^;]*; no node is alive\n`},
		{args: "jobs everywhere", stdout: `.*\n +local, next -, .*why +trigger yearly is local; no node is alive\n`},
		{args: "jobs missing", code: exitBad, stderr: "not found"},
		{args: "jobs No", code: exitUsage, stderr: "no name of a job"},
		{args: "jobs a b", code: exitUsage, stderr: "want one job"},
		{args: "runs", stdout: "no runs\n"},
		{args: "trigger -wait ok", code: exitBad, stderr: "no node is alive"},
		{args: "trigger -wait everywhere", code: exitBad, stderr: "every node"},
		{args: "trigger missing", code: exitBad, stderr: "not found"},
		{args: "trigger", code: exitUsage, stderr: "no job"},
		{args: "trigger ok -data {", code: exitUsage, stderr: "-data is no JSON"},
		{args: "trigger ok -data [1]", code: exitUsage, stderr: "must be a JSON object"},
		{args: "pause ok/yearly", stdout: "ok/yearly paused\n"},
		{args: "jobs ok", stdout: `.*\n +paused, next .*trigger yearly is paused.*`},
		{args: "resume ok/yearly", stdout: "ok/yearly resumed\n"},
		{args: "jobs ok", stdout: `.*\n +waiting, next .*`},
		{args: "pause ok", stdout: "ok paused\n"},
		{args: "jobs", stdout: `.*\nok +g +paused .*`},
		{args: "resume ok", stdout: "ok resumed\n"},
		{args: "pause ok/missing", code: exitBad, stderr: `trigger "missing": durable: not found`},
		{args: "trigger ok -data [1]", code: exitUsage, stderr: `Data "[1]": must be a JSON object`},
		{args: "pause missing", code: exitBad, stderr: "not found"},
		{args: "resume ok/", code: exitUsage, stderr: "no name of a trigger"},
		{args: "cancel ok", stdout: "nothing is running\n"},
		{args: "cancel everywhere", code: exitBad, stderr: "its runs are not known here"},
		{args: "cancel missing", code: exitBad, stderr: "not found"},
		{args: "runs -before missing", code: exitBad, stderr: "not found"},
		{args: "runs -n 0", code: exitUsage, stderr: "want 1 to 1000"},
		{args: "runs -state done", code: exitUsage, stderr: "is none of"},
		{args: "runs -since yesterday", code: exitUsage, stderr: "-since"},
		{args: "runs x", code: exitUsage, stderr: "unexpected"},
	} {
		s.do(t)
	}
}

func TestRunsWithANode(t *testing.T) {
	c := newCluster(t)
	stop := c.start(t)
	defer stop()
	step{args: `trigger ok -wait -data {"b":2}`, stdout: `\w{26} succeeded after \S+ on n-\w{12}\n`}.do(t)
	step{args: "trigger bad -wait", code: exitBad, stdout: `\w{26} failed after \S+ on n-\w{12}\nout of order\n`}.do(t)
	id := strings.TrimSpace(step{args: "trigger slow", stdout: `\w{26}\n`}.do(t))
	<-c.slow
	step{args: "trigger slow -wait", code: exitBad, stderr: "the job is running"}.do(t)
	step{args: "jobs slow", stdout: `.*\nrunning +` + id + ` on n-\w{12} since .*\nlast run +\w{26} skipped .*`}.do(t)
	step{args: "runs -state running", stdout: `STARTED .*\n[^\n]* slow +manual +1 +running +n-\w{12} +` + id + `\n`}.do(t)
	step{args: "cancel " + id, stdout: "1 asked to end\n"}.do(t)
	if r, err := c.Wait(t.Context(), id); err != nil || r.State != durable.RunCancelled {
		t.Errorf("the run cancelled ended as %v, %v", r.State, err)
	}
	step{args: "cancel " + id, code: exitBad, stderr: "not found"}.do(t)

	all := step{args: "runs -since 1000000h", stdout: `STARTED .*\n.* slow .* cancelled .*\n.* bad .* failed .* out of order\n.* ok .* succeeded .*\n`}.do(t)
	var paged string
	for page, next := "", ""; ; next = page {
		page = step{args: "runs -n 1 " + next, stdout: `STARTED .*`}.do(t)
		lines := strings.Split(page, "\n")
		paged += strings.Join(strings.Fields(lines[1]), " ") + "\n"
		if !strings.HasPrefix(lines[2], "more: ") {
			break
		}
		page = strings.TrimPrefix(lines[2], "more: ")
	}
	_, rows, _ := strings.Cut(all, "\n")
	var want string
	for line := range strings.Lines(rows) {
		want += strings.Join(strings.Fields(line), " ") + "\n"
	}
	if paged != want {
		t.Errorf("page by page:\n%swant\n%s", paged, want)
	}
}

// A node is alive and claims nothing; the job is removed while its run is waited for.
func TestAWaitForWhatIsTakenBackEnds(t *testing.T) {
	c := newCluster(t)
	o, err := storeurl.Open(t.Context(), c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for name, takeBack := range map[string]func(*durable.Edit) error{
		"the job is removed":    func(e *durable.Edit) error { e.Job, e.Triggers = nil, nil; return nil },
		"its calls are dropped": func(e *durable.Edit) error { e.DropAdded = []durable.Kind{durable.KindManual}; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			edit := func(change func(*durable.Edit) error) {
				t.Helper()
				if err := o.Store.Edit(t.Context(), "a", durable.EditJob, change); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := o.Store.Beat(t.Context(), durable.NodeRow{ID: "n", Name: "n"}, time.Hour); err != nil {
				t.Fatal(err)
			}
			edit(func(e *durable.Edit) error { e.Job = &durable.JobRow{Name: "a", Handler: "ok"}; return nil })
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				step{args: "trigger a -wait", code: exitBad, stderr: "was taken back"}.do(t)
			}()
			for called := false; !called; {
				states, err := o.Store.Jobs(t.Context(), durable.JobQuery{})
				if err != nil {
					t.Fatal(err)
				}
				called = len(states[0].Triggers) > 0
			}
			edit(takeBack)
			<-ended
		})
	}
}

func TestTheLastPageOfRunsNamesNoOther(t *testing.T) {
	o, err := storeurl.Open(t.Context(), newCluster(t).url)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	err = o.Store.Edit(t.Context(), "j", durable.EnqueueOnly, func(e *durable.Edit) error {
		for i := range 1000 {
			e.Records = append(e.Records, durable.RunRow{ID: fmt.Sprintf("%026d", i), Job: "j", State: durable.RunSkipped})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, more := range map[int]bool{1: true, 999: true, 1000: false} {
		if _, out, _ := runWith("", "runs", "-n", fmt.Sprint(n)); strings.Contains(out, "more: -before") != more || strings.Count(out, "skipped") != n {
			t.Errorf("runs -n %d of 1000 lists %d, want a page after it: %v\n%.300s", n, strings.Count(out, "skipped"), more, out[max(0, len(out)-300):])
		}
	}
}

func TestAnswersAboutJobsInJSON(t *testing.T) {
	c := newCluster(t)
	stop := c.start(t)
	defer stop()
	read := func(code int, args string) (v struct {
		State, Code, Why, Before string
		Nodes                    []string
		Data                     map[string]int
		Runs                     []struct{ ID, Job, State string }
		Error                    any
	}) {
		t.Helper()
		got, stdout, stderr := runWith("", strings.Fields(args+" -json")...)
		if err := json.Unmarshal([]byte(stdout), &v); err != nil || got != code || stderr != "" {
			t.Errorf("taskmanager %s = %d, want %d\n%s%s%v", args, got, code, stdout, stderr, err)
		}
		return v
	}
	if v := read(exitOK, `trigger ok -wait -data {"b":2}`); v.State != "succeeded" || fmt.Sprint(v.Data) != "map[a:1 b:2]" {
		t.Errorf("trigger: %+v", v)
	}
	if v := read(exitBad, "trigger bad -wait"); v.State != "failed" || v.Code != "error" {
		t.Errorf("trigger: %+v", v)
	}
	if v := read(exitOK, "runs -n 1"); len(v.Runs) != 1 || v.Runs[0].Job != "bad" || v.Before != v.Runs[0].ID {
		t.Errorf("runs: %+v", v)
	}
	if v := read(exitOK, "jobs ok"); len(v.Nodes) != 1 || v.Why == "" {
		t.Errorf("jobs ok: %+v", v)
	}
	if v := read(exitBad, "pause missing"); !strings.Contains(fmt.Sprint(v.Error), "not found") {
		t.Errorf("pause: %+v", v)
	}
	if v := read(exitUsage, "pause No"); v.Error == nil {
		t.Errorf("pause: %+v", v)
	}
}

// Nothing but migrate makes a file or tables.
func TestNoCommandMigratesByItself(t *testing.T) {
	t.Setenv("TASKMANAGER_DB", "")
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "none.db"), filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"jobs", "jobs x", "runs", "trigger x", "trigger -wait x", "pause x", "resume x/y", "cancel x"} {
		step{args: args, code: exitUsage, stderr: "want -db URL"}.do(t)
		for range 2 {
			step{args: args + " -db " + file, code: exitBad, stderr: "migrate makes it"}.do(t)
			step{args: args + " -db sqlite:" + empty, code: exitBad, stderr: "the database has no tables: run taskmanager migrate"}.do(t)
		}
	}
	step{args: "migrate", code: exitUsage, stderr: "want -db URL"}.do(t)
	step{args: "migrate x", code: exitUsage, stderr: "unexpected"}.do(t)
	step{args: "migrate -print -prefix my_ -db " + file, stdout: `CREATE TABLE IF NOT EXISTS my_schema .*`}.do(t)
	step{args: "migrate -print -db postgres:// -schema jobs", stdout: `CREATE TABLE IF NOT EXISTS jobs\.taskmanager_schema .*`}.do(t)
	step{args: "migrate -print -db mysql://u:secret@h/db -prefix A", code: exitUsage, stderr: "WithPrefix"}.do(t)
	step{args: "migrate -db oracle://h", code: exitUsage, stderr: "unknown scheme"}.do(t)
	step{args: "jobs -db postgres://u:secret@127.0.0.1:1/db", code: exitBad, stderr: "storeurl: postgres://u@127.0.0.1:1/db: "}.do(t)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want %v", file, err, os.ErrNotExist)
	}
	step{args: "migrate -prefix my_ -db " + file, stdout: `sqlite:.*: tables made, version 1\n`}.do(t)
	step{args: "jobs -prefix my_ -db " + file, stdout: "no jobs\n"}.do(t)
	step{args: "jobs -db " + file, code: exitBad, stderr: "no tables"}.do(t)
}
