package storetest

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

var values = []promise{
	{"every field of a job comes back", func(w *world) {
		var row durable.JobRow
		fill(reflect.ValueOf(&row).Elem(), "job")
		row.Name, row.Source = "a", durable.SourceAPI
		w.edit("a", func(e *durable.Edit) {
			r := row
			e.Job = &r
		})
		row.Version, row.Created, row.Updated = 1, w.now(), w.now()
		w.want("the job", w.state("a").Job, row)
	}},
	{"every field of a trigger comes back", func(w *world) {
		w.job("a")
		for _, k := range []durable.Kind{durable.KindSchedule, durable.KindRetry} {
			var row durable.TriggerRow
			fill(reflect.ValueOf(&row).Elem(), "trigger")
			row.ID, row.Job, row.RetryOf = w.id(), "a", w.id()
			row.Kind, row.State, row.Misfire, row.Priority = k, durable.StatePaused, durable.RunAll, 10
			w.edit("a", func(e *durable.Edit) {
				if e.Triggers = nil; k == durable.KindSchedule {
					e.Triggers = []durable.TriggerRow{row}
				} else {
					e.Add = []durable.TriggerRow{row}
				}
			})
			row.Version = 1
			w.want("the trigger", w.state("a").Triggers, []durable.TriggerRow{row})
		}
	}},
	{"what is handed out is nobody else's", func(w *world) {
		w.node("n")
		data := func() []byte { return []byte(`{"k":"v"}`) }
		job := w.job("a", concurrent, func(j *durable.JobRow) { j.Data = data() })
		w.trigger("a", "t", w.now(), func(t *durable.TriggerRow) { t.Data = data() })
		w.add("a", w.oneShot("a", w.now(), func(t *durable.TriggerRow) { t.Data = data() }))
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 5, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			v := w.plan(d)
			scribble(d.Job.Data)
			return v
		}})
		before := w.runs(durable.RunQuery{})
		w.want("runs claimed", len(res.Claimed), 2)
		for _, c := range res.Claimed {
			scribble(c.Run.Data, c.Job.Data)
			*c.Run, *c.Job = durable.RunRow{}, durable.JobRow{}
		}
		w.want("the runs", w.runs(durable.RunQuery{}), before)
		w.want("the job", w.state("a").Job, job)
	}},
	{"every field of a run comes back", func(w *world) {
		w.node("n")
		w.job("a")
		w.trigger("a", "t", w.now())
		var row durable.RunRow
		fill(reflect.ValueOf(&row).Elem(), "run")
		row.ID, row.Job, row.RetryOf, row.TriggerID, row.State, row.Kind = w.id(), "a", w.id(), w.id(), durable.RunRunning, durable.KindRetry
		row.EndedAt = time.Time{}
		res := w.claimWith(durable.ClaimRequest{Node: "n", Limit: 1, Handlers: []string{"h"}, Plan: func(d durable.Due) durable.Verdict {
			r := row
			return durable.Verdict{Delete: true, Run: &r}
		}})
		if len(res.Claimed) != 1 {
			w.Fatalf("Claim = %d runs, want 1", len(res.Claimed))
		}
		row.Node, row.StartedAt, row.Fence = "n", w.now(), res.Claimed[0].Run.Fence
		w.want("the run claimed", *res.Claimed[0].Run, row)
		w.want("the active run", w.run(row.ID), row)
		row.State, row.Code, row.Message, row.Detail = durable.RunFailed, durable.CodePanic, "message", "detail"
		row.Duration = -1
		end := row // what an end does not say of a claimed run stays as it is
		end.Data, end.Attempt, end.Passed, end.ScheduledAt, end.IdempotencyKey = nil, 99, 99, w.now(), "other"
		w.finish(durable.End{Run: end})
		row.EndedAt = w.now()
		w.want("the ended run", w.run(row.ID), row)
	}},
	{"instants are whole microseconds in UTC", func(w *world) {
		w.advance(789 * time.Nanosecond)
		now := w.now().Truncate(time.Microsecond)
		w.node("n")
		w.want("LeaseUntil", w.nodes()[0].LeaseUntil, now.Add(time.Hour))
		w.want("Created", w.job("a").Created, now)
		zone := time.FixedZone("", 5*3600+1800)
		at := time.Date(2026, 7, 1, 23, 59, 59, 999_999_999, zone)
		row := w.trigger("a", "t", at, func(t *durable.TriggerRow) { t.PrevAt, t.ScheduledAt = at, at })
		want := time.Date(2026, 7, 1, 18, 29, 59, 999_999_000, time.UTC)
		w.want("DueAt, PrevAt, ScheduledAt", []time.Time{row.DueAt, row.PrevAt, row.ScheduledAt}, []time.Time{want, want, want})
		w.want("Claim.Now", w.claim("n", 1).Now, now)
	}},
	{"instants from long ago to year 9999 come back and are in order", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		ats := []time.Time{
			time.Date(1000, 1, 1, 0, 0, 0, 1000, time.UTC),
			time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
			time.Unix(0, 0).UTC(),
			time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC),
			time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		}
		for i, at := range ats {
			name := fmt.Sprint("t", len(ats)-i)
			row := w.trigger("a", name, at, func(t *durable.TriggerRow) { t.PrevAt = at })
			w.want("DueAt and PrevAt", []time.Time{row.DueAt, row.PrevAt}, []time.Time{at, at})
		}
		var got []time.Time
		for _, r := range w.runsOf(w.claim("n", 10)) {
			got = append(got, r.ScheduledAt)
		}
		w.want("what is due", got, ats[:3])
	}},
	{"no instant stays no instant", func(w *world) {
		w.job("a")
		row := w.trigger("a", "t", time.Time{})
		if !row.DueAt.IsZero() || !row.PrevAt.IsZero() || !row.ScheduledAt.IsZero() {
			w.Errorf("instants of %+v, want none", row)
		}
		id := w.id()
		w.enqueue("a", func(e *durable.Edit) { e.Records = []durable.RunRow{{ID: id, Job: "a", State: durable.RunSkipped}} })
		if at := w.run(id).ScheduledAt; !at.IsZero() {
			w.Errorf("ScheduledAt = %v, want none", at)
		}
	}},
	{"names that differ in case or trailing blanks are different", func(w *world) {
		w.node("n")
		w.job("a", concurrent)
		names := []string{"T", "T ", "t", "t ", "tä", "tä ", "ţ"}
		for _, name := range names {
			w.trigger("a", name, w.now())
		}
		var got []string
		for _, t := range w.state("a").Triggers {
			got = append(got, t.Name)
		}
		w.want("triggers in order of bytes", got, names)
		w.claim("n", 10)
		for _, name := range names {
			w.want(fmt.Sprintf("runs of trigger %q", name), len(w.runs(durable.RunQuery{Trigger: name})), 1)
		}
		before := w.state("a").Job.Version
		for i, group := range []string{"G", "g", "g ", "gä", "ga"} {
			w.edit("a", func(e *durable.Edit) { e.Job.Group, e.Job.Description = group, group })
			w.want("Group", w.state("a").Job.Group, group)
			w.want("Version", w.state("a").Job.Version, before+int64(i)+1)
		}
		for _, id := range []string{"N", "n ", "N "} {
			w.node(id)
		}
		w.want("nodes", len(w.nodes()), 4)
	}},
	{"text is kept as it is", func(w *world) {
		texts := []string{"", " ", "ÅÄÖ", "e\u0301", "日本語", "😀👩\u200d👩\u200d👧", "\U0010FFFD", `'"\%_;--`, "a\tb\r\nc", strings.Repeat("😀", 255)}
		w.job("a")
		for _, text := range texts {
			w.edit("a", func(e *durable.Edit) { e.Job.Group, e.Job.Description = text, text })
			job := w.state("a").Job
			w.want("Group and Description", []string{job.Group, job.Description}, []string{text, text})
		}
	}},
	{"text of its full length comes back", func(w *world) {
		w.job("a")
		long := func(n int) string { return strings.Repeat("😀", n) }
		w.edit("a", func(e *durable.Edit) { e.Job.Description = long(2000) })
		w.want("Description", w.state("a").Job.Description, long(2000))
		row := durable.RunRow{ID: w.id(), Job: "a", State: durable.RunFailed, Code: durable.CodePanic, Message: long(480), Detail: long(4000)}
		w.finish(durable.End{Run: row, Local: true})
		row.EndedAt = w.now()
		w.want("the run", w.run(row.ID), row)
		name := strings.Repeat("n", 128)
		w.job(name)
		w.trigger(name, name, w.now(), func(t *durable.TriggerRow) { t.Description, t.Reason = long(2000), long(480) })
		t := w.row(name, name)
		w.want("Description and Reason", []string{t.Description, t.Reason}, []string{long(2000), long(480)})
	}},
	{"data comes back byte for byte", func(w *world) {
		w.node("n")
		big := `{"text": "` + strings.Repeat(`x😀\u00e9 `, 64<<10/12) + `"}`
		for i, data := range []string{
			`{}`, ` { "b" : 1.0, "a":1e400,"a" : 12345678901234567890 } `, `{"z":null,"\u0061":"\ud83d\ude00"}`, "{\"s\":\"😀\"}", big,
		} {
			name := fmt.Sprint("j", i)
			w.job(name, func(j *durable.JobRow) { j.Data = []byte(data) })
			row := w.trigger(name, "t", w.now(), func(t *durable.TriggerRow) { t.Data = []byte(data) })
			w.want("data of a job", string(w.state(name).Job.Data), data)
			w.want("data of a trigger", string(row.Data), data)
			run := w.start("n")
			w.want("data of a run", string(run.Data), data)
			w.finish(ended(run))
			w.want("data of an ended run", string(w.run(run.ID).Data), data)
		}
	}},
	{"no data is nil", func(w *world) {
		w.job("a", func(j *durable.JobRow) { j.Data = []byte{} })
		row := w.trigger("a", "t", w.now(), func(t *durable.TriggerRow) { t.Data = []byte{} })
		if job := w.state("a").Job; job.Data != nil || row.Data != nil {
			w.Errorf("data = %#v, %#v, want nil", job.Data, row.Data)
		}
		w.unchanged("an edit of no data to no data", func() {
			w.edit("a", func(e *durable.Edit) { e.Job.Data, e.Triggers[0].Data = []byte{}, []byte{} })
		})
	}},
	{"durations and counts come back to the last unit", func(w *world) {
		for i, d := range []time.Duration{0, 1, -1, 999, 1001 * time.Nanosecond, -time.Hour, math.MaxInt64, math.MinInt64} {
			name := fmt.Sprint("j", i)
			job := w.job(name, func(j *durable.JobRow) {
				j.Timeout = d
				j.Retry = durable.Retry{MaxRetries: 100, Delay: d, MaxDelay: -d}
			})
			w.want("Timeout, Delay, MaxDelay", []time.Duration{job.Timeout, job.Retry.Delay, job.Retry.MaxDelay}, []time.Duration{d, d, -d})
			t := w.trigger(name, "t", w.now(), func(t *durable.TriggerRow) {
				t.Fired, t.Passed, t.MaxCatchUp = int64(d), int64(-d), math.MaxInt32
			})
			w.want("Fired, Passed, MaxCatchUp", []int64{t.Fired, t.Passed, int64(t.MaxCatchUp)}, []int64{int64(d), int64(-d), math.MaxInt32})
			row := durable.RunRow{ID: w.id(), Job: name, State: durable.RunFailed, Duration: d, Passed: int64(d)}
			w.finish(durable.End{Run: row, Local: true})
			w.want("Duration", w.run(row.ID).Duration, d)
		}
	}},
}

// fill gives every field a value that is not its zero value, so that a store that
// forgets one is found out.
func fill(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(name + " ü")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(len(name)) + 2)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Slice:
		v.SetBytes([]byte(`{"field": "` + name + `"}`))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, len(name)*1000, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name)
		}
	default:
		panic("storetest: no value for a " + v.Type().String())
	}
}

func scribble(all ...[]byte) {
	for _, data := range all {
		for i := range data {
			data[i] = '?'
		}
	}
}
