package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

const fortnight = 14 * 24 * time.Hour

// A life is one scheduler after another on a store, on one clock.
type life struct {
	*cluster
	node *node
}

// restart ends the process that the scheduler lives in, if there is one, and makes
// another, which is still to be started.
func (l *life) restart(config durable.Config) *node {
	l.t.Helper()
	l.kill()
	l.node = l.cluster.node("n", config)
	return l.node
}

// kill ends the process without a word to the store. Nothing may be running.
func (l *life) kill() {
	if l.node != nil {
		_ = l.ms[len(l.ms)-1].Close()
	}
}

func newLife(t *testing.T) *life { return &life{cluster: newCluster(t)} }

// trigger gives a job's trigger as it is stored.
func (c *cluster) row(job, name string) durable.TriggerRow {
	c.t.Helper()
	for _, t := range c.job(job).Triggers {
		if t.Name == name {
			return t
		}
	}
	c.t.Fatalf("job %q has no trigger %q", job, name)
	return durable.TriggerRow{}
}

func (c *cluster) job(name string) durable.JobState {
	c.t.Helper()
	jobs, err := c.store.Jobs(context.Background(), durable.JobQuery{Names: []string{name}})
	if err != nil || len(jobs) != 1 {
		c.t.Fatalf("Jobs(%q) = %d jobs, %v, want 1", name, len(jobs), err)
	}
	return jobs[0]
}

// edit changes a job's rows behind the schedulers' backs.
func (c *cluster) edit(job string, change func(e *durable.Edit)) {
	c.t.Helper()
	if err := c.store.Edit(context.Background(), job, durable.EditJob, func(e *durable.Edit) error { change(e); return nil }); err != nil {
		c.t.Fatal(err)
	}
}

func TestTwoWeeksOfDowntimeAreUpToThePolicy(t *testing.T) {
	const missed = int64(fortnight / (5 * time.Second))
	for _, c := range []struct {
		policy durable.Misfire
		bound  int
		runs   int
		passed int64
	}{
		{durable.Skip, 0, 0, missed},
		{durable.RunOnce, 0, 1, 0},
		{durable.MisfireDefault, 0, 1, 0},
		{durable.RunAll, 500, 500, missed - 500},
	} {
		t.Run(fmt.Sprint(c.policy), func(t *testing.T) {
			cl := newCluster(t)
			var y tally
			n := cl.node("n", durable.Config{PollInterval: time.Minute}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, Triggers: []durable.Trigger{
				{Schedule: cron("*/5 * * * * *"), Misfire: c.policy, MaxCatchUp: c.bound},
			}}).start()
			down := cl.clk.Now()
			cl.clk.Stall(fortnight)
			cl.clk.Advance(time.Second) // less than to the next firing, and to the next poll
			back := down.Add(fortnight)
			runs := y.all()
			if len(runs) != c.runs || y.most > 1 {
				t.Fatalf("%d runs, %d at once, want %d, one at a time", len(runs), y.most, c.runs)
			}
			for i, r := range runs {
				want := back.Add(time.Duration(i-c.runs+1) * 5 * time.Second)
				if c.policy != durable.RunAll {
					if r.ScheduledAt.Before(back) || r.ScheduledAt.After(back.Add(time.Second)) {
						t.Errorf("run scheduled at %v, want now, %v", r.ScheduledAt, back)
					}
				} else if !r.ScheduledAt.Equal(want) {
					t.Fatalf("run %d scheduled at %v, want %v", i, r.ScheduledAt, want)
				}
			}
			var passed int64
			records := cl.runs(durable.RunQuery{States: []durable.RunState{durable.RunSkipped}})
			for _, r := range records {
				passed += r.Passed
				if r.Code != durable.CodeMisfire || r.Job != "j" || r.Trigger != "default" || !r.ScheduledAt.Equal(down.Add(5*time.Second)) {
					t.Errorf("record = %+v, want one of misfire, first due 5 s after the start", r)
				}
			}
			wantRecords := 0
			if c.passed > 0 {
				wantRecords = 1
			}
			if passed != c.passed || len(records) != wantRecords {
				t.Errorf("%d firings passed over in %d records, want %d in %d", passed, len(records), c.passed, wantRecords)
			}
			if row := cl.row("j", "default"); !row.DueAt.Equal(back.Add(5*time.Second)) || row.Passed != c.passed || row.Fired != int64(c.runs) {
				t.Errorf("trigger %+v, want due %v, passed %d, fired %d", row, back.Add(5*time.Second), c.passed, c.runs)
			}
			wantMisfired := uint64(wantRecords)
			if c.policy == durable.RunOnce || c.policy == durable.MisfireDefault {
				wantMisfired = 1
				if got := cl.runs(durable.RunQuery{})[0].Passed; got != missed {
					t.Errorf("the run stands for %d firings, want %d", got, missed)
				}
			}
			if st := n.Stats(); st.Misfired != wantMisfired {
				t.Errorf("Misfired = %d, want %d", st.Misfired, wantMisfired)
			}
			cl.clk.Advance(10 * time.Second)
			if got := y.count(); got != c.runs+2 {
				t.Errorf("%d runs 11 s later, want %d", got, c.runs+2)
			}
		})
	}
}

func TestRunAllMakesUpForEveryFiringInOrderOneAtATime(t *testing.T) {
	cl := newCluster(t)
	var y tally
	cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(cl.clk.Sleep(ctx, 100*time.Millisecond))
	}).add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, Triggers: []durable.Trigger{
		{Schedule: cron("*/5 * * * * *"), Misfire: durable.RunAll},
	}}).start()
	start := cl.clk.Now()
	cl.clk.Stall(time.Hour)
	cl.clk.Advance(80 * time.Second) // 720 and, meanwhile, 16 more
	runs := y.all()
	if len(runs) != 736 || y.most != 1 {
		t.Fatalf("%d runs, %d at once, want 736, 1 at once", len(runs), y.most)
	}
	for i, r := range runs {
		if want := start.Add(time.Duration(i+1) * 5 * time.Second); !r.ScheduledAt.Equal(want) {
			t.Fatalf("run %d scheduled at %v, want %v", i, r.ScheduledAt, want)
		}
	}
}

func TestRunAllGoesOnAfterARestart(t *testing.T) {
	l := newLife(t)
	var y tally
	def := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *"), Misfire: durable.RunAll}}}
	l.restart(durable.Config{}).handle("h", y.quick).add(def).start()
	l.kill()
	l.clk.Stall(24 * time.Hour)
	l.node = nil
	l.restart(durable.Config{}).handle("h", y.quick).add(def).start()
	l.clk.Advance(time.Second)
	if got := y.count(); got != 24*60 {
		t.Errorf("%d runs after a day of downtime, want 1440", got)
	}
}

func TestTwoHoursOfDowntimeMakeNoStorm(t *testing.T) {
	for policy, want := range map[durable.Misfire]int{durable.RunOnce: 10, durable.Skip: 0} {
		cl := newCluster(t)
		var y tally
		n := cl.node("n", durable.Config{Misfire: policy}).handle("h", y.quick)
		for i := range 10 {
			n.add(durable.Job{Name: fmt.Sprintf("j%d", i), Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}})
		}
		n.start()
		cl.clk.Stall(2 * time.Hour)
		cl.clk.Advance(30 * time.Second)
		if got := y.count(); got != want {
			t.Errorf("%v: %d runs, want %d", policy, got, want)
		}
		cl.clk.Advance(time.Minute)
		if got := y.count(); got != want+10 {
			t.Errorf("%v: %d runs a minute later, want %d", policy, got, want+10)
		}
	}
}

func TestTheThresholdIsTheLineBetweenLateAndMisfired(t *testing.T) {
	for _, c := range []struct {
		late time.Duration
		want time.Duration // of the run, from the trigger's instant
	}{{60 * time.Second, 0}, {61 * time.Second, 61 * time.Second}} {
		cl := newCluster(t)
		var y tally
		cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("10 0 0 * * *")}}}).start()
		due := cl.row("j", "default").DueAt
		cl.clk.Advance(due.Sub(cl.clk.Now()) - time.Second)
		cl.clk.Stall(time.Second + c.late)
		cl.clk.Advance(0)
		runs := y.all()
		if len(runs) != 1 || !runs[0].ScheduledAt.Equal(due.Add(c.want)) {
			t.Errorf("%v late: runs %+v, want one for %v", c.late, runs, due.Add(c.want))
		}
	}
}

func TestMisfirePoliciesLeaveOneShotsAlone(t *testing.T) {
	for _, policy := range []durable.Misfire{durable.RunOnce, durable.Skip, durable.RunAll} {
		cl := newCluster(t)
		var y tally
		n := cl.node("n", durable.Config{Misfire: policy}).handle("h", func(_ context.Context, r durable.Run) error {
			y.begin(r)
			if r.Kind == durable.KindManual {
				return y.end(errors.New("once more"))
			}
			return y.end(nil)
		}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: time.Minute}}).start()
		n.trigger("j")
		cl.clk.Stall(24 * time.Hour)
		cl.clk.Advance(time.Second)
		runs := y.all()
		if len(runs) != 2 || runs[1].Kind != durable.KindRetry || !runs[1].ScheduledAt.Equal(runs[0].ScheduledAt) {
			t.Errorf("%v: runs %+v, want a retry that keeps its instant", policy, runs)
		}
		// A call by hand that nobody took for a day.
		if err := n.AddJob(context.Background(), durable.Job{Name: "k", Handler: "h"}); err != nil {
			t.Fatal(err)
		}
		at := cl.clk.Now()
		id, err := n.Trigger(context.Background(), "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		cl.clk.Stall(24 * time.Hour)
		cl.clk.Advance(time.Second)
		if runs := y.all(); len(runs) != 3 || runs[2].ID != id || !runs[2].ScheduledAt.Equal(at) {
			t.Errorf("%v: runs %+v, want the call by hand for %v", policy, runs, at)
		}
	}
}

func TestAWeeklyTriggerSurvivesDailyRestarts(t *testing.T) {
	l := newLife(t)
	var y tally
	def := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{
		{Name: "weekly", Schedule: cron("0 0 9 ? * MON")},
		{Name: "rare", Schedule: every("84h")},
	}}
	for range 28 {
		l.restart(durable.Config{PollInterval: time.Minute, MisfireThreshold: time.Minute, NodeTimeout: 10 * time.Minute}).handle("h", y.quick).add(def).start()
		l.clk.Advance(time.Second)
		l.clk.Stall(9*time.Hour - 2*time.Minute)
		l.clk.Advance(3 * time.Minute) // past nine
		l.clk.Stall(14*time.Hour - 3*time.Minute)
		l.clk.Advance(2*time.Minute - time.Second)
		l.kill()
		l.node = nil
		l.clk.Stall(time.Hour)
	}
	var weekly, rare []time.Time
	for _, r := range y.all() {
		if r.Trigger == "weekly" {
			weekly = append(weekly, r.ScheduledAt)
		} else {
			rare = append(rare, r.ScheduledAt)
		}
	}
	var want []time.Time
	for day := 5; day <= 26; day += 7 {
		want = append(want, time.Date(2026, 1, day, 9, 0, 0, 0, time.UTC))
	}
	if !slices.EqualFunc(weekly, want, time.Time.Equal) {
		t.Errorf("weekly runs for %v, want %v", weekly, want)
	}
	if len(rare) != 8 && len(rare) != 7 { // an hour late at times
		t.Errorf("%d runs of every 84h in four weeks, want 7 or 8: %v", len(rare), rare)
	}
}

func TestAScheduleChangedWhileDownIsComputedAnew(t *testing.T) {
	l := newLife(t)
	var y tally
	def := func(text string) durable.Job {
		return durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron(text)}, {Name: "same", Schedule: cron("0 0 12 * * *")}}}
	}
	l.restart(durable.Config{}).handle("h", y.quick).add(def("0 0 0 1 * *")).start()
	same := l.row("j", "same").DueAt
	l.kill()
	l.node = nil
	l.clk.Stall(time.Hour)
	l.restart(durable.Config{}).handle("h", y.quick).add(def("0 30 * * * *")).start()
	if got, want := l.row("j", "default").DueAt, planStart.Add(90*time.Minute); !got.Equal(want) {
		t.Errorf("changed trigger due %v, want %v", got, want)
	}
	if got := l.row("j", "same").DueAt; !got.Equal(same) {
		t.Errorf("unchanged trigger due %v, want %v", got, same)
	}
	l.clk.Advance(time.Hour)
	if got := y.count(); got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
}

func TestWhatAPauseMissedIsUpToThePolicy(t *testing.T) {
	for _, c := range []struct {
		policy durable.Misfire
		want   int
	}{{durable.RunOnce, 1}, {durable.Skip, 0}, {durable.RunAll, 10}} {
		for _, what := range []string{"job", "trigger"} {
			cl := newCluster(t)
			var y tally
			n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *"), Misfire: c.policy}}}).start()
			ctx := context.Background()
			pause, resume := n.PauseJob, n.ResumeJob
			if what == "trigger" {
				pause = func(ctx context.Context, job string) error { return n.PauseTrigger(ctx, job, "default") }
				resume = func(ctx context.Context, job string) error { return n.ResumeTrigger(ctx, job, "default") }
			}
			if err := pause(ctx, "j"); err != nil {
				t.Fatal(err)
			}
			cl.clk.Advance(10*time.Minute + 30*time.Second)
			if got := y.count(); got != 0 {
				t.Errorf("%d runs of a paused %s", got, what)
			}
			if row := cl.row("j", "default"); row.State != durable.StatePaused || row.Reason == "" || !row.DueAt.Equal(planStart.Add(time.Minute)) {
				t.Errorf("trigger of a paused %s = %+v, want paused with a reason, and due as before", what, row)
			}
			if err := resume(ctx, "j"); err != nil {
				t.Fatal(err)
			}
			cl.clk.Advance(0)
			if got := y.count(); got != c.want {
				t.Errorf("%v: %d runs as the pause of the %s ended, want %d", c.policy, got, what, c.want)
			}
			cl.clk.Advance(30 * time.Second)
			if got := y.count(); got != c.want+1 {
				t.Errorf("%v: %d runs at the next minute, want %d", c.policy, got, c.want+1)
			}
		}
	}
}

func TestABlockedTriggerIsUpToItsPolicyWhenTheRunEnds(t *testing.T) {
	for _, c := range []struct {
		policy  durable.Misfire
		runs    int // as the long run has ended
		skipped int64
	}{{durable.RunOnce, 1, 0}, {durable.Skip, 0, 10}, {durable.RunAll, 10, 0}} {
		cl := newCluster(t)
		var y tally
		gate := cl.clk.NewGate()
		n := cl.node("n", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
			if r.Kind == durable.KindManual {
				return gate.Wait(ctx)
			}
			return y.quick(ctx, r)
		}).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *"), Misfire: c.policy}}}).start()
		n.trigger("j")
		cl.clk.Advance(10*time.Minute + 30*time.Second)
		row := cl.row("j", "default")
		if row.State != durable.StateBlocked || !row.DueAt.Equal(planStart.Add(time.Minute)) || row.Reason == "" || y.count() != 0 {
			t.Errorf("trigger of a running job = %+v, %d runs, want blocked, due as before", row, y.count())
		}
		if got := n.Stats().Blocked; got != 1 {
			t.Errorf("Blocked = %d, want 1", got)
		}
		gate.Open()
		var passed int64
		for _, r := range cl.runs(durable.RunQuery{States: []durable.RunState{durable.RunSkipped}}) {
			passed += r.Passed
		}
		if got := y.count(); got != c.runs || passed != c.skipped || y.most > 1 {
			t.Errorf("%v: %d runs, %d passed over, %d at once as the run ended, want %d, %d, 1", c.policy, got, passed, y.most, c.runs, c.skipped)
		}
		if row := cl.row("j", "default"); row.State != durable.StateWaiting || row.Reason != "" {
			t.Errorf("%v: trigger = %+v, want waiting", c.policy, row)
		}
	}
}

// leavingOut notes how many triggers claims are to leave out.
type leavingOut struct {
	durable.Store
	seen []int
}

func (l *leavingOut) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	l.seen = append(l.seen, len(r.Except))
	return l.Store.Claim(ctx, r)
}

// Each claim names them: a database refuses one that names too many.
func TestTheUnreadableRowsThatAreLeftOutAreBounded(t *testing.T) {
	cl := newCluster(t)
	n := cl.node("n", durable.Config{MaxConcurrentRuns: 500}).handle("h", (&tally{}).quick)
	store := &leavingOut{Store: n.store.Store}
	n.store.Store = store
	const bad = 6000
	var triggers []durable.Trigger
	for i := range bad {
		triggers = append(triggers, durable.Trigger{Name: fmt.Sprintf("t%d", i), Schedule: cron("0 * * * * *")})
	}
	n.add(durable.Job{Name: "bad", Handler: "h", Triggers: triggers}).start()
	cl.edit("bad", func(e *durable.Edit) {
		for i := range e.Triggers {
			e.Triggers[i].Schedule = "cron what is this"
		}
	})
	cl.clk.Advance(time.Minute)
	before := n.store.count("claim")
	cl.clk.Advance(time.Minute)
	if most := slices.Max(store.seen); most > 5000 || most < 4000 {
		t.Errorf("a claim leaves out %d triggers of %d, want 5,000 at most", most, bad)
	}
	if got := n.store.count("claim") - before; got > 60 {
		t.Errorf("%d claims in a minute that find nothing else, want no more than one a second", got)
	}
	n.cut(true)
	cl.clk.Advance(10 * time.Second)
	n.cut(false)
	store.seen = nil
	cl.clk.Advance(30 * time.Second)
	if len(store.seen) == 0 || store.seen[0] > 0 {
		t.Errorf("the claims after one that failed leave out %v, want the first to leave out none: they may be why", store.seen)
	}
}

func TestAnUnreadableRowIsReportedMarkedLeftAloneAndStarvesNobody(t *testing.T) {
	breaks := map[string]func(*durable.TriggerRow){
		"schedule": func(r *durable.TriggerRow) { r.Schedule = "cron what is this" },
		"calendar": func(r *durable.TriggerRow) { r.Schedule = "cron 0 * * * * * calendar=nowhere" },
		"zone":     func(r *durable.TriggerRow) { r.Schedule = "cron 0 * * * * * tz=Moon/Crater" },
		"manual":   func(r *durable.TriggerRow) { r.Schedule = "manual" },
		"policy":   func(r *durable.TriggerRow) { r.Misfire = 77 },
	}
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			var y tally
			n := cl.node("n", durable.Config{MaxConcurrentRuns: 1}).handle("h", y.quick).add(durable.Job{Name: "good", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *"), Priority: 1}}})
			const bad = 150 // more than rounds until they are looked at again
			var triggers []durable.Trigger
			for i := range bad {
				triggers = append(triggers, durable.Trigger{Name: fmt.Sprintf("t%d", i), Schedule: cron("*/7 * * * * *"), Priority: 10})
			}
			n.add(durable.Job{Name: "bad", Handler: "h", Triggers: triggers}).start()
			cl.edit("bad", func(e *durable.Edit) {
				for i := range e.Triggers {
					breakIt(&e.Triggers[i])
				}
			})
			before := cl.job("bad").Triggers
			cl.clk.Advance(time.Minute)
			if got := y.count(); got != 6 {
				t.Errorf("%d runs of the good job in a minute, want 6", got)
			}
			for i, r := range y.all() {
				if want := planStart.Add(time.Duration(i+1) * 10 * time.Second); !r.ScheduledAt.Equal(want) {
					t.Errorf("run %d for %v, want %v", i, r.ScheduledAt, want)
				}
			}
			events := n.events.of(durable.EventUnreadable)
			if len(events) != bad || n.Stats().Unreadable < bad {
				t.Errorf("%d events, Unreadable = %d, want one for each of %d", len(events), n.Stats().Unreadable, bad)
			}
			for _, e := range events {
				if e.Job != "bad" || e.Trigger == "" || e.Err == nil {
					t.Fatalf("event %+v, want job, trigger and error", e)
				}
			}
			for i, row := range cl.job("bad").Triggers {
				if row.Reason == "" {
					t.Errorf("trigger %s has no mark", row.Name)
				}
				row.Reason, row.Version = "", before[i].Version
				if fmt.Sprint(row) != fmt.Sprint(before[i]) {
					t.Fatalf("trigger = %+v, want left alone: %+v", row, before[i])
				}
			}
			calls := n.store.count("claim")
			cl.clk.Advance(time.Minute)
			if got := n.store.count("claim") - calls; got > 40 {
				t.Errorf("%d claims in a minute with 6 runs, want no busy loop", got)
			}
			st, err := n.Status(context.Background(), "bad")
			if err != nil || st.Why == "" || st.Triggers[0].Why == "" {
				t.Errorf("Status = %+v, %v, want a reason", st, err)
			}
			// Mended, it is looked at again at once.
			if err := n.ReplaceTrigger(context.Background(), "bad", durable.Trigger{Name: "t3", Schedule: cron("*/2 * * * * *"), Priority: 10}); err != nil {
				t.Fatal(err)
			}
			had := y.count()
			cl.clk.Advance(4 * time.Second)
			if got := y.count() - had; got < 2 {
				t.Errorf("%d runs in 4 s of a mended trigger, want 2", got)
			}
		})
	}
}

func TestAHandlerThatOnlyOthersKnowStarvesNobody(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{MaxConcurrentRuns: 1}).handle("h", y.quick).add(durable.Job{Name: "good", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *"), Priority: 1}}})
	cl.edit("bad", func(e *durable.Edit) {
		e.Job = &durable.JobRow{Name: "bad", Handler: "theirs"}
		for i := range 30 {
			e.Triggers = append(e.Triggers, durable.TriggerRow{
				ID: fmt.Sprintf("%026d", i), Job: "bad", Handler: "theirs", Name: fmt.Sprint("t", i),
				Schedule: "cron * * * * * *", Priority: 10, DueAt: planStart.Add(-time.Hour),
			})
		}
	})
	before := cl.job("bad")
	n.start()
	cl.clk.Advance(time.Minute)
	if got := y.count(); got != 6 {
		t.Errorf("%d runs of the good job in a minute, want 6", got)
	}
	if after := cl.job("bad"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("job = %+v, want left alone: %+v", after, before)
	}
	events := n.events.of(durable.EventUnreadable)
	if len(events) != 1 || events[0].Job != "bad" || !errors.Is(events[0].Err, durable.ErrInvalid) {
		t.Errorf("events %+v, want one of job bad", events)
	}
	if got := n.store.count("claim"); got > 40 {
		t.Errorf("%d claims in a minute with 6 runs, want no busy loop", got)
	}
	if st, err := n.Status(context.Background(), "bad"); err != nil || st.Why == "" {
		t.Errorf("Status = %q, %v, want a reason", st.Why, err)
	}
	// The one who knows it takes it.
	var z tally
	cl.node("m", durable.Config{}).handle("theirs", z.quick).start()
	cl.clk.Advance(time.Second)
	if z.count() < 30 {
		t.Errorf("%d runs on the node that knows the handler, want 30 and more", z.count())
	}
}

func TestAHandEditedRowWithoutADueTimeIsRepaired(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{
		{Name: "cron", Schedule: cron("0 * * * * *")}, {Name: "every", Schedule: every("1m")}, {Name: "broken", Schedule: cron("0 * * * * *")},
	}}).start()
	cl.edit("j", func(e *durable.Edit) {
		for i := range e.Triggers {
			e.Triggers[i].DueAt = time.Time{}
			if e.Triggers[i].Name == "broken" {
				e.Triggers[i].Schedule = "what?"
			}
		}
	})
	cl.clk.Advance(3 * time.Minute) // nodes sweep only after a whole NodeTimeout
	if row := cl.row("j", "cron"); row.State != durable.StateWaiting || row.DueAt.IsZero() {
		t.Errorf("trigger = %+v, want a due time", row)
	}
	ran := map[string]int{}
	for _, r := range y.all() {
		ran[r.Trigger]++
	}
	if ran["cron"] == 0 || ran["every"] == 0 || ran["broken"] != 0 {
		t.Errorf("runs by trigger = %v, want some of cron and every", ran)
	}
	if row := cl.row("j", "broken"); row.State != durable.StateWaiting || row.Reason == "" {
		t.Errorf("broken trigger = %+v, want waiting for a node that can read it, with a reason", row)
	}
	if err := n.ReplaceTrigger(context.Background(), "j", durable.Trigger{Name: "broken", Schedule: cron("0 * * * * *")}); err != nil {
		t.Fatal(err)
	}
	if row := cl.row("j", "broken"); row.State != durable.StateWaiting || row.Reason != "" {
		t.Errorf("mended trigger = %+v, want waiting", row)
	}
}

func TestAOneShotRowWithoutADueTimeRunsNow(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
	id := strings.Repeat("0", 26)
	cl.edit("j", func(e *durable.Edit) {
		e.Add = append(e.Add, durable.TriggerRow{ID: id, Job: "j", Name: "retry-x", Handler: "h", Kind: durable.KindRetry, Attempt: 2, ScheduledAt: e.Now})
	})
	before := n.store.count("edit")
	cl.clk.Advance(2 * time.Second)
	if runs := y.all(); len(runs) != 1 || runs[0].ID != id || runs[0].Attempt != 2 {
		t.Errorf("runs = %+v, want the row's", runs)
	}
	cl.clk.Advance(10 * time.Minute)
	if y.count() != 1 || n.store.count("edit") != before || len(n.log.with("no due time")) > 0 {
		t.Errorf("%d runs, %d edits and %q in the end, want 1, 0, none", y.count(), n.store.count("edit")-before, n.log.with("no due time"))
	}
}

func TestRowsThatANodeCannotRepairKeepItFromNoOther(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
	cl.edit("j", func(e *durable.Edit) {
		add := func(id, name, schedule, reason string) {
			e.Triggers = append(e.Triggers, durable.TriggerRow{ID: id, Job: "j", Name: name, Handler: "h", Schedule: schedule, Reason: reason})
		}
		for i := range 300 {
			add(fmt.Sprintf("%026d", i), fmt.Sprintf("t%03d", i), "cron 0 * * * * * calendar=elsewhere", "no such calendar")
		}
		add(strings.Repeat("z", 26), "z", "cron * * * * * *", "")
	})
	cl.clk.Advance(10 * time.Second)
	if y.count() == 0 {
		t.Error("a row that can be repaired waits behind those that cannot")
	}
	if got := n.log.with("no due time"); len(got) != 1 {
		t.Errorf("log = %q, want one line, of the row that was repaired", got)
	}
	cl.edit("j", func(e *durable.Edit) { e.Triggers[0].Schedule = "cron * * * * * *" })
	cl.clk.Advance(10 * time.Second)
	if row := cl.row("j", "t000"); row.DueAt.IsZero() {
		t.Errorf("trigger = %+v, want a due time: the sweep begins again", row)
	}
}

func TestATriggerWhoseRunIsGoneWaitsAgain(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{
		{Name: "t", Schedule: every("1m")}, {Name: "paused", Schedule: every("1m")},
	}}).start()
	if err := n.PauseTrigger(context.Background(), "j", "paused"); err != nil {
		t.Fatal(err)
	}
	cl.edit("j", func(e *durable.Edit) {
		for i := range e.Triggers {
			e.Triggers[i].State, e.Triggers[i].Reason, e.Triggers[i].DueAt = durable.StateRunning, "", time.Time{}
		}
	})
	cl.clk.Advance(10 * time.Minute)
	if y.count() != 9 {
		t.Errorf("%d runs in 10 m, want 9", y.count())
	}
	if row := cl.row("j", "paused"); row.State != durable.StatePaused {
		t.Errorf("paused trigger = %+v, want paused", row)
	}
}

func TestABacklogWhoseRunIsGoneIsMadeUpFor(t *testing.T) {
	cl := newCluster(t)
	var y tally
	cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{
		{Name: "t", Schedule: cron("0 * * * * *"), Misfire: durable.RunAll},
	}}).start()
	cl.edit("j", func(e *durable.Edit) { // as in the midst of it
		e.Triggers[0].State, e.Triggers[0].DueAt = durable.StateRunning, e.Now.Add(-10*time.Minute).Truncate(time.Minute)
	})
	cl.clk.Advance(10 * time.Second)
	if y.count() != 11 {
		t.Errorf("%d runs, want those of 10 minutes and the one of now", y.count())
	}
}

func TestARepairThatFailsKeepsTheSweepFromNoOther(t *testing.T) {
	for _, c := range []struct {
		err    error
		outage bool
	}{{durable.ErrExists, false}, {durable.ErrInvalid, false}, {errAway, true}} {
		cl := newCluster(t)
		var y tally
		n := cl.node("n", durable.Config{}).handle("h", y.quick)
		for _, name := range []string{"a", "b"} {
			n.add(durable.Job{Name: name, Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}})
		}
		n.start()
		var lost atomic.Bool
		n.store.set(func(_ context.Context, call string, do func() error) error {
			switch {
			case call == "expire":
				lost.Store(true)
			case call == "edit" && lost.Swap(false): // the first repair: by their IDs, that of a
				return c.err
			}
			return do()
		})
		for i, name := range []string{"a", "b"} {
			cl.edit(name, func(e *durable.Edit) {
				e.Triggers[0].ID, e.Triggers[0].DueAt = fmt.Sprintf("%026d", i), time.Time{}
			})
		}
		cl.clk.Advance(2 * time.Minute)
		if row := cl.row("a", "default"); !row.DueAt.IsZero() {
			t.Errorf("%v: a was repaired", c.err)
		}
		if row := cl.row("b", "default"); row.DueAt.IsZero() {
			t.Errorf("%v: b was not repaired", c.err)
		}
		if got := len(n.events.of(durable.EventOutage)) > 0; got != c.outage {
			t.Errorf("%v: taken for an outage: %v", c.err, got)
		}
		if got := len(n.log.with("could not be repaired")); (got == 0) != c.outage || got > 2 {
			t.Errorf("%v: %d lines about it in 2 m", c.err, got)
		}
	}
}

func TestDataBrokenInTheStoreFailsTheRunInsteadOfPassingForLess(t *testing.T) {
	for _, c := range []struct{ job, trigger string }{
		{`[1]`, `{"b":1}`}, {`{"a":1}`, `[1]`}, {`null`, `{"b":1}`}, {`{"a":1}`, `nonsense`}, {`nonsense`, ``}, {``, `"text"`},
	} {
		cl := newCluster(t)
		var y tally
		cl.node("n", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 3, Delay: time.Second}, Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}}).start()
		cl.edit("j", func(e *durable.Edit) {
			e.Job.Data, e.Triggers[0].Data = []byte(c.job), []byte(c.trigger)
		})
		cl.clk.Advance(15 * time.Second)
		rows := cl.runs(durable.RunQuery{})
		if c.job == `null` {
			continue // a null fits every type
		}
		if y.count() != 0 || len(rows) != 1 || rows[0].State != durable.RunFailed || rows[0].Code != durable.CodeValidation {
			t.Errorf("job data %q, trigger data %q: %d calls of the handler, runs %+v, want one failed as %s", c.job, c.trigger, y.count(), rows, durable.CodeValidation)
		}
	}
}

func TestOnEveryNodeNothingMissedBeforeTheStartOrInAPauseIsMadeUpFor(t *testing.T) {
	for _, policy := range []durable.Misfire{durable.RunOnce, durable.Skip, durable.RunAll} {
		cl := newCluster(t)
		past := "once " + cl.clk.Now().Add(-time.Hour).Format(time.RFC3339)
		var y tally
		n := cl.node("n", durable.Config{}).handle("h", y.quick)
		for name, s := range map[string]cronsched.Schedule{"past": cronsched.MustParse(past), "hourly": cron("0 0 * * * *")} {
			n.add(durable.Job{Name: name, Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: s, Misfire: policy}}})
		}
		n.start()
		ctx := context.Background()
		if err := n.PauseJob(ctx, "hourly"); err != nil {
			t.Fatal(err)
		}
		cl.clk.Advance(90 * time.Minute)
		if err := errors.Join(n.ResumeJob(ctx, "hourly"), n.PauseTrigger(ctx, "hourly", "default")); err != nil {
			t.Fatal(err)
		}
		cl.clk.Advance(time.Hour)
		if err := n.ResumeTrigger(ctx, "hourly", "default"); err != nil {
			t.Fatal(err)
		}
		cl.clk.Advance(time.Minute)
		if got := cl.runs(durable.RunQuery{}); len(got) != 0 {
			t.Errorf("%v: runs %+v, want none of what was missed", policy, got)
		}
		cl.clk.Advance(30 * time.Minute)
		cl.wantStates("hourly", "schedule:succeeded")
	}
}
