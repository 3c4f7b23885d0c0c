package storetest

import (
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var ends = []promise{
	{"a run that is kept stays active and keeps its slot", func(w *world) {
		run := w.busyJob()
		end := ended(run)
		end.Keep, end.Run.State = true, durable.RunInterrupted
		end.Run.Code, end.Run.Message, end.Run.Detail = durable.CodeInterrupted, "stopped", "in the midst"
		w.advance(time.Second)
		w.want("Finish", w.finish(end), []bool{true})
		w.want("the blocked trigger's state", w.row("a", "blocked").State, durable.StateBlocked)
		w.want("the held trigger's state", w.row("a", "held").State, durable.StateRunning)
		want := end.Run
		want.EndedAt = time.Time{}
		w.want("active runs", w.state("a").Running, []durable.RunRow{want})
		w.want("Runs", w.runs(durable.RunQuery{}), []durable.RunRow{want})
		w.want("Runs of its new state", len(w.runs(durable.RunQuery{States: []durable.RunState{durable.RunInterrupted}})), 1)

		end.Keep = false
		w.want("Finish for good", w.finish(end), []bool{true})
		w.want("the blocked trigger's state", w.row("a", "blocked").State, durable.StateWaiting)
		w.want("the held trigger's state", w.row("a", "held").State, durable.StateWaiting)
		want.EndedAt = w.now()
		w.want("Runs", w.runs(durable.RunQuery{}), []durable.RunRow{want})
	}},
	{"a run that is kept may be followed", func(w *world) {
		end := ended(w.busyJob())
		follow := w.oneShot("a", w.now(), kind(durable.KindRecovery))
		end.Keep, end.Run.State, end.Follow = true, durable.RunInterrupted, &follow
		w.finish(end)
		w.want("the follower's kind", w.row("a", follow.Name).Kind, durable.KindRecovery)
		w.edit("a", func(e *durable.Edit) { e.DropAdded = []durable.Kind{durable.KindRecovery} })
		w.unchanged("the same end again, as after a lost answer", func() {
			w.want("Finish", w.finish(end), []bool{false})
		})
	}},
	{"nothing follows what somebody wanted cancelled", func(w *world) {
		for _, keep := range []bool{false, true} {
			w.node("n")
			job := fmt.Sprint("cancelled-", keep)
			w.job(job, concurrent)
			w.trigger(job, "t", w.now())
			runs := w.runsOf(w.claim("n", 5))
			w.want("runs claimed", len(runs), 1)
			w.enqueue(job, func(e *durable.Edit) { e.Cancel = []string{runs[0].ID} })
			end := ended(runs[0])
			follow := w.oneShot(job, w.now(), kind(durable.KindRetry))
			if end.Follow = &follow; keep {
				end.Keep, end.Run.State = true, durable.RunInterrupted
			}
			w.want("Finish", w.finish(end), []bool{true})
			w.want("triggers", len(w.state(job).Triggers), 1)
		}
	}},
	{"a local run is only added", func(w *world) {
		before := w.busyJob()
		run := durable.RunRow{
			ID: w.id(), Job: "a", Trigger: "held", State: durable.RunSucceeded, StartedAt: w.in(-time.Second),
			Node: "nowhere", Duration: time.Second, Attempt: 1, TriggerID: before.TriggerID, Holds: true, Exclusive: true,
		}
		triggers := w.state("a").Triggers
		w.want("Finish", w.finish(durable.End{Run: run, Local: true}), []bool{true})
		run.EndedAt = w.now()
		w.want("the run", w.run(run.ID), run)
		w.want("the job's triggers", w.state("a").Triggers, triggers)
		w.want("active runs", w.state("a").Running, []durable.RunRow{before})
		w.unchanged("the same local run again, as after a lost answer", func() {
			w.want("Finish", w.finish(durable.End{Run: run, Local: true}), []bool{true})
		})
	}},
	{"a run is followed by a trigger due from now", func(w *world) {
		end := ended(w.busyJob())
		follow := w.oneShot("a", time.Time{}, kind(durable.KindRetry), priority(10))
		follow.Attempt, follow.RetryOf, follow.Origin, follow.IdempotencyKey = 2, end.Run.ID, "held", "key"
		follow.Data = []byte(`{"a":[1, 2]}`)
		end.Follow, end.FollowIn = &follow, 90*time.Second
		w.advance(time.Second)
		w.finish(end)
		want := follow
		want.DueAt, want.Version = w.in(90*time.Second), 1
		w.want("the follower", w.row("a", follow.Name), want)
		w.advance(90 * time.Second)
		w.want("the run of the follower", w.runsOf(w.claim("n", 1))[0].ID, follow.ID)
	}},
	{"a follower that gives a sooner due time has it", func(w *world) {
		for _, c := range []struct{ due, want time.Duration }{{-time.Hour, -time.Hour}, {0, 0}, {time.Minute, time.Minute}, {time.Hour, 90 * time.Second}} {
			job := "due-" + c.due.String()
			w.node("n")
			w.job(job, concurrent)
			w.trigger(job, "t", w.now())
			end := ended(w.runsOf(w.claim("n", 1))[0])
			follow := w.oneShot(job, w.in(c.due), kind(durable.KindRecovery))
			end.Follow, end.FollowIn = &follow, 90*time.Second
			w.finish(end)
			w.want("the follower's due time", w.row(job, follow.Name).DueAt, w.in(c.want))
			w.edit(job, func(e *durable.Edit) { e.Job = nil; e.DropAdded = []durable.Kind{durable.KindRecovery} })
		}
	}},
	{"a follower is for the handler that its job has at the end", func(w *world) {
		end := ended(w.busyJob())
		w.edit("a", func(e *durable.Edit) { e.Job.Handler = "other" })
		follow := w.oneShot("a", w.now(), kind(durable.KindRetry))
		end.Follow = &follow
		w.finish(end)
		w.want("the follower's handler", w.row("a", follow.Name).Handler, "other")
	}},
	{"a follower outlives its job's removal until it is claimed", func(w *world) {
		end := ended(w.busyJob())
		w.edit("a", func(e *durable.Edit) { e.Job = nil })
		follow := w.oneShot("a", w.now(), kind(durable.KindRetry))
		end.Follow = &follow
		w.want("Finish", w.finish(end), []bool{true})
		var saw []string
		w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			saw = append(saw, d.Trigger.ID+d.Job.Name)
			return durable.Verdict{Delete: true}
		}})
		w.want("what Plan saw", saw, []string{follow.ID})
	}},
	{"the runs of a removed job go on and end", func(w *world) {
		run := w.busyJob()
		w.edit("a", func(e *durable.Edit) { e.Job = nil })
		w.want("jobs", len(w.jobs(durable.JobQuery{})), 0)
		w.want("the run", w.run(run.ID), run)
		w.want("Finish", w.finish(ended(run)), []bool{true})
		w.want("the run's state", w.run(run.ID).State, durable.RunSucceeded)
	}},
}
