package durable_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestTheDelayOfARetryIsThatOfTheFormula(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		r       durable.Retry
		n       int
		uniform float64
		want    time.Duration
	}{
		{durable.Retry{Delay: time.Second}, 1, 0.9, time.Second},
		{durable.Retry{Delay: time.Second}, 100, 0.9, time.Second},
		{durable.Retry{Delay: time.Second, Exponential: true}, 1, 0, time.Second},
		{durable.Retry{Delay: time.Second, Exponential: true}, 4, 0, 8 * time.Second},
		{durable.Retry{Delay: time.Second, Exponential: true, MaxDelay: 5 * time.Second}, 4, 0, 5 * time.Second},
		{durable.Retry{Delay: time.Second, Exponential: true}, 100, 0, 30 * day},
		{durable.Retry{Delay: 30 * day, Exponential: true}, 100, 0, 30 * day},
		{durable.Retry{Delay: time.Second, Exponential: true}, math.MaxInt, 0, 30 * day},
		{durable.Retry{Delay: time.Second, Jitter: true}, 1, 0, 0},
		{durable.Retry{Delay: time.Second, Jitter: true}, 1, 0.5, time.Second / 2},
		{durable.Retry{Delay: time.Second, Jitter: true, Exponential: true}, 3, 0.25, time.Second},
	} {
		if got := c.r.DelayForTest(c.n, c.uniform); got != c.want {
			t.Errorf("%+v.delay(%d, %v) = %v, want %v", c.r, c.n, c.uniform, got, c.want)
		}
	}
}

func TestRetriesComeWhenTheJobsRetrySays(t *testing.T) {
	for _, c := range []struct {
		name  string
		retry durable.Retry
		want  []time.Duration // starts, from the first
	}{
		{"none", durable.Retry{}, []time.Duration{0}},
		{"fixed", durable.Retry{MaxRetries: 3, Delay: 10 * time.Second}, []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}},
		{"exponential", durable.Retry{MaxRetries: 4, Delay: time.Second, Exponential: true, MaxDelay: 3 * time.Second}, []time.Duration{0, time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second}},
	} {
		cl := newCluster(t)
		var y tally
		var at []time.Duration
		n := cl.node("n", durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
			y.begin(r)
			at = append(at, cl.clk.Now().Sub(planStart))
			return y.end(errors.New("no"))
		}).add(durable.Job{Name: "j", Handler: "h", Data: map[string]int{"a": 1}, Retry: c.retry, Triggers: []durable.Trigger{{Name: "t", Schedule: cron("5 0 0 * * *"), Data: map[string]int{"b": 2}}}}).start()
		cl.clk.Advance(2*24*time.Hour - cl.clk.Now().Sub(planStart) - 47*time.Hour)
		runs := y.all()
		first := runs[0]
		if len(runs) != len(c.want) {
			t.Fatalf("%s: %d runs, want %d", c.name, len(runs), len(c.want))
		}
		for i, r := range runs {
			if got := at[i] - 5*time.Second; got != c.want[i] {
				t.Errorf("%s: run %d started %v after the first, want %v", c.name, i, got, c.want[i])
			}
			if r.Attempt != i+1 || !r.ScheduledAt.Equal(first.ScheduledAt) || r.IdempotencyKey != first.IdempotencyKey || string(r.Data) != `{"a":1,"b":2}` || r.Trigger != "t" {
				t.Errorf("%s: run %d = %+v, want attempt %d of the same firing", c.name, i, r, i+1)
			}
			if i > 0 && (r.Kind != durable.KindRetry || r.RetryOf != first.ID || r.ID == first.ID || r.Fence <= runs[i-1].Fence) {
				t.Errorf("%s: run %d = %+v, want a retry of %s with a higher fence", c.name, i, r, first.ID)
			}
		}
		if got := n.Stats().Retried; got != uint64(len(c.want)-1) {
			t.Errorf("%s: Retried = %d, want %d", c.name, got, len(c.want)-1)
		}
		if row := cl.row("j", "t"); row.Fired != 1 {
			t.Errorf("%s: trigger fired %d times, want 1", c.name, row.Fired)
		}
	}
}

func TestAHandlersErrorDecidesWhatFollows(t *testing.T) {
	boom := errors.New("boom")
	wrapped := func(err error) error { return errors.Join(boom, err) }
	for name, c := range map[string]struct {
		err     error
		retries int
		state   durable.RunState
		follow  bool
		in      time.Duration
		attempt int
	}{
		"error":                        {boom, 3, durable.RunFailed, true, 10 * time.Second, 2},
		"error without retries":        {boom, 0, durable.RunFailed, false, 0, 0},
		"permanent":                    {durable.Permanent(boom), 3, durable.RunFailed, false, 0, 0},
		"backoff's permanent":          {backoff.Permanent(boom), 3, durable.RunFailed, false, 0, 0},
		"wrapped permanent":            {wrapped(durable.Permanent(boom)), 3, durable.RunFailed, false, 0, 0},
		"permanent nil":                {durable.Permanent(nil), 3, durable.RunSucceeded, false, 0, 0},
		"retry after":                  {durable.RetryAfter(time.Hour), 3, durable.RunFailed, true, time.Hour, 2},
		"retry after, wrapped":         {wrapped(durable.RetryAfter(time.Hour)), 3, durable.RunFailed, true, time.Hour, 2},
		"retry after, none granted":    {durable.RetryAfter(time.Hour), 0, durable.RunFailed, false, 0, 0},
		"retry after, but permanent":   {errors.Join(durable.RetryAfter(time.Hour), durable.Permanent(boom)), 3, durable.RunFailed, false, 0, 0},
		"retry after less than 0":      {durable.RetryAfter(-time.Hour), 3, durable.RunFailed, true, 0, 2},
		"snooze":                       {durable.Snooze(time.Hour), 3, durable.RunSnoozed, true, time.Hour, 1},
		"snooze without retries":       {durable.Snooze(time.Hour), 0, durable.RunSnoozed, true, time.Hour, 1},
		"snooze, wrapped":              {wrapped(durable.Snooze(time.Hour)), 3, durable.RunSnoozed, true, time.Hour, 1},
		"snooze, but permanent":        {durable.Permanent(durable.Snooze(time.Hour)), 3, durable.RunFailed, false, 0, 0},
		"snooze beside a permanent":    {errors.Join(durable.Snooze(time.Hour), durable.Permanent(boom)), 3, durable.RunFailed, false, 0, 0},
		"snooze for less than nothing": {durable.Snooze(-1), 3, durable.RunSnoozed, true, 0, 1},
		"nil":                          {nil, 3, durable.RunSucceeded, false, 0, 0},
	} {
		p := newPlanner(durable.RunOnce)
		job := durable.JobRow{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: c.retries, Delay: 10 * time.Second}}
		run := durable.RunRow{ID: "id", Job: "j", Attempt: 1, ScheduledAt: planStart, IdempotencyKey: "key", Recover: true}
		end := p.Conclude(run, job, c.err, nil, time.Minute, after(time.Minute))
		if end.Run.State != c.state || (end.Follow != nil) != c.follow || end.FollowIn != c.in || end.Run.Duration != time.Minute {
			t.Errorf("%s: conclude = %v, follow %+v in %v, want %v, %v, %v", name, end.Run.State, end.Follow, end.FollowIn, c.state, c.follow, c.in)
			continue
		}
		if f := end.Follow; f != nil && (f.Attempt != c.attempt || f.RetryOf != "id" || f.IdempotencyKey != "key" || !f.ScheduledAt.Equal(planStart) || f.Kind != durable.KindRetry || f.Handler != "h") {
			t.Errorf("%s: follow = %+v, want attempt %d of the same firing", name, f, c.attempt)
		}
	}
}

func TestTheCauseOfAContextsEndDecidesTheOutcome(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		cause  error
		err    error
		state  durable.RunState
		code   durable.Code
		follow string
	}{
		{durable.ErrTimeout, nil, durable.RunFailed, durable.CodeTimeout, "retry"},
		{durable.ErrTimeout, boom, durable.RunFailed, durable.CodeTimeout, "retry"},
		{durable.ErrTimeout, durable.Snooze(time.Hour), durable.RunFailed, durable.CodeTimeout, "retry"},
		{durable.ErrTimeout, durable.Permanent(boom), durable.RunFailed, durable.CodeTimeout, ""},
		{durable.ErrCancelled, nil, durable.RunCancelled, durable.CodeCancelled, ""},
		{durable.ErrCancelled, boom, durable.RunCancelled, durable.CodeCancelled, ""},
		{durable.ErrCancelled, durable.Snooze(0), durable.RunCancelled, durable.CodeCancelled, ""},
		{durable.ErrStopping, boom, durable.RunCancelled, durable.CodeInterrupted, "recovery"},
		{durable.ErrLeaseLost, boom, durable.RunLost, durable.CodeLost, "recovery"},
	} {
		for _, recovers := range []bool{true, false} {
			job := durable.JobRow{Name: "j", Handler: "h", Timeout: time.Second, Retry: durable.Retry{MaxRetries: 3, Delay: time.Second}}
			run := durable.RunRow{ID: "id", Job: "j", Attempt: 2, RetryOf: "first", Recover: recovers}
			end := newPlanner(durable.RunOnce).Conclude(run, job, c.err, c.cause, time.Minute, planStart)
			follow := ""
			if end.Follow != nil {
				follow = end.Follow.Kind.String()
				if want := map[string]int{"retry": 3, "recovery": 2}[follow]; end.Follow.Attempt != want || end.Follow.RetryOf != "first" {
					t.Errorf("%v, %v: follow = %+v, want attempt %d of the first run", c.cause, c.err, end.Follow, want)
				}
			}
			want := c.follow
			if want == "recovery" && !recovers {
				want = ""
			}
			if end.Run.State != c.state || end.Run.Code != c.code || follow != want {
				t.Errorf("conclude(%v, %v) = %v, %s, %q follows, want %v, %s, %q", c.cause, c.err, end.Run.State, end.Run.Code, follow, c.state, c.code, want)
			}
		}
	}
}

// A recovery has its run's place among what is due only where runs are in order: a run that
// takes its node down each time is not to be the first thing that the next node takes.
func TestARecoveryHasItsRunsPlaceWhereRunsAreInOrder(t *testing.T) {
	for concurrent, want := range map[bool]time.Time{false: planStart, true: {}} {
		for _, cause := range []error{durable.ErrStopping, durable.ErrLeaseLost} {
			job := durable.JobRow{Name: "j", Handler: "h", AllowConcurrent: concurrent}
			run := durable.RunRow{ID: "id", Job: "j", Attempt: 1, ScheduledAt: planStart, Recover: true}
			end := newPlanner(durable.RunOnce).Conclude(run, job, nil, cause, time.Minute, after(time.Minute))
			if end.Follow == nil || !end.Follow.DueAt.Equal(want) || !end.Follow.ScheduledAt.Equal(planStart) {
				t.Errorf("concurrent %v, %v: follow = %+v, want one for %v that is due %v", concurrent, cause, end.Follow, planStart, want)
			}
		}
	}
}

func TestARetrySurvivesARestart(t *testing.T) {
	l := newLife(t)
	var y tally
	def := durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: time.Hour}}
	n := l.restart(durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(errors.New("no"))
	}).add(def).start()
	id := n.trigger("j")
	l.kill()
	l.node = nil
	l.clk.Stall(59 * time.Minute)
	l.restart(durable.Config{}).handle("h", y.quick).add(def).start()
	if y.count() != 1 {
		t.Fatalf("%d runs before the delay is over, want 1", y.count())
	}
	l.clk.Advance(time.Minute)
	runs := y.all()
	if len(runs) != 2 || runs[1].RetryOf != id || runs[1].Attempt != 2 || !runs[1].ScheduledAt.Equal(runs[0].ScheduledAt) || runs[1].IdempotencyKey != runs[0].IdempotencyKey || runs[1].Node == runs[0].Node {
		t.Errorf("runs %+v, want a retry of the first on the new node", runs)
	}
	l.wantStates("j", "manual:failed", "retry:succeeded")
}

func TestASnoozedRunComesAgainWithTheSameAttempt(t *testing.T) {
	cl := newCluster(t)
	var y tally
	n := cl.node("n", durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
		y.begin(r)
		switch y.count() {
		case 1, 2:
			return y.end(durable.Snooze(time.Hour))
		case 3:
			return y.end(errors.New("no"))
		}
		return y.end(nil)
	}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}).start()
	first := n.trigger("j")
	cl.clk.Advance(2*time.Hour + time.Minute)
	var attempts []int
	for i, r := range y.all() {
		attempts = append(attempts, r.Attempt)
		if i > 0 && r.RetryOf != first {
			t.Errorf("run %d is of %q, want %q", i, r.RetryOf, first)
		}
	}
	if len(attempts) != 4 || attempts[0] != 1 || attempts[1] != 1 || attempts[2] != 1 || attempts[3] != 2 {
		t.Errorf("attempts %v, want 1 1 1 2", attempts)
	}
	cl.wantStates("j", "manual:snoozed", "retry:snoozed", "retry:failed", "retry:succeeded")
	if st := n.Stats(); st.Snoozed != 2 || st.Retried != 1 {
		t.Errorf("Snoozed = %d, Retried = %d, want 2, 1", st.Snoozed, st.Retried)
	}
}
