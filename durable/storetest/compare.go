package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/taskmanager-go/taskmanager/durable"
)

// want fails the test if got is not want. Rows are compared to the last field, but
// for what is only said of active runs when both have ended; data and slices of no
// elements equal nil ones.
func (w *world) want(what string, got, want any) {
	w.Helper()
	if d := differences(got, want); d != "" {
		w.Errorf("%s:%s", what, d)
	}
}

// differences lists what differs, "" if nothing does.
func differences(got, want any) string {
	var b strings.Builder
	compare(&b, "", reflect.ValueOf(got), reflect.ValueOf(want))
	return b.String()
}

func compare(b *strings.Builder, path string, got, want reflect.Value) {
	note := func(g, w any) { fmt.Fprintf(b, "\n\t%s = %s, want %s", path, brief(g), brief(w)) }
	if got.IsValid() != want.IsValid() || got.IsValid() && got.Type() != want.Type() {
		note(got, want)
		return
	}
	if !got.IsValid() {
		return
	}
	switch got.Kind() {
	case reflect.Slice:
		if got.Len() == 0 && want.Len() == 0 || got.Type().Elem().Kind() == reflect.Uint8 && string(got.Bytes()) == string(want.Bytes()) {
			return
		}
		elem := got.Type().Elem().Kind()
		if got.Len() != want.Len() || elem != reflect.Struct && elem != reflect.Interface {
			if !reflect.DeepEqual(got.Interface(), want.Interface()) {
				note(got.Interface(), want.Interface())
			}
			return
		}
		for i := range got.Len() {
			compare(b, fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i))
		}
	case reflect.Struct:
		g, ok := got.Interface().(durable.RunRow)
		if w, _ := want.Interface().(durable.RunRow); ok && !g.EndedAt.IsZero() && !w.EndedAt.IsZero() {
			got, want = reflect.ValueOf(ofHistory(g)), reflect.ValueOf(ofHistory(w))
		}
		if strings.HasPrefix(got.Type().PkgPath(), "time") || unexported(got.Type()) {
			if got.Interface() != want.Interface() {
				note(got.Interface(), want.Interface())
			}
			return
		}
		for i := range got.NumField() {
			compare(b, path+"."+got.Type().Field(i).Name, got.Field(i), want.Field(i))
		}
	case reflect.Pointer, reflect.Interface:
		if got.IsNil() != want.IsNil() {
			note(got.Interface(), want.Interface())
		} else if !got.IsNil() {
			compare(b, path, got.Elem(), want.Elem())
		}
	default:
		if !reflect.DeepEqual(got.Interface(), want.Interface()) {
			note(got.Interface(), want.Interface())
		}
	}
}

func unexported(t reflect.Type) bool { return t.NumField() > 0 && !t.Field(0).IsExported() }

// ofHistory is a run without what is only said of active ones.
func ofHistory(r durable.RunRow) durable.RunRow {
	r.TriggerID, r.Holds, r.Exclusive, r.Recover, r.Cancel = "", false, false, false, false
	return r
}

// brief prints a value without drowning the reader.
func brief(v any) string {
	s := fmt.Sprintf("%+v", v)
	switch v.(type) {
	case string, []byte:
		s = fmt.Sprintf("%q", v)
	}
	if len(s) > 600 {
		s = fmt.Sprintf("%s… (%d bytes)", s[:600], len(s))
	}
	return s
}

// A dump is all that a store shows.
type dump struct {
	Jobs  []durable.JobState
	Runs  []durable.RunRow
	Nodes []durable.NodeRow
}

// dump reads all, page by page.
func (w *world) dump() dump {
	w.Helper()
	var d dump
	for q := (durable.JobQuery{Limit: 7}); ; {
		page := w.jobs(q)
		d.Jobs = append(d.Jobs, page...)
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1].Job.Name
	}
	for q := (durable.RunQuery{Limit: 50}); ; {
		page := w.runs(q)
		d.Runs = append(d.Runs, page...)
		if len(page) < q.Limit {
			break
		}
		q.Before = page[len(page)-1].Key()
	}
	d.Nodes = w.nodes()
	d.ownData()
	return d
}

// ownData copies all data, in case the store still holds it.
func (d *dump) ownData() {
	for i := range d.Jobs {
		s := &d.Jobs[i]
		s.Job.Data = bytes.Clone(s.Job.Data)
		for k := range s.Triggers {
			s.Triggers[k].Data = bytes.Clone(s.Triggers[k].Data)
		}
		for k := range s.Running {
			s.Running[k].Data = bytes.Clone(s.Running[k].Data)
		}
	}
	for i := range d.Runs {
		d.Runs[i].Data = bytes.Clone(d.Runs[i].Data)
	}
}

// unchanged runs act and fails the test if the store shows anything else after it.
func (w *world) unchanged(what string, act func()) {
	w.Helper()
	before := w.dump()
	act()
	w.want("the store after "+what, w.dump(), before)
}
