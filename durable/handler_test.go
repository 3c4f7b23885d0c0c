package durable_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

func TestAHandlerIsRefusedWithATypedError(t *testing.T) {
	fine := func(context.Context, durable.Run, noArgs) error { return nil }
	n := newCluster(t).node("n", durable.Config{})
	for _, c := range []struct {
		name   string
		fn     func(context.Context, durable.Run, noArgs) error
		sample string
		want   string
		is     error
	}{
		{"h", fine, "", "", nil},
		{"h", fine, "", "Handler", durable.ErrExists},
		{"nil", nil, "", "Handler", nil},
		{"", fine, "", "Handler", nil},
		{"Upper", fine, "", "Handler", nil},
		{"sample", fine, "every blue moon", "SampleSchedule", nil},
	} {
		err := durable.Handle(n.Scheduler, c.name, c.fn, durable.SampleSchedule(c.sample))
		if got := strings.Join(fields(err), " "); got != c.want || c.want != "" && !errors.Is(err, durable.ErrInvalid) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("Handle(%q) = %v, naming %q, want %q, %v", c.name, err, got, c.want, c.is)
		}
	}
	if err := n.Use(nil); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("Use(nil) = %v, want %v", err, durable.ErrInvalid)
	}
	if err := n.AddCalendar("c", nil); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("AddCalendar of nil = %v, want %v", err, durable.ErrInvalid)
	}
	n.start()
	for what, err := range map[string]error{
		"Handle": durable.Handle(n.Scheduler, "late", fine), "Use": n.Use(func(h durable.Handler) durable.Handler { return h }),
		"AddCalendar": n.AddCalendar("late", noDays{}), "Start": n.Start(context.Background()),
	} {
		if !errors.Is(err, durable.ErrStarted) {
			t.Errorf("%s after Start = %v, want %v", what, err, durable.ErrStarted)
		}
	}
	if err := n.AddJob(context.Background(), durable.Job{Name: "j", Handler: "late"}); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("AddJob with a handler that was refused = %v, want %v", err, durable.ErrInvalid)
	}
}

// noDays is a calendar without exclusions.
type noDays struct{}

func (noDays) Excludes(time.Time) bool { return false }

var _ cronsched.Calendar = noDays{}

func TestTheRegistryCanBeListed(t *testing.T) {
	n := newCluster(t).node("n", durable.Config{})
	fine := func(context.Context, durable.Run, noArgs) error { return nil }
	if err := errors.Join(durable.Handle(n.Scheduler, "b", fine, durable.Describe("Does b."), durable.SampleSchedule("every 1h"), nil), durable.Handle(n.Scheduler, "a", fine)); err != nil {
		t.Fatal(err)
	}
	got := n.Handlers()
	if len(got) != 3 || got[0] != (durable.HandlerInfo{Name: "a"}) || got[1] != (durable.HandlerInfo{Name: "b", Description: "Does b.", SampleSchedule: "every 1h"}) {
		t.Errorf("Handlers = %+v, want a, then b as described, then housekeeping", got)
	}
}

func TestDataIsMergedAndDecoded(t *testing.T) {
	type args struct {
		A, B, C string
		N       int
	}
	cl := newCluster(t)
	n := cl.node("n", durable.Config{})
	var got []args
	var raw []string
	if err := durable.Handle(n.Scheduler, "h", func(_ context.Context, r durable.Run, a args) error {
		got, raw = append(got, a), append(raw, string(r.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	n.add(durable.Job{Name: "j", Handler: "h", Data: map[string]any{"A": "job", "B": "job", "C": "job"}, Triggers: []durable.Trigger{
		{Schedule: cron("0 * * * * *"), Data: map[string]any{"B": "trigger", "C": "trigger"}},
	}}).add(durable.Job{Name: "none", Handler: "h"}).start()
	if _, err := n.Trigger(context.Background(), "j", args{C: "call", N: 3}); err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(time.Minute)
	n.trigger("none")
	want := []args{{C: "call", N: 3}, {A: "job", B: "trigger", C: "trigger"}, {}}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("args = %+v, want %+v", got, want)
	}
	if raw[2] != "" {
		t.Errorf("Run.Data without any = %q, want none", raw[2])
	}
}

func TestDataThatDoesNotDecodeFailsTheRunAndSaysSo(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{})
	called := false
	if err := durable.Handle(n.Scheduler, "h", func(context.Context, durable.Run, struct{ N int }) error { called = true; return nil }); err != nil {
		t.Fatal(err)
	}
	n.add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 5, Delay: time.Second}}).start()
	if _, err := n.Trigger(context.Background(), "j", map[string]string{"N": "three"}); err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(time.Minute)
	rows := cl.runs(durable.RunQuery{})
	if called || len(rows) != 1 || rows[0].State != durable.RunFailed || rows[0].Code != durable.CodeValidation || !strings.Contains(rows[0].Message, "data does not fit") {
		t.Errorf("called %v, runs %+v, want one failed as validation, not retried", called, rows)
	}
}

func TestMiddlewareWrapsEveryRunTheFirstOutermost(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{})
	var trace []string
	layer := func(name string) durable.Middleware {
		return func(next durable.Handler) durable.Handler {
			return func(ctx context.Context, run durable.Run) error {
				trace = append(trace, name)
				defer func() { trace = append(trace, "/"+name) }()
				if r, ok := durable.RunFrom(ctx); !ok || r.ID != run.ID {
					t.Errorf("RunFrom in middleware = %+v, %v, want run %s", r, ok, run.ID)
				}
				return next(ctx, run)
			}
		}
	}
	if err := errors.Join(n.Use(layer("a")), n.Use(layer("b"))); err != nil {
		t.Fatal(err)
	}
	var id string
	n.handle("h", func(ctx context.Context, run durable.Run) error {
		deeper, stop := context.WithCancel(ctx)
		defer stop()
		r, ok := durable.RunFrom(deeper)
		if !ok || r.ID != run.ID || r.Job != "j" || r.Kind != durable.KindManual || r.Trigger != "" || r.Attempt != 1 || r.RetryOf != "" || r.Node != n.Node() || r.Fence < 1 || r.IdempotencyKey == "" {
			t.Errorf("RunFrom = %+v, %v, want the run", r, ok)
		}
		id = r.ID
		trace = append(trace, "h")
		return nil
	}).add(durable.Job{Name: "j", Handler: "h"}).start()
	if want := n.trigger("j"); id != want {
		t.Errorf("run %s, want that of Trigger, %s", id, want)
	}
	if got := strings.Join(trace, " "); got != "a b h /b /a" {
		t.Errorf("trace = %q, want a b h /b /a", got)
	}
	if _, ok := durable.RunFrom(context.Background()); ok {
		t.Error("RunFrom outside of a run gives one")
	}
}

func TestMiddlewareThatCannotBeBuiltIsAnErrorOfStart(t *testing.T) {
	for name, m := range map[string]durable.Middleware{
		"nil": func(durable.Handler) durable.Handler { return nil }, "panics": func(durable.Handler) durable.Handler { panic("no") },
	} {
		n := newCluster(t).node("n", durable.Config{})
		if err := n.Use(m); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(context.Background()); err == nil {
			t.Errorf("%s: Start = nil, want an error", name)
		}
	}
}

// A nasty error has methods that panic.
type nasty struct{ error, unwrap, as, is bool }

func (n nasty) Error() string {
	if n.error {
		panic("Error")
	}
	return "nasty"
}

func (n nasty) Unwrap() error {
	if n.unwrap {
		panic("Unwrap")
	}
	return nil
}

func (n nasty) As(any) bool {
	if n.as {
		panic("As")
	}
	return false
}

func (n nasty) Is(error) bool {
	if n.is {
		panic("Is")
	}
	return false
}

func TestHoweverAHandlerEndsTheRunIsRecordedAndTheNextOneComes(t *testing.T) {
	var nobody *durable.FieldError
	for name, c := range map[string]struct {
		end  func() error
		code durable.Code
	}{
		"panic with text":      {func() error { panic("text") }, durable.CodePanic},
		"panic with an error":  {func() error { panic(errors.New("err")) }, durable.CodePanic},
		"panic with nil":       {func() error { panic(nil) }, durable.CodePanic},
		"nil dereference":      {func() error { return errors.New(nobody.Field) }, durable.CodePanic},
		"panic with a snooze":  {func() error { panic(durable.Snooze(time.Second)) }, durable.CodePanic},
		"panic with a nasty":   {func() error { panic(nasty{true, true, true, true}) }, ""},
		"Goexit":               {func() error { runtime.Goexit(); return nil }, durable.CodePanic},
		"error":                {func() error { return errors.New("err") }, durable.CodeError},
		"Error panics":         {func() error { return nasty{error: true} }, durable.CodeError},
		"Unwrap panics":        {func() error { return nasty{unwrap: true} }, durable.CodeError},
		"As panics":            {func() error { return nasty{as: true} }, durable.CodeError},
		"Is panics":            {func() error { return nasty{is: true} }, durable.CodeError},
		"all of them panic":    {func() error { return nasty{true, true, true, true} }, durable.CodeError},
		"typed nil of a field": {func() error { return nobody }, durable.CodeError},
	} {
		for _, where := range []string{"handler", "middleware"} {
			cl := newCluster(t)
			n := cl.node("n", durable.Config{MaxConcurrentRuns: 1})
			calls := 0
			bad := func() error {
				if calls++; calls == 1 {
					return c.end()
				}
				return nil
			}
			if where == "middleware" {
				if err := n.Use(func(durable.Handler) durable.Handler {
					return func(context.Context, durable.Run) error { return bad() }
				}); err != nil {
					t.Fatal(err)
				}
			}
			n.handle("h", func(context.Context, durable.Run) error { return bad() }).add(durable.Job{Name: "j", Handler: "h"}).start()
			n.trigger("j")
			cl.clk.Advance(time.Second)
			n.trigger("j")
			rows := cl.runs(durable.RunQuery{})
			if len(rows) != 2 || rows[0].State != durable.RunFailed || rows[1].State != durable.RunSucceeded {
				t.Errorf("%s in %s: runs %v, want one failed and one succeeded", name, where, cl.states("j"))
				continue
			}
			if r := rows[0]; c.code != "" && r.Code != c.code || r.Message == "" {
				t.Errorf("%s in %s: code %q, message %q, want %q and a message", name, where, r.Code, r.Message, c.code)
			}
			if strings.HasPrefix(name, "panic with t") && !strings.Contains(rows[0].Detail, "handler_test.go") {
				t.Errorf("%s in %s: detail = %q, want the stack", name, where, rows[0].Detail)
			}
			if taken, _ := durable.Slots(n.Scheduler); taken != 0 {
				t.Errorf("%s in %s: %d slots taken, want 0", name, where, taken)
			}
		}
	}
}

func TestErrorTextsAreCutOnRuneBoundaries(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 5000), strings.Repeat("a", 480), strings.Repeat("a", 481), "a\xff\x00b", strings.Repeat("日", 479) + "xy"} {
		cl := newCluster(t)
		n := cl.node("n", durable.Config{}).handle("h", func(context.Context, durable.Run) error { return errors.New(text) }).add(durable.Job{Name: "j", Handler: "h"}).start()
		n.trigger("j")
		r := cl.runs(durable.RunQuery{})[0]
		if got, want := r.Message, durable.Cut(text, 480); got != want {
			t.Errorf("message = %q, want %q", got, want)
		}
		want := ""
		if len([]rune(text)) > 480 {
			want = durable.Cut(text, 4000)
		}
		if got := r.Detail; got != want {
			t.Errorf("detail of %d characters, want %d", len([]rune(got)), len([]rune(want)))
		}
	}
}

func FuzzCutGivesTheFirstCharacters(f *testing.F) {
	f.Add("", 0)
	f.Add("héllo", 2)
	f.Add("\xff\xfe\x00日本", 4)
	f.Add("a\xe6\x97", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = min(max(n, 0), 5000)
		runes := []rune(s)
		for i, r := range runes {
			if r == 0 {
				runes[i] = '�'
			}
		}
		if got, want := durable.Cut(s, n), string(runes[:min(n, len(runes))]); got != want {
			t.Errorf("cut(%q, %d) = %q, want %q", s, n, got, want)
		}
	})
}

// oddMinutes is a calendar that leaves out odd minutes.
type oddMinutes struct{}

func (oddMinutes) Excludes(at time.Time) bool { return at.Minute()%2 == 1 }

func TestACalendarIsReferredToByName(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick)
	job := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * * calendar=even")}}}
	if err := n.AddJob(context.Background(), job); strings.Join(fields(err), " ") != "Triggers[0].Schedule" {
		t.Errorf("AddJob with a calendar that is not registered = %v, want an error of Triggers[0].Schedule", err)
	}
	if err := n.AddCalendar("even", oddMinutes{}); err != nil {
		t.Fatal(err)
	}
	if err := n.AddCalendar("even", oddMinutes{}); !errors.Is(err, durable.ErrExists) {
		t.Errorf("AddCalendar twice = %v, want %v", err, durable.ErrExists)
	}
	n.add(job).start()
	cl.clk.Advance(6 * time.Minute)
	for i, r := range y.all() {
		if want := planStart.Add(time.Duration(i+1) * 2 * time.Minute); !r.ScheduledAt.Equal(want) {
			t.Errorf("run %d for %v, want %v", i, r.ScheduledAt, want)
		}
	}
	if y.count() != 3 {
		t.Errorf("%d runs in six minutes, want 3", y.count())
	}
}

func TestTheKeysOfAJobThatRunsOnEveryNodeAreTheSameWhereItsInstantsAre(t *testing.T) {
	for _, c := range []struct {
		what string
		same bool
		run  func(cl *cluster, n *node)
	}{
		{"cron", true, func(cl *cluster, n *node) { cl.clk.Advance(10 * time.Second) }},
		{"cron misfired", false, func(cl *cluster, n *node) { cl.clk.Stall(5 * time.Minute) }},
		{"every", false, func(cl *cluster, n *node) { cl.clk.Advance(8 * time.Second) }},
		{"broadcast", true, func(cl *cluster, n *node) {
			n.trigger("j")
			cl.clk.Advance(6 * time.Second)
		}},
	} {
		cl := newCluster(t)
		var y tally
		job := durable.Job{Name: "j", Handler: "h", RunOnEveryNode: true, Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}
		switch c.what {
		case "every":
			job.Triggers = []durable.Trigger{{Schedule: every("8s")}}
		case "cron", "cron misfired":
			job.Triggers = []durable.Trigger{{Schedule: cron("10 0 * * * *")}}
		}
		fails := func(_ context.Context, r durable.Run) error {
			y.begin(r)
			return y.end(errors.New("no"))
		}
		a := cl.node("a", durable.Config{}).handle("h", fails).add(job).start()
		cl.node("b", durable.Config{}).handle("h", fails).add(job).start()
		c.run(cl, a)
		cl.clk.Advance(2 * time.Second) // and its retry
		byNode := map[string][]durable.Run{}
		for _, r := range y.all() {
			byNode[r.Node] = append(byNode[r.Node], r)
		}
		if len(byNode) != 2 || y.count() != 4 {
			t.Errorf("%s: %d runs on %d nodes, want one and its retry on each of 2", c.what, y.count(), len(byNode))
			continue
		}
		keys := map[string]bool{}
		for _, runs := range byNode {
			keys[runs[0].IdempotencyKey] = true
			if runs[1].IdempotencyKey != runs[0].IdempotencyKey || !runs[1].ScheduledAt.Equal(runs[0].ScheduledAt) || runs[1].RetryOf != runs[0].ID || runs[1].Attempt != 2 {
				t.Errorf("%s: retry %+v, want the same firing as %+v", c.what, runs[1], runs[0])
			}
		}
		if same := len(keys) == 1; same != c.same {
			t.Errorf("%s: keys %v, want them the same: %v", c.what, keys, c.same)
		}
	}
}
