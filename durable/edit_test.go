package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

func TestEditsOfWhatIsNotThereAreNotFound(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{}).handle("h", (&tally{}).quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}}).start()
	ctx := context.Background()
	job := durable.Job{Name: "nobody", Handler: "h"}
	tr := durable.Trigger{Name: "t", Schedule: cron("0 * * * * *")}
	_, byHand := n.Trigger(ctx, "nobody", nil)
	_, status := n.Status(ctx, "nobody")
	_, cancel := n.Cancel(ctx, "nobody")
	for what, err := range map[string]error{
		"ReplaceJob": n.ReplaceJob(ctx, job), "RemoveJob": n.RemoveJob(ctx, "nobody"), "PauseJob": n.PauseJob(ctx, "nobody"),
		"ResumeJob": n.ResumeJob(ctx, "nobody"), "AddTrigger": n.AddTrigger(ctx, "nobody", tr), "ReplaceTrigger": n.ReplaceTrigger(ctx, "j", tr),
		"RemoveTrigger": n.RemoveTrigger(ctx, "j", "t"), "PauseTrigger": n.PauseTrigger(ctx, "j", "t"), "ResumeTrigger": n.ResumeTrigger(ctx, "j", "t"),
		"ReplaceTrigger of no job": n.ReplaceTrigger(ctx, "nobody", tr), "RemoveTrigger of no job": n.RemoveTrigger(ctx, "nobody", "t"), "PauseTrigger of no job": n.PauseTrigger(ctx, "nobody", "t"),
		"Trigger": byHand, "Status": status, "Cancel": cancel, "DeleteRun": n.DeleteRun(ctx, "nothing"),
	} {
		if !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("%s = %v, want %v", what, err, durable.ErrNotFound)
		}
	}
	tr.Name = "default"
	if err := n.AddTrigger(ctx, "j", tr); !errors.Is(err, durable.ErrExists) {
		t.Errorf("AddTrigger of one that exists = %v, want %v", err, durable.ErrExists)
	}
	if err := n.AddTrigger(ctx, "j", durable.Trigger{Name: "m", Schedule: cronsched.Manual()}); strings.Join(fields(err), " ") != "Schedule" {
		t.Errorf("AddTrigger of a manual one = %v, want an error of Schedule", err)
	}
}

// Some databases take no such texts, and none has them.
func TestWhatCanBeNoNameIsNotFoundWithoutTheStore(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{}).handle("h", (&tally{}).quick).add(durable.Job{Name: "j", Handler: "h"}).start()
	ctx := context.Background()
	calls := n.store.count()
	for _, name := range []string{"", "a\x00b", "a\xffb", "caf\u00e9", strings.Repeat("x", 129)} {
		_, byHand := n.Trigger(ctx, name, nil)
		_, awaited := n.TriggerAndWait(ctx, name, nil)
		_, waited := n.Wait(ctx, name)
		_, cancel := n.Cancel(ctx, name)
		_, status := n.Status(ctx, name)
		for what, err := range map[string]error{
			"Trigger": byHand, "TriggerAndWait": awaited, "Wait": waited, "Cancel": cancel, "Status": status, "PauseJob": n.PauseJob(ctx, name),
			"ResumeJob": n.ResumeJob(ctx, name), "RemoveJob": n.RemoveJob(ctx, name), "RemoveTrigger": n.RemoveTrigger(ctx, name, "t"),
			"DropPending": n.DropPending(ctx, name), "DeleteRun": n.DeleteRun(ctx, name),
		} {
			if !errors.Is(err, durable.ErrNotFound) {
				t.Errorf("%s(%.8q) = %v, want %v", what, name, err, durable.ErrNotFound)
			}
		}
		if jobs, err := n.Jobs(ctx, durable.JobQuery{Names: []string{name}}); err != nil || len(jobs) > 0 {
			t.Errorf("Jobs of %.8q = %v, %v, want none", name, jobs, err)
		}
		queries := []durable.RunQuery{{IDs: []string{name}}}
		if name != "" { // zero, all
			queries = append(queries, durable.RunQuery{Job: name}, durable.RunQuery{Trigger: name})
		}
		for _, q := range queries {
			if runs, err := n.Runs(ctx, q); err != nil || len(runs) > 0 {
				t.Errorf("Runs(%+v) = %v, %v, want none", q, runs, err)
			}
		}
	}
	for _, text := range []string{"a\x00b", "a\xffb"} {
		for _, q := range []durable.RunQuery{{Node: text}, {Before: durable.RunKey{StartedAt: time.Now(), ID: text}}} {
			if runs, err := n.Runs(ctx, q); err != nil || len(runs) > 0 {
				t.Errorf("Runs(%+v) = %v, %v, want none", q, runs, err)
			}
		}
		if jobs, err := n.Jobs(ctx, durable.JobQuery{After: text}); err != nil || len(jobs) > 0 {
			t.Errorf("Jobs after %q = %v, %v, want none", text, jobs, err)
		}
	}
	if got := n.store.count() - calls; got != 0 {
		t.Errorf("%d calls of the store, want 0", got)
	}
	id := n.trigger("j")
	if runs, err := n.Runs(ctx, durable.RunQuery{IDs: []string{"\x00", id}}); err != nil || len(runs) != 1 {
		t.Errorf("Runs of an ID and of none = %v, %v, want one", runs, err)
	}
}

func TestEditsAtRunTimeTakeEffectAtOnceFromAnyNode(t *testing.T) {
	cl := newCluster(t)
	var y tally
	cl.node("a", durable.Config{}).handle("h", y.quick).start()
	b := cl.node("b", durable.Config{}).handle("h", y.quick).start()
	ctx := context.Background()
	ran := func(d time.Duration) int {
		before := y.count()
		cl.clk.Advance(d)
		return y.count() - before
	}
	step := func(what string, err error, want int) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := ran(time.Minute); got != want {
			t.Errorf("%d runs in the minute after %s, want %d", got, what, want)
		}
	}
	cl.clk.Advance(6 * time.Second) // so that the nodes' polls are not at the firings' instants
	step("AddJob", b.AddJob(ctx, durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Name: "t", Schedule: cron("*/20 * * * * *")}}}), 3)
	step("AddTrigger", b.AddTrigger(ctx, "j", durable.Trigger{Name: "u", Schedule: cron("15 * * * * *")}), 4)
	step("PauseTrigger", b.PauseTrigger(ctx, "j", "t"), 1)
	step("RemoveTrigger", b.RemoveTrigger(ctx, "j", "u"), 0)
	step("ReplaceTrigger of a paused one", b.ReplaceTrigger(ctx, "j", durable.Trigger{Name: "t", Schedule: cron("*/30 * * * * *")}), 0)
	step("PauseJob", errors.Join(b.PauseJob(ctx, "j"), b.ResumeTrigger(ctx, "j", "t")), 0)
	cl.clk.Advance(0)
	if row := cl.row("j", "t"); row.State != durable.StatePaused || row.Paused {
		t.Errorf("trigger = %+v, want paused with its job", row)
	}
	if err := b.ReplaceJob(ctx, durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Name: "t", Schedule: cron("*/10 * * * * *")}}}); err != nil {
		t.Fatal(err)
	}
	step("ReplaceJob of a paused one", nil, 0)
	step("RemoveJob", b.RemoveJob(ctx, "j"), 0)
	if jobs, _ := b.Jobs(ctx, durable.JobQuery{}); len(jobs) != 0 {
		t.Errorf("%d jobs, want none", len(jobs))
	}
	if rows := cl.runs(durable.RunQuery{Job: "j"}); len(rows) != 8 {
		t.Errorf("%d runs in the history of the removed job, want 8", len(rows))
	}
}

func TestRemovingAJobLetsItsRunGoOn(t *testing.T) {
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(errors.Join(gate.Wait(ctx), errors.New("fails")))
	}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 3, Delay: time.Second}, Triggers: []durable.Trigger{{Schedule: every("10s")}}}).start()
	cl.clk.Advance(10 * time.Second)
	if err := n.RemoveJob(context.Background(), "j"); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	cl.clk.Advance(time.Minute)
	if y.count() != 1 {
		t.Errorf("%d runs, want the one that was under way, and no retry", y.count())
	}
	cl.wantStates("j", "schedule:failed")
}

func TestAJobAddedInItsPlaceIsNotTouchedByAnOldRunsEnd(t *testing.T) {
	cl := newCluster(t)
	gate := cl.clk.NewGate()
	n := cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error { return gate.Wait(ctx) })
	def := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: every("10s")}}}
	n.add(def).start()
	cl.clk.Advance(10 * time.Second)
	ctx := context.Background()
	if err := errors.Join(n.RemoveJob(ctx, "j"), n.AddJob(ctx, def)); err != nil {
		t.Fatal(err)
	}
	want := cl.row("j", "default")
	cl.clk.Advance(5 * time.Second)
	gate.Open()
	if got := cl.row("j", "default"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("trigger = %+v, want %+v", got, want)
	}
}

func TestEveryCountsFromTheEndOfTheRunAndIsNotBlockedByIt(t *testing.T) {
	cl := newCluster(t)
	var at []time.Duration
	n := cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
		at = append(at, cl.clk.Now().Sub(planStart))
		return cl.clk.Sleep(ctx, 25*time.Second)
	}).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: every("10s")}}}).start()
	cl.clk.Advance(15 * time.Second)
	if row := cl.row("j", "default"); row.State != durable.StateRunning || !row.DueAt.IsZero() {
		t.Errorf("trigger during its run = %+v, want running, due at no instant", row)
	}
	cl.clk.Advance(90 * time.Second)
	if want := []time.Duration{10 * time.Second, 45 * time.Second, 80 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("starts at %v, want %v", at, want)
	}
	if got := n.Stats().Blocked; got != 0 {
		t.Errorf("Blocked = %d, want 0", got)
	}
}

func TestXNCountsFiringsAndNeitherRetriesNorCallsByHand(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
		y.begin(r)
		if r.Attempt < 3 {
			return y.end(errors.New("again"))
		}
		return y.end(nil)
	}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 2, Delay: time.Second}, Triggers: []durable.Trigger{{Schedule: every("1m x3")}}}).start()
	for range 4 {
		n.trigger("j")
		cl.clk.Advance(30 * time.Second)
	}
	cl.clk.Advance(10 * time.Minute)
	count := map[durable.Kind]int{}
	for _, r := range y.all() {
		count[r.Kind]++
	}
	if count[durable.KindSchedule] != 3 || count[durable.KindManual] != 4 || count[durable.KindRetry] != 14 {
		t.Errorf("runs by kind %v, want 3 firings, 4 by hand, 14 retries", count)
	}
	if row := cl.row("j", "default"); row.State != durable.StateComplete || row.Fired != 3 || row.Reason == "" {
		t.Errorf("trigger = %+v, want complete after 3, with a reason", row)
	}
}

func TestATriggerCompletesWhenNothingIsDueAnyMore(t *testing.T) {
	for text, want := range map[string]int{
		"once 2026-01-01T00:00:30Z": 1,
		"once 2025-12-24T00:00:00Z": 1, // a misfire
		"cron */10 * * * * * start=2026-01-01T00:00:20Z end=2026-01-01T00:00:40Z": 3,
		"every 10s end=2026-01-01T00:00:35Z":                                      3,
		"every 10s x2":                                                            2,
		"cron 0 0 0 1 1 * 2025":                                                   0,
		"cron 0 0 0 30 2 ?":                                                       0,
		"cron * * * * * * end=2025-01-01T00:00:00Z":                               0,
	} {
		s, err := cronsched.Parse(text)
		if err != nil {
			continue // not a schedule for this version of cronsched
		}
		cl := newCluster(t)
		var y tally
		n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: s}}}).start()
		cl.clk.Advance(5 * time.Minute)
		row := cl.row("j", "default")
		if y.count() != want || row.State != durable.StateComplete || row.Reason == "" || !row.DueAt.IsZero() {
			t.Errorf("%q: %d runs, trigger %v (%q) due %v, want %d, complete with a reason", text, y.count(), row.State, row.Reason, row.DueAt, want)
		}
		if st, err := n.Status(context.Background(), "j"); err != nil || !strings.Contains(st.Why, row.Reason) {
			t.Errorf("%q: Status = %q, %v, want the reason %q", text, st.Why, err, row.Reason)
		}
		cl.clk.Stall(time.Hour)
		if y.count() != want {
			t.Errorf("%q: %d runs after it was complete, want %d", text, y.count(), want)
		}
	}
}

func TestDueTriggersAreTakenInOrderOfPriorityThenOfDueTime(t *testing.T) {
	cl := newCluster(t)
	var order []string
	n := cl.node("n", durable.Config{MaxConcurrentRuns: 1, MisfireThreshold: 10 * time.Minute}).handle("h", func(ctx context.Context, r durable.Run) error {
		order = append(order, r.Job)
		return cl.clk.Sleep(ctx, time.Second)
	})
	var want []string
	for p := 10; p >= 0; p-- {
		for _, sec := range []int{10, 20, 30} {
			name := fmt.Sprintf("p%02d-%d", p, sec)
			want = append(want, name)
			priority := p
			if p == 0 {
				priority = durable.LowestPriority
			}
			n.add(durable.Job{Name: name, Handler: "h", Triggers: []durable.Trigger{{Priority: priority, Schedule: cron(fmt.Sprintf("%d 0 0 1 1 *", sec))}}})
		}
	}
	// In an order that is neither by name nor by priority.
	n.start()
	cl.clk.Stall(time.Minute)
	cl.clk.Advance(time.Minute)
	if !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestAJobThatDoesNotAllowConcurrencyRunsAtMostOnceInTheCluster(t *testing.T) {
	for _, concurrent := range []bool{false, true} {
		cl := newCluster(t)
		var y tally
		slow := func(ctx context.Context, r durable.Run) error {
			y.begin(r)
			return y.end(cl.clk.Sleep(ctx, 7*time.Second))
		}
		job := durable.Job{Name: "j", Handler: "h", AllowConcurrent: concurrent}
		for i := range 4 {
			job.Triggers = append(job.Triggers, durable.Trigger{Name: fmt.Sprint("t", i), Schedule: cron("*/5 * * * * *")})
		}
		a := cl.node("a", durable.Config{}).handle("h", slow).add(job).start()
		cl.node("b", durable.Config{}).handle("h", slow).start()
		cl.clk.Advance(2 * time.Minute)
		if most := y.most; (most > 1) != concurrent {
			t.Errorf("AllowConcurrent %v: %d runs at once", concurrent, most)
		}
		if y.count() < 16 {
			t.Errorf("AllowConcurrent %v: %d runs in two minutes, want at least 16", concurrent, y.count())
		}
		if err := a.ReplaceJob(context.Background(), durable.Job{Name: "j", Handler: "h"}); err != nil {
			t.Fatal(err)
		}
		cl.clk.Advance(time.Minute)
		if y.now != 0 {
			t.Errorf("%d runs still going", y.now)
		}
	}
}
