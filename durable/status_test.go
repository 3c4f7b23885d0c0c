package durable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestStatusSaysWhyAJobDoesNotRun(t *testing.T) {
	ctx := context.Background()
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	n := cl.node("n", durable.Config{MaxConcurrentRuns: 1}).handle("h", y.quick).handle("held", y.held(gate)).
		add(durable.Job{Name: "waits", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 0 * * * *")}}}).
		add(durable.Job{Name: "byhand", Handler: "h"}).
		add(durable.Job{Name: "paused", Handler: "h", Paused: true, Triggers: []durable.Trigger{{Schedule: cron("0 0 * * * *")}}}).
		add(durable.Job{Name: "trigger-paused", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 0 * * * *"), Paused: true}}}).
		add(durable.Job{Name: "over", Handler: "h", Triggers: []durable.Trigger{{Schedule: every("1s x1")}}}).
		add(durable.Job{Name: "runs", Handler: "held", Triggers: []durable.Trigger{{Name: "e", Schedule: every("10s")}, {Name: "f", Schedule: cron("20 * * * * *")}}}).
		add(durable.Job{Name: "starved", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("30 0 * * * *")}}}).
		add(durable.Job{Name: "local", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("0 0 * * * *")}}})
	n.start()
	cl.edit("unknown", func(e *durable.Edit) { e.Job = &durable.JobRow{Name: "unknown", Handler: "theirs"} })
	cl.clk.Advance(40 * time.Second)
	for job, want := range map[string][]string{
		"waits": {"due in 59m20s"}, "byhand": {"no trigger", "by hand only"}, "paused": {"job is paused"}, "trigger-paused": {"trigger is paused"},
		"over": {"complete", "as often as it should"}, "runs": {"a run is active on " + n.Node(), "end of its run", "waits for the active run"}, "starved": {"due for 10s", "slots"},
		"unknown": {"does not know its handler"},
	} {
		st, err := n.Status(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(st.Why, text) {
				t.Errorf("Status(%s).Why = %q, want %q in it", job, st.Why, text)
			}
		}
		if st.Job.Name != job {
			t.Errorf("Status(%s).Job = %q", job, st.Job.Name)
		}
	}
	hour := planStart.Add(time.Hour)
	for _, job := range []string{"waits", "local"} {
		if st, err := n.Status(ctx, job); err != nil || len(st.Triggers) != 1 || !st.Triggers[0].Next.Equal(hour) {
			t.Errorf("Status(%s).Triggers = %+v, %v, want next at %v", job, st.Triggers, err, hour)
		}
	}
	st, err := n.Status(ctx, "over")
	if err != nil || st.Last == nil || st.Last.State != durable.RunSucceeded || !st.Triggers[0].PrevAt.Equal(planStart.Add(time.Second)) {
		t.Errorf("Status(over) = %+v, %v, want its last run, for %v", st, err, planStart.Add(time.Second))
	}
	if st, err := n.Status(ctx, "runs"); err != nil || len(st.Running) != 1 || st.Running[0].Trigger != "e" || st.Running[0].Node != n.Node() {
		t.Errorf("Status(runs).Running = %+v, %v, want the run of e on this node", st.Running, err)
	}
	gate.Open()
	cl.clk.Advance(time.Second)
	if st, err := n.Status(ctx, "starved"); err != nil || st.Last == nil {
		t.Errorf("Status(starved).Last = %v, %v, want a run once a slot was free", st.Last, err)
	}
}

func TestStatusShowsWhatIsPending(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{}).handle("h", func(context.Context, durable.Run) error { return errors.New("no") }).
		add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: time.Hour}}).start()
	id := n.trigger("j")
	st, err := n.Status(context.Background(), "j")
	if err != nil || len(st.Pending) != 1 || st.Pending[0].RetryOf != id || !strings.HasPrefix(st.Pending[0].Name, "retry-") || !st.Pending[0].DueAt.Equal(cl.clk.Now().Add(time.Hour)) {
		t.Errorf("Status.Pending = %+v, %v, want the retry in an hour", st.Pending, err)
	}
	if !strings.Contains(st.Why, "retry-") {
		t.Errorf("Why = %q, want the retry in it", st.Why)
	}
	if st.Last == nil || st.Last.ID != id {
		t.Errorf("Last = %+v, want %s", st.Last, id)
	}
}

func TestStatusSaysUntilWhenABroadcastIsTold(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("n", durable.Config{}).handle("h", y.quick).add(everyNode()).start()
	id := n.trigger("l")
	want := "broadcast-" + id + " is told to nodes until " + c.clk.Now().Add(time.Hour).Format(time.RFC3339)
	c.clk.Advance(10 * time.Second)
	if st, err := n.Status(context.Background(), "l"); err != nil || st.Why != want {
		t.Errorf("Status.Why = %q, %v, want %q", st.Why, err, want)
	}
}

func TestTheNamesOfStatesAreReadBack(t *testing.T) {
	for s := durable.RunRunning; s <= durable.RunSnoozed; s++ {
		if got, err := durable.ParseRunState(s.String()); got != s || err != nil {
			t.Errorf("ParseRunState(%q) = %v, %v, want %v", s.String(), got, err, s)
		}
	}
	if _, err := durable.ParseRunState("asleep"); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("ParseRunState of no state = %v, want %v", err, durable.ErrInvalid)
	}
	if got := durable.RunState(99).String(); got != "state 99" {
		t.Errorf("RunState(99) = %q, want state 99", got)
	}
}

func TestHistoryIsPurgedAndDeletedOnlyOnceRunsHaveEnded(t *testing.T) {
	ctx := context.Background()
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick).handle("held", y.held(gate)).
		add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}}).add(durable.Job{Name: "k", Handler: "held"}).start()
	active := n.trigger("k")
	cl.clk.Advance(10 * time.Minute)
	if err := n.DeleteRun(ctx, active); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("DeleteRun of an active run = %v, want %v", err, durable.ErrNotFound)
	}
	if got, err := n.Purge(ctx, planStart.Add(5*time.Minute+time.Second)); got != 5 || err != nil {
		t.Errorf("Purge = %d, %v, want 5", got, err)
	}
	last := cl.runs(durable.RunQuery{Job: "j"})[0]
	if err := n.DeleteRun(ctx, last.ID); err != nil {
		t.Errorf("DeleteRun = %v, want no error", err)
	}
	if got := len(cl.runs(durable.RunQuery{})); got != 5 {
		t.Errorf("%d runs left, want 4 and the active one", got)
	}
	gate.Open()
}
