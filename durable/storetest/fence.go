package storetest

import (
	"fmt"

	"github.com/taskmanager-go/taskmanager/durable"
)

var fences = []promise{
	{"fences rise per job, over its triggers and kinds of runs", func(w *world) {
		w.node("n")
		w.node("m")
		w.job("a", concurrent)
		w.job("b", concurrent)
		last := map[string]int64{}
		for i := range 12 {
			w.trigger("a", fmt.Sprint("t", i), w.now())
			w.add("a", w.oneShot("a", w.now()))
			w.add("b", w.oneShot("b", w.now()))
			w.fencesRise(w.runsOf(w.claim([]string{"n", "m"}[i%2], 5)), last)
		}
	}},
	{"fences rise over the removal of the job", func(w *world) {
		w.node("n")
		last := map[string]int64{}
		for range 3 {
			w.job("a")
			w.trigger("a", "t", w.now())
			run := w.start("n")
			w.fencesRise([]durable.RunRow{run}, last)
			w.finish(ended(run))
			w.edit("a", func(e *durable.Edit) { e.Job = nil })
			w.purge(durable.PurgeRequest{IDs: []string{run.ID}})
		}
	}},
	{"a finished run keeps its fence in the history", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		run := w.start("n")
		w.finish(ended(run))
		w.want("the fence", w.run(run.ID).Fence, run.Fence)
	}},
}

// fencesRise checks runs in the order of their claims, against the last fence of each
// job.
func (w *world) fencesRise(runs []durable.RunRow, last map[string]int64) {
	w.Helper()
	if len(runs) == 0 {
		w.Error("no run was claimed")
	}
	for _, r := range runs {
		if r.Fence <= last[r.Job] {
			w.Errorf("fence of a run of job %q = %d, want more than %d", r.Job, r.Fence, last[r.Job])
		}
		last[r.Job] = r.Fence
	}
}
