package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// editJob edits one job at random.
func (m *model) editJob() (string, operation) {
	job := pick(m.random, modelJobs)
	fresh := m.fresh()
	newRow := m.newTrigger(job, fmt.Sprint("t", m.random.IntN(5)), m.in(time.Duration(m.random.IntN(40)-20)*time.Second), triggerID(m.id()))
	added := m.oneShot(job, kindOf(m.random))
	records, cancel := m.someRecords(job)
	fail := m.random.IntN(10) == 0
	what := fmt.Sprintf("Edit(%q, trigger %q, add %q, record %d, cancel %q, fail %v)", job, newRow.ID, added.ID, len(records), cancel, fail)
	return what, func(w *world) any {
		var saw []any
		err := w.store.Edit(w.ctx, job, durable.EditJob, func(e *durable.Edit) error {
			saw = []any{e.Now, jobOf(e), plainTriggers(e.Triggers), plainRuns(e.Running)}
			r := fresh()
			if e.Job == nil {
				e.Job = &durable.JobRow{Name: job, Group: "default", Handler: pick(r, modelHandlers), AllowConcurrent: r.IntN(2) == 0, Source: durable.SourceAPI}
				newRow.Handler, added.Handler = e.Job.Handler, e.Job.Handler
			} else if r.IntN(12) == 0 {
				e.Job = nil
				return nil
			} else {
				editRow(r, e)
			}
			editTriggers(r, e, newRow)
			if r.IntN(4) == 0 {
				added.Handler = e.Job.Handler
				e.Add = []durable.TriggerRow{added}
			}
			e.Records, e.Cancel = records, cancel
			if fail {
				return errTest
			}
			return nil
		})
		return []any{saw, errText(err)}
	}
}

// editRow changes the job itself.
func editRow(r *rand.Rand, e *durable.Edit) {
	switch r.IntN(9) {
	case 0:
		e.Job.Handler = pick(r, modelHandlers)
		for i := range e.Triggers {
			e.Triggers[i].Handler = e.Job.Handler
		}
	case 1:
		e.Job.AllowConcurrent = !e.Job.AllowConcurrent
		e.Release = e.Job.AllowConcurrent
	case 2:
		e.Job.Paused = !e.Job.Paused
		e.Release = !e.Job.Paused
	case 3:
		e.Job.Data = []byte(fmt.Sprintf(`{"n": %d}`, r.IntN(3)))
	case 4:
		e.Job.RunOnEveryNode = !e.Job.RunOnEveryNode
	case 5:
		e.DropAdded = []durable.Kind{kindOf(r)}
	case 6:
		e.Release = true
	}
}

// editTriggers adds, changes and leaves out schedule triggers.
func editTriggers(r *rand.Rand, e *durable.Edit, row durable.TriggerRow) {
	for i := range e.Triggers {
		t := &e.Triggers[i]
		switch r.IntN(9) {
		case 0:
			t.Priority = r.IntN(11)
		case 1:
			t.DueAt, t.State, t.Reason = e.Now.Add(time.Duration(r.IntN(20)-10)*time.Second), durable.StateWaiting, ""
		case 2:
			t.Paused = !t.Paused
			if t.Paused && t.State == durable.StateWaiting {
				t.State, t.Reason = durable.StatePaused, "by itself"
			}
		case 3:
			t.State, t.DueAt = durable.StateWaiting, time.Time{}
		case 4:
			t.State = pick(r, []durable.TriggerState{durable.StateRunning, durable.StateBlocked, durable.StatePaused, durable.StateError, durable.StateLocal})
		}
	}
	if n := len(e.Triggers); n > 0 && r.IntN(6) == 0 {
		i := r.IntN(n)
		e.Triggers = slices.Delete(e.Triggers, i, i+1)
	}
	if n := len(e.Triggers); n < 4 && r.IntN(2) == 0 || n == 0 {
		// Sometimes of a name that is taken, which both stores must refuse.
		row.Handler, row.Priority = e.Job.Handler, r.IntN(11)
		if r.IntN(2) == 0 {
			every(&row)
		}
		e.Triggers = append(e.Triggers, row)
	}
}
