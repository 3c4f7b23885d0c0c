package storetest

import (
	"errors"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var edits = []promise{
	{"a job is added, read and changed", func(w *world) {
		job := durable.JobRow{
			Name: "a", Group: "g", Description: "d", Handler: "h", Data: []byte(`{"x":1}`),
			Retry:   durable.Retry{MaxRetries: 3, Delay: time.Second, Exponential: true, MaxDelay: time.Hour, Jitter: true},
			Timeout: time.Minute, AllowConcurrent: true, RunOnEveryNode: true, RequestsRecovery: true, Paused: true,
			Source: durable.SourceCode, CodeHash: "hash",
		}
		w.edit("a", func(e *durable.Edit) {
			w.want("Now", e.Now, w.now())
			if e.Job != nil || len(e.Triggers) > 0 || len(e.Running) > 0 {
				w.Errorf("Edit of a new job has %+v, want nothing", e)
			}
			row := job
			e.Job = &row
		})
		job.Version, job.Created, job.Updated = 1, w.now(), w.now()
		w.want("the job", w.state("a"), durable.JobState{Job: job})

		w.advance(time.Second)
		w.edit("a", func(e *durable.Edit) {
			w.want("the job loaded", *e.Job, job)
			e.Job.Paused = false
			e.Job.Version, e.Job.Created, e.Job.Updated = 77, e.Now, time.Time{} // the store's to set
		})
		job.Paused, job.Version, job.Updated = false, 2, w.now()
		w.want("the job changed", w.state("a").Job, job)
	}},
	{"what did not change keeps its version", func(w *world) {
		w.job("a", func(j *durable.JobRow) { j.Data = []byte(`{"x": 1}`) })
		w.trigger("a", "t1", w.now(), func(t *durable.TriggerRow) { t.Data = []byte(`{"x": 1}`) })
		w.trigger("a", "t2", w.now())
		w.add("a", w.oneShot("a", w.now()))
		w.advance(time.Minute)
		w.unchanged("an edit without change", func() { w.edit("a", func(*durable.Edit) {}) })
		before := w.state("a")
		w.edit("a", func(e *durable.Edit) { e.Triggers[1].Priority = 7 })
		before.Triggers[1].Priority = 7
		before.Triggers[1].Version++
		w.want("triggers, one of them changed", w.state("a").Triggers, before.Triggers)
		w.edit("a", func(e *durable.Edit) { e.Job.Description = "new" })
		w.want("triggers of a changed job", w.state("a").Triggers, before.Triggers)
	}},
	{"Edit loads triggers by name and active runs by ID", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for _, name := range []string{"c", "a", "B", "b"} {
			w.trigger("a", name, w.in(time.Hour))
		}
		for _, n := range []int64{903, 901, 902} {
			w.add("a", w.oneShot("a", w.now(), triggerID(idOf(n))))
		}
		runs := w.runsOf(w.claim("n", 5))
		w.add("a", w.oneShot("a", w.now()))
		w.edit("a", func(e *durable.Edit) {
			var names []string
			for _, t := range e.Triggers {
				names = append(names, t.Name)
			}
			w.want("Triggers", names, []string{"B", "a", "b", "c"})
			w.want("Running", e.Running, runs)
		})
	}},
	{"a removed job is gone with all its triggers", func(w *world) {
		w.node("n")
		w.job("a")
		w.job("b")
		w.trigger("a", "t", w.now())
		w.add("a", w.oneShot("a", w.now()))
		w.trigger("b", "t", w.in(time.Hour))
		w.edit("a", func(e *durable.Edit) { e.Job = nil })
		w.want("jobs left", len(w.jobs(durable.JobQuery{})), 1)
		w.want("Claim", w.claim("n", 5), durable.ClaimResult{Now: w.now(), Next: w.in(time.Hour)})
		w.job("a")
		w.want("triggers of its next life", len(w.state("a").Triggers), 0)
	}},
	{"a changed handler is that of all triggers", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.trigger("a", "t", w.now())
		w.add("a", w.oneShot("a", w.now()))
		w.edit("a", func(e *durable.Edit) {
			e.Job.Handler = "new"
			for i := range e.Triggers {
				e.Triggers[i].Handler = "new"
			}
		})
		for _, t := range w.state("a").Triggers {
			w.want("Handler of "+t.Name, t.Handler, "new")
			w.want("Version of "+t.Name, t.Version > 1, true)
		}
		w.want("runs of the old handler", len(w.claim("n", 5).Claimed), 0)
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"new"}, Plan: w.plan})
		w.want("runs of the new handler", len(res.Claimed), 2)
	}},
	{"Release sets waiting what was blocked or paused with the job", func(w *world) {
		w.job("a")
		w.job("b")
		own := func(t *durable.TriggerRow) { t.State, t.Paused, t.Reason = durable.StatePaused, true, "itself" }
		with := func(s durable.TriggerState) change[durable.TriggerRow] {
			return func(t *durable.TriggerRow) { t.State, t.Reason = s, "why" }
		}
		kept := map[string]durable.TriggerRow{}
		for name, c := range map[string]change[durable.TriggerRow]{
			"own": own, "error": with(durable.StateError), "complete": with(durable.StateComplete),
			"running": with(durable.StateRunning), "local": with(durable.StateLocal),
		} {
			kept[name] = w.trigger("a", name, w.now(), c)
		}
		w.trigger("a", "blocked", w.now(), with(durable.StateBlocked))
		w.trigger("a", "paused", w.now(), with(durable.StatePaused))
		w.add("a", w.oneShot("a", w.now(), with(durable.StatePaused)), w.oneShot("a", w.now(), with(durable.StateBlocked)))
		other := w.trigger("b", "t", w.now(), with(durable.StateBlocked))
		w.edit("a", func(e *durable.Edit) { e.Release = true })
		for _, t := range w.state("a").Triggers {
			if k, ok := kept[t.Name]; ok {
				w.want("trigger "+t.Name, t, k)
			} else if t.State != durable.StateWaiting || t.Reason != "" || t.Version != 2 {
				w.Errorf("released trigger %q = %+v, want it waiting, without a reason, version 2", t.Name, t)
			}
		}
		w.want("a trigger of another job", w.row("b", "t"), other)
	}},
	{"DropAdded deletes one-shot triggers of its kinds", func(w *world) {
		w.job("a")
		w.job("b")
		w.trigger("a", "t", w.now())
		for _, k := range []durable.Kind{durable.KindManual, durable.KindRetry, durable.KindRecovery} {
			w.add("a", w.oneShot("a", w.now(), kind(k)))
			w.add("b", w.oneShot("b", w.now(), kind(k)))
		}
		w.edit("a", func(e *durable.Edit) { e.DropAdded = []durable.Kind{durable.KindRetry, durable.KindRecovery} })
		var kinds []durable.Kind
		for _, t := range w.state("a").Triggers {
			kinds = append(kinds, t.Kind)
		}
		w.want("kinds left", kinds, []durable.Kind{durable.KindSchedule, durable.KindManual})
		w.want("triggers of another job", len(w.state("b").Triggers), 3)
	}},
	{"an error leaves no trace, and is returned", func(w *world) {
		w.busyJob()
		for _, scope := range []durable.Scope{durable.EditJob, durable.EnqueueOnly} {
			w.unchanged("an edit with an error", func() {
				err := w.store.Edit(w.ctx, "a", scope, func(e *durable.Edit) error {
					w.spoil(e)
					return errTest
				})
				if !errors.Is(err, errTest) {
					w.Errorf("Edit = %v, want %v", err, errTest)
				}
			})
		}
	}},
}

// spoil changes all that an Edit can change.
func (w *world) spoil(e *durable.Edit) {
	e.Job.Description = "spoilt"
	e.Triggers = append(e.Triggers, w.newTrigger(e.Job.Name, "spoilt", e.Now))
	e.Triggers[0].Reason = "spoilt"
	e.Release = true
	e.Add = []durable.TriggerRow{w.oneShot(e.Job.Name, e.Now)}
	e.Records = []durable.RunRow{{ID: w.id(), Job: e.Job.Name, State: durable.RunSkipped}}
	for _, r := range e.Running {
		e.Cancel = append(e.Cancel, r.ID)
	}
	e.DropAdded = []durable.Kind{durable.KindManual}
}

var triggerEdits = []promise{
	{"triggers are added, changed, renamed and left out in one edit", func(w *world) {
		w.job("a")
		a, b, c := w.trigger("a", "a", w.now()), w.trigger("a", "b", w.now()), w.trigger("a", "c", w.now())
		d := w.newTrigger("a", "a", w.in(time.Hour)) // takes a's name
		w.edit("a", func(e *durable.Edit) {
			a.Name, a.Schedule = "z", "manual"
			c.Description = "changed"
			e.Triggers = []durable.TriggerRow{d, c, a}
		})
		a.Version, c.Version, d.Version = a.Version+1, c.Version+1, 1
		w.want("triggers", w.state("a").Triggers, []durable.TriggerRow{d, c, a})
		_ = b
	}},
	{"triggers can swap their names", func(w *world) {
		w.job("a")
		a, b := w.trigger("a", "a", w.now()), w.trigger("a", "b", w.now())
		w.edit("a", func(e *durable.Edit) { e.Triggers[0].Name, e.Triggers[1].Name = "b", "a" })
		w.want("ID of a", w.row("a", "a").ID, b.ID)
		w.want("ID of b", w.row("a", "b").ID, a.ID)
	}},
	{"two triggers of one name are refused", func(w *world) {
		w.job("a")
		w.trigger("a", "t", w.now())
		w.unchanged("an edit with a name twice", func() {
			err := w.store.Edit(w.ctx, "a", durable.EditJob, func(e *durable.Edit) error {
				e.Job.Description = "changed"
				e.Triggers = append(e.Triggers, w.newTrigger("a", "t", w.now()))
				return nil
			})
			if !errors.Is(err, durable.ErrExists) {
				w.Errorf("Edit = %v, want ErrExists", err)
			}
		})
	}},
	{"triggers of two jobs may have the same name", func(w *world) {
		w.job("a")
		w.job("b")
		a, b := w.trigger("a", "t", w.now()), w.trigger("b", "t", w.now())
		w.edit("a", func(e *durable.Edit) { e.Triggers = nil })
		w.want("triggers of a", len(w.state("a").Triggers), 0)
		w.want("trigger of b", w.row("b", "t"), b)
		_ = a
	}},
	{"an edit of a trigger that waits for its run decides what becomes of it", func(w *world) {
		run := w.busyJob()
		w.edit("a", func(e *durable.Edit) {
			e.Triggers[1].DueAt, e.Triggers[1].State = w.in(time.Hour), durable.StateWaiting
		})
		w.finish(ended(run))
		w.want("DueAt", w.row("a", "held").DueAt, w.in(time.Hour))
	}},
	{"one-shot triggers are not loaded and not touched", func(w *world) {
		w.job("a")
		w.trigger("a", "t", w.now())
		one := w.oneShot("a", w.now())
		w.add("a", one)
		w.edit("a", func(e *durable.Edit) {
			w.want("triggers loaded", len(e.Triggers), 1)
			e.Triggers = nil
		})
		one.Version = 1
		w.want("triggers left", w.state("a").Triggers, []durable.TriggerRow{one})
	}},
}
