package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var jobQueries = []promise{
	{"no jobs", func(w *world) { w.want("Jobs", len(w.jobs(durable.JobQuery{})), 0) }},
	{"jobs are in order of name, page by page", func(w *world) {
		names := []string{"b", "a", "a.b", "a-b", "a_b", "ab", "a1", "zz", "z"}
		for _, name := range names {
			w.job(name)
		}
		slices.Sort(names)
		w.want("all", w.jobNames(durable.JobQuery{}), names)
		w.want("the first", w.jobNames(durable.JobQuery{Limit: 3}), names[:3])
		w.want("the next", w.jobNames(durable.JobQuery{Limit: 3, After: names[2]}), names[3:6])
		w.want("the last", w.jobNames(durable.JobQuery{After: names[5]}), names[6:])
		w.want("after the last", w.jobNames(durable.JobQuery{After: "zz"}), []string{})
		w.want("after a name that is not there", w.jobNames(durable.JobQuery{After: "y", Limit: 1}), []string{"z"})
	}},
	{"fields of a query are all to be met", func(w *world) {
		w.job("a")
		w.job("b", onEveryNode)
		w.job("c", onEveryNode)
		w.want("names", w.jobNames(durable.JobQuery{Names: []string{"c", "a", "c", "unknown", "A"}}), []string{"a", "c"})
		w.want("every node", w.jobNames(durable.JobQuery{EveryNode: true}), []string{"b", "c"})
		w.want("names and every node", w.jobNames(durable.JobQuery{EveryNode: true, Names: []string{"a", "b"}}), []string{"b"})
		w.want("every node after", w.jobNames(durable.JobQuery{EveryNode: true, After: "b"}), []string{"c"})
	}},
	{"the limit is 1,000 without one", func(w *world) {
		for i := range 1001 {
			w.edit(fmt.Sprintf("job-%04d", i), func(e *durable.Edit) {
				e.Job = &durable.JobRow{Name: fmt.Sprintf("job-%04d", i), Handler: "h"}
			})
		}
		w.want("jobs", len(w.jobs(durable.JobQuery{})), 1000)
	}},
	{"schedule triggers come first, then at most 100 one-shot ones", func(w *world) {
		w.job("a")
		w.trigger("a", "z", w.now())
		w.trigger("a", "y", w.now())
		var rows []durable.TriggerRow
		var want []string
		for i := range 130 {
			name := fmt.Sprintf("one-%03d", (i*37)%130)
			rows = append(rows, w.oneShot("a", w.in(-time.Duration(i)*time.Second), func(t *durable.TriggerRow) { t.Name = name }))
			want = append(want, name)
		}
		w.add("a", rows...)
		slices.Sort(want)
		var got []string
		for _, t := range w.state("a").Triggers {
			got = append(got, t.Name)
		}
		w.want("triggers", got, append([]string{"y", "z"}, want[:100]...))
	}},
	{"a query for jobs on every node has all broadcasts, and at most 100 other one-shot triggers", func(w *world) {
		w.job("a", onEveryNode)
		w.trigger("a", "z", w.now(), state(durable.StateLocal))
		var rows []durable.TriggerRow
		var want []string
		for i := range 130 {
			name := fmt.Sprintf("two-%03d", (i*37)%130)
			rows = append(rows,
				w.oneShot("a", w.in(time.Hour), state(durable.StateBroadcast), kind(durable.KindBroadcast), func(t *durable.TriggerRow) { t.Name = name }),
				w.oneShot("a", w.in(time.Hour), func(t *durable.TriggerRow) { t.Name = "one-" + name }))
			want = append(want, name)
		}
		w.add("a", rows...)
		slices.Sort(want)
		var got []string
		others := 0
		for _, t := range w.jobs(durable.JobQuery{EveryNode: true})[0].Triggers[1:] {
			if t.Kind == durable.KindBroadcast {
				got = append(got, t.Name)
			} else {
				others++
			}
		}
		w.want("broadcasts", got, want)
		w.want("other one-shot triggers", others, 100)
		w.want("all of another query", len(w.state("a").Triggers), 101)
	}},
	{"runs and triggers are read, unless they are not wanted", func(w *world) {
		run := w.busyJob()
		w.add("a", w.oneShot("a", w.in(time.Hour)))
		all := w.state("a")
		w.want("Running", all.Running, []durable.RunRow{run})
		triggers := all.Triggers
		all.Running = nil
		w.want("WithoutRuns", w.jobs(durable.JobQuery{WithoutRuns: true}), []durable.JobState{all})
		all.Triggers = nil
		w.want("without both", w.jobs(durable.JobQuery{WithoutRuns: true, WithoutTriggers: true}), []durable.JobState{all})
		all.Running = []durable.RunRow{run}
		w.want("WithoutTriggers", w.jobs(durable.JobQuery{WithoutTriggers: true}), []durable.JobState{all})
		w.want("triggers", len(triggers), 3)
	}},
	{"answers are the caller's", func(w *world) {
		run := w.busyJob()
		w.edit("a", func(e *durable.Edit) { e.Job.Data, e.Triggers[0].Data = []byte(`{"x":1}`), []byte(`{"y":2}`) })
		end := ended(run)
		end.Run.Data = []byte(`{"z":3}`)
		w.finish(end)
		w.unchanged("writing into answers", func() {
			s := w.state("a")
			clear(s.Job.Data)
			clear(s.Triggers[0].Data)
			clear(s.Triggers)
			clear(w.run(run.ID).Data)
			clear(end.Run.Data)
		})
	}},
}

func (w *world) jobNames(q durable.JobQuery) []string {
	w.Helper()
	names := []string{}
	for _, s := range w.jobs(q) {
		names = append(names, s.Job.Name)
	}
	return names
}

// history records runs, and gives all there are in the order of queries: three ended
// and one active at each of ten instants, two seconds apart.
func (w *world) history() []durable.RunRow {
	w.Helper()
	w.node("n")
	w.job("a", concurrent)
	w.job("b", concurrent)
	states := []durable.RunState{durable.RunSucceeded, durable.RunFailed, durable.RunSkipped}
	for i := range 10 {
		// IDs are no use for the order of what starts at different instants.
		ids := []string{idOf(int64(9000 - 4*i)), idOf(int64(9000 - 4*i + 1)), idOf(int64(9000 - 4*i + 2))}
		for k, id := range ids {
			w.enqueue([]string{"a", "b"}[k%2], func(e *durable.Edit) {
				e.Records = []durable.RunRow{{
					ID: id, Job: []string{"a", "b"}[k%2], Trigger: []string{"t", "", "T"}[k], State: states[(i+k)%3],
					Node: []string{"n", "m"}[i%2], Attempt: 1,
				}}
			})
		}
		w.add("a", w.oneShot("a", w.now(), triggerID(idOf(int64(9000-4*i+3)))))
		w.start("n")
		w.advance(2 * time.Second)
	}
	rows := w.runs(durable.RunQuery{})
	if len(rows) != 40 {
		w.Fatalf("Runs() = %d runs, want 40", len(rows))
	}
	for i := 1; i < len(rows); i++ {
		a, b := rows[i-1], rows[i]
		if a.StartedAt.Before(b.StartedAt) || a.StartedAt.Equal(b.StartedAt) && a.ID <= b.ID {
			w.Errorf("Runs() has %v %q before %v %q", a.StartedAt, a.ID, b.StartedAt, b.ID)
		}
	}
	return rows
}

var runQueries = []promise{
	{"no runs", func(w *world) { w.want("Runs", len(w.runs(durable.RunQuery{})), 0) }},
	{"pages follow each other over active and ended runs", func(w *world) {
		all := w.history()
		for _, limit := range []int{1, 3, 7, 40} {
			var got []durable.RunRow
			for q := (durable.RunQuery{Limit: limit}); ; {
				page := w.runs(q)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
				q.Before = page[len(page)-1].Key()
			}
			w.want(fmt.Sprintf("pages of %d", limit), got, all)
		}
	}},
	{"fields of a query are all to be met", func(w *world) {
		all := w.history()
		mid := all[17].StartedAt
		only := func(keep func(durable.RunRow) bool) (rows []durable.RunRow) {
			for _, r := range all {
				if keep(r) {
					rows = append(rows, r)
				}
			}
			return rows
		}
		for _, c := range []struct {
			q    durable.RunQuery
			keep func(durable.RunRow) bool
		}{
			{durable.RunQuery{Job: "a"}, func(r durable.RunRow) bool { return r.Job == "a" }},
			{durable.RunQuery{Job: "A"}, func(r durable.RunRow) bool { return false }},
			{durable.RunQuery{Trigger: "t"}, func(r durable.RunRow) bool { return r.Trigger == "t" }},
			{durable.RunQuery{Node: "n"}, func(r durable.RunRow) bool { return r.Node == "n" }},
			{durable.RunQuery{States: []durable.RunState{durable.RunRunning}}, func(r durable.RunRow) bool { return r.State == durable.RunRunning }},
			{durable.RunQuery{States: []durable.RunState{durable.RunFailed, durable.RunSkipped}},
				func(r durable.RunRow) bool { return r.State == durable.RunFailed || r.State == durable.RunSkipped }},
			{durable.RunQuery{From: mid}, func(r durable.RunRow) bool { return !r.StartedAt.Before(mid) }},
			{durable.RunQuery{To: mid}, func(r durable.RunRow) bool { return r.StartedAt.Before(mid) }},
			{durable.RunQuery{From: mid, To: mid.Add(time.Microsecond)}, func(r durable.RunRow) bool { return r.StartedAt.Equal(mid) }},
			{durable.RunQuery{Before: all[16].Key(), From: mid}, func(r durable.RunRow) bool { return r.StartedAt.Equal(mid) && r.ID < all[16].ID }},
			{durable.RunQuery{IDs: []string{all[3].ID, all[30].ID, all[3].ID, "unknown"}}, func(r durable.RunRow) bool { return r.ID == all[3].ID || r.ID == all[30].ID }},
			{durable.RunQuery{IDs: []string{all[3].ID, all[30].ID}, To: mid}, func(r durable.RunRow) bool { return r.ID == all[30].ID }},
			{durable.RunQuery{Job: "b", Node: "m", States: []durable.RunState{durable.RunSucceeded}, To: mid, Before: all[20].Key()},
				func(r durable.RunRow) bool {
					return r.Job == "b" && r.Node == "m" && r.State == durable.RunSucceeded && r.StartedAt.Before(mid) &&
						(r.StartedAt.Before(all[20].StartedAt) || r.StartedAt.Equal(all[20].StartedAt) && r.ID < all[20].ID)
				}},
		} {
			w.want(fmt.Sprintf("Runs(%+v)", c.q), w.runs(c.q), only(c.keep))
			if want := only(c.keep); len(want) > 2 {
				c.q.Limit = 2
				w.want(fmt.Sprintf("Runs(%+v)", c.q), w.runs(c.q), want[:2])
			}
		}
	}},
	{"the limit is 100 without one, and at most 1,000", func(w *world) {
		w.job("a")
		w.enqueue("a", func(e *durable.Edit) {
			for range 1001 {
				e.Records = append(e.Records, durable.RunRow{ID: w.id(), Job: "a", State: durable.RunSkipped})
			}
		})
		w.want("runs without a limit", len(w.runs(durable.RunQuery{})), 100)
		w.want("runs with a limit of 5,000", len(w.runs(durable.RunQuery{Limit: 5000})), 1000)
	}},
}

var purges = []promise{
	{"purged runs are gone, active ones stay", func(w *world) {
		all := w.history()
		w.want("Purge", w.purge(durable.PurgeRequest{}), 30)
		left := w.runs(durable.RunQuery{})
		w.want("runs left", len(left), 10)
		for _, r := range left {
			w.want("state of a run left", r.State, durable.RunRunning)
		}
		w.want("Purge again", w.purge(durable.PurgeRequest{}), 0)
		w.want("runs there were", len(all), 40)
	}},
	{"the age is that of the end, and must be more", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.add("a", w.oneShot("a", w.now()), w.oneShot("a", w.now()))
		runs := w.runsOf(w.claim("n", 5))
		w.advance(time.Hour)
		w.finish(ended(runs[0]))
		w.advance(time.Minute)
		w.want("Purge of what is older than a minute", w.purge(durable.PurgeRequest{OlderThan: time.Minute}), 0)
		w.advance(time.Microsecond)
		w.want("Purge a microsecond later", w.purge(durable.PurgeRequest{OlderThan: time.Minute}), 1)
		w.finish(ended(runs[1]))
		w.want("Purge before the end", w.purge(durable.PurgeRequest{Before: w.now()}), 0)
		w.want("Purge before a later instant", w.purge(durable.PurgeRequest{Before: w.in(time.Microsecond), OlderThan: time.Hour}), 1)
	}},
	{"the limit leaves the runs that started last", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for range 5 {
			w.add("a", w.oneShot("a", w.now()))
			w.claim("n", 5)
			w.advance(time.Second)
		}
		runs := w.runs(durable.RunQuery{}) // those that started last end first
		for _, r := range runs {
			w.finish(ended(r))
			w.advance(time.Second)
		}
		w.want("Purge", w.purge(durable.PurgeRequest{Limit: 2}), 2)
		var left []string
		for _, r := range w.runs(durable.RunQuery{}) {
			left = append(left, r.ID)
		}
		w.want("runs left", left, []string{runs[0].ID, runs[1].ID, runs[2].ID})
	}},
	{"single runs are purged by ID, whatever their age", func(w *world) {
		all := w.history()
		var ids []string
		endedOnes := 0
		for _, r := range all[:10] {
			ids = append(ids, r.ID)
			if r.State != durable.RunRunning {
				endedOnes++
			}
		}
		w.want("Purge", w.purge(durable.PurgeRequest{IDs: append(ids, "unknown"), OlderThan: time.Hour}), endedOnes)
		w.want("runs left", len(w.runs(durable.RunQuery{})), 40-endedOnes)
	}},
}
