package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// planStart is the instant that the tables of this file count from.
var planStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return planStart.Add(d) }

// since gives an instant as what has gone by since planStart.
func since(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.Sub(planStart).String()
}

// verdictText puts a verdict in a few words.
func verdictText(v durable.Verdict) string {
	if v.Leave {
		return "leave"
	}
	var parts []string
	if r := v.Skipped; r != nil {
		parts = append(parts, fmt.Sprintf("%s %s x%d at %s", r.State, r.Code, r.Passed, since(r.ScheduledAt)))
	}
	if r := v.Run; r != nil {
		text := fmt.Sprintf("%s run for %s", r.Kind, since(r.ScheduledAt))
		if r.Holds {
			text += " held"
		}
		parts = append(parts, text)
	}
	if v.Delete {
		return strings.Join(append(parts, "delete"), ", ")
	}
	text := fmt.Sprintf("%s due %s", v.Trigger.State, since(v.Trigger.DueAt))
	if v.Trigger.Fired+v.Trigger.Passed > 0 {
		text += fmt.Sprintf(" fired %d passed %d", v.Trigger.Fired, v.Trigger.Passed)
	}
	return strings.Join(append(parts, text), ", ")
}

func newPlanner(misfire durable.Misfire) *durable.TestPlanner {
	r := rand.New(rand.NewPCG(1, 2))
	return durable.NewTestPlanner(misfire, time.Minute, r.Uint64)
}

func TestPlanGivesTheVerdictOfTheSpec(t *testing.T) {
	const (
		cron  = "cron */10 * * * * *"
		day   = 24 * time.Hour
		s     = time.Second
		long  = 2 * time.Hour
		never = time.Duration(-1)
	)
	type row = durable.TriggerRow
	for _, c := range []struct {
		name string
		t    row
		job  durable.JobRow
		busy bool
		gone bool
		now  time.Duration
		want string
	}{
		{name: "on time", t: row{Schedule: cron}, now: 10 * s, want: "schedule run for 10s, waiting due 20s fired 1 passed 0"},
		{name: "late, but not a misfire", t: row{Schedule: cron}, now: 70 * s, want: "schedule run for 10s, waiting due 20s fired 1 passed 0"},
		{name: "just a misfire", t: row{Schedule: cron}, now: 70*s + 1, want: "schedule run for 1m10.000000001s, waiting due 1m20s fired 1 passed 0"},
		{name: "default is the scheduler's", t: row{Schedule: cron}, now: long, want: "schedule run for 2h0m0s, waiting due 2h0m10s fired 1 passed 0"},
		{name: "RunOnce", t: row{Schedule: cron, Misfire: durable.RunOnce}, now: long + s, want: "schedule run for 2h0m1s, waiting due 2h0m10s fired 1 passed 0"},
		{name: "Skip", t: row{Schedule: cron, Misfire: durable.Skip}, now: long, want: "skipped misfire x720 at 10s, waiting due 2h0m10s fired 0 passed 720"},
		{name: "Skip on time", t: row{Schedule: cron, Misfire: durable.Skip}, now: 60 * s, want: "schedule run for 10s, waiting due 20s fired 1 passed 0"},
		{name: "RunAll", t: row{Schedule: cron, Misfire: durable.RunAll}, now: long, want: "schedule run for 10s held, running due 20s fired 1 passed 0"},
		{name: "RunAll on time, others due", t: row{Schedule: cron, Misfire: durable.RunAll}, now: 25 * s, want: "schedule run for 10s held, running due 20s fired 1 passed 0"},
		{name: "RunAll at its last", t: row{Schedule: cron, Misfire: durable.RunAll}, now: 19 * s, want: "schedule run for 10s, waiting due 20s fired 1 passed 0"},
		{name: "RunAll bounded", t: row{Schedule: cron, Misfire: durable.RunAll, MaxCatchUp: 3}, now: long + s, want: "skipped misfire x717 at 10s, schedule run for 1h59m40s held, running due 1h59m50s fired 1 passed 717"},
		{name: "RunAll bounded by one", t: row{Schedule: cron, Misfire: durable.RunAll, MaxCatchUp: 1}, now: long + s, want: "skipped misfire x719 at 10s, schedule run for 2h0m0s, waiting due 2h0m10s fired 1 passed 719"},
		{name: "RunAll under its bound", t: row{Schedule: cron, Misfire: durable.RunAll, MaxCatchUp: 720}, now: long, want: "schedule run for 10s held, running due 20s fired 1 passed 0"},
		{name: "Skip over two weeks of every second", t: row{Schedule: "cron */5 * * * * *", Misfire: durable.Skip}, now: 14 * day, want: "skipped misfire x241919 at 10s, waiting due 336h0m5s fired 0 passed 241919"},
		{name: "busy", t: row{Schedule: cron}, busy: true, now: 10 * s, want: "blocked due 10s"},
		{name: "busy and long ago", t: row{Schedule: cron, Misfire: durable.Skip}, busy: true, now: long, want: "blocked due 10s"},
		{name: "job paused", t: row{Schedule: cron}, job: durable.JobRow{Paused: true}, now: 10 * s, want: "paused due 10s"},
		{name: "job gone", t: row{Schedule: cron}, gone: true, now: 10 * s, want: "delete"},
		{name: "job for every node by now", t: row{Schedule: cron}, job: durable.JobRow{RunOnEveryNode: true}, now: 10 * s, want: "local due 10s"},
		{name: "every", t: row{Schedule: "every 1m"}, now: 10 * s, want: "schedule run for 10s held, running due never fired 1 passed 0"},
		{name: "every, late", t: row{Schedule: "every 1m"}, now: long, want: "schedule run for 2h0m0s held, running due never fired 1 passed 0"},
		{name: "every, late, Skip", t: row{Schedule: "every 1m", Misfire: durable.Skip}, now: long, want: "skipped misfire x1 at 10s, waiting due 2h1m0s fired 0 passed 1"},
		{name: "every, late, RunAll", t: row{Schedule: "every 1m", Misfire: durable.RunAll, MaxCatchUp: 2}, now: long, want: "schedule run for 10s held, running due never fired 1 passed 0"},
		{name: "once", t: row{Schedule: "once 2026-01-01T00:00:10Z"}, now: 10 * s, want: "schedule run for 10s, complete due never fired 1 passed 0"},
		{name: "once, late", t: row{Schedule: "once 2026-01-01T00:00:10Z"}, now: long, want: "schedule run for 2h0m0s, complete due never fired 1 passed 0"},
		{name: "once, late, Skip", t: row{Schedule: "once 2026-01-01T00:00:10Z", Misfire: durable.Skip}, now: long, want: "skipped misfire x1 at 10s, complete due never fired 0 passed 1"},
		{name: "once, late, RunAll", t: row{Schedule: "once 2026-01-01T00:00:10Z", Misfire: durable.RunAll}, now: long, want: "schedule run for 10s, complete due never fired 1 passed 0"},
		{name: "its last before the end", t: row{Schedule: cron + " end=2026-01-01T00:00:15Z"}, now: 10 * s, want: "schedule run for 10s, complete due never fired 1 passed 0"},
		{name: "misfired past the end", t: row{Schedule: cron + " end=2026-01-01T00:00:35Z"}, now: long, want: "skipped misfire x3 at 10s, complete due never fired 0 passed 3"},
		{name: "misfired past the end, RunAll", t: row{Schedule: cron + " end=2026-01-01T00:00:35Z", Misfire: durable.RunAll}, now: long, want: "schedule run for 10s held, running due 20s fired 1 passed 0"},
		{name: "broken schedule", t: row{Schedule: "cron nonsense"}, now: 10 * s, want: "waiting due 10s"},
		{name: "unknown calendar", t: row{Schedule: cron + " calendar=nowhere"}, busy: true, now: 10 * s, want: "waiting due 10s"},
		{name: "policy of a newer version", t: row{Schedule: cron, Misfire: 99}, now: 10 * s, want: "waiting due 10s"},
		{name: "kind of a newer version", t: row{Kind: 99, Schedule: cron}, now: 10 * s, want: "waiting due 10s"},
	} {
		p := newPlanner(durable.RunOnce)
		c.t.Name, c.t.Job, c.t.ID, c.t.DueAt = "t", "j", "id", after(10*s)
		if !c.gone {
			c.job.Name = "j"
		}
		d := durable.Due{Now: after(c.now), Trigger: c.t, Job: c.job, Busy: c.busy}
		v := p.Plan(d)
		if got := verdictText(v); got != c.want {
			t.Errorf("%s: plan = %q, want %q", c.name, got, c.want)
		}
		switch v.Trigger.State {
		case durable.StateBlocked, durable.StatePaused, durable.StateComplete, durable.StateError:
			if v.Trigger.Reason == "" {
				t.Errorf("%s: plan gives no reason for %v", c.name, v.Trigger.State)
			}
		}
		if v.Run != nil && v.Run.IdempotencyKey == "" {
			t.Errorf("%s: the run has no idempotency key", c.name)
		}
	}
}

func TestPlanOfAOneShotKeepsItsInstantHoweverLate(t *testing.T) {
	for _, kind := range []durable.Kind{durable.KindManual, durable.KindRetry, durable.KindRecovery} {
		for _, misfire := range []durable.Misfire{durable.RunOnce, durable.Skip, durable.RunAll} {
			for _, c := range []struct {
				busy, paused bool
				want         string
			}{
				{false, false, fmt.Sprintf("%v run for 1s, delete", kind)},
				{true, false, "blocked due 2s"},
				{false, true, "paused due 2s"},
				{true, true, "paused due 2s"},
			} {
				retryOf := "first"
				if kind == durable.KindManual {
					retryOf = ""
					if c.paused && !c.busy { // by hand a paused job runs, too
						c.want = "manual run for 1s, delete"
					} else if c.busy {
						c.want = "skipped conflict x0 at 1s, delete"
					}
				}
				p := newPlanner(misfire)
				row := durable.TriggerRow{
					ID: "id", Job: "j", Name: "retry-id", Kind: kind, Origin: "t", DueAt: after(2 * time.Second), ScheduledAt: after(time.Second),
					Attempt: 3, RetryOf: retryOf, IdempotencyKey: "key", Data: json.RawMessage(`{"a":1}`), Misfire: misfire,
				}
				v := p.Plan(durable.Due{Now: after(1000 * time.Hour), Trigger: row, Job: durable.JobRow{Name: "j", Paused: c.paused}, Busy: c.busy})
				if got := verdictText(v); got != c.want {
					t.Errorf("%v, %v, busy %v, paused %v: plan = %q, want %q", kind, misfire, c.busy, c.paused, got, c.want)
				}
				r := v.Run
				if r == nil {
					r = v.Skipped
				}
				if r != nil && (r.ID != "id" || r.Trigger != "t" || r.Attempt != 3 || r.RetryOf != retryOf || r.IdempotencyKey != "key" || string(r.Data) != `{"a":1}`) {
					t.Errorf("%v: run = %+v, want what the row says", kind, r)
				}
			}
		}
	}
}

// A handler that SQL changed is the job's only: its triggers are still the old one's.
func TestATriggerFollowsItsJobToAHandlerThatWasChangedByHand(t *testing.T) {
	for _, kind := range []durable.Kind{durable.KindSchedule, durable.KindManual, durable.KindRetry, durable.KindRecovery} {
		d := durable.Due{Now: planStart, Job: durable.JobRow{Name: "j", Handler: "new"}, Trigger: durable.TriggerRow{
			ID: "id", Job: "j", Name: "t", Handler: "old", Kind: kind, Schedule: "cron */10 * * * * *", DueAt: planStart, Reason: "so",
		}}
		want := d.Trigger
		want.Handler = "new"
		p := newPlanner(durable.RunOnce)
		if v := p.Plan(d); v.Run != nil || v.Delete || !reflect.DeepEqual(v.Trigger, want) {
			t.Errorf("%v: plan of a node that does not know the handler = %+v, want the trigger for one that does", kind, v)
		}
		if err := p.AddHandler("new", func(context.Context, durable.Run) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if v := p.Plan(d); v.Run == nil || !v.Delete && v.Trigger.Handler != "new" {
			t.Errorf("%v: plan of a node that knows the handler = %+v, want a run, and the next for such nodes", kind, v)
		}
	}
}

func TestACallByHandThatWasHandedBackHasItsTurn(t *testing.T) {
	row := durable.TriggerRow{ID: "id", Job: "j", Name: "manual-id", Kind: durable.KindManual, DueAt: planStart, ScheduledAt: planStart, Attempt: 1, RetryOf: "first"}
	for busy, want := range map[bool]string{true: "blocked due 0s", false: "manual run for 0s, delete"} {
		v := newPlanner(durable.RunOnce).Plan(durable.Due{Now: planStart, Trigger: row, Job: durable.JobRow{Name: "j", Paused: true}, Busy: busy})
		if got := verdictText(v); got != want {
			t.Errorf("busy %v: plan = %q, want %q", busy, got, want)
		}
	}
}

func TestAnUnreadableTriggerIsMarkedOnceAndThenLeft(t *testing.T) {
	for _, schedule := range []string{"", "manual", "cron", "cron * * *", "cron 0 0 9 * * * tz=Nowhere/City", "cron 0 0 9 * * * calendar=nowhere", "every -5m", "\x00"} {
		p := newPlanner(durable.RunOnce)
		row := durable.TriggerRow{ID: "id", Job: "j", Name: "t", Schedule: schedule, DueAt: planStart}
		d := durable.Due{Now: planStart, Trigger: row, Job: durable.JobRow{Name: "j"}}
		v := p.Plan(d)
		if v.Leave || v.Delete || v.Run != nil || v.Skipped != nil || v.Trigger.Reason == "" || v.Trigger.State != durable.StateWaiting || !v.Trigger.DueAt.Equal(planStart) {
			t.Errorf("plan of schedule %q = %+v, want the row as it was, with a reason", schedule, v)
		}
		d.Trigger = v.Trigger
		if v := p.Plan(d); !v.Leave {
			t.Errorf("second plan of schedule %q = %+v, want it left", schedule, v)
		}
		if len(p.Unreadable) != 2 {
			t.Errorf("schedule %q was reported %d times in 2 plans, want 2", schedule, len(p.Unreadable))
		}
	}
}

func TestTheReasonGoesAwayWhenTheTriggerCanBeRead(t *testing.T) {
	p := newPlanner(durable.RunOnce)
	row := durable.TriggerRow{ID: "id", Job: "j", Name: "t", Schedule: "cron */10 * * * * *", DueAt: planStart, Reason: "a node cannot read it"}
	if v := p.Plan(durable.Due{Now: planStart, Trigger: row, Job: durable.JobRow{Name: "j"}}); v.Trigger.Reason != "" {
		t.Errorf("reason after a firing = %q, want none", v.Trigger.Reason)
	}
}

func TestResumeComputesWhatFollowsARun(t *testing.T) {
	type row = durable.TriggerRow
	for _, c := range []struct {
		name string
		t    row
		want string
	}{
		{"every counts from the end", row{Schedule: "every 1m", Fired: 1}, "waiting due 1h1m0s fired 1 passed 0"},
		{"every xN has one left", row{Schedule: "every 1m x3", Fired: 2}, "waiting due 1h1m0s fired 2 passed 0"},
		{"every xN is through", row{Schedule: "every 1m x3", Fired: 3}, "complete due never fired 3 passed 0"},
		{"every meets its end", row{Schedule: "every 1m end=2026-01-01T01:00:30Z", Fired: 1}, "complete due never fired 1 passed 0"},
		{"every before its start", row{Schedule: "every 1m start=2026-01-01T02:00:00Z", Fired: 1}, "waiting due 2h1m0s fired 1 passed 0"},
		{"a backlog goes on", row{Schedule: "cron */10 * * * * *", DueAt: after(20 * time.Second), Fired: 1}, "waiting due 20s fired 1 passed 0"},
		{"paused meanwhile", row{Schedule: "every 1m", Paused: true, Fired: 1}, "paused due 1h1m0s fired 1 passed 0"},
		{"paused and through", row{Schedule: "every 1m x1", Paused: true, Fired: 1}, "complete due never fired 1 passed 0"},
		{"another schedule meanwhile", row{Schedule: "once 2026-01-01T00:30:00Z"}, "waiting due 30m0s"},
		{"once is through", row{Schedule: "once 2026-01-01T00:30:00Z", Fired: 1}, "complete due never fired 1 passed 0"},
		{"once meanwhile, for the run that ended", row{Schedule: "once 2026-01-01T00:30:00Z", PrevAt: after(30 * time.Minute)}, "complete due never"},
		{"broken meanwhile", row{Schedule: "every nonsense"}, "waiting due never"},
	} {
		c.t.State = durable.StateRunning
		got := newPlanner(durable.RunOnce).Resume(after(time.Hour), c.t)
		if text := verdictText(durable.Verdict{Trigger: got}); text != c.want {
			t.Errorf("%s: resume = %q, want %q", c.name, text, c.want)
		}
		if got.State != durable.StateWaiting && got.Reason == "" {
			t.Errorf("%s: resume gives no reason for %v", c.name, got.State)
		}
	}
}

func TestATriggerThatANodeCannotReadWaitsForOneThatCan(t *testing.T) {
	type row = durable.TriggerRow
	now := after(time.Second)
	edited := func(r row, change func(*durable.Edit) error) row {
		e := &durable.Edit{Now: now, Job: &durable.JobRow{Name: "j"}, Triggers: []row{r}}
		if err := change(e); err != nil {
			t.Fatal(err)
		}
		return e.Triggers[0]
	}
	for _, schedule := range []string{"lunar 7", "cron */10 * * * * * calendar=elsewhere"} {
		for what, c := range map[string]struct {
			state  durable.TriggerState
			become func(*durable.TestPlanner, row) row
		}{
			"the end of its run": {durable.StateRunning, func(p *durable.TestPlanner, r row) row { return p.Resume(now, r) }},
			"a repair": {durable.StateWaiting, func(p *durable.TestPlanner, r row) row {
				return edited(r, func(e *durable.Edit) error { p.Repair(e, "id"); return nil })
			}},
			"ResumeTrigger": {durable.StateError, func(p *durable.TestPlanner, r row) row {
				return edited(r, func(e *durable.Edit) error { return p.PauseTrigger(e, "t", false) })
			}},
		} {
			p := newPlanner(durable.RunOnce)
			got := c.become(p, row{ID: "id", Job: "j", Name: "t", Schedule: schedule, State: c.state})
			if got.State != durable.StateWaiting || !got.DueAt.IsZero() || got.Reason == "" || len(p.Unreadable) != 1 {
				t.Errorf("%q after %s = %v due %s, %q, reported %v, want waiting without a due time, with a reason, reported once",
					schedule, what, got.State, since(got.DueAt), got.Reason, p.Unreadable)
			}
		}
	}
}

func TestOneFiringHasOneIdempotencyKey(t *testing.T) {
	seen := map[string]string{}
	for _, c := range []struct {
		job, trigger string
		at           time.Time
	}{
		{"j", "t", planStart}, {"j", "t", after(time.Microsecond)}, {"j", "u", planStart}, {"k", "t", planStart}, {"j.t", "t", planStart},
	} {
		key := func(zone *time.Location) string {
			v := newPlanner(durable.RunOnce).Plan(durable.Due{
				Now: c.at, Job: durable.JobRow{Name: c.job},
				Trigger: durable.TriggerRow{ID: "id", Job: c.job, Name: c.trigger, Schedule: "cron * * * * * *", DueAt: c.at.In(zone)},
			})
			return v.Run.IdempotencyKey
		}
		k := key(time.UTC)
		if other := key(time.FixedZone("x", 3600)); other != k {
			t.Errorf("key in another zone = %q, want %q", other, k)
		}
		what := fmt.Sprint(c)
		if had := seen[k]; had != "" {
			t.Errorf("key of %v = %q, that of %v", what, k, had)
		}
		seen[k] = what
		if len(k) > 512 {
			t.Errorf("key has %d bytes, want at most 512", len(k))
		}
	}
}

// TestATriggersLifeIsThatOfAPlainWalk drives the planner with random delays, pauses and
// run lengths, and compares what it does with a walk over a list of instants.
func TestATriggersLifeIsThatOfAPlainWalk(t *testing.T) {
	const threshold = time.Minute
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		step := []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second}[r.IntN(4)]
		policy := durable.Misfire(1 + r.IntN(3))
		bound := 0
		if policy == durable.RunAll && r.IntN(2) == 0 {
			bound = 1 + r.IntN(10)
		}
		text := fmt.Sprintf("cron */%d * * * * *", int(step/time.Second))
		horizon := planStart.Add(90 * time.Minute)
		end := horizon.Add(4 * time.Hour)
		if r.IntN(3) == 0 {
			end = planStart.Add(time.Duration(r.Int64N(int64(90 * time.Minute))).Truncate(time.Second))
			text += " end=" + end.Format(time.RFC3339)
		}
		var instants []time.Time // the plain list
		for at := planStart.Add(step); !at.After(end); at = at.Add(step) {
			instants = append(instants, at)
		}
		p := durable.NewTestPlanner(durable.RunOnce, threshold, r.Uint64)
		job := durable.JobRow{Name: "j"}
		row := p.Seat(planStart, durable.TriggerRow{ID: "id", Job: "j", Name: "t", Schedule: text, Misfire: policy, MaxCatchUp: bound}, job)
		pos, passed, fired := 0, int64(0), int64(0)
		now := planStart
		for now.Before(horizon) {
			now = now.Add(time.Duration(r.Int64N(int64(3*step)) + r.Int64N(2)*r.Int64N(int64(10*time.Minute)))).Truncate(time.Microsecond)
			if r.IntN(10) == 0 { // a pause that ends changes nothing but the time
				e := &durable.Edit{Now: now, Job: &job, Triggers: []durable.TriggerRow{row}}
				if err := errors.Join(p.PauseTrigger(e, "t", true), p.PauseTrigger(e, "t", false)); err != nil {
					t.Fatal(err)
				}
				row = e.Triggers[0]
			}
			for row.State == durable.StateWaiting && !row.DueAt.After(now) {
				v := p.Plan(durable.Due{Now: now, Trigger: row, Job: job})
				// The walk.
				due := instants[pos]
				last := pos // the first instant after now
				for last < len(instants) && !instants[last].After(now) {
					last++
				}
				late := now.Sub(due) > threshold
				var wantAt time.Time
				wantPassed := int64(0)
				switch {
				case late && policy == durable.Skip, late && policy == durable.RunOnce && now.After(end):
					wantPassed, pos = int64(last-pos), last
				case late && policy == durable.RunOnce:
					wantAt, pos = now, last
				case late && bound > 0 && last-pos > bound:
					wantPassed = int64(last - bound - pos)
					wantAt, pos = instants[last-bound], last-bound+1
				default:
					wantAt, pos = due, pos+1
				}
				passed += wantPassed
				var gotAt time.Time
				gotPassed := int64(0)
				if v.Run != nil {
					gotAt = v.Run.ScheduledAt
					fired++
				}
				if v.Skipped != nil {
					gotPassed = v.Skipped.Passed
				}
				if !gotAt.Equal(wantAt) || gotPassed != wantPassed {
					t.Fatalf("seed %d, %q, %v bound %d, at %s: run for %s, passed %d, want %s, %d", seed, text, policy, bound, since(now), since(gotAt), gotPassed, since(wantAt), wantPassed)
				}
				row = v.Trigger
				if v.Run != nil && v.Run.Holds {
					if policy != durable.RunAll {
						t.Fatalf("seed %d: a run of %v is held", seed, policy)
					}
					now = now.Add(time.Duration(r.Int64N(int64(step)))).Truncate(time.Microsecond)
					row = p.Resume(now, row)
				}
			}
			wantState, wantDue := durable.StateComplete, time.Time{}
			if pos < len(instants) {
				wantState, wantDue = durable.StateWaiting, instants[pos]
			}
			if row.State != wantState || !row.DueAt.Equal(wantDue) || row.Fired != fired || row.Passed != passed {
				t.Fatalf("seed %d, %q, %v, at %s: %v due %s fired %d passed %d, want %v due %s fired %d passed %d", seed, text, policy, since(now),
					row.State, since(row.DueAt), row.Fired, row.Passed, wantState, since(wantDue), fired, passed)
			}
		}
	}
}

func TestPausingATriggerSaysSoWhateverItWas(t *testing.T) {
	for _, c := range []struct {
		state        durable.TriggerState
		reason       string
		paused, back string
	}{
		{durable.StateWaiting, "", "paused: the trigger is paused", "waiting: "},
		{durable.StateBlocked, "busy", "paused: the trigger is paused", "waiting: "},
		{durable.StatePaused, "the job is paused", "paused: the trigger is paused", "waiting: "},
		{durable.StateRunning, "", "running: ", "running: "},
		{durable.StateComplete, "over", "complete: over", "complete: over"},
		{durable.StateError, "broken", "error: broken", "waiting: "},
	} {
		p := newPlanner(durable.RunOnce)
		e := &durable.Edit{Now: planStart, Job: &durable.JobRow{Name: "j"}, Triggers: []durable.TriggerRow{
			{ID: "a", Name: "a"}, {ID: "id", Job: "j", Name: "t", Schedule: "cron */10 * * * * *", State: c.state, Reason: c.reason, DueAt: after(10 * time.Second)},
		}}
		for _, step := range []struct {
			paused bool
			want   string
		}{{true, c.paused}, {false, c.back}} {
			if err := p.PauseTrigger(e, "t", step.paused); err != nil {
				t.Fatal(err)
			}
			row := e.Triggers[1]
			if got := fmt.Sprintf("%v: %s", row.State, row.Reason); got != step.want || row.Paused != step.paused || !row.DueAt.Equal(after(10*time.Second)) {
				t.Errorf("%v, paused %v: %q, due %s, want %q, due 10s", c.state, step.paused, got, since(row.DueAt), step.want)
			}
		}
		if err := p.PauseTrigger(e, "nobody", true); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("pause of an unknown trigger = %v, want %v", err, durable.ErrNotFound)
		}
		if e.Triggers[0].Paused {
			t.Error("another trigger was paused, too")
		}
	}
}

func TestReplacingATriggerKeepsItsDueTimeIfAndOnlyIfItsScheduleIsTheSame(t *testing.T) {
	const cron, other = "cron */10 * * * * *", "cron 0 * * * * *"
	type row = durable.TriggerRow
	now := after(5 * time.Second)
	for _, c := range []struct {
		name string
		old  row
		to   string
		node bool // the job runs on every node
		want string
	}{
		{"same", row{Schedule: cron, DueAt: planStart, Fired: 4}, cron, false, "waiting due 0s fired 4 passed 0"},
		{"other", row{Schedule: cron, DueAt: planStart, Fired: 4}, other, false, "waiting due 1m0s"},
		{"same, blocked", row{Schedule: cron, DueAt: planStart, State: durable.StateBlocked}, cron, false, "blocked due 0s"},
		{"other, paused", row{Schedule: cron, DueAt: planStart, State: durable.StatePaused, Paused: true}, other, false, "paused due 1m0s"},
		{"same, running", row{Schedule: "every 1m", State: durable.StateRunning, Fired: 2}, "every 1m", false, "running due never fired 2 passed 0"},
		{"other, running", row{Schedule: "every 1m", State: durable.StateRunning, Fired: 2}, other, false, "running due never"},
		{"other, backlog running", row{Schedule: cron, State: durable.StateRunning, DueAt: planStart, Fired: 2}, other, false, "running due never"},
		{"same, complete", row{Schedule: "every 1m x1", State: durable.StateComplete, Fired: 1}, "every 1m x1", false, "complete due never fired 1 passed 0"},
		{"other, complete", row{Schedule: "every 1m x1", State: durable.StateComplete, Fired: 1}, "every 1m x2", false, "waiting due 1m5s"},
		{"same, error", row{Schedule: cron, State: durable.StateError}, cron, false, "waiting due 10s"},
		{"same, error, one left", row{Schedule: "every 1m x3", State: durable.StateError, Fired: 2}, "every 1m x3", false, "waiting due 1m5s fired 2 passed 0"},
		{"same, error, through", row{Schedule: "every 1m x3", State: durable.StateError, Fired: 3}, "every 1m x3", false, "complete due never fired 3 passed 0"},
		{"other, error", row{Schedule: "every 1m x3", State: durable.StateError, Fired: 3}, "every 2m x3", false, "waiting due 2m5s"},
		{"once for cron's last", row{Schedule: cron, DueAt: after(10 * time.Second), PrevAt: planStart, Fired: 1}, "once 2026-01-01T00:00:00Z", false, "complete due never"},
		{"once for cron's next", row{Schedule: cron, DueAt: planStart, PrevAt: after(-10 * time.Second), Fired: 1}, "once 2026-01-01T00:00:00Z", false, "waiting due 0s"},
		{"once again", row{Schedule: "once 2026-01-01T00:00:00Z", State: durable.StateComplete, PrevAt: planStart, Fired: 1}, "once 2026-01-01T00:00:00Z calendar=never", false, "complete due never"},
		{"once again, in the backlog", row{Schedule: cron, State: durable.StateRunning, DueAt: after(10 * time.Second), PrevAt: planStart, Fired: 1}, "once 2026-01-01T00:00:00Z", false, "running due never"},
		{"once, another", row{Schedule: "once 2026-01-01T00:00:00Z", State: durable.StateComplete, PrevAt: planStart, Fired: 1}, "once 2026-01-01T00:00:01Z", false, "waiting due 1s"},
		{"becomes local", row{Schedule: cron, DueAt: planStart}, cron, true, "local due never"},
		{"local no more", row{Schedule: cron, State: durable.StateLocal}, cron, false, "waiting due 10s"},
		{"local no more, through", row{Schedule: "every 1m x3", State: durable.StateLocal, Fired: 3}, "every 1m x3", false, "complete due never fired 3 passed 0"},
	} {
		c.old.ID, c.old.Job, c.old.Name, c.old.Version = "id", "j", "t", 7
		e := &durable.Edit{Now: now, Job: &durable.JobRow{Name: "j", Handler: "h2", RunOnEveryNode: c.node}, Triggers: []row{c.old}}
		p := newPlanner(durable.RunOnce)
		if err := errors.Join(p.AddCalendar("never", noDays{}), p.ReplaceTrigger(e, row{Name: "t", Schedule: c.to, Priority: 9, Description: "new"})); err != nil {
			t.Fatal(err)
		}
		got := e.Triggers[0]
		if text := verdictText(durable.Verdict{Trigger: got}); text != c.want {
			t.Errorf("%s: replace = %q, want %q", c.name, text, c.want)
		}
		if got.Priority != 9 || got.Description != "new" || got.Handler != "h2" || got.ID != "id" || got.Paused != c.old.Paused {
			t.Errorf("%s: replace = %+v, want the new definition under the old ID and pause", c.name, got)
		}
	}
}

func TestRepairTouchesNothingButAWaitingTriggerWithoutADueTime(t *testing.T) {
	for state := durable.StateWaiting; state <= durable.StateLocal; state++ {
		for _, due := range []time.Time{{}, planStart} {
			row := durable.TriggerRow{ID: "id", Job: "j", Name: "t", Schedule: "cron */10 * * * * *", State: state, DueAt: due}
			e := &durable.Edit{Now: after(time.Second), Job: &durable.JobRow{Name: "j"}, Triggers: []durable.TriggerRow{row}}
			repaired := newPlanner(durable.RunOnce).Repair(e, "id")
			want := due
			if state == durable.StateWaiting && due.IsZero() {
				want = after(10 * time.Second)
			}
			if repaired != !want.Equal(due) {
				t.Errorf("repair of %v due %s = %v", state, since(due), repaired)
			}
			if got := e.Triggers[0]; !got.DueAt.Equal(want) || got.State != state {
				t.Errorf("repair of %v due %s = %v due %s, want due %s", state, since(due), got.State, since(got.DueAt), since(want))
			}
		}
	}
}

func FuzzMergeIsThatOfTheMaps(f *testing.F) {
	f.Add(`{"a":1,"b":{"c":2}}`, `{"b":3}`, `{"d":null}`)
	f.Add(``, `{}`, ``)
	f.Add(`{"a":1}`, `null`, `[]`)
	f.Add(`{"a":1e400}`, `{"a":"\u0000"}`, `{"a" : 1}`)
	f.Fuzz(func(t *testing.T, a, b, c string) {
		want := map[string]any{}
		n := 0
		for _, s := range []string{a, b, c} {
			if s == "" {
				continue
			}
			n++
			var m map[string]json.RawMessage
			if json.Unmarshal([]byte(s), &m) != nil || m == nil {
				want = nil
				break
			}
			for k, v := range m {
				want[k] = string(v)
			}
		}
		if want == nil {
			if got, err := durable.Merge(json.RawMessage(a), json.RawMessage(b), json.RawMessage(c)); err == nil && n > 1 {
				t.Errorf("merge(%q, %q, %q) = %q, want an error", a, b, c, got)
			}
			return
		}
		got, err := durable.Merge(json.RawMessage(a), json.RawMessage(b), json.RawMessage(c))
		if err != nil {
			t.Fatalf("merge(%q, %q, %q) = %v, want no error", a, b, c, err)
		}
		if n == 0 {
			if got != nil {
				t.Errorf("merge of nothing = %q, want nil", got)
			}
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(got, &m); err != nil {
			t.Fatalf("merge(%q, %q, %q) = %q: %v", a, b, c, got, err)
		}
		if len(m) != len(want) {
			t.Errorf("merge(%q, %q, %q) = %q, want %d keys", a, b, c, got, len(want))
		}
		for k := range want {
			if _, there := m[k]; !there {
				t.Errorf("merge(%q, %q, %q) = %q, want key %q", a, b, c, got, k)
			}
		}
	})
}

func TestLaterDataWinsKeyByKey(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string
	}{
		{nil, ``},
		{[]string{``, ``, ``}, ``},
		{[]string{`{"a":1}`}, `{"a":1}`},
		{[]string{``, `{"a":1}`, ``}, `{"a":1}`},
		{[]string{`{"a":1,"b":1,"c":1}`, `{"b":2,"c":2}`, `{"c":3}`}, `{"a":1,"b":2,"c":3}`},
		{[]string{`{"a":{"x":1,"y":2}}`, `{"a":{"x":3}}`}, `{"a":{"x":3}}`}, // keys, not paths
		{[]string{`{"a":1}`, `{"a":null}`}, `{"a":null}`},
		{[]string{`{"a":12345678901234567890}`, `{}`}, `{"a":12345678901234567890}`},
	} {
		var in []json.RawMessage
		for _, s := range c.in {
			in = append(in, json.RawMessage(s))
		}
		before := slices.Clone(c.in)
		got, err := durable.Merge(in...)
		if err != nil || string(got) != c.want {
			t.Errorf("merge(%q) = %q, %v, want %q", c.in, got, err, c.want)
		}
		for i := range in {
			if string(in[i]) != before[i] {
				t.Errorf("merge changed its argument %d to %q", i, in[i])
			}
		}
	}
}
