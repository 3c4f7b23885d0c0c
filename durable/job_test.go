package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// fields gives the fields that an error names, in order.
func fields(err error) []string {
	var names []string
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case *durable.FieldError:
			names = append(names, e.Field)
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return names
}

func TestABadJobIsRefusedWithATypedErrorThatNamesTheField(t *testing.T) {
	ok := cron("0 * * * * *")
	noZone := durable.Trigger{Schedule: cronsched.Schedule{}}
	for name, c := range map[string]struct {
		spoil func(*durable.Job)
		want  string
	}{
		"no name":                {func(j *durable.Job) { j.Name = "" }, "Name"},
		"capital":                {func(j *durable.Job) { j.Name = "Job" }, "Name"},
		"slash":                  {func(j *durable.Job) { j.Name = "a/b" }, "Name"},
		"long name":              {func(j *durable.Job) { j.Name = strings.Repeat("a", 129) }, "Name"},
		"long group":             {func(j *durable.Job) { j.Group = strings.Repeat("é", 256) }, "Group"},
		"group with NUL":         {func(j *durable.Job) { j.Group = "a\x00" }, "Group"},
		"bad UTF-8":              {func(j *durable.Job) { j.Description = "\xff" }, "Description"},
		"no handler":             {func(j *durable.Job) { j.Handler = "" }, "Handler"},
		"unknown handler":        {func(j *durable.Job) { j.Handler = "nobody" }, "Handler"},
		"timeout below 0":        {func(j *durable.Job) { j.Timeout = -1 }, "Timeout"},
		"timeout over 30 days":   {func(j *durable.Job) { j.Timeout = 720*time.Hour + 1 }, "Timeout"},
		"retries over 100":       {func(j *durable.Job) { j.Retry = durable.Retry{MaxRetries: 101, Delay: time.Second} }, "Retry.MaxRetries"},
		"retries below 1":        {func(j *durable.Job) { j.Retry = durable.Retry{MaxRetries: -1, Delay: time.Second} }, "Retry.MaxRetries"},
		"retry without a number": {func(j *durable.Job) { j.Retry = durable.Retry{Delay: time.Second} }, "Retry.MaxRetries"},
		"retry without a delay":  {func(j *durable.Job) { j.Retry = durable.Retry{MaxRetries: 1} }, "Retry.Delay"},
		"retry delay below 0":    {func(j *durable.Job) { j.Retry = durable.Retry{MaxRetries: 1, Delay: -1} }, "Retry.Delay"},
		"retry delay too long":   {func(j *durable.Job) { j.Retry = durable.Retry{MaxRetries: 1, Delay: 720*time.Hour + 1} }, "Retry.Delay"},
		"max delay below delay":  {func(j *durable.Job) { j.Retry = durable.Retry{MaxRetries: 1, Delay: 2, Exponential: true, MaxDelay: 1} }, "Retry.Delay Retry.MaxDelay"},
		"max delay too long": {func(j *durable.Job) {
			j.Retry = durable.Retry{MaxRetries: 1, Delay: time.Second, Exponential: true, MaxDelay: 721 * time.Hour}
		}, "Retry.MaxDelay"},
		"max delay of nothing": {func(j *durable.Job) {
			j.Retry = durable.Retry{MaxRetries: 1, Delay: time.Second, MaxDelay: time.Minute}
		}, "Retry.MaxDelay"},
		"recovery on every node": {func(j *durable.Job) { j.RunOnEveryNode, j.RequestsRecovery = true, true }, "RequestsRecovery"},
		"data an array":          {func(j *durable.Job) { j.Data = []int{1} }, "Data"},
		"data a string":          {func(j *durable.Job) { j.Data = "x" }, "Data"},
		"data a number":          {func(j *durable.Job) { j.Data = 1 }, "Data"},
		"data a channel":         {func(j *durable.Job) { j.Data = make(chan int) }, "Data"},
		"data NaN":               {func(j *durable.Job) { j.Data = map[string]any{"x": math.NaN()} }, "Data"},
		"data no JSON":           {func(j *durable.Job) { j.Data = json.RawMessage(`{"a":`) }, "Data"},
		"data not UTF-8":         {func(j *durable.Job) { j.Data = json.RawMessage("{\"a\":\"\xff\"}") }, "Data"},
		"data too large":         {func(j *durable.Job) { j.Data = map[string]string{"x": strings.Repeat("x", 1000)} }, "Data"},
		"no schedule":            {func(j *durable.Job) { j.Triggers = []durable.Trigger{noZone} }, "Triggers[0].Schedule"},
		"manual schedule": {func(j *durable.Job) {
			j.Triggers = []durable.Trigger{{Schedule: ok}, {Name: "b", Schedule: cronsched.Manual()}}
		}, "Triggers[1].Schedule"},
		"unknown calendar":  {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Schedule: cron("0 * * * * * calendar=nowhere")}} }, "Triggers[0].Schedule"},
		"duplicate trigger": {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Schedule: ok}, {Name: "default", Schedule: ok}} }, "Triggers[1].Name"},
		"bad trigger name":  {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Name: "A", Schedule: ok}} }, "Triggers[0].Name"},
		"bad trigger description": {func(j *durable.Job) {
			j.Triggers = []durable.Trigger{{Description: strings.Repeat("x", 2001), Schedule: ok}}
		}, "Triggers[0].Description"},
		"bad trigger data": {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Data: true, Schedule: ok}} }, "Triggers[0].Data"},
		"priority over 10": {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Priority: 11, Schedule: ok}} }, "Triggers[0].Priority"},
		"priority below":   {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Priority: -2, Schedule: ok}} }, "Triggers[0].Priority"},
		"no policy":        {func(j *durable.Job) { j.Triggers = []durable.Trigger{{Misfire: 4, Schedule: ok}} }, "Triggers[0].Misfire"},
		"catch-up below 0": {func(j *durable.Job) { j.Triggers = []durable.Trigger{{MaxCatchUp: -1, Schedule: ok}} }, "Triggers[0].MaxCatchUp"},
		"all at once":      {func(j *durable.Job) { j.Name, j.Timeout, j.Data = "A", -1, 1 }, "Data Name Timeout"},
	} {
		for _, when := range []string{"before Start", "at run time", "replace"} {
			cl := newCluster(t)
			n := cl.node("n", durable.Config{MaxDataSize: 1000}).handle("h", (&tally{}).quick)
			job := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: ok}}}
			add := n.AddJob
			if when != "before Start" {
				n.start()
			}
			if when == "replace" {
				n.add(job)
				add = n.ReplaceJob
			}
			c.spoil(&job)
			err := add(context.Background(), job)
			got := fields(err)
			slices.Sort(got)
			if strings.Join(got, " ") != c.want || !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("%s, %s: error %v names %v, want %s", name, when, err, got, c.want)
			}
			jobs, _ := n.Jobs(context.Background(), durable.JobQuery{})
			if want := map[string]int{"replace": 1}[when]; len(jobs) != want {
				t.Errorf("%s, %s: %d jobs stored, want %d", name, when, len(jobs), want)
			}
		}
	}
}

func TestTheBoundsThemselvesAreAllowed(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{MaxDataSize: 1000}).handle("h", (&tally{}).quick).start()
	for i, j := range []durable.Job{
		{Name: strings.Repeat("a", 128)},
		{Name: "0"}, {Name: "a.b_c-d"},
		{Timeout: 720 * time.Hour},
		{Retry: durable.Retry{MaxRetries: 100, Delay: 720 * time.Hour}},
		{Retry: durable.Retry{MaxRetries: 1, Delay: time.Microsecond, Exponential: true, MaxDelay: time.Microsecond}},
		{Group: strings.Repeat("é", 255), Description: strings.Repeat("é", 2000)},
		{Data: map[string]string{"x": strings.Repeat("x", 1000-len(`{"x":""}`))}},
		{Data: (*struct{})(nil)}, {Data: struct{}{}}, {Data: json.RawMessage(` { } `)},
		{Triggers: []durable.Trigger{{Priority: 10, Schedule: cron("0 * * * * *")}, {Name: "b", Priority: durable.LowestPriority, Schedule: cron("0 * * * * *")}}},
	} {
		if j.Name == "" {
			j.Name = fmt.Sprintf("j%d", i)
		}
		j.Handler = "h"
		if err := n.AddJob(context.Background(), j); err != nil {
			t.Errorf("AddJob(%+v) = %v, want no error", j, err)
		}
	}
}

func TestABadConfigIsRefusedWithEachFieldNamed(t *testing.T) {
	for _, c := range []struct {
		config durable.Config
		want   string
	}{
		{durable.Config{MisfireThreshold: 4 * time.Second}, "MisfireThreshold"},
		{durable.Config{PollInterval: 2 * time.Minute, MisfireThreshold: time.Minute}, "MisfireThreshold"},
		{durable.Config{PollInterval: -1}, "PollInterval"},
		{durable.Config{NodeTimeout: time.Millisecond}, "NodeTimeout"},
		{durable.Config{MaxConcurrentRuns: -1, MaxDataSize: -1}, "MaxConcurrentRuns MaxDataSize"},
		{durable.Config{Misfire: 9}, "Misfire"},
		{durable.Config{Node: strings.Repeat("n", 49)}, "Node"},
		{durable.Config{PollInterval: 2 * time.Minute}, ""},
		{durable.Config{PollInterval: time.Minute, MisfireThreshold: time.Minute}, ""},
	} {
		s, err := durable.New(nil, c.config)
		if s != nil {
			if err := s.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if got := strings.Join(fields(err), " "); got != c.want || (err != nil) != errors.Is(err, durable.ErrInvalid) {
			t.Errorf("New(%+v) = %v, naming %q, want %q", c.config, err, got, c.want)
		}
	}
}

func TestAJobOfTheSameNameExists(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{}).handle("h", (&tally{}).quick)
	job := durable.Job{Name: "j", Handler: "h"}
	n.add(job)
	if err := n.AddJob(context.Background(), job); !errors.Is(err, durable.ErrExists) {
		t.Errorf("second AddJob before Start = %v, want %v", err, durable.ErrExists)
	}
	n.start()
	if err := n.AddJob(context.Background(), job); !errors.Is(err, durable.ErrExists) {
		t.Errorf("AddJob at run time = %v, want %v", err, durable.ErrExists)
	}
}

// snapshot is what the store says of a job, without what always changes.
func (l *life) snapshot(job string) string {
	st := l.job(job)
	st.Job.Version, st.Job.Updated = 0, time.Time{}
	for i := range st.Triggers {
		st.Triggers[i].Version = 0
	}
	return fmt.Sprintf("%+v", st)
}

func TestJobsInCodeAreWrittenOnlyWhenTheirCodeChanged(t *testing.T) {
	ctx := context.Background()
	l := newLife(t)
	def := func() durable.Job {
		return durable.Job{Name: "j", Handler: "h", Data: map[string]int{"a": 1, "b": 2}, Triggers: []durable.Trigger{
			{Name: "slow", Schedule: every("100h")}, {Name: "quick", Schedule: cron("0 0 * * * *")},
		}}
	}
	n := l.restart(durable.Config{}).handle("h", (&tally{}).quick).add(def()).start()
	if st := l.job("j"); st.Job.Source != durable.SourceCode || st.Job.CodeHash == "" || st.Job.Group != "default" {
		t.Errorf("job = %+v, want one of source code with a hash, in the default group", st.Job)
	}
	// An operator's edits.
	edited := def()
	edited.Data, edited.Description, edited.Timeout = map[string]int{"a": 7}, "by the operator", time.Minute
	edited.Triggers[1].Schedule = cron("0 30 * * * *")
	if err := errors.Join(n.ReplaceJob(ctx, edited), n.PauseTrigger(ctx, "j", "quick"), n.PauseJob(ctx, "j")); err != nil {
		t.Fatal(err)
	}
	want := l.snapshot("j")
	version := l.job("j").Job.Version

	l.clk.Advance(time.Hour)
	l.kill()
	l.node = nil
	l.restart(durable.Config{}).handle("h", (&tally{}).quick).add(def()).start()
	if got := l.snapshot("j"); got != want || l.job("j").Job.Version != version {
		t.Errorf("after a restart with the same code the job is\n%s, want\n%s", got, want)
	}

	// The code changes: its definition wins, but for pauses and due times of schedules
	// that are the same.
	slow := l.row("j", "slow").DueAt
	l.clk.Advance(time.Hour)
	l.kill()
	l.node = nil
	changed := def()
	changed.Data = map[string]int{"a": 3}
	changed.Paused = false
	l.restart(durable.Config{}).handle("h", (&tally{}).quick).add(changed).start()
	st := l.job("j")
	if string(st.Job.Data) != `{"a":3}` || st.Job.Description != "" || st.Job.Timeout != 0 || !st.Job.Paused {
		t.Errorf("after a restart with other code the job is %+v, want the code's, still paused", st.Job)
	}
	if row := l.row("j", "slow"); !row.DueAt.Equal(slow) {
		t.Errorf("trigger with the same schedule due %v, want %v", row.DueAt, slow)
	}
	row := l.row("j", "quick")
	if want := cron("0 0 * * * *").String(); row.Schedule != want || !row.Paused || row.State != durable.StatePaused || row.DueAt.Minute() != 0 {
		t.Errorf("trigger = %+v, want schedule %q, paused as before", row, want)
	}
}

func TestWhetherCodeCreatesItPausedIsNoPartOfTheDefinition(t *testing.T) {
	l := newLife(t)
	def := durable.Job{Name: "j", Handler: "h", Paused: true, Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *"), Paused: true}}}
	n := l.restart(durable.Config{}).handle("h", (&tally{}).quick).add(def).start()
	if !l.job("j").Job.Paused || l.row("j", "default").State != durable.StatePaused {
		t.Errorf("job = %+v, want it created paused", l.job("j"))
	}
	if err := errors.Join(n.ResumeJob(context.Background(), "j"), n.ResumeTrigger(context.Background(), "j", "default")); err != nil {
		t.Fatal(err)
	}
	for _, paused := range []bool{true, false} {
		l.kill()
		l.node = nil
		def.Paused, def.Triggers[0].Paused = paused, paused
		l.restart(durable.Config{}).handle("h", (&tally{}).quick).add(def).start()
		if st := l.job("j"); st.Job.Paused || l.row("j", "default").Paused {
			t.Errorf("after a restart of code with Paused %v: %+v, want it resumed as before", paused, st)
		}
	}
}

func TestJobsThatVanishedFromCodeAreLeftAndReported(t *testing.T) {
	l := newLife(t)
	var y tally
	n := l.restart(durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "old", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}}).start()
	n.add(durable.Job{Name: "api", Handler: "h"})
	if got := l.job("api").Job.Source; got != durable.SourceAPI {
		t.Errorf("source of a job added at run time = %q, want %q", got, durable.SourceAPI)
	}
	want := l.snapshot("old")
	l.kill()
	l.node = nil
	n = l.restart(durable.Config{}).handle("h", y.quick).start()
	if got := l.snapshot("old"); got != want {
		t.Errorf("job = %s, want %s", got, want)
	}
	if got := n.log.with("not in this node's code"); len(got) != 1 || !strings.Contains(got[0], "job=old") {
		t.Errorf("log = %q, want one line about job old", got)
	}
	l.clk.Advance(time.Minute)
	if y.count() != 1 {
		t.Errorf("%d runs of the job, want 1", y.count())
	}
}

func TestHousekeepingKeepsAnOperatorsRetention(t *testing.T) {
	l := newLife(t)
	n := l.restart(durable.Config{Retention: 48 * time.Hour}).start()
	job := l.job(durable.HousekeepingJob)
	if !strings.Contains(string(job.Job.Data), "48h") {
		t.Errorf("data = %s, want the retention of the Config", job.Job.Data)
	}
	if got := l.row(durable.HousekeepingJob, "nightly").Priority; got != 0 {
		t.Errorf("priority = %d, want 0, the lowest", got)
	}
	names := map[string]bool{}
	for _, h := range n.Handlers() {
		names[h.Name] = true
	}
	if !maps.Equal(names, map[string]bool{durable.HousekeepingJob: true}) {
		t.Errorf("handlers = %v, want %s", names, durable.HousekeepingJob)
	}
}

var nameGrammar = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

func FuzzValidNameIsTheGrammar(f *testing.F) {
	for _, s := range []string{"", "a", "0", "-a", ".a", "_a", "a.b", "a-b_c", "A", "ä", "a\n", "a b", strings.Repeat("x", 128), strings.Repeat("x", 129), "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := durable.ValidName(s), nameGrammar.MatchString(s) && !strings.HasSuffix(s, "\n"); got != want {
			t.Errorf("ValidName(%q) = %v, want %v", s, got, want)
		}
	})
}
