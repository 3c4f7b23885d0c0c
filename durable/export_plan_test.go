package durable

import (
	"encoding/json"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// What the tests see of the pure functions.

// A TestPlanner is a planner on its own.
type TestPlanner struct {
	p          *planner
	Unreadable []error // what it reported
}

func NewTestPlanner(misfire Misfire, threshold time.Duration, random func() uint64) *TestPlanner {
	tp := &TestPlanner{}
	tp.p = &planner{
		registry: newRegistry(), misfire: misfire, threshold: threshold, random: random,
		unreadable: func(_ TriggerRow, err error) { tp.Unreadable = append(tp.Unreadable, err) },
	}
	return tp
}

func (tp *TestPlanner) AddCalendar(name string, cal cronsched.Calendar) error {
	return tp.p.registry.addCalendar(name, cal)
}

func (tp *TestPlanner) AddHandler(name string, h Handler) error {
	return tp.p.registry.add(name, h, nil)
}

func (tp *TestPlanner) Plan(d Due) Verdict { return tp.p.plan(d) }

func (tp *TestPlanner) Resume(now time.Time, t TriggerRow) TriggerRow { return tp.p.resume(now, t) }

func (tp *TestPlanner) Seat(now time.Time, t TriggerRow, job JobRow) TriggerRow {
	return tp.p.seat(now, t, job)
}

func (tp *TestPlanner) Conclude(r RunRow, job JobRow, err, cause error, lasted time.Duration, now time.Time) End {
	return tp.p.conclude(r, job, ending{err: err, cause: cause, lasted: lasted}, now)
}

func (tp *TestPlanner) PauseTrigger(e *Edit, name string, paused bool) error {
	return tp.p.pauseTrigger(e, name, paused)
}

func (tp *TestPlanner) ReplaceTrigger(e *Edit, t TriggerRow) error { return tp.p.replaceTrigger(e, t) }

func (tp *TestPlanner) Repair(e *Edit, id string) bool { return tp.p.repair(e, id) }

func Cut(s string, n int) string { return cut(s, n) }

func Merge(objects ...json.RawMessage) (json.RawMessage, error) { return merge(objects...) }

func (r Retry) DelayForTest(n int, uniform float64) time.Duration { return r.delay(n, uniform) }
