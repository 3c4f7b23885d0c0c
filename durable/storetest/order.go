package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var orders = []promise{
	{"priority, then due instant, then ID, over all that is due", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		type place struct {
			priority int
			due      time.Duration
			id       int64
		}
		var rows []durable.TriggerRow
		var places []place
		for i := range 60 {
			p := place{(i * 7) % 11, -time.Duration(i*5%4) * time.Microsecond, int64(5000 - i*13%60)}
			places = append(places, p)
			rows = append(rows, w.oneShot("a", w.in(p.due), priority(p.priority), triggerID(idOf(p.id))))
		}
		w.add("a", rows...)
		slices.SortFunc(places, func(a, b place) int {
			switch {
			case a.priority != b.priority:
				return b.priority - a.priority
			case a.due != b.due:
				return int(a.due - b.due)
			}
			return int(a.id - b.id)
		})
		var want []string
		for _, p := range places {
			want = append(want, idOf(p.id))
		}
		var got []string
		for range 10 { // the order is over all, whatever the limit
			got = append(got, w.looked(7)...)
		}
		w.want("the order of claims", got, want)
	}},
	{"ties in the due instant go by ID", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		ids := []string{"t00000000000000000000000b1", "t00000000000000000000000a2", "t000000000000000000000009z", "t00000000000000000000000b0"}
		for _, id := range ids {
			w.add("a", w.oneShot("a", w.now(), triggerID(id)))
		}
		w.want("the order of claims", w.looked(10), []string{ids[2], ids[1], ids[3], ids[0]})
	}},
	{"a trigger is due at its instant, not a microsecond before", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.trigger("a", "t", w.in(time.Microsecond))
		w.want("runs claimed before", len(w.claim("n", 5).Claimed), 0)
		w.advance(time.Microsecond)
		w.want("runs claimed at the instant", len(w.claim("n", 5).Claimed), 1)
	}},
	{"Next is the first of all priorities and handlers", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		w.job("b", concurrent, handler("g"))
		for i := range 11 {
			w.trigger("a", fmt.Sprint("t", i), w.in(time.Duration(20-i%6)*time.Second), priority(i))
		}
		w.trigger("b", "t", w.in(time.Second))
		next := func(handlers ...string) time.Time {
			return w.claimWith(durable.ClaimRequest{Node: "n", Handlers: handlers}).Next
		}
		w.want("Next of h", next("h"), w.in(15*time.Second))
		w.want("Next of g", next("g"), w.in(time.Second))
		w.want("Next of both", next("h", "g"), w.in(time.Second))
		w.want("Next of none", next(), time.Time{})
		w.advance(17 * time.Second)
		w.want("Next of h when some are due", next("h"), w.now())
	}},
	{"a change of priority or due instant moves a trigger", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for i := range 4 {
			w.trigger("a", fmt.Sprint("t", i), w.in(time.Duration(i-10)*time.Second))
		}
		w.edit("a", func(e *durable.Edit) {
			e.Triggers[3].Priority = 6
			e.Triggers[0].DueAt = e.Now
			e.Triggers[1].DueAt = e.Now.Add(time.Hour)
		})
		var got []string
		for _, r := range w.runsOf(w.claim("n", 10)) {
			got = append(got, r.Trigger)
		}
		w.want("the order of claims", got, []string{"t3", "t2", "t0"})
	}},
}

// looked claims one-shot triggers and gives their IDs in the order in which Plan saw
// them, which must be that of the runs claimed.
func (w *world) looked(limit int) []string {
	w.Helper()
	var saw, claimed []string
	res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: limit, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
		saw = append(saw, d.Trigger.ID)
		return w.plan(d)
	}})
	for _, r := range w.runsOf(res) {
		claimed = append(claimed, r.ID)
	}
	w.want("the runs claimed", claimed, saw)
	return saw
}
