package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var claims = []promise{
	{"nothing due gives when something is", func(w *world) {
		w.node("n")
		w.want("Claim of nothing", w.claim("n", 10), durable.ClaimResult{Now: w.now()})
		w.job("a")
		w.trigger("a", "later", w.in(time.Hour))
		w.trigger("a", "soon", w.in(time.Minute), priority(0))
		w.unchanged("a claim of nothing", func() {
			w.want("Claim", w.claim("n", 10), durable.ClaimResult{Now: w.now(), Next: w.in(time.Minute)})
		})
	}},
	{"limit 0 claims nothing and has what is due", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.in(-time.Minute))
		w.unchanged("a claim with limit 0", func() {
			res := w.claimWith(durable.ClaimRequest{Node: "n", Handlers: []string{"h"}})
			w.want("Claim", res, durable.ClaimResult{Now: w.now(), Next: w.now()})
		})
	}},
	{"the plan sees the trigger and its job", func(w *world) {
		w.node("n")
		job := w.job("a", func(j *durable.JobRow) { j.Data = []byte(`{"x":1}`) })
		trigger := w.trigger("a", "t", w.now(), func(t *durable.TriggerRow) { t.Data = []byte(`{"y":2}`) })
		var saw []durable.Due
		w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			saw = append(saw, d)
			return durable.Verdict{Leave: true}
		}})
		w.want("what Plan saw", saw, []durable.Due{{Now: w.now(), Trigger: trigger, Job: job}})
	}},
	{"a verdict becomes true", claimBecomesTrue},
	{"a run need not have what its one-shot trigger has", claimRunOfOneShot},
	{"a deleted trigger is gone", func(w *world) {
		w.node("n")
		w.job("a")
		one := w.oneShot("a", w.now())
		w.add("a", one)
		run := w.start("n")
		w.want("the run's ID", run.ID, one.ID)
		w.want("the triggers left", len(w.state("a").Triggers), 0)
		w.want("the next claim", w.claim("n", 5), durable.ClaimResult{Now: w.now()})
	}},
	{"a trigger of no job has no job, and is not busy", func(w *world) {
		w.node("n")
		w.add("nobody", w.oneShot("nobody", w.now()))
		var saw []durable.Due
		plan := func(d durable.Due) durable.Verdict {
			saw = append(saw, d)
			return durable.Verdict{Delete: true}
		}
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: plan})
		if len(saw) != 1 || saw[0].Job.Name != "" || saw[0].Busy {
			w.Fatalf("Plan saw %+v, want one trigger of no job, not busy", saw)
		}
		w.want("Claim", res, durable.ClaimResult{Now: w.now(), Next: w.now()})
		w.want("the next claim", w.claim("n", 5), durable.ClaimResult{Now: w.now()})
	}},
	{"a skipped run is recorded as ended", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		skipped := durable.RunRow{ID: w.id(), Job: "a", Trigger: "t", State: durable.RunSkipped, Code: durable.CodeMisfire, Passed: 3}
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			d.Trigger.DueAt = d.Now.Add(time.Minute)
			run := skipped
			return durable.Verdict{Trigger: d.Trigger, Skipped: &run}
		}})
		skipped.Node, skipped.StartedAt, skipped.EndedAt = "n", w.now(), w.now()
		w.want("Claim.Skipped", res.Skipped, []durable.RunRow{skipped})
		w.want("Claim.Claimed", len(res.Claimed), 0)
		w.want("Runs", w.runs(durable.RunQuery{}), res.Skipped)
		w.want("Running", len(w.state("a").Running), 0)
	}},
	{"a verdict may both skip and run", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			v := w.plan(d)
			v.Skipped = &durable.RunRow{ID: idOf(1_000_000), Job: "a", State: durable.RunSkipped}
			return v
		}})
		if len(res.Skipped) != 1 || len(res.Claimed) != 1 || len(w.runs(durable.RunQuery{})) != 2 {
			w.Errorf("Claim = %+v, want one skipped and one claimed, both in Runs", res)
		}
	}},
	{"parked triggers are told", claimTellsParked},
	{"other states than waiting are not looked at", func(w *world) {
		w.node("n")
		w.job("a")
		for s := durable.StateRunning; s <= durable.StateLocal; s++ {
			w.trigger("a", fmt.Sprint("t", s), w.in(-time.Hour), state(s))
		}
		w.trigger("a", "no-due", time.Time{})
		res := w.claim("n", 10)
		res.Broadcast = ""
		w.want("Claim", res, durable.ClaimResult{Now: w.now()})
	}},
	{"only triggers of the handlers are looked at", func(w *world) {
		w.node("n")
		for _, h := range []string{"h", "H", "h ", "other"} {
			name := fmt.Sprintf("j%x", h)
			w.job(name, handler(h))
			w.trigger(name, "t", w.now())
		}
		for _, c := range []struct {
			handlers []string
			want     int
		}{{nil, 0}, {[]string{"unknown"}, 0}, {[]string{"H"}, 1}, {[]string{"h", "h", "unknown"}, 1}, {[]string{"other", "h "}, 2}} {
			res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 10, Handlers: c.handlers, Plan: w.plan})
			w.want(fmt.Sprintf("runs claimed for %q", c.handlers), len(res.Claimed), c.want)
		}
	}},
	{"handlers that are not asked for starve nobody", func(w *world) {
		w.node("n")
		w.job("other", handler("other"))
		var rows []durable.TriggerRow
		for range 1000 {
			t := w.oneShot("other", w.in(-time.Hour), priority(10))
			t.Handler = "other"
			rows = append(rows, t)
		}
		w.add("other", rows...)
		w.job("a")
		w.trigger("a", "t", w.now(), priority(0))
		res := w.claim("n", 10)
		w.want("runs claimed", len(res.Claimed), 1)
		w.want("Claim.Next", res.Next, w.now())
	}},
	{"excepted triggers are not looked at", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		first := w.trigger("a", "first", w.in(-time.Hour), priority(10))
		w.trigger("a", "second", w.in(-time.Second))
		except := []string{first.ID, first.ID, "unknown"}
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 1, Handlers: []string{"h"}, Except: except, Plan: w.plan})
		w.want("Claim.Next", res.Next, w.now())
		if len(res.Claimed) != 1 || res.Claimed[0].Run.Trigger != "second" {
			w.Errorf("Claim(except first) = %+v, want the second's run", res)
		}
		w.want("the excepted row", w.row("a", "first"), first)
		res = w.claimWith(durable.ClaimRequest{Node: "n", Handlers: []string{"h"}, Except: except})
		w.want("Claim.Next of the others", res.Next, w.in(59*time.Second))
		w.want("the run without exceptions", w.start("n").Trigger, "first")
	}},
	{"Leave changes nothing and hides nothing", func(w *world) {
		w.node("n")
		w.job("a")
		left := w.trigger("a", "left", w.in(-time.Hour), priority(10))
		w.trigger("a", "other", w.now())
		for range 2 {
			looked := 0
			res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
				if looked++; d.Trigger.Name == "left" {
					return durable.Verdict{Leave: true, Delete: true, Run: w.runOf(d)} // but for Leave, nothing counts
				}
				return w.plan(d)
			}})
			if looked > 2 {
				w.Errorf("Plan was called %d times for 2 due triggers", looked)
			}
			w.want("Claim.Next", res.Next, w.now())
			w.want("the row that was left", w.row("a", "left"), left)
		}
		w.want("firings of the other", w.row("a", "other").Fired, int64(1))
	}},
	{"the limit bounds the triggers looked at", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for i := range 5 {
			w.trigger("a", fmt.Sprint("t", i), w.now())
		}
		for _, want := range []int{2, 2, 1, 0} {
			w.want("runs claimed with limit 2", len(w.claim("n", 2).Claimed), want)
		}
	}},
	{"the broadcast told is the last", func(w *world) {
		w.node("n")
		w.job("a", onEveryNode)
		told := func() string { return w.claimWith(durable.ClaimRequest{Node: "n"}).Broadcast }
		w.want("Broadcast without any", told(), "")
		broadcast := func() durable.TriggerRow {
			return w.oneShot("a", w.in(time.Hour), state(durable.StateBroadcast), kind(durable.KindBroadcast))
		}
		a, b := broadcast(), broadcast()
		w.add("a", b, a)
		w.want("Broadcast", told(), b.ID)
		w.edit("a", func(e *durable.Edit) { e.DropAdded = []durable.Kind{durable.KindBroadcast} })
		w.want("Broadcast without any left", told(), "")
	}},
	{"a node that is unknown claims nothing", func(w *world) {
		w.job("a")
		w.trigger("a", "t", w.now())
		w.unchanged("a claim of an unknown node", func() { w.deadClaim("n") })
	}},
	{"a node whose lease has ended claims nothing", func(w *world) {
		w.job("a")
		w.trigger("a", "t", w.now())
		w.beat("n", time.Minute)
		w.advance(time.Minute + time.Microsecond)
		w.unchanged("a claim after the lease", func() { w.deadClaim("n") })
		w.beat("n", time.Minute)
		w.want("runs claimed after another beat", len(w.claim("n", 5).Claimed), 1)
	}},
}

// deadClaim wants the node's claim to be refused.
func (w *world) deadClaim(node string) {
	w.Helper()
	res, err := w.store.Claim(w.ctx, durable.ClaimRequest{Node: node, Limit: 5, Handlers: []string{"h"}, Plan: w.plan})
	if !errors.Is(err, durable.ErrNodeDead) || len(res.Claimed) > 0 {
		w.Errorf("Claim(%q) = %d runs, %v, want ErrNodeDead", node, len(res.Claimed), err)
	}
}

func claimBecomesTrue(w *world) {
	w.node("n")
	job := w.job("a", concurrent)
	before := w.trigger("a", "t", w.in(-time.Second), func(t *durable.TriggerRow) { t.Data = []byte(`{"k":"v"}`) })
	var planned durable.Verdict
	var run durable.RunRow
	res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
		planned = w.plan(d)
		planned.Run.Node, planned.Run.Fence, planned.Run.StartedAt = "somebody", 99, d.Now.Add(time.Hour) // the store's to set
		run = *planned.Run
		return planned
	}})
	run.Node, run.StartedAt = "n", w.now()
	if len(res.Claimed) != 1 || res.Claimed[0].Run.Fence == 99 || res.Claimed[0].Run.Fence < 1 {
		w.Fatalf("Claim = %+v, want one run, with a fence", res)
	}
	run.Fence = res.Claimed[0].Run.Fence
	want := durable.ClaimResult{Now: w.now(), Next: w.now(), Claimed: []durable.Claimed{{Run: &run, Job: &job}}}
	w.want("Claim", res, want)
	after := planned.Trigger
	after.Version = before.Version + 1
	w.want("the job's state", w.state("a"), durable.JobState{Job: job, Triggers: []durable.TriggerRow{after}, Running: []durable.RunRow{run}})
	w.want("Runs", w.runs(durable.RunQuery{}), []durable.RunRow{run})
}

// claimRunOfOneShot has runs that have all of their one-shot trigger, and some that differ
// in one thing each.
func claimRunOfOneShot(w *world) {
	w.node("n")
	w.job("a", concurrent)
	changes := []change[durable.RunRow]{
		func(*durable.RunRow) {},
		func(r *durable.RunRow) { r.ID = w.id() },
		func(r *durable.RunRow) { r.TriggerID = w.id() },
		func(r *durable.RunRow) { r.Trigger = "another" },
		func(r *durable.RunRow) { r.Kind = durable.KindRecovery },
		func(r *durable.RunRow) { r.ScheduledAt = r.ScheduledAt.Add(time.Microsecond) },
		func(r *durable.RunRow) { r.ScheduledAt = time.Time{} },
		func(r *durable.RunRow) { r.Attempt++ },
		func(r *durable.RunRow) { r.RetryOf = "another" },
		func(r *durable.RunRow) { r.IdempotencyKey = "another" },
		func(r *durable.RunRow) { r.Priority++ },
		func(r *durable.RunRow) { r.Data = []byte(`{"k":"another"}`) },
		func(r *durable.RunRow) { r.Data = nil },
		func(r *durable.RunRow) { r.Passed, r.Recover, r.Exclusive, r.Message = 7, true, true, "m" },
		func(*durable.RunRow) {},
	}
	runs := map[string]*durable.RunRow{} // by trigger
	var want []durable.RunRow
	for _, f := range changes {
		one := w.oneShot("a", w.now(), func(t *durable.TriggerRow) {
			t.Kind, t.Attempt, t.Priority, t.Data = durable.KindRetry, 3, 4, []byte(`{"k":"v"}`)
			t.Origin, t.RetryOf, t.IdempotencyKey, t.ScheduledAt = "t", "first", "key", w.in(-time.Hour)
		})
		w.add("a", one)
		run := w.runOf(durable.Due{Trigger: one, Job: durable.JobRow{AllowConcurrent: true}})
		f(run)
		runs[one.ID], want = run, append(want, *run)
	}
	res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 100, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
		return durable.Verdict{Delete: true, Run: runs[d.Trigger.ID]}
	}})
	got := w.runsOf(res)
	w.want("claimed", len(got), len(changes))
	for k := range want {
		want[k].Node, want[k].StartedAt, want[k].Fence = "n", w.now(), got[k].Fence
	}
	w.want("Claim", got, want)
	state := w.state("a")
	slices.SortFunc(want, func(a, b durable.RunRow) int { return cmp.Compare(a.ID, b.ID) })
	w.want("triggers left", len(state.Triggers), 0)
	w.want("active runs", state.Running, want)
}

func claimTellsParked(w *world) {
	w.node("n")
	w.job("a", concurrent)
	parked := map[durable.TriggerState]bool{durable.StateBlocked: true, durable.StatePaused: true, durable.StateError: true}
	states := map[string]durable.TriggerState{}
	for s := durable.StateWaiting; s <= durable.StateError; s++ {
		name := fmt.Sprint("t", s)
		states[name] = s
		w.trigger("a", name, w.now())
	}
	res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 100, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
		d.Trigger.State, d.Trigger.Reason = states[d.Trigger.Name], "because"
		return durable.Verdict{Trigger: d.Trigger}
	}})
	for _, t := range res.Parked {
		if !parked[t.State] {
			w.Errorf("Claim.Parked has a trigger in state %d", t.State)
		}
		w.want("a parked trigger", t, w.row("a", t.Name))
		delete(parked, t.State)
	}
	w.want("states that were not told", len(parked), 0)
	for name, s := range states {
		w.want("the state of "+name, w.row("a", name).State, s)
		w.want("the version of "+name, w.row("a", name).Version, int64(2))
	}
}
