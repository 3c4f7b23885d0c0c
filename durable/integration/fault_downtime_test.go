package integration

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// Scenario 22: down for two weeks, by the store's clock.
func TestFaultDowntime(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		const weeks = 14 * 24 * time.Hour
		clock := newClock(time.Date(2026, 3, 2, 8, 0, 1, 0, time.UTC))
		jobs := []jobSpec{
			{Name: "skip", Handler: "quick", Schedule: "cron */5 * * * * *", Misfire: durable.Skip},
			{Name: "once", Handler: "quick", Schedule: "cron */5 * * * * *", Misfire: durable.RunOnce},
			{Name: "all", Handler: "quick", Schedule: "cron 0 30 */8 * * *", Misfire: durable.RunAll},
			{Name: "changed", Handler: "quick", Schedule: "cron 0 0 12 * * *", Misfire: durable.RunAll},
			{Name: "theirs", Handler: "theirs", Schedule: "cron 0 0 * * * *", Misfire: durable.RunAll},
		}
		clock.once(w, "before", jobs...)
		clock.add(weeks)
		stopped := clock.now()
		jobs[3].Schedule = "cron 0 0 0 1 JAN *"
		here := jobs[:4]
		n := clock.spec(w, "after", here...)
		n.Poll = time.Minute // nothing below waits for one
		node := w.start(n)
		all := int(weeks / (8 * time.Hour))
		node.await(w, "run all", all)
		node.await(w, "run once", 1)
		node.stop()
		for job, want := range map[string]int{"skip": 0, "once": 1, "all": all, "changed": 0, "theirs": 0} {
			if n := w.startsOf(job); n != want {
				w.Errorf("%s ran %d times, want %d", job, n, want)
			}
		}
		var at time.Time
		for _, r := range w.runsOf("all") {
			if !at.IsZero() && !r.ScheduledAt.Equal(at.Add(8*time.Hour)) {
				w.Errorf("run at %v after the one at %v", r.ScheduledAt, at)
			}
			at = r.ScheduledAt
		}
		if once := w.runsOf("once"); len(once) != 1 || once[0].ScheduledAt.Before(stopped) {
			w.Errorf("once = %+v, want one of now", once)
		}
		if s := w.runsOf("skip"); len(s) != 1 || s[0].State != durable.RunSkipped || s[0].Passed < int64(weeks/(5*time.Second)) {
			w.Errorf("skip = %+v, want a record of what was passed over", s)
		}
		if n := w.number("SELECT count(*) FROM taskmanager_trigger WHERE job = 'theirs' AND state = 0 AND due_at < ?", clock.now().UnixMicro()); n != 1 {
			w.Error("the trigger whose handler the node does not have is not as it was")
		}
		if n := w.number("SELECT due_at FROM taskmanager_trigger WHERE job = 'changed'"); n != time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() {
			w.Errorf("the changed schedule is due at %v", time.UnixMicro(n).UTC())
		}
		w.audit()
	})
}

// A weekly trigger of a process that is restarted every day fires on its days.
func TestFaultWeeklyWithDailyRestarts(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		clock := newClock(time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)) // a Monday
		job := jobSpec{Name: "weekly", Handler: "quick", Schedule: "cron 0 0 9 ? * THU"}
		for range 14 {
			clock.once(w, "node", job)
			clock.add(24 * time.Hour)
		}
		rows := w.runsOf("weekly")
		if len(rows) != 2 {
			w.Fatalf("%d runs, want 2", len(rows))
		}
		for i, r := range rows { // the Friday's process makes up for Thursday, 9:00
			want := time.Date(2026, 3, 6+7*i, 8, 0, 0, 0, time.UTC)
			if r.ScheduledAt.Before(want) || r.ScheduledAt.After(want.Add(time.Hour)) {
				w.Errorf("run %d is of %v, want %v", i, r.ScheduledAt, want)
			}
		}
		w.audit()
	})
}

// An instant of a once schedule may be finer than what is stored: it comes once.
func TestFaultOnceIsOnce(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		at := time.Now().Add(-time.Second).Truncate(time.Microsecond).Add(789).UTC()
		job := jobSpec{Name: "once", Handler: "quick", Schedule: "once " + at.Format(time.RFC3339Nano), Misfire: durable.RunAll}
		last := jobSpec{Name: "last", Handler: "quick"}
		node := w.start(w.spec("node", job, last))
		node.await(w, "event ended once", 1)
		for range 3 { // rounds
			if _, err := node.TriggerAndWait(w.Context(), "last", nil); err != nil {
				w.Fatal(err)
			}
		}
		w.settle()
		node.stop()
		w.audit()
		if n := w.startsOf("once"); n != 1 {
			w.Errorf("it ran %d times, want once", n)
		}
	})
}

// A storeClock is the store's clock, which stands still, and leaps.
type storeClock struct{ at atomic.Int64 }

func newClock(at time.Time) *storeClock {
	c := &storeClock{}
	c.at.Store(at.UnixMicro())
	return c
}

func (c *storeClock) now() time.Time          { return time.UnixMicro(c.at.Load()) }
func (c *storeClock) add(d time.Duration)     { c.at.Add(d.Microseconds()) }
func (c *storeClock) option() sqlstore.Option { return sqlstore.WithNow(c.now) }

func (c *storeClock) spec(w *world, name string, jobs ...jobSpec) *nodeSpec {
	n := w.spec(name, jobs...)
	n.options = []sqlstore.Option{c.option()}
	n.Timeout = 30 * time.Second // nobody dies
	return n
}

// once is a day of a node: it starts, does all that is due, and stops.
func (c *storeClock) once(w *world, name string, jobs ...jobSpec) {
	w.Helper()
	n := c.spec(w, name, append(jobs, jobSpec{Name: "last", Handler: "quick"})...)
	node := w.start(n)
	ctx := w.Context()
	if r, err := node.TriggerAndWait(ctx, "last", nil); err != nil || r.State != durable.RunSucceeded {
		w.Fatal(fmt.Errorf("%+v, %w", r, err))
	}
	node.stop()
}
