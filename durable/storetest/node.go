package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var nodes = []promise{
	{"a first beat registers the node", func(w *world) {
		res := w.beat("n", time.Minute)
		w.want("Beat", res, durable.BeatResult{Now: w.now(), Alive: 1})
		rows, now, err := w.store.Nodes(w.ctx)
		if err != nil {
			w.Fatalf("Nodes() = %v, want nil", err)
		}
		w.want("Nodes' now", now, w.now())
		w.want("Nodes", rows, []durable.NodeRow{{
			ID: "n", Name: "node n", StartedAt: w.now(), Heartbeat: w.now(), LeaseUntil: w.in(time.Minute),
		}})
	}},
	{"a beat renews the lease", func(w *world) {
		w.beat("n", time.Minute)
		started := w.now()
		w.advance(59 * time.Second)
		w.beat("n", time.Minute)
		n := w.nodes()[0]
		w.want("StartedAt", n.StartedAt, started)
		w.want("Heartbeat", n.Heartbeat, w.now())
		w.want("LeaseUntil", n.LeaseUntil, w.in(time.Minute))
		w.advance(30 * time.Second)
		w.beat("n", 10*time.Second)
		w.want("LeaseUntil with a shorter ttl", w.nodes()[0].LeaseUntil, w.in(10*time.Second))
	}},
	{"nodes are read in order of ID", func(w *world) {
		for _, id := range []string{"b", "a", "B", "a-1", "c"} {
			w.node(id)
		}
		var ids []string
		for _, n := range w.nodes() {
			ids = append(ids, n.ID)
		}
		w.want("Nodes", ids, []string{"B", "a", "a-1", "b", "c"})
	}},
	{"Alive counts leases", func(w *world) {
		w.beat("a", time.Minute)
		w.want("Alive", w.beat("b", time.Hour).Alive, 2)
		w.advance(2 * time.Minute)
		w.want("Alive when a's has ended", w.beat("b", time.Hour).Alive, 1)
		w.want("Alive when it beats again", w.beat("a", time.Minute).Alive, 2)
		w.advance(2 * time.Minute)
		w.expire(0)
		w.want("Alive when a is dead", w.beat("b", time.Hour).Alive, 1)
	}},
	{"a beat gives the node's active runs, and which to cancel", func(w *world) {
		w.node("n")
		w.node("m")
		w.job("a", concurrent)
		w.add("a", w.oneShot("a", w.now()), w.oneShot("a", w.now()))
		runs := w.runsOf(w.claim("n", 5))
		w.add("a", w.oneShot("a", w.now()))
		w.start("m")
		w.enqueue("a", func(e *durable.Edit) { e.Cancel = []string{runs[1].ID} })
		got := map[string]bool{}
		for _, r := range w.beat("n", time.Hour).Runs {
			got[r.ID] = r.Cancel
		}
		if len(got) != 2 || got[runs[0].ID] || !got[runs[1].ID] {
			w.Errorf("Beat.Runs = %v, want %q, and %q to be cancelled", got, runs[0].ID, runs[1].ID)
		}
		w.finish(ended(runs[1]))
		w.want("runs after an end", w.beat("n", time.Hour).Runs, []durable.OwnRun{{ID: runs[0].ID}})
	}},
	{"a node without active runs leaves at once", func(w *world) {
		w.node("m")
		for _, ttl := range []time.Duration{0, -time.Second} {
			w.node("n")
			w.want("Alive after leaving", w.beat("n", ttl).Alive, 1)
			w.want("nodes left", len(w.nodes()), 1)
		}
		w.deadClaim("n")
		w.beat("unknown", 0)
		w.want("nodes left", len(w.nodes()), 1)
	}},
	{"a node with active runs is left to expire", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		run := w.start("n")
		before := w.nodes()
		w.want("runs when leaving", w.beat("n", 0).Runs, []durable.OwnRun{{ID: run.ID}})
		w.want("LeaseUntil", w.nodes()[0].LeaseUntil, before[0].LeaseUntil)
		w.advance(2 * time.Hour)
		res := w.expire(0)
		w.want("declared dead", len(res.Dead), 1)
		w.want("runs left behind", res.Runs, []durable.RunRow{run})
	}},
}

var expiries = []promise{
	{"a node is dead when its lease ended more than grace ago", func(w *world) {
		w.beat("n", time.Minute)
		w.node("m")
		w.advance(time.Minute + 10*time.Second)
		w.want("declared dead at grace", len(w.expire(10*time.Second).Dead), 0)
		w.advance(time.Microsecond)
		res := w.expire(10 * time.Second)
		if len(res.Dead) != 1 || res.Dead[0].ID != "n" || !res.Dead[0].Dead {
			w.Errorf("Expire.Dead = %+v, want n, dead", res.Dead)
		}
		w.want("Now", res.Now, w.now())
		w.want("declared dead again", len(w.expire(10*time.Second).Dead), 0)
		for _, n := range w.nodes() {
			w.want("Dead of "+n.ID, n.Dead, n.ID == "n")
		}
	}},
	{"a node back from death is refused", func(w *world) {
		w.job("a")
		w.trigger("a", "t", w.now())
		w.beat("n", time.Minute)
		w.advance(2 * time.Minute)
		w.expire(0)
		before := w.nodes()
		w.want("Beat.Dead", w.beat("n", time.Hour).Dead, true)
		w.want("Nodes", w.nodes(), before)
		w.deadClaim("n")
		w.node("n-2")
		w.want("runs claimed by its next life", len(w.claim("n-2", 5).Claimed), 1)
	}},
	{"the active runs of dead nodes are found until they are ended", func(w *world) {
		w.beat("n", time.Minute)
		w.node("m")
		w.job("a", concurrent)
		w.add("a", w.oneShot("a", w.now()), w.oneShot("a", w.now()))
		runs := w.runsOf(w.claim("n", 1))
		w.claim("m", 1)
		w.advance(2 * time.Minute)
		for range 2 { // whoever sees to it may fail to
			w.want("runs left behind", w.expire(0).Runs, runs)
		}
		lost := ended(runs[0])
		lost.Run.State, lost.Run.Code = durable.RunLost, durable.CodeLost
		w.want("Finish as lost", w.finish(lost), []bool{true})
		w.want("runs left behind", len(w.expire(0).Runs), 0)
		w.want("Finish by the node itself", w.finish(ended(runs[0])), []bool{false})
		w.want("the run's state", w.run(runs[0].ID).State, durable.RunLost)
	}},
	{"a kept run of a dead node is found too", func(w *world) {
		w.beat("n", time.Minute)
		w.job("a")
		w.trigger("a", "t", w.now())
		end := ended(w.start("n"))
		end.Keep, end.Run.State = true, durable.RunInterrupted
		w.finish(end)
		w.advance(2 * time.Minute)
		w.want("runs left behind", w.expire(0).Runs, []durable.RunRow{end.Run})
	}},
	{"the limit bounds runs and triggers", func(w *world) {
		w.beat("n", time.Minute)
		w.job("a", concurrent)
		for range 5 {
			w.add("a", w.oneShot("a", w.now()))
		}
		w.claim("n", 10)
		for i := range 4 {
			w.trigger("a", fmt.Sprint("t", i), time.Time{})
		}
		w.advance(2 * time.Minute)
		res, err := w.store.Expire(w.ctx, durable.ExpireRequest{Limit: 3})
		if err != nil || len(res.Runs) != 3 || len(res.Undue) != 3 || len(res.Dead) != 1 {
			w.Errorf("Expire(limit 3) = %d dead, %d runs, %d undue, %v, want 1, 3, 3, nil", len(res.Dead), len(res.Runs), len(res.Undue), err)
		}
	}},
	{"triggers without a due instant are found page by page", func(w *world) {
		w.job("a")
		var want []string
		for _, name := range []string{"e", "d", "c", "b", "a"} {
			want = append(want, w.trigger("a", name, time.Time{}).ID)
		}
		var got []string
		for n, after := 2, ""; n == 2; {
			res, err := w.store.Expire(w.ctx, durable.ExpireRequest{Limit: 2, After: after})
			if err != nil {
				w.Fatalf("Expire = %v, want nil", err)
			}
			n = len(res.Undue)
			for _, t := range res.Undue {
				got, after = append(got, t.ID), t.ID
			}
		}
		w.want("Undue", got, want)
	}},
	{"waiting triggers without a due instant are found", func(w *world) {
		w.job("a")
		row := w.trigger("a", "t", time.Time{})
		w.trigger("a", "paused", time.Time{}, state(durable.StatePaused))
		w.trigger("a", "due", w.now())
		w.want("Undue", w.expire(0).Undue, []durable.TriggerRow{row})
		w.edit("a", func(e *durable.Edit) {
			for i := range e.Triggers {
				e.Triggers[i].DueAt = e.Now
			}
		})
		w.want("Undue", len(w.expire(0).Undue), 0)
	}},
	{"blocked triggers that nothing blocks are released", func(w *world) {
		w.busyJob()
		w.job("b")
		row := w.trigger("b", "t", w.now(), state(durable.StateBlocked), func(t *durable.TriggerRow) { t.Reason = "why" })
		w.want("Released", w.expire(0).Released, 1)
		row.State, row.Reason = durable.StateWaiting, ""
		row.Version++
		w.want("the trigger", w.row("b", "t"), row)
		w.want("the trigger of a busy job", w.row("a", "blocked").State, durable.StateBlocked)
		w.want("Released", w.expire(0).Released, 0)
	}},
	{"one-shot triggers without a due instant are due now", func(w *world) {
		w.node("n")
		w.job("a")
		row := w.oneShot("a", time.Time{}, kind(durable.KindRetry))
		w.add("a", row, w.oneShot("a", time.Time{}, state(durable.StatePaused)))
		w.want("runs claimed", len(w.claim("n", 5).Claimed), 0)
		w.want("Expire", w.expire(0), durable.ExpireResult{Now: w.now(), Released: 1})
		row.DueAt, row.Version = w.now(), 2
		w.want("the trigger", w.row("a", row.Name), row)
		w.want("Released", w.expire(0).Released, 0)
		w.want("the run", w.start("n").ID, row.ID)
	}},
	{"triggers that wait for the end of a run that is not there wait again", func(w *world) {
		run := w.busyJob()
		held := w.row("a", "held")
		w.job("b", concurrent)
		row := w.trigger("b", "t", w.in(time.Hour), state(durable.StateRunning), func(t *durable.TriggerRow) { t.Reason = "why" })
		undue := w.trigger("b", "undue", time.Time{}, state(durable.StateRunning))
		paused := w.trigger("b", "paused", w.in(time.Hour), state(durable.StateRunning), func(t *durable.TriggerRow) { t.Paused = true })
		one := w.oneShot("b", time.Time{}, state(durable.StateRunning))
		w.add("b", one)
		for _, r := range []*durable.TriggerRow{&row, &undue, &paused} {
			r.State, r.Reason, r.Version = durable.StateWaiting, "", r.Version+1
		}
		paused.DueAt = time.Time{}
		w.want("Expire", w.expire(0), durable.ExpireResult{Now: w.now(), Undue: []durable.TriggerRow{undue, paused}, Released: 2})
		w.want("the trigger", w.row("b", "t"), row)
		w.want("the one-shot one's DueAt", w.row("b", one.Name).DueAt, w.now())
		w.want("the trigger whose run is there", w.row("a", "held"), held)
		end := ended(run)
		end.Keep, end.Run.State = true, durable.RunInterrupted
		w.finish(end)
		w.expire(0)
		w.want("the trigger whose run is kept", w.row("a", "held"), held)
	}},
	{"broadcasts are deleted when their time is over", func(w *world) {
		w.node("n")
		w.job("a", onEveryNode)
		broadcast := func(due time.Duration) durable.TriggerRow {
			return w.oneShot("a", w.in(due), state(durable.StateBroadcast), kind(durable.KindBroadcast))
		}
		over, on := broadcast(-time.Second), broadcast(time.Minute)
		waiting := w.oneShot("a", w.in(-time.Second))
		w.add("a", over, on, waiting)
		w.expire(0)
		left := map[string]bool{}
		for _, t := range w.state("a").Triggers {
			left[t.ID] = true
		}
		if left[over.ID] || !left[on.ID] || !left[waiting.ID] {
			w.Errorf("triggers left = %v, want all but %q", left, over.ID)
		}
	}},
	{"an expiry with nothing to see to changes nothing", func(w *world) {
		w.busyJob()
		w.unchanged("an expiry", func() { w.want("Expire", w.expire(0), durable.ExpireResult{Now: w.now()}) })
	}},
}

var leases = []promise{
	{"a free lease is taken, and renewed by its holder", func(w *world) {
		w.lease("x", "a", time.Minute, durable.LeaseRow{Name: "x", Holder: "a", Token: 1, Until: w.in(time.Minute)})
		w.advance(30 * time.Second)
		w.lease("x", "a", time.Minute, durable.LeaseRow{Name: "x", Holder: "a", Token: 1, Until: w.in(time.Minute)})
	}},
	{"a lease is one holder's", func(w *world) {
		first := durable.LeaseRow{Name: "x", Holder: "a", Token: 1, Until: w.in(time.Minute)}
		w.lease("x", "a", time.Minute, first)
		w.lease("x", "b", time.Hour, first)
		w.lease("x", "A", time.Hour, first)
		w.lease("x", "b", 0, first)
		w.lease("y", "b", time.Hour, durable.LeaseRow{Name: "y", Holder: "b", Token: 1, Until: w.in(time.Hour)})
	}},
	{"the token rises with each holder and each term", func(w *world) {
		take := func(holder string, token int64) {
			w.lease("x", holder, time.Minute, durable.LeaseRow{Name: "x", Holder: holder, Token: token, Until: w.in(time.Minute)})
		}
		take("a", 1)
		w.advance(61 * time.Second)
		take("b", 2)
		w.advance(61 * time.Second)
		take("b", 3)
		w.advance(59 * time.Second)
		take("b", 3)
		res, err := w.store.Lease(w.ctx, "x", "b", 0)
		if err != nil || res.Holder != "" || res.Token != 3 {
			w.Errorf("Lease given up = %+v, %v, want no holder, token 3", res, err)
		}
		take("b", 4)
		if _, err := w.store.Lease(w.ctx, "x", "b", -time.Second); err != nil {
			w.Errorf("Lease given up = %v, want nil", err)
		}
		take("a", 5)
	}},
	{"giving up what nobody has is no error", func(w *world) {
		res, err := w.store.Lease(w.ctx, "x", "a", 0)
		if err != nil || res.Holder != "" || res.Token != 0 {
			w.Errorf("Lease(unknown, ttl 0) = %+v, %v, want no holder, token 0", res, err)
		}
	}},
}

func (w *world) lease(name, holder string, ttl time.Duration, want durable.LeaseRow) {
	w.Helper()
	got, err := w.store.Lease(w.ctx, name, holder, ttl)
	if err != nil {
		w.Fatalf("Lease(%q, %q) = %v, want nil", name, holder, err)
	}
	w.want("Lease by "+holder, got, want)
}

var errTest = errors.New("storetest: an error")
