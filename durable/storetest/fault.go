package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var faults = []promise{
	{"an ended context ends every method with its error, without a trace", func(w *world) {
		run := w.busyJob()
		w.advance(2 * time.Hour)
		w.node("m")
		w.trigger("a", "due", w.now())
		for _, cancelled := range []bool{true, false} {
			ctx, cancel := context.WithCancel(w.ctx)
			if !cancelled {
				ctx, cancel = context.WithTimeout(w.ctx, -time.Second)
			}
			cancel()
			w.unchanged("methods with an ended context", func() {
				for name, call := range map[string]func() error{
					"Claim": func() error {
						_, err := w.store.Claim(ctx, durable.ClaimRequest{Node: "m", Limit: 1, Handlers: []string{"h"}, Plan: w.plan})
						return err
					},
					"Finish": func() error {
						_, err := w.store.Finish(ctx, durable.FinishRequest{Ends: []durable.End{ended(run)}, Resume: resume})
						return err
					},
					"Beat": func() error {
						_, err := w.store.Beat(ctx, durable.NodeRow{ID: "new", Name: "new"}, time.Hour)
						return err
					},
					"Expire": func() error { _, err := w.store.Expire(ctx, durable.ExpireRequest{Limit: 10}); return err },
					"Edit": func() error {
						return w.store.Edit(ctx, "a", durable.EditJob, func(e *durable.Edit) error { w.spoil(e); return nil })
					},
					"Jobs":  func() error { _, err := w.store.Jobs(ctx, durable.JobQuery{}); return err },
					"Runs":  func() error { _, err := w.store.Runs(ctx, durable.RunQuery{}); return err },
					"Purge": func() error { _, err := w.store.Purge(ctx, durable.PurgeRequest{}); return err },
					"Nodes": func() error { _, _, err := w.store.Nodes(ctx); return err },
					"Lease": func() error { _, err := w.store.Lease(ctx, "x", "a", time.Hour); return err },
				} {
					if err := call(); err == nil || !errors.Is(err, ctx.Err()) {
						w.Errorf("%s with an ended context = %v, want %v", name, err, ctx.Err())
					}
				}
			})
		}
		w.lease("x", "b", time.Hour, durable.LeaseRow{Name: "x", Holder: "b", Token: 1, Until: w.in(time.Hour)})
	}},
	{"a panic in Plan leaves no trace", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for i := range 3 {
			w.trigger("a", fmt.Sprint("t", i), w.now())
		}
		for at := 1; at <= 3; at++ {
			w.panics("Claim", func() {
				n := 0
				w.claimWith(durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
					if n++; n == at {
						panic(errTest)
					}
					return w.plan(d)
				}})
			})
		}
		w.want("runs claimed after all", len(w.claim("n", 10).Claimed), 3)
	}},
	{"a panic in Resume leaves no trace", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		for i := range 3 {
			w.trigger("a", fmt.Sprint("t", i), w.now(), every)
		}
		var es []durable.End
		for _, r := range w.runsOf(w.claim("n", 5)) {
			e := ended(r)
			follow := w.oneShot("a", w.now())
			e.Follow = &follow
			es = append(es, e)
		}
		for at := 1; at <= 3; at++ {
			w.panics("Finish", func() {
				n := 0
				_, err := w.store.Finish(w.ctx, durable.FinishRequest{Ends: es, Resume: func(now time.Time, t durable.TriggerRow) durable.TriggerRow {
					if n++; n == at {
						panic(errTest)
					}
					return resume(now, t)
				}})
				w.Errorf("Finish with a panic returned %v", err)
			})
		}
		w.want("Finish after all", w.finish(es...), []bool{true, true, true})
	}},
	{"a panic in an edit's change leaves no trace", func(w *world) {
		w.busyJob()
		for _, scope := range []durable.Scope{durable.EditJob, durable.EnqueueOnly} {
			w.panics("Edit", func() {
				w.editScope("a", scope, func(e *durable.Edit) {
					w.spoil(e)
					panic(errTest)
				})
			})
		}
		w.edit("a", func(e *durable.Edit) { e.Job.Description = "new" })
	}},
	{"what is written to arguments later does not show", func(w *world) {
		w.node("n")
		data := []byte(`{"x":1}`)
		w.job("a", func(j *durable.JobRow) { j.Data = data })
		w.trigger("a", "t", w.now(), func(t *durable.TriggerRow) { t.Data = data })
		one := w.oneShot("a", w.now(), func(t *durable.TriggerRow) { t.Data = data })
		w.add("a", one)
		record := durable.RunRow{ID: w.id(), Job: "a", State: durable.RunSkipped, Data: data}
		w.enqueue("a", func(e *durable.Edit) { e.Records = []durable.RunRow{record} })
		run := durable.RunRow{ID: w.id(), Job: "a", Data: data}
		w.claimWith(durable.ClaimRequest{Node: "n", Limit: 1, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			return durable.Verdict{Trigger: d.Trigger, Run: &run}
		}})
		w.unchanged("writing into arguments", func() { clear(data) })
	}},
	{"what is written to what functions are given does not show", func(w *world) {
		w.node("n")
		w.job("a", func(j *durable.JobRow) { j.Data = []byte(`{"x":1}`) })
		w.trigger("a", "t", w.now(), func(t *durable.TriggerRow) { t.Data = []byte(`{"y":1}`) })
		w.unchanged("writing into rows given to functions", func() {
			w.claimWith(durable.ClaimRequest{Node: "n", Limit: 1, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
				clear(d.Job.Data)
				clear(d.Trigger.Data)
				return durable.Verdict{Leave: true}
			}})
			_ = w.store.Edit(w.ctx, "a", durable.EditJob, func(e *durable.Edit) error {
				clear(e.Job.Data)
				clear(e.Triggers[0].Data)
				return errTest
			})
		})
	}},
}

// panics wants act to panic with errTest, without a trace in the store.
func (w *world) panics(what string, act func()) {
	w.Helper()
	w.unchanged("a panic in "+what, func() {
		defer func() {
			if r := recover(); r != errTest {
				w.Errorf("%s panicked with %v, want %v", what, r, errTest)
			}
		}()
		act()
	})
}
