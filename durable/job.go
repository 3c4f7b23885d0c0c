package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// A Job says what is to be done. Names are in the grammar of ValidName.
type Job struct {
	Name        string
	Group       string // a free label; "default" if empty
	Description string
	Handler     string // the name given to Handle
	// Data is marshalled to a JSON object: nil, a struct or a map. That of the
	// trigger and of a call by hand are merged into it key by key.
	Data any
	// Triggers say when. Without any, the job runs by hand only.
	Triggers []Trigger
	Retry    Retry
	// Timeout bounds each run, in [0, 30 days]; 0 is none.
	Timeout time.Duration
	// AllowConcurrent lets runs of the job overlap. By default there is at most one
	// in the whole cluster, for handlers that end when their context ends.
	AllowConcurrent bool
	// RunOnEveryNode has each node run the job on its own clock, without claims. What
	// fell due before the node's start, or during a pause, is not made up for.
	RunOnEveryNode bool
	// RequestsRecovery has a run whose node died, or was stopped in the midst of
	// it, followed by another.
	RequestsRecovery bool
	// Paused creates the job paused. Ignored for a job that exists.
	Paused bool
}

// A Trigger says when its job runs.
type Trigger struct {
	Name        string // unique in the job; "default" if empty
	Description string
	Schedule    cronsched.Schedule // not a manual one
	Data        any                // as Job.Data
	// Priority orders what is due at the same time: 1 to 10, larger first. 0 is
	// DefaultPriority, LowestPriority comes after all others.
	Priority int
	Misfire  Misfire // the zero value is the scheduler's policy
	// MaxCatchUp bounds how many missed firings RunAll makes up for, the latest
	// ones; the rest is dropped and recorded. 0 is all.
	MaxCatchUp int
	Paused     bool // creates the trigger paused; ignored for one that exists
}

// The priorities that have names.
const (
	DefaultPriority = 5
	LowestPriority  = -1 // stored as 0
)

const (
	defaultGroup   = "default"
	defaultTrigger = "default"
	maxTimeout     = 30 * 24 * time.Hour
	maxLabel       = 255 // characters of a group
	maxDescription = 2000
)

// rows turns the definition into rows, without what only a store knows, or says what
// is wrong with it.
func (r *registry) rows(j Job, maxData int) (JobRow, []TriggerRow, error) {
	var c check
	row := JobRow{
		Name: j.Name, Group: j.Group, Description: j.Description, Handler: j.Handler,
		Data: c.object("Data", j.Data, maxData), Retry: j.Retry, Timeout: j.Timeout,
		AllowConcurrent: j.AllowConcurrent, RunOnEveryNode: j.RunOnEveryNode,
		RequestsRecovery: j.RequestsRecovery, Paused: j.Paused,
	}
	if row.Group == "" {
		row.Group = defaultGroup
	}
	c.name("Name", j.Name)
	c.label("Group", j.Group, maxLabel)
	c.label("Description", j.Description, maxDescription)
	if !r.knows(j.Handler) {
		c.fail("Handler", j.Handler, "is not registered: call durable.Handle with this name before AddJob")
	}
	if j.Timeout < 0 || j.Timeout > maxTimeout {
		c.fail("Timeout", j.Timeout, "must be in [0, 720h]")
	}
	j.Retry.validate(&c)
	if j.RunOnEveryNode && j.RequestsRecovery {
		c.fail("RequestsRecovery", true, "means nothing for a job that runs on every node")
	}
	triggers := make([]TriggerRow, len(j.Triggers))
	seen := map[string]int{}
	for i, t := range j.Triggers {
		prefix := fmt.Sprintf("Triggers[%d].", i)
		triggers[i] = r.triggerRow(&c, prefix, t, maxData)
		triggers[i].Job, triggers[i].Handler = j.Name, j.Handler
		name := triggers[i].Name
		if first, twice := seen[name]; twice {
			c.fail(prefix+"Name", name, fmt.Sprintf("is that of Triggers[%d]", first))
		}
		seen[name] = i
	}
	return row, triggers, c.err()
}

func (r *registry) triggerRow(c *check, prefix string, t Trigger, maxData int) TriggerRow {
	row := TriggerRow{
		Name: t.Name, Kind: KindSchedule, Description: t.Description, Data: c.object(prefix+"Data", t.Data, maxData),
		Misfire: t.Misfire, MaxCatchUp: t.MaxCatchUp, Paused: t.Paused,
	}
	if row.Name == "" {
		row.Name = defaultTrigger
	}
	c.name(prefix+"Name", row.Name)
	c.label(prefix+"Description", t.Description, maxDescription)
	switch {
	case t.Priority == 0:
		row.Priority = DefaultPriority
	case t.Priority == LowestPriority:
		row.Priority = 0
	case t.Priority < 0 || t.Priority > 10:
		c.fail(prefix+"Priority", t.Priority, "must be in [1, 10], 0 or LowestPriority")
	default:
		row.Priority = t.Priority
	}
	if t.Misfire > RunAll {
		c.fail(prefix+"Misfire", t.Misfire, "is no policy")
	}
	if t.MaxCatchUp < 0 {
		c.fail(prefix+"MaxCatchUp", t.MaxCatchUp, "must not be negative")
	}
	if t.Schedule.Manual() {
		c.fail(prefix+"Schedule", t.Schedule.String(), "a trigger needs a schedule of its own; a job without triggers runs by hand")
		return row
	}
	text, err := t.Schedule.MarshalText()
	if err != nil {
		c.failFor(prefix+"Schedule", t.Schedule.String(), err)
		return row
	}
	row.Schedule = string(text)
	if _, err := r.schedule(row.Schedule); err != nil {
		reason := err.Error()
		if unbound := (*cronsched.CalendarError)(nil); errors.As(err, &unbound) {
			reason = fmt.Sprintf("calendar %q is not registered: call AddCalendar with this name before AddJob", unbound.Name)
		}
		c.errs = append(c.errs, &FieldError{Field: prefix + "Schedule", Value: row.Schedule, Reason: reason, Err: err})
	}
	return row
}

// object marshals v to a JSON object; nil for none.
func (c *check) object(field string, v any, limit int) json.RawMessage {
	data, err := marshalObject(v)
	switch {
	case err != nil:
		value := fmt.Sprintf("%T", v)
		if raw, ok := v.(json.RawMessage); ok {
			value = cut(string(raw), 100)
		}
		c.failFor(field, value, err)
	case len(data) > limit:
		c.fail(field, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("must be at most %d bytes", limit))
	}
	return data
}

var errNoObject = errors.New("must be a JSON object")

func marshalObject(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	if data[0] != '{' {
		return nil, errNoObject
	}
	if !utf8.Valid(data) { // by a RawMessage or MarshalJSON; databases do not take it
		return nil, errors.New("must be valid UTF-8")
	}
	return data, nil
}

// merge merges JSON objects key by key, later ones winning.
func merge(objects ...json.RawMessage) (json.RawMessage, error) {
	var only json.RawMessage
	n := 0
	for _, o := range objects {
		if len(o) > 0 {
			only, n = o, n+1
		}
	}
	if n < 2 {
		return only, nil
	}
	merged := map[string]json.RawMessage{}
	for _, o := range objects {
		if len(o) == 0 {
			continue
		}
		if err := json.Unmarshal(o, &merged); err != nil {
			return nil, err
		}
		if merged == nil { // by a null
			return nil, errNoObject
		}
	}
	return json.Marshal(merged)
}

// mergedOrBad merges the data of a job and its trigger. Of rows edited by hand it gives the
// part that is no object: decoding will say what is wrong.
func mergedOrBad(job, trigger json.RawMessage) json.RawMessage {
	data, err := merge(job, trigger)
	switch {
	case err == nil:
		return data
	case !isObject(job):
		return job
	}
	return trigger
}

// isObject tells whether data from a store is what merge takes.
func isObject(data json.RawMessage) bool {
	var m map[string]json.RawMessage
	return len(data) == 0 || json.Unmarshal(data, &m) == nil && m != nil
}
