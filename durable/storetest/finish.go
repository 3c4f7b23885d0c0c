package storetest

import (
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var finishes = []promise{
	{"an ended run leaves the active ones for the history", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		run := w.start("n")
		w.advance(3 * time.Second)
		run.State, run.Duration = durable.RunFailed, 3*time.Second
		run.Code, run.Message, run.Detail = durable.CodeError, "no", "at all"
		w.want("Finish", w.finish(durable.End{Run: run}), []bool{true})
		run.EndedAt = w.now()
		w.want("Runs", w.runs(durable.RunQuery{}), []durable.RunRow{run})
		w.want("active runs", len(w.state("a").Running), 0)
	}},
	{"no ends, no answers", func(w *world) { w.want("Finish()", w.finish(), []bool{}) }},
	{"a run of another node, and an unknown one, are refused without a trace", func(w *world) {
		run := w.busyJob()
		for _, change := range []func(*durable.RunRow){
			func(r *durable.RunRow) { r.Node = "m" },
			func(r *durable.RunRow) { r.Node = "N" },
			func(r *durable.RunRow) { r.Node = "" },
			func(r *durable.RunRow) { r.ID = w.id() },
		} {
			for _, keep := range []bool{false, true} {
				end := ended(run)
				change(&end.Run)
				follow := w.oneShot("a", w.now(), kind(durable.KindRetry))
				end.Follow, end.Keep = &follow, keep
				w.unchanged("a refused end", func() {
					w.want("Finish", w.finish(end), []bool{false})
				})
			}
		}
		w.want("Finish of its own node", w.finish(ended(run)), []bool{true})
	}},
	{"a run ends once", func(w *world) {
		run := w.busyJob()
		first, second := ended(run), ended(run)
		second.Run.State = durable.RunFailed
		follow := w.oneShot("a", w.now(), kind(durable.KindRetry))
		second.Follow = &follow
		w.want("Finish twice in one request", w.finish(first, second), []bool{true, false})
		w.want("the run's state", w.run(run.ID).State, durable.RunSucceeded)
		w.unchanged("another end", func() {
			w.want("Finish again", w.finish(second), []bool{false})
		})
		for _, t := range w.state("a").Triggers {
			if t.ID == follow.ID {
				w.Error("a refused end was followed")
			}
		}
	}},
	{"each end is on its own", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for range 3 {
			w.add("a", w.oneShot("a", w.now()))
		}
		runs := w.runsOf(w.claim("n", 5))
		other := ended(runs[1])
		other.Run.Node = "m"
		w.want("Finish", w.finish(ended(runs[0]), other, ended(runs[2])), []bool{true, false, true})
		w.want("active runs", w.state("a").Running, []durable.RunRow{runs[1]})
	}},
	{"the trigger that waited becomes what Resume says", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now(), every)
		run := w.start("n")
		before := w.row("a", "t")
		w.want("its state", before.State, durable.StateRunning)
		w.advance(time.Second)
		var saw []durable.TriggerRow
		own, err := w.store.Finish(w.ctx, durable.FinishRequest{Ends: []durable.End{ended(run)}, Resume: func(now time.Time, t durable.TriggerRow) durable.TriggerRow {
			w.want("Resume's now", now, w.now())
			saw = append(saw, t)
			return resume(now, t)
		}})
		if err != nil || !own[0] {
			w.Fatalf("Finish = %v, %v, want [true], nil", own, err)
		}
		w.want("what Resume saw", saw, []durable.TriggerRow{before})
		before.State, before.DueAt = durable.StateWaiting, w.in(time.Minute)
		before.Version++
		w.want("the trigger", w.row("a", "t"), before)
	}},
	{"Resume is not asked about a trigger that does not wait any more", func(w *world) {
		w.node("n")
		for _, gone := range []bool{false, true} {
			w.job("a", concurrent)
			w.trigger("a", "t", w.now(), every)
			run := w.start("n")
			w.edit("a", func(e *durable.Edit) {
				e.Triggers[0].State = durable.StatePaused
				if gone {
					e.Job = nil
				}
			})
			own, err := w.store.Finish(w.ctx, durable.FinishRequest{Ends: []durable.End{ended(run)}, Resume: func(_ time.Time, t durable.TriggerRow) durable.TriggerRow {
				w.Errorf("Resume was called for %+v", t)
				return t
			}})
			if err != nil || !own[0] {
				w.Errorf("Finish = %v, %v, want [true], nil", own, err)
			}
			if gone {
				continue
			}
			w.want("the trigger's state", w.row("a", "t").State, durable.StatePaused)
			w.edit("a", func(e *durable.Edit) { e.Job = nil })
		}
	}},
	{"a run that does not hold its trigger leaves it alone", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now(), every)
		end := ended(w.start("n"))
		end.Run.Holds = false
		before := w.row("a", "t")
		w.finish(end)
		w.want("the trigger", w.row("a", "t"), before)
	}},
	{"the end of an exclusive run sets blocked triggers of its job waiting", func(w *world) {
		run := w.busyJob()
		w.job("b")
		other := w.trigger("b", "t", w.now(), state(durable.StateBlocked))
		stopped := w.trigger("a", "paused", w.now(), state(durable.StatePaused))
		before := w.row("a", "blocked")
		w.finish(ended(run))
		before.State, before.Reason = durable.StateWaiting, ""
		before.Version++
		w.want("the blocked trigger", w.row("a", "blocked"), before)
		w.want("that of another job", w.row("b", "t"), other)
		w.want("a paused one", w.row("a", "paused"), stopped)
		w.want("the run after it", w.start("n").Trigger, "blocked")
	}},
	{"blocked one-shot triggers are set waiting too", func(w *world) {
		run := w.busyJob()
		one := w.oneShot("a", w.now(), kind(durable.KindRetry), priority(10))
		w.add("a", one)
		w.want("runs claimed", len(w.claim("n", 5).Claimed), 0)
		w.finish(ended(run))
		w.want("the run after it", w.start("n").ID, one.ID)
	}},
}

// busyJob starts a run of exclusive job "a" on node "n", with trigger "blocked" blocked
// by it, and with trigger "held" waiting for its end.
func (w *world) busyJob() durable.RunRow {
	w.Helper()
	w.node("n")
	w.job("a")
	w.trigger("a", "held", w.in(-time.Second), every)
	run := w.start("n")
	w.trigger("a", "blocked", w.now())
	w.want("runs claimed of a busy job", len(w.claim("n", 5).Claimed), 0)
	w.want("the trigger's state", w.row("a", "blocked").State, durable.StateBlocked)
	return run
}
