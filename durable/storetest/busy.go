package storetest

import (
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var busies = []promise{
	{"a job is busy with a run of this very request", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t1", w.now())
		w.trigger("a", "t2", w.now())
		w.want("busy", w.busyOf(10), []bool{false, true})
		w.want("active runs", len(w.state("a").Running), 1)
		w.want("the other trigger's state", w.row("a", "t2").State, durable.StateBlocked)
	}},
	{"a job is busy with a run of an earlier request, of any node", func(w *world) {
		w.node("n")
		w.node("m")
		w.job("a")
		w.trigger("a", "t1", w.now())
		w.want("runs claimed", len(w.claim("m", 5).Claimed), 1)
		w.trigger("a", "t2", w.now())
		w.want("busy", w.busyOf(10), []bool{true})
	}},
	{"a job that allows concurrency is never busy", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.trigger("a", "t1", w.now())
		w.trigger("a", "t2", w.now())
		w.want("busy", w.busyOf(1), []bool{false})
		w.want("busy", w.busyOf(1), []bool{false})
		w.want("active runs", len(w.state("a").Running), 2)
	}},
	{"a job is busy with a run that was kept", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t1", w.now())
		end := ended(w.start("n"))
		end.Keep, end.Run.State = true, durable.RunInterrupted
		w.finish(end)
		w.trigger("a", "t2", w.now())
		w.want("busy", w.busyOf(10), []bool{true})
	}},
	{"a job is busy with runs from when it allowed concurrency", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.trigger("a", "t1", w.now())
		w.start("n")
		w.edit("a", func(e *durable.Edit) { e.Job.AllowConcurrent = false })
		w.trigger("a", "t2", w.now())
		w.want("busy", w.busyOf(10), []bool{true})
		w.edit("a", func(e *durable.Edit) { e.Job.AllowConcurrent, e.Release = true, true })
		w.want("busy", w.busyOf(10), []bool{false})
	}},
	{"the end of a run wakes the first two that wait for it", func(w *world) {
		w.node("n")
		w.job("a")
		w.add("a", w.oneShot("a", w.in(-time.Hour)))
		run := w.start("n")
		for i, name := range []string{"e", "d", "c", "b"} { // due later than those after them
			w.trigger("a", name, w.in(-time.Duration(i+1)*time.Minute))
		}
		w.trigger("a", "x", w.in(-time.Second), func(t *durable.TriggerRow) { t.Priority++ })
		w.want("busy", w.busyOf(10), []bool{true, true, true, true, true})
		w.finish(ended(run))
		w.want("waiting", w.waiting("a"), []string{"b", "x"})
		w.want("busy", w.busyOf(10), []bool{false, true})
		w.want("waiting", w.waiting("a"), []string{"x"}) // for its next firing
	}},
	{"of those that wait for the end of a run, one without a due instant comes before others", func(w *world) {
		w.node("n")
		w.job("a")
		w.add("a", w.oneShot("a", w.in(-time.Hour)))
		run := w.start("n")
		w.trigger("a", "b", w.in(-time.Minute), state(durable.StateBlocked))
		w.trigger("a", "c", w.in(-time.Minute), state(durable.StateBlocked), func(t *durable.TriggerRow) { t.Priority++ })
		w.trigger("a", "d", time.Time{}, state(durable.StateBlocked))
		w.finish(ended(run))
		w.want("waiting", w.waiting("a"), []string{"c", "d"})
	}},
	{"what waits behind triggers that do not run is woken", func(w *world) {
		w.node("n")
		w.job("a")
		w.add("a", w.oneShot("a", w.in(-time.Hour)))
		run := w.start("n")
		for _, name := range []string{"b", "c", "d", "e"} {
			w.trigger("a", name, w.in(-time.Minute))
		}
		w.claim("n", 10)
		w.finish(ended(run))
		w.want("waiting", w.waiting("a"), []string{"b", "c"})
		broken := func(d durable.Due) durable.Verdict {
			d.Trigger.State = durable.StateError
			return durable.Verdict{Trigger: d.Trigger}
		}
		w.claimWith(durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: broken})
		w.want("waiting", w.waiting("a"), []string{"d", "e"})
		w.want("busy", w.busyOf(10), []bool{false, true})
	}},
	{"a job is not busy with what has ended or was skipped", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		w.finish(ended(w.start("n")))
		w.advance(time.Minute)
		w.want("busy", w.busyOf(10), []bool{false})
	}},
	{"a job is busy with the runs of a job of its name that was removed", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		w.start("n")
		w.edit("a", func(e *durable.Edit) { e.Job = nil })
		w.job("a")
		w.trigger("a", "t", w.now())
		w.want("busy", w.busyOf(10), []bool{true})
	}},
	{"verdicts on triggers of one job do not touch another", func(w *world) {
		w.node("n")
		w.job("a")
		w.job("b")
		w.trigger("a", "t", w.now())
		w.trigger("b", "t", w.now())
		w.want("busy", w.busyOf(10), []bool{false, false})
	}},
}

// busyOf claims, and gives what Busy was.
func (w *world) busyOf(limit int) []bool {
	w.Helper()
	var busy []bool
	w.claimWith(durable.ClaimRequest{Node: "n", Limit: limit, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
		busy = append(busy, d.Busy)
		return w.plan(d)
	}})
	return busy
}
