package storetest

import (
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var enqueues = []promise{
	{"one-shot triggers are added in either scope", func(w *world) {
		w.job("a")
		for _, scope := range []durable.Scope{durable.EditJob, durable.EnqueueOnly} {
			one := w.oneShot("a", w.now(), kind(durable.KindRetry))
			one.Origin, one.ScheduledAt, one.Attempt, one.RetryOf, one.IdempotencyKey = "t", w.in(-time.Hour), 2, w.id(), "key"
			one.Data, one.Priority, one.Description = []byte(`{"x":1}`), 9, "again"
			w.editScope("a", scope, func(e *durable.Edit) { e.Add = []durable.TriggerRow{one} })
			one.Version = 1
			w.want("the trigger added", w.row("a", one.Name), one)
		}
	}},
	{"known IDs are ignored", func(w *world) {
		w.job("a")
		one := w.oneShot("a", w.now())
		w.add("a", one)
		again, other := one, w.oneShot("a", w.now())
		again.Priority, again.Description = 10, "changed"
		for _, scope := range []durable.Scope{durable.EditJob, durable.EnqueueOnly} {
			w.editScope("a", scope, func(e *durable.Edit) { e.Add = []durable.TriggerRow{again, other, other} })
		}
		one.Version, other.Version = 1, 1
		w.want("triggers", w.state("a").Triggers, []durable.TriggerRow{one, other})
	}},
	{"EnqueueOnly sees the job and the IDs of its runs", func(w *world) {
		run := w.busyJob()
		job := w.state("a").Job
		w.enqueue("a", func(e *durable.Edit) {
			w.want("Now", e.Now, w.now())
			w.want("Job", *e.Job, job)
			w.want("Running", e.Running, []durable.RunRow{{ID: run.ID}})
		})
		w.enqueue("unknown", func(e *durable.Edit) {
			if e.Job != nil || len(e.Running) > 0 {
				w.Errorf("Edit of an unknown job has %+v, want nothing", e)
			}
		})
		w.want("jobs", len(w.jobs(durable.JobQuery{})), 1)
	}},
	{"records are ended now", func(w *world) {
		w.job("a")
		for _, scope := range []durable.Scope{durable.EditJob, durable.EnqueueOnly} {
			run := durable.RunRow{
				ID: w.id(), Job: "a", State: durable.RunSkipped, Kind: durable.KindManual, Code: durable.CodeConflict,
				Message: "busy", ScheduledAt: w.now(), Attempt: 1, Node: "n", Data: []byte(`{"x":1}`),
				StartedAt: w.in(-time.Hour), EndedAt: w.in(time.Hour), // the store's to set
			}
			w.editScope("a", scope, func(e *durable.Edit) { e.Records = []durable.RunRow{run} })
			run.StartedAt, run.EndedAt = w.now(), w.now()
			w.want("the record", w.run(run.ID), run)
		}
	}},
	{"Cancel marks active runs of its job", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.add("a", w.oneShot("a", w.now()), w.oneShot("a", w.now()), w.oneShot("a", w.now()))
		runs := w.runsOf(w.claim("n", 5))
		w.finish(ended(runs[0]))
		w.enqueue("a", func(e *durable.Edit) { e.Cancel = []string{runs[0].ID, runs[1].ID, "unknown"} })
		w.want("Cancel of an ended run", w.run(runs[0].ID).Cancel, false)
		w.want("Cancel of an active run", w.run(runs[1].ID).Cancel, true)
		w.want("Cancel of another", w.run(runs[2].ID).Cancel, false)
		w.edit("a", func(e *durable.Edit) { e.Cancel = []string{runs[2].ID} })
		w.want("Cancel of another", w.run(runs[2].ID).Cancel, true)
		w.want("the run's state", w.run(runs[2].ID).State, durable.RunRunning)
	}},
	{"an added trigger of no handler that is asked for waits", func(w *world) {
		w.node("n")
		w.job("a", handler("other"))
		one := w.oneShot("a", w.now())
		one.Handler = "other"
		w.add("a", one)
		w.want("runs claimed", len(w.claim("n", 5).Claimed), 0)
	}},
}
