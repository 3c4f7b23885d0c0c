package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestACallByHandRunsAtOnceUnderTheIDItReturned(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Data: map[string]int{"a": 1, "b": 1}, Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *"), Data: map[string]int{"b": 2}}}}).start()
	cl.clk.Advance(10 * time.Second)
	before := cl.row("j", "default")
	id, err := n.Trigger(context.Background(), "j", map[string]int{"b": 3, "c": 3})
	if err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(0)
	runs := y.all()
	if len(runs) != 1 || runs[0].ID != id || runs[0].Kind != durable.KindManual || runs[0].Trigger != "" || string(runs[0].Data) != `{"a":1,"b":3,"c":3}` || !runs[0].ScheduledAt.Equal(cl.clk.Now()) {
		t.Errorf("runs %+v, want %s by hand, now, with the merged data", runs, id)
	}
	if got := cl.row("j", "default"); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("trigger = %+v, want it unmoved: %+v", got, before)
	}
}

func TestACallByHandOfARunningJobIsAConflictAtTheCall(t *testing.T) {
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h"}).add(durable.Job{Name: "c", Handler: "h", AllowConcurrent: true}).start()
	n.trigger("j")
	cl.clk.Advance(time.Second)
	id, err := n.Trigger(context.Background(), "j", nil)
	if !errors.Is(err, durable.ErrConflict) {
		t.Errorf("Trigger of a running job = %v, want %v", err, durable.ErrConflict)
	}
	rows := cl.runs(durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunSkipped}})
	if len(rows) != 1 || rows[0].ID != id || rows[0].Code != durable.CodeConflict {
		t.Errorf("records %+v, want one skipped under %s", rows, id)
	}
	n.trigger("c")
	n.trigger("c")
	gate.Open()
	if y.count() != 3 {
		t.Errorf("%d runs, want 3", y.count())
	}
}

func TestACallByHandThatMeetsARunningJobAtItsClaimIsAConflict(t *testing.T) {
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h"}).start()
	var ids []string
	for range 2 { // neither runs at the calls
		id, err := n.Trigger(context.Background(), "j", nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	cl.clk.Advance(time.Second)
	gate.Open()
	states := map[durable.RunState]durable.RunRow{}
	for _, r := range cl.runs(durable.RunQuery{Job: "j", IDs: ids}) {
		states[r.State] = r
	}
	if len(states) != 2 || states[durable.RunSkipped].Code != durable.CodeConflict || states[durable.RunSucceeded].ID == "" || y.count() != 1 {
		t.Errorf("runs %+v, want one that ran, and one skipped for conflict", states)
	}
	row, err := n.Wait(context.Background(), states[durable.RunSkipped].ID)
	if !errors.Is(err, durable.ErrConflict) || row.State != durable.RunSkipped {
		t.Errorf("Wait for the skipped one = %v, %v, want %v", row.State, err, durable.ErrConflict)
	}
}

func TestAPausedJobRunsByHand(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(errors.New("no"))
	}).add(durable.Job{Name: "j", Handler: "h", Paused: true, Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}).start()
	n.trigger("j")
	cl.clk.Advance(time.Minute)
	if y.count() != 1 {
		t.Errorf("%d runs of a paused job called by hand, want 1, whose retry waits", y.count())
	}
	st, err := n.Status(context.Background(), "j")
	if err != nil || len(st.Pending) != 1 || st.Pending[0].State != durable.StatePaused {
		t.Errorf("Status = %+v, %v, want the retry paused", st.Pending, err)
	}
	if err := n.ResumeJob(context.Background(), "j"); err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(0)
	if y.count() != 2 {
		t.Errorf("%d runs after Resume, want 2", y.count())
	}
}

func TestACallersDataIsChecked(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{MaxDataSize: 100}).handle("h", (&tally{}).quick).add(durable.Job{Name: "j", Handler: "h", Data: map[string]string{"a": strings.Repeat("x", 80)}}).start()
	for name, data := range map[string]any{
		"array": []int{}, "text": "x", "no JSON": func() {}, "too large": map[string]string{"b": strings.Repeat("x", 100)}, "too large when merged": map[string]string{"b": strings.Repeat("x", 50)},
	} {
		id, err := n.Trigger(context.Background(), "j", data)
		if got := strings.Join(fields(err), " "); got != "Data" || id != "" {
			t.Errorf("Trigger with %s = %q, %v, want an error of Data", name, id, err)
		}
	}
	if rows := cl.runs(durable.RunQuery{}); len(rows) != 0 {
		t.Errorf("runs %+v, want none", rows)
	}
}

func TestACallerCanWaitForTheFirstAttempt(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		_ = cl.clk.Sleep(ctx, 3*time.Second)
		return y.end(errors.New("boom"))
	}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: time.Hour}}).add(durable.Job{Name: "e", Handler: "h", RunOnEveryNode: true})
	if _, err := n.TriggerAndWait(context.Background(), "j", nil); !errors.Is(err, durable.ErrStopped) {
		t.Errorf("TriggerAndWait before Start = %v, want %v", err, durable.ErrStopped)
	}
	n.start()
	if _, err := n.TriggerAndWait(context.Background(), "e", nil); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("TriggerAndWait of a job that runs on every node = %v, want %v", err, durable.ErrInvalid)
	}
	if _, err := n.TriggerAndWait(context.Background(), "nobody", nil); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("TriggerAndWait of no job = %v, want %v", err, durable.ErrNotFound)
	}
	id := n.trigger("j")
	type answer struct {
		row durable.RunRow
		err error
	}
	answers := make(chan answer)
	go func() {
		row, err := n.Wait(context.Background(), id)
		answers <- answer{row, err}
	}()
	cl.clk.Advance(3 * time.Second)
	a := <-answers
	if a.err != nil || a.row.ID != id || a.row.State != durable.RunFailed || a.row.Message != "boom" || a.row.Attempt != 1 {
		t.Errorf("Wait = %+v, %v, want the failed first attempt", a.row, a.err)
	}
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	if _, err := n.Wait(gone, "nothing"); err == nil || err.Error() != "enough" {
		t.Errorf("Wait with a context that ended = %v, want its cause", err)
	}
}

func TestACallByHandWaitsBehindNoPolicyAndSurvivesARestart(t *testing.T) {
	l := newLife(t)
	var y tally
	def := durable.Job{Name: "j", Handler: "h"}
	n := l.restart(durable.Config{}).handle("h", y.quick).add(def).start()
	id, err := n.Trigger(context.Background(), "j", nil)
	if err != nil {
		t.Fatal(err)
	}
	at := l.clk.Now()
	l.kill()
	l.node = nil
	l.clk.Stall(30 * 24 * time.Hour)
	l.restart(durable.Config{Misfire: durable.Skip}).handle("h", y.quick).add(def).start()
	if runs := y.all(); len(runs) != 1 || runs[0].ID != id || !runs[0].ScheduledAt.Equal(at) {
		t.Errorf("runs %+v, want %s for %v", runs, id, at)
	}
}

func TestWhatWaitsToRunOnceCanBeTakenBack(t *testing.T) {
	cl, ctx := newCluster(t), context.Background()
	var y tally
	n := cl.node("n", durable.Config{}).
		handle("h", func(context.Context, durable.Run) error { return errors.New("no") }).
		handle("quick", y.quick).
		add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 3, Delay: time.Hour}}).
		add(durable.Job{Name: "other", Handler: "quick"}).start()
	if _, err := n.Trigger(ctx, "j", nil); err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(time.Second)
	if st, err := n.Status(ctx, "j"); err != nil || len(st.Pending) != 1 {
		t.Fatalf("Status = %+v, %v, want the retry pending", st.Pending, err)
	}
	if err := n.DropPending(ctx, "j"); err != nil {
		t.Fatal(err)
	}
	cl.clk.Advance(2 * time.Hour)
	if got := len(cl.runs(durable.RunQuery{Job: "j"})); got != 1 {
		t.Errorf("%d runs, want 1: the retry was taken back", got)
	}
	if err := n.DropPending(ctx, "nobody"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("DropPending(nobody) = %v, want ErrNotFound", err)
	}
}
