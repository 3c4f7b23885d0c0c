package sqlstore

import (
	"bytes"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A table says how a type's fields are columns. One list of pointers serves for
// reading and for writing, so that they cannot differ.
type table[T any] struct {
	name    string // as in {name} of a statement
	columns []column
	fields  func(*T) []field
}

// A column is a column of a table or of a batch.
type column struct {
	name string
	kind kind
}

// A kind is what a column holds, as far as batches care.
type kind uint8

const (
	short  kind = iota // text that may be compared
	long               // text that is not
	number             // integers, truth values, instants
	blob
	address // where a row is, as text
)

// newTable takes the names of the columns in the order of fields; "+" marks long
// text.
func newTable[T any](name, columns string, fields func(*T) []field) table[T] {
	t := table[T]{name: name, fields: fields}
	pointers := fields(new(T))
	for i, c := range strings.Fields(columns) {
		k := number
		switch pointers[i].(type) {
		case *octets:
			k = blob
		case *text:
			k = short
		}
		if plain, isLong := strings.CutPrefix(c, "+"); isLong {
			c, k = plain, long
		}
		t.columns = append(t.columns, column{c, k})
	}
	if len(pointers) != len(t.columns) {
		panic("sqlstore: columns of " + name)
	}
	return t
}

// list is the columns.
func (t table[T]) list() string { return names(t.columns, "") }

// own is the columns as t's, for a SELECT.
func (t table[T]) own() string { return names(t.columns, "t.") }

// from is what follows the columns in a SELECT.
func (t table[T]) from() string { return " FROM {" + t.name + "} AS t" }

// scratch is a row for one after the other, and its fields.
func (t table[T]) scratch() (row *T, fields []field) {
	row = new(T)
	return row, t.fields(row)
}

// reader is where rows are read to, one after the other, and what to pass to Scan.
func (t table[T]) reader() (row *T, into []any) {
	row, fields := t.scratch()
	for _, f := range fields {
		into = append(into, f)
	}
	return row, into
}

func names(columns []column, prefix string) string {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(prefix)
		b.WriteString(c.name)
	}
	return b.String()
}

var jobs = newTable("job", `name +job_group +description handler data
	max_retries retry_delay retry_exponential retry_max_delay retry_jitter timeout
	allow_concurrent every_node recovery paused source code_hash version created_at updated_at`,
	func(r *durable.JobRow) []field {
		return []field{(*text)(&r.Name), (*text)(&r.Group), (*text)(&r.Description), (*text)(&r.Handler), (*octets)(&r.Data),
			(*count)(&r.Retry.MaxRetries), (*big)(&r.Retry.Delay), (*truth)(&r.Retry.Exponential), (*big)(&r.Retry.MaxDelay), (*truth)(&r.Retry.Jitter), (*big)(&r.Timeout),
			(*truth)(&r.AllowConcurrent), (*truth)(&r.RunOnEveryNode), (*truth)(&r.RequestsRecovery), (*truth)(&r.Paused), (*text)(&r.Source), (*text)(&r.CodeHash),
			(*big)(&r.Version), (*instant)(&r.Created), (*instant)(&r.Updated)}
	})

var triggers = newTable("trigger", `id job name handler kind +description +schedule data
	priority misfire max_catch_up state paused +reason due_at prev_at fired passed version
	origin scheduled_at attempt retry_of +idempotency_key`,
	func(r *durable.TriggerRow) []field {
		return []field{(*text)(&r.ID), (*text)(&r.Job), (*text)(&r.Name), (*text)(&r.Handler), (*tiny)(&r.Kind), (*text)(&r.Description), (*text)(&r.Schedule), (*octets)(&r.Data),
			(*count)(&r.Priority), (*tiny)(&r.Misfire), (*count)(&r.MaxCatchUp), (*tiny)(&r.State), (*truth)(&r.Paused), (*text)(&r.Reason),
			(*instant)(&r.DueAt), (*instant)(&r.PrevAt), (*big)(&r.Fired), (*big)(&r.Passed), (*big)(&r.Version),
			(*text)(&r.Origin), (*instant)(&r.ScheduledAt), (*count)(&r.Attempt), (*text)(&r.RetryOf), (*text)(&r.IdempotencyKey)}
	})

var history = newTable("history", endedColumns, endedFields)

const endedColumns = `id job trigger_name kind state scheduled_at started_at ended_at duration node
	attempt retry_of +idempotency_key data priority fence passed code +message +detail`

func endedFields(r *durable.RunRow) []field {
	return []field{(*text)(&r.ID), (*text)(&r.Job), (*text)(&r.Trigger), (*tiny)(&r.Kind), (*tiny)(&r.State),
		(*instant)(&r.ScheduledAt), (*moment)(&r.StartedAt), (*instant)(&r.EndedAt), (*big)(&r.Duration), (*text)(&r.Node),
		(*count)(&r.Attempt), (*text)(&r.RetryOf), (*text)(&r.IdempotencyKey), (*octets)(&r.Data), (*count)(&r.Priority), (*big)(&r.Fence), (*big)(&r.Passed),
		(*text)(&r.Code), (*text)(&r.Message), (*text)(&r.Detail)}
}

var runs = newTable("run", endedColumns+` trigger_id is_held is_exclusive to_recover to_cancel`,
	func(r *durable.RunRow) []field {
		return append(endedFields(r),
			(*text)(&r.TriggerID), (*truth)(&r.Holds), (*truth)(&r.Exclusive), (*truth)(&r.Recover), (*truth)(&r.Cancel))
	})

var nodes = newTable("node", `id name started_at heartbeat_at lease_until dead`,
	func(r *durable.NodeRow) []field {
		return []field{(*text)(&r.ID), (*text)(&r.Name), (*instant)(&r.StartedAt), (*instant)(&r.Heartbeat), (*instant)(&r.LeaseUntil), (*truth)(&r.Dead)}
	})

var leases = newTable("lease", `name holder token lease_until`,
	func(r *durable.LeaseRow) []field {
		return []field{(*text)(&r.Name), (*text)(&r.Holder), (*big)(&r.Token), (*instant)(&r.Until)}
	})

// The own functions make rows independent of the caller's, and what they will be
// when they are read.

func ownTrigger(t durable.TriggerRow) durable.TriggerRow {
	t.Data = own(t.Data)
	t.DueAt, t.PrevAt, t.ScheduledAt = stored(t.DueAt), stored(t.PrevAt), stored(t.ScheduledAt)
	return t
}

func ownRun(r durable.RunRow) durable.RunRow {
	r.Data = own(r.Data)
	r.ScheduledAt, r.StartedAt, r.EndedAt = stored(r.ScheduledAt), stored(r.StartedAt), stored(r.EndedAt)
	return r
}

func own(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return bytes.Clone(data)
}

func stored(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return fromMicros(t.UnixMicro())
}
