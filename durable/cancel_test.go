package durable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestATimeoutEndsTheContextAndTheRunIsFailedWhenItReturns(t *testing.T) {
	boom := errors.New("what it did return")
	for name, c := range map[string]struct {
		obeys   bool
		returns error
		ends    time.Duration // after the start
	}{
		"obeys": {true, boom, 10 * time.Second}, "obeys and returns nil": {true, nil, 10 * time.Second},
		"ignores": {false, boom, 40 * time.Second}, "ignores and returns nil": {false, nil, 40 * time.Second},
	} {
		cl := newCluster(t)
		var y tally
		var cause error
		n := cl.node("n", durable.Config{MaxConcurrentRuns: 1}).handle("h", func(ctx context.Context, r durable.Run) error {
			y.begin(r)
			in := ctx
			if !c.obeys {
				in = context.WithoutCancel(ctx)
			}
			_ = cl.clk.Sleep(in, 40*time.Second)
			cause = context.Cause(ctx)
			return y.end(c.returns)
		}).add(durable.Job{Name: "j", Handler: "h", Timeout: 10 * time.Second, Triggers: []durable.Trigger{{Schedule: cron("0,15,45 * * * * *")}}}).start()
		other := 0
		if err := durable.Handle(n.Scheduler, "late", func(context.Context, durable.Run, noArgs) error { other++; return nil }); !errors.Is(err, durable.ErrStarted) {
			t.Fatal(err)
		}
		cl.clk.Advance(15*time.Second + c.ends - 1)
		if rows := cl.runs(durable.RunQuery{}); len(rows) != 1 || rows[0].State != durable.RunRunning {
			t.Errorf("%s: runs before it returns %+v, want one running", name, rows)
		}
		if taken, _ := durable.Slots(n.Scheduler); taken != 1 {
			t.Errorf("%s: %d slots taken before it returns, want 1", name, taken)
		}
		if !c.obeys {
			if row := cl.row("j", "default"); row.State != durable.StateWaiting && row.State != durable.StateBlocked || y.most != 1 {
				t.Errorf("%s: trigger %v, %d at once, want non-concurrency kept", name, row.State, y.most)
			}
			if got := n.events.of(durable.EventOverdue); len(got) != 1 {
				t.Errorf("%s: %d events that it is overdue, want 1", name, len(got))
			}
		}
		cl.clk.Advance(1)
		r := cl.runs(durable.RunQuery{})[0]
		if r.State != durable.RunFailed || r.Code != durable.CodeTimeout || r.Duration != c.ends || !strings.Contains(r.Message, "10s") {
			t.Errorf("%s: run = %+v, want failed for timeout after %v", name, r, c.ends)
		}
		if kept := strings.Contains(r.Detail, boom.Error()); kept != (c.returns != nil) {
			t.Errorf("%s: detail = %q, want what the handler returned", name, r.Detail)
		}
		if !errors.Is(cause, durable.ErrTimeout) {
			t.Errorf("%s: cause = %v, want %v", name, cause, durable.ErrTimeout)
		}
	}
}

func TestATimeoutThatIsNotReachedDoesNothing(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error { return cl.clk.Sleep(ctx, 9*time.Second) }).
		add(durable.Job{Name: "j", Handler: "h", Timeout: 10 * time.Second}).start()
	n.trigger("j")
	cl.clk.Advance(time.Minute)
	cl.wantStates("j", "manual:succeeded")
	if got := n.events.of(durable.EventOverdue); len(got) != 0 {
		t.Errorf("events %+v, want none", got)
	}
}

func TestCancelEndsRunsByIDAndByJobFromAnyNode(t *testing.T) {
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	a := cl.node("a", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, Retry: durable.Retry{MaxRetries: 3, Delay: time.Second}}).start()
	b := cl.node("b", durable.Config{}).start()
	ctx := context.Background()
	first := a.trigger("j")
	a.trigger("j")
	a.trigger("j")
	if n, err := a.Cancel(ctx, first); n != 1 || err != nil {
		t.Errorf("Cancel(id) = %d, %v, want 1", n, err)
	}
	cl.clk.Advance(0)
	if errs := y.ended(); len(errs) != 1 || !errors.Is(errs[0], durable.ErrCancelled) {
		t.Errorf("handlers ended with %v, want one with %v", errs, durable.ErrCancelled)
	}
	if _, err := a.Cancel(ctx, first); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("Cancel of an ended run = %v, want %v", err, durable.ErrNotFound)
	}
	if n, err := b.Cancel(ctx, "j"); n != 2 || err != nil {
		t.Errorf("Cancel(job) on another node = %d, %v, want 2", n, err)
	}
	cl.clk.Advance(30 * time.Second) // a heartbeat
	if n, err := b.Cancel(ctx, "j"); n != 0 || err != nil {
		t.Errorf("Cancel of an idle job = %d, %v, want 0", n, err)
	}
	cl.clk.Advance(time.Minute)
	cl.wantStates("j", "manual:cancelled", "manual:cancelled", "manual:cancelled")
	for _, r := range cl.runs(durable.RunQuery{}) {
		if r.Code != durable.CodeCancelled {
			t.Errorf("code = %q, want %q", r.Code, durable.CodeCancelled)
		}
	}
}

func TestCancelReachesTheRunsOfAJobThatRunsOnEveryNode(t *testing.T) {
	for _, by := range []string{"job", "id"} {
		cl := newCluster(t)
		gate := cl.clk.NewGate()
		var y tally
		n := cl.node("n", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("10 * * * * *")}}}).start()
		cl.clk.Advance(15 * time.Second)
		runs := y.all()
		if len(runs) != 1 {
			t.Fatalf("%d runs, want 1", len(runs))
		}
		what := "j"
		if by == "id" {
			what = runs[0].ID
		}
		if got, err := n.Cancel(context.Background(), what); got != 1 || err != nil {
			t.Errorf("Cancel by %s = %d, %v, want 1", by, got, err)
		}
		cl.clk.Advance(time.Second)
		cl.wantStates("j", "schedule:cancelled")
	}
}

func TestTheFirstCauseOfAContextsEndCounts(t *testing.T) {
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.deaf(gate)).add(durable.Job{Name: "j", Handler: "h", Timeout: 10 * time.Second}).start()
	id := n.trigger("j")
	cl.clk.Advance(5 * time.Second)
	if _, err := n.Cancel(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(time.Minute)
	gate.Open()
	cl.wantStates("j", "manual:cancelled")
}

func TestARunsContextIsOverWithItsRun(t *testing.T) {
	for name, asks := range map[string]bool{"asked for in the run": true, "not asked for": false} {
		cl := newCluster(t)
		var kept, child context.Context
		cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, _ durable.Run) error {
			kept = ctx
			if asks {
				var cancel context.CancelFunc
				child, cancel = context.WithCancel(ctx)
				_ = cancel // by its parent
			}
			return nil
		}).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}}).start()
		cl.clk.Advance(time.Minute)
		if asks {
			<-child.Done()
		}
		<-kept.Done()
		if kept.Err() != context.Canceled || context.Cause(kept) != context.Canceled {
			t.Errorf("%s: after the run Err %v, cause %v, want %v", name, kept.Err(), context.Cause(kept), context.Canceled)
		}
		if r, ok := durable.RunFrom(kept); !ok || r.Job != "j" {
			t.Errorf("%s: RunFrom after the run = %+v, %v, want the run", name, r, ok)
		}
	}
}
