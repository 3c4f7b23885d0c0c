package sqlstore

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A table says how a type's fields are columns. One list of pointers serves for
// reading and for writing, so that they cannot differ.
type table[T any] struct {
	name    string // as in {name} of a statement
	columns []column
	fields  func(*T) []any
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
)

// newTable takes the names of the columns in the order of fields; "+" marks long
// text.
func newTable[T any](name, columns string, fields func(*T) []any) table[T] {
	t := table[T]{name: name, fields: fields}
	pointers := fields(new(T))
	for i, c := range strings.Fields(columns) {
		k := number
		switch p := pointers[i].(type) {
		case *[]byte:
			k = blob
		default:
			if reflect.TypeOf(p).Elem().Kind() == reflect.String {
				k = short
			}
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

// list is the columns for a SELECT.
func (t table[T]) list() string { return names(t.columns, "") }

// values are the row's values, as they are written.
func (t table[T]) values(row *T) []any {
	pointers := t.fields(row)
	for i, p := range pointers {
		pointers[i] = value(p)
	}
	return pointers
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
	func(r *durable.JobRow) []any {
		return []any{&r.Name, &r.Group, &r.Description, &r.Handler, (*[]byte)(&r.Data),
			&r.Retry.MaxRetries, &r.Retry.Delay, &r.Retry.Exponential, &r.Retry.MaxDelay, &r.Retry.Jitter, &r.Timeout,
			&r.AllowConcurrent, &r.RunOnEveryNode, &r.RequestsRecovery, &r.Paused, &r.Source, &r.CodeHash,
			&r.Version, (*instant)(&r.Created), (*instant)(&r.Updated)}
	})

var triggers = newTable("trigger", `id job name handler kind +description +schedule data
	priority misfire max_catch_up state paused +reason due_at prev_at fired passed version
	origin scheduled_at attempt retry_of +idempotency_key`,
	func(r *durable.TriggerRow) []any {
		return []any{&r.ID, &r.Job, &r.Name, &r.Handler, &r.Kind, &r.Description, &r.Schedule, (*[]byte)(&r.Data),
			&r.Priority, &r.Misfire, &r.MaxCatchUp, &r.State, &r.Paused, &r.Reason,
			(*instant)(&r.DueAt), (*instant)(&r.PrevAt), &r.Fired, &r.Passed, &r.Version,
			&r.Origin, (*instant)(&r.ScheduledAt), &r.Attempt, &r.RetryOf, &r.IdempotencyKey}
	})

const runColumns = `id job trigger_name kind state scheduled_at started_at ended_at duration node
	attempt retry_of +idempotency_key data priority fence passed code +message +detail
	trigger_id is_held is_exclusive to_recover to_cancel`

func runFields(r *durable.RunRow) []any {
	return []any{&r.ID, &r.Job, &r.Trigger, &r.Kind, &r.State,
		(*instant)(&r.ScheduledAt), (*moment)(&r.StartedAt), (*instant)(&r.EndedAt), &r.Duration, &r.Node,
		&r.Attempt, &r.RetryOf, &r.IdempotencyKey, (*[]byte)(&r.Data), &r.Priority, &r.Fence, &r.Passed,
		&r.Code, &r.Message, &r.Detail,
		&r.TriggerID, &r.Holds, &r.Exclusive, &r.Recover, &r.Cancel}
}

var (
	runs    = newTable("run", runColumns, runFields)
	history = newTable("history", runColumns, runFields)
)

var nodes = newTable("node", `id name started_at heartbeat_at lease_until dead`,
	func(r *durable.NodeRow) []any {
		return []any{&r.ID, &r.Name, (*instant)(&r.StartedAt), (*instant)(&r.Heartbeat), (*instant)(&r.LeaseUntil), &r.Dead}
	})

var leases = newTable("lease", `name holder token lease_until`,
	func(r *durable.LeaseRow) []any {
		return []any{&r.Name, &r.Holder, &r.Token, (*instant)(&r.Until)}
	})

// An instant is stored as microseconds since 1970 UTC, the zero Time as NULL.
type instant time.Time

func (i *instant) Scan(src any) error {
	if src == nil {
		*i = instant{}
		return nil
	}
	n, err := integer(src)
	*i = instant(fromMicros(n))
	return err
}

// A moment is an instant that is never NULL, since rows are in its order.
type moment time.Time

func (m *moment) Scan(src any) error {
	n, err := integer(src)
	*m = moment(fromMicros(n))
	return err
}

// fromMicros gives back the zero Time too.
func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

// integer reads what drivers make of a BIGINT.
func integer(src any) (int64, error) {
	switch n := src.(type) {
	case int64:
		return n, nil
	case uint64:
		return int64(n), nil
	case []byte:
		return strconv.ParseInt(string(n), 10, 64)
	case string:
		return strconv.ParseInt(n, 10, 64)
	}
	return 0, fmt.Errorf("sqlstore: %T where an integer was expected", src)
}

// value is what is written for a field: string, int64, []byte or nil.
func value(pointer any) any {
	switch p := pointer.(type) {
	case *string:
		return *p
	case *int64:
		return *p
	case *int:
		return int64(*p)
	case *bool:
		if *p {
			return int64(1)
		}
		return int64(0)
	case *[]byte:
		if len(*p) == 0 {
			return nil
		}
		return *p
	case *instant:
		if time.Time(*p).IsZero() {
			return nil
		}
		return time.Time(*p).UnixMicro()
	case *moment:
		return time.Time(*p).UnixMicro()
	}
	v, err := driver.DefaultParameterConverter.ConvertValue(reflect.ValueOf(pointer).Elem().Interface())
	if err != nil {
		panic(err) // a field of a type that no column has
	}
	return v
}
