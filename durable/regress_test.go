package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// A moody calendar panics when it is told to.
type moody struct{ panics *bool }

func (m moody) Excludes(time.Time) bool {
	if *m.panics {
		panic("calendar")
	}
	return false
}

func TestACalendarThatPanicsStopsItsOwnTriggerOnly(t *testing.T) {
	c := newCluster(t)
	var y tally
	gate := c.clk.NewGate()
	panics := false
	n := c.node("a", durable.Config{}).handle("h", y.quick).handle("held", y.held(gate))
	if err := n.AddCalendar("moody", moody{&panics}); err != nil {
		t.Fatal(err)
	}
	on, err := cron("* * * * * *").On("moody", cronsched.RollNone)
	if err != nil {
		t.Fatal(err)
	}
	n.add(durable.Job{Name: "bad", Handler: "h", Triggers: []durable.Trigger{{Schedule: on}}}).
		add(durable.Job{Name: "held", Handler: "held", Triggers: []durable.Trigger{{Schedule: every("00:00:01")}}}).
		add(durable.Job{Name: "good", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}}).start()
	c.clk.Advance(1500 * time.Millisecond) // "held" runs
	// While it runs its trigger gets a schedule whose calendar panics when the run ends.
	if err := n.ReplaceTrigger(context.Background(), "held", durable.Trigger{Schedule: on}); err != nil {
		t.Fatal(err)
	}
	panics = true
	gate.Open()
	c.clk.Advance(61 * time.Second)
	if got := c.runs(durable.RunQuery{Job: "good", States: []durable.RunState{durable.RunSucceeded}}); len(got) != 6 {
		t.Errorf("%d runs of a job beside one whose calendar panics in a minute, want 6", len(got))
	}
	if got := c.states("held"); len(got) != 1 || got[0] != "schedule:succeeded" {
		t.Errorf("runs of the job whose calendar panics at the end = %v, want one that succeeded", got)
	}
	st, err := n.Status(context.Background(), "bad")
	if err != nil || !strings.Contains(st.Why, "panicked") {
		t.Errorf("Status(bad).Why = %q, %v, want the panic", st.Why, err)
	}
	panics = false
	if err := n.ResumeTrigger(context.Background(), "held", "default"); err != nil {
		t.Fatal(err)
	}
	before := len(c.states("bad"))
	c.clk.Advance(61 * time.Second)
	if got := len(c.states("bad")) - before; got < 10 {
		t.Errorf("%d runs once the calendar is well again, want some", got)
	}
}

// managed is a node on a manager with options of the user's.
func (c *cluster) managed(config durable.Config, opts ...taskmanager.Option) (*node, *taskmanager.TaskManager) {
	c.t.Helper()
	n := &node{c: c, store: &hooked{Store: c.store, calls: map[string]int{}}, events: &events{}, log: &logs{}}
	m, err := taskmanager.New(append(opts, c.clk.Option(), taskmanager.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ms = append(c.ms, m)
	config.Manager, config.Node, config.Retention = m, "managed", -1
	config.Observer, config.Logger = n.events, slog.New(n.log)
	if n.Scheduler, err = durable.New(n.store, config); err != nil {
		c.t.Fatal(err)
	}
	return n, m
}

func TestTheManagersLimitsAndDefaultsAreForItsOwnersTasks(t *testing.T) {
	for name, opts := range map[string][]taskmanager.Option{
		"limit":       {taskmanager.WithMaxConcurrentRuns(1)},
		"tag limit":   {taskmanager.WithTagLimit("durable", 1)},
		"max runs":    {taskmanager.WithDefaultTaskOptions(taskmanager.WithMaxRuns(2))},
		"paused":      {taskmanager.WithDefaultTaskOptions(taskmanager.WithPaused())},
		"fixed delay": {taskmanager.WithDefaultTaskOptions(taskmanager.WithFixedDelay())},
		"skip":        {taskmanager.WithMaxConcurrentRuns(1), taskmanager.WithDefaultTaskOptions(taskmanager.WithSkipOverLimit())},
		"tag":         {taskmanager.WithTagLimit("x", 1), taskmanager.WithDefaultTaskOptions(taskmanager.WithTag("x"))},
		"end at":      {taskmanager.WithDefaultTaskOptions(taskmanager.WithEndAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var y, local tally
				n, m := c.managed(durable.Config{}, opts...)
				n.handle("h", y.held(c.clk.NewGate())).handle("quick", y.quick).handle("local", local.quick).
					add(durable.Job{Name: "j", Handler: "quick", Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}}).
					add(durable.Job{Name: "held", Handler: "h", Timeout: 4 * time.Minute}).
					add(durable.Job{Name: "l", Handler: "local", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}})
				for i := range 2 {
					h, err := m.ScheduleRecurring(fmt.Sprint("users-", i), time.Second,
						func(ctx context.Context) error { return c.clk.Sleep(ctx, time.Hour) }, taskmanager.WithJitter(0))
					if err != nil {
						t.Fatal(err)
					}
					defer h.Stop()
				}
				c.clk.Advance(2 * time.Second)
				n.start()
				n.trigger("held")
				c.clk.Advance(5 * time.Minute)
				if got := len(c.runs(durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunSucceeded}})); got != 30 {
					t.Errorf("%d runs in 5 min, want 30", got)
				}
				if local.count() != 30 {
					t.Errorf("%d runs of the job that runs on every node, want 30", local.count())
				}
				if got := len(n.events.of(durable.EventFenced)); got != 0 {
					t.Errorf("the node lost its lease %d times", got)
				}
				c.wantStates("held", "manual:failed")
				n.shut()
			})
		})
	}
}

func TestAHandlersErrClosedOfAnotherManagerIsAFailure(t *testing.T) {
	c := newCluster(t)
	var y tally
	c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(fmt.Errorf("my own manager: %w", taskmanager.ErrClosed))
	}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}).start().trigger("j")
	c.clk.Advance(2 * time.Second)
	c.wantStates("j", "manual:failed", "retry:failed")
}

func TestWithoutRetentionNothingIsDeletedWhateverWasConfiguredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		a := c.node("a", durable.Config{Retention: time.Hour}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		a.trigger("j")
		c.clk.Advance(time.Second)
		a.shut()
		c.node("a", durable.Config{Retention: -1}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		c.clk.Advance(25 * time.Hour)
		c.wantStates("j", "manual:succeeded")
	})
}

func TestAZeroInstantPurgesNothing(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
	n.trigger("j")
	c.clk.Advance(time.Minute)
	if got, err := n.Purge(context.Background(), time.Time{}); got != 0 || !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("Purge(zero Time) = %d, %v, want 0 and ErrInvalid", got, err)
	}
	c.wantStates("j", "manual:succeeded")
}

func TestAWaitForARunThatHasEndedTellsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		id := n.trigger("j")
		c.clk.Advance(time.Second)
		n.shut()
		for range 64 {
			if r, err := n.Wait(context.Background(), id); err != nil || r.State != durable.RunSucceeded {
				t.Fatalf("Wait after the stop = %v, %v, want the run that has ended", r.State, err)
			}
		}
	})
}

func TestARunDoesNotWaitForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		var n *node
		n = c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
			y.begin(r)
			_, err := n.Wait(ctx, r.ID)
			return y.end(err)
		}).add(durable.Job{Name: "j", Handler: "h", Timeout: time.Minute}).start()
		n.trigger("j")
		c.clk.Advance(time.Second)
		if got := y.ended(); len(got) != 1 || !errors.Is(got[0], taskmanager.ErrOwnRun) {
			t.Errorf("Wait for the own run = %v, want ErrOwnRun", got)
		}
	})
}

func TestACallThatStopsWaitingStillNamesItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.held(c.clk.NewGate())).add(durable.Job{Name: "j", Handler: "h"}).start()
		ctx, cancel := context.WithCancel(context.Background())
		type answer struct {
			row durable.RunRow
			err error
		}
		got := make(chan answer, 1)
		go func() {
			row, err := n.TriggerAndWait(ctx, "j", nil)
			got <- answer{row, err}
		}()
		c.clk.Advance(time.Second)
		cancel()
		a := <-got
		if runs := y.all(); len(runs) != 1 || a.row.ID != runs[0].ID || !errors.Is(a.err, context.Canceled) {
			t.Errorf("TriggerAndWait = %q, %v, want the ID of %v and the context's end", a.row.ID, a.err, runs)
		}
	})
}

// A counting calendar counts its questions.
type counting struct{ n *int }

func (c counting) Excludes(time.Time) bool { *c.n++; return false }

func TestABoundOfCatchUpLooksNoFurtherBackThanTheBacklog(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 30, 0, time.UTC)
	tp := durable.NewTestPlanner(durable.RunOnce, time.Minute, func() uint64 { return 4 })
	looks := 0
	if err := tp.AddCalendar("counting", counting{&looks}); err != nil {
		t.Fatal(err)
	}
	d := durable.Due{Now: now, Job: durable.JobRow{Name: "j", Handler: "h"}, Trigger: durable.TriggerRow{
		ID: "t", Job: "j", Name: "t", Handler: "h", Schedule: "cron 0 * * * * * calendar=counting", Misfire: durable.RunAll,
		MaxCatchUp: math.MaxInt, DueAt: now.Add(-150 * time.Second),
	}}
	v := tp.Plan(d)
	if looks > 100 {
		t.Errorf("%d instants looked at for three missed firings", looks)
	}
	if v.Run == nil || !v.Run.ScheduledAt.Equal(d.Trigger.DueAt) || v.Skipped != nil {
		t.Errorf("verdict %+v, want a run of the first missed firing, and none passed over", v)
	}
	d.Trigger.DueAt, d.Trigger.Schedule, d.Trigger.MaxCatchUp = now.AddDate(-1, 0, 0), "cron * * * * * *", 3
	if v = tp.Plan(d); v.Run == nil || !v.Run.ScheduledAt.Equal(now.Add(-2*time.Second)) || v.Skipped == nil {
		t.Errorf("verdict %+v, want a run of the third last firing, and a record", v)
	}
	if v.Skipped != nil && !strings.HasPrefix(v.Skipped.Message, "at least 1000000 ") { // of 31,535,998
		t.Errorf("the record says %q, want that there were more", v.Skipped.Message)
	}
}

func TestOnEveryNodeAPauseHoldsARetryBack(t *testing.T) {
	c := newCluster(t)
	var y tally
	job := everyNode(durable.Trigger{Schedule: cron("10 0 0 * * *")})
	job.Retry = durable.Retry{MaxRetries: 1, Delay: 10 * time.Second}
	n := c.node("a", durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
		y.begin(r)
		return y.end(errors.New("no"))
	}).add(job).start()
	c.clk.Advance(12 * time.Second)
	ctx := context.Background()
	if err := n.PauseJob(ctx, "l"); err != nil {
		t.Fatal(err)
	}
	c.clk.Advance(time.Minute)
	if y.count() != 1 {
		t.Errorf("%d runs of a paused job, want 1: its retry is held back", y.count())
	}
	if err := n.ResumeJob(ctx, "l"); err != nil {
		t.Fatal(err)
	}
	c.clk.Advance(6 * time.Second)
	if y.count() != 2 {
		t.Errorf("%d runs after the pause, want 2: the retry has come", y.count())
	}
}

func TestOnEveryNodeARetryWaitsForTheRunInItsWay(t *testing.T) {
	c := newCluster(t)
	var y tally
	job := everyNode(durable.Trigger{Schedule: cron("*/10 * * * * *")})
	job.Retry = durable.Retry{MaxRetries: 1, Delay: 12 * time.Second}
	n := c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
		y.begin(r)
		if y.count() == 1 {
			return y.end(errors.New("no"))
		}
		return y.end(c.clk.Sleep(ctx, 5*time.Second))
	}).add(job).start()
	c.clk.Advance(11 * time.Second) // the first has failed; the second runs from 20 to 25, its retry is due at 22
	c.clk.Advance(20 * time.Second)
	var retries []durable.Run
	for _, r := range y.all() {
		if r.Kind == durable.KindRetry {
			retries = append(retries, r)
		}
	}
	if len(retries) != 1 || y.most != 1 {
		t.Errorf("%d retries, %d at once, want 1 and 1: skipped %d", len(retries), y.most, n.Stats().Skipped)
	}
}

func TestOnEveryNodeTheRunsOfAnEveryTriggerAreCountedAcrossAPause(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("a", durable.Config{}).handle("h", y.quick).add(everyNode(durable.Trigger{Schedule: every("00:00:10 x3")})).start()
	c.clk.Advance(25 * time.Second)
	ctx := context.Background()
	if err := errors.Join(n.PauseJob(ctx, "l")); err != nil {
		t.Fatal(err)
	}
	c.clk.Advance(time.Minute)
	if err := n.ResumeJob(ctx, "l"); err != nil {
		t.Fatal(err)
	}
	c.clk.Advance(5 * time.Minute)
	if y.count() != 3 {
		t.Errorf("%d runs, want 3", y.count())
	}
}

func TestMiddlewareMayAskTheSchedulerWhileItIsBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick)
		handlers := 0
		if err := n.Use(func(next durable.Handler) durable.Handler { handlers = len(n.Handlers()); return next }); err != nil {
			t.Fatal(err)
		}
		n.start() // a deadlock
		if handlers != 2 {
			t.Errorf("%d handlers seen, want 2", handlers)
		}
		n.shut()
	})
}

func TestAOneShotFollowsItsJobToAnotherHandler(t *testing.T) {
	c := newCluster(t)
	var a, b tally
	gate := c.clk.NewGate()
	old := c.node("old", durable.Config{}).handle("h1", func(ctx context.Context, r durable.Run) error {
		a.begin(r)
		_ = gate.Wait(ctx)
		return a.end(errors.New("no"))
	}).add(durable.Job{Name: "j", Handler: "h1", Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}).start()
	neu := c.node("new", durable.Config{}).handle("h2", b.quick).start()
	old.trigger("j")
	if err := neu.ReplaceJob(context.Background(), durable.Job{Name: "j", Handler: "h2", Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	c.clk.Advance(30 * time.Second)
	c.wantStates("j", "manual:failed", "retry:succeeded")
	if a.count() != 1 || b.count() != 1 {
		t.Errorf("%d runs of the old handler, %d of the new one, want 1 and 1", a.count(), b.count())
	}
}

func TestABroadcastCostsNoReadAtEveryClaim(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("a", durable.Config{}).handle("h", y.quick).add(everyNode()).
		add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
	n.trigger("l")
	c.clk.Advance(time.Second)
	before := n.store.count("jobs")
	c.clk.Advance(50 * time.Second)
	if got := n.store.count("jobs") - before; got > 15 {
		t.Errorf("%d reads of jobs in 50 s after a broadcast, want about one a poll interval, 10", got)
	}
}

func TestStatusOfAPausedJobOnEveryNodeSaysSo(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("a", durable.Config{}).handle("h", y.quick).add(everyNode(durable.Trigger{Schedule: cron("0 * * * * *")})).start()
	ctx := context.Background()
	if err := n.PauseTrigger(ctx, "l", "default"); err != nil {
		t.Fatal(err)
	}
	st, err := n.Status(ctx, "l")
	if err != nil || !strings.Contains(st.Why, "the trigger is paused") || !st.Triggers[0].Next.IsZero() {
		t.Errorf("Status of a paused trigger: %q, next %v, %v, want that it is paused", st.Why, st.Triggers[0].Next, err)
	}
	if err := errors.Join(n.ResumeTrigger(ctx, "l", "default"), n.PauseJob(ctx, "l")); err != nil {
		t.Fatal(err)
	}
	st, err = n.Status(ctx, "l")
	if err != nil || !strings.Contains(st.Why, "the job is paused") || strings.Contains(st.Why, "is due in") {
		t.Errorf("Status of a paused job: %q, %v, want that it is paused and nothing due", st.Why, err)
	}
}

func TestAnObserverMayShutTheSchedulerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *durable.Scheduler
		stopped := make(chan error, 1)
		s, err := durable.New(nil, durable.Config{Logger: slog.New(slog.DiscardHandler), Observer: durable.ObserverFunc(func(e durable.Event) {
			if e.Kind == durable.EventLeading {
				stopped <- s.Shutdown(context.Background())
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Shutdown in an observer = %v, want nil", err)
		}
		synctest.Wait()
	})
}

func TestDelaysWithoutEndAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, on := range []bool{false, true} {
			c := newCluster(t)
			var y tally
			n := c.node("a", durable.Config{}).handle("h", func(_ context.Context, r durable.Run) error {
				y.begin(r)
				return y.end(durable.Snooze(math.MaxInt64))
			}).add(durable.Job{Name: "j", Handler: "h", RunOnEveryNode: on}).start()
			n.trigger("j")
			c.clk.Advance(time.Hour)
			if y.count() != 1 {
				t.Errorf("on every node %v: %d runs of a job that snoozes for ever, want 1", on, y.count())
			}
			n.shut()
			if got := len(n.log.with("dropped by the stop")); (got == 1) != on {
				t.Errorf("on every node %v: %d attempts dropped by the stop", on, got)
			}
		}
	})
}

func TestAJobThatForbidsConcurrencyInTheMidstOfItsRunsGoesOnAfterThem(t *testing.T) {
	for _, age := range []time.Duration{25 * time.Second, 5 * time.Minute} { // of the node
		c := newCluster(t)
		var y tally
		gate := c.clk.NewGate()
		job := durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}}
		n := c.node("a", durable.Config{MaxConcurrentRuns: 100}).handle("h", y.held(gate)).add(job).start()
		c.clk.Advance(age)
		job.AllowConcurrent = false
		if err := n.ReplaceJob(context.Background(), job); err != nil {
			t.Fatal(err)
		}
		c.clk.Advance(11 * time.Second)
		before := y.count()
		gate.Open()
		c.clk.Advance(2500 * time.Millisecond)
		if got := y.count() - before; got != 1 {
			t.Errorf("after %v: %d runs of the blocked trigger within 2.5 s after those in its way had ended, want 1", age, got)
		}
	}
}

func TestNodeNamesHaveWhatEveryDatabaseTakes(t *testing.T) {
	if _, err := durable.New(nil, durable.Config{Node: "a\x00b"}); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("New with a NUL in the node's name = %v, want ErrInvalid", err)
	}
}

// A fakeTx is a transaction that reads with a connection of its own.
type fakeTx struct{ store *durable.Memory }

func (x fakeTx) Join(durable.Store) (durable.Editor, error) { return x.store, nil }

func TestACancelInATransactionNeedsNoOtherConnection(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("a", durable.Config{}).handle("h", y.held(c.clk.NewGate())).add(durable.Job{Name: "j", Handler: "h"}).start()
	id := n.trigger("j")
	within, err := n.Within(fakeTx{c.store})
	if err != nil {
		t.Fatal(err)
	}
	n.cut(true) // the only connection is the transaction's
	for _, what := range []string{id, "j"} {
		if got, err := within.Cancel(context.Background(), what); got != 1 || err != nil {
			t.Errorf("Cancel(%q) in a transaction = %d, %v, want 1", what, got, err)
		}
	}
	n.cut(false)
	c.clk.Advance(31 * time.Second)
	c.wantStates("j", "manual:cancelled")
}

func TestACancelledRunIsNotRecovered(t *testing.T) {
	job := durable.Job{Name: "j", Handler: "h", RequestsRecovery: true}
	t.Run("stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			var y tally
			gate := c.clk.NewGate()
			n := c.node("a", durable.Config{ShutdownTimeout: -1}).handle("h", y.deaf(gate)).add(job).start()
			if got, err := n.Cancel(context.Background(), n.trigger("j")); got != 1 || err != nil {
				t.Fatalf("Cancel = %d, %v", got, err)
			}
			if _, err := c.await(n.stop(context.Background())); err == nil {
				t.Error("Shutdown with a deaf handler = nil, want an error")
			}
			st, err := n.Status(context.Background(), "j")
			if err != nil || len(st.Pending) != 0 {
				t.Errorf("pending %+v, %v, want nothing: the run was cancelled", st.Pending, err)
			}
			gate.Open()
			c.clk.Advance(0)
		})
	})
	t.Run("death", func(t *testing.T) {
		c := newCluster(t)
		var y tally
		a := c.node("a", durable.Config{}).handle("h", y.held(c.clk.NewGate())).add(job).start()
		var z tally
		b := c.node("b", durable.Config{}).handle("h2", z.quick).start()
		c.clk.Advance(2 * time.Minute)
		id := a.trigger("j")
		a.cut(true)
		if got, err := b.Cancel(context.Background(), id); got != 1 || err != nil {
			t.Fatalf("Cancel = %d, %v", got, err)
		}
		c.clk.Advance(5 * time.Minute)
		c.wantStates("j", "manual:lost")
		st, err := b.Status(context.Background(), "j")
		if err != nil || len(st.Pending) != 0 {
			t.Errorf("pending %+v, %v, want nothing: the run was cancelled", st.Pending, err)
		}
	})
}

func TestAStartThatFailedIsNotTakenForALostLease(t *testing.T) {
	c := newCluster(t)
	var y tally
	n := c.node("a", durable.Config{Waker: deafWaker{}}).handle("h", y.quick)
	if err := n.Start(context.Background()); !errors.Is(err, errAway) {
		t.Fatalf("Start = %v, want %v", err, errAway)
	}
	c.clk.Advance(5 * time.Minute)
	if got := n.events.of(durable.EventFenced); len(got) != 0 {
		t.Errorf("%d times fenced, want 0: it never started", len(got))
	}
}

// A deafWaker cannot listen.
type deafWaker struct{}

func (deafWaker) Notify(context.Context, durable.Note) error         { return errAway }
func (deafWaker) Listen(func(durable.Note)) (stop func(), err error) { return nil, errAway }

// A nosy value adds a job while it is marshalled.
type nosy struct{ s *durable.Scheduler }

func (v nosy) MarshalJSON() ([]byte, error) {
	err := v.s.AddJob(context.Background(), durable.Job{Name: "inner", Handler: "h"})
	return []byte("{}"), err
}

func TestDataMayAskTheSchedulerWhileItIsMarshalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick)
		n.add(durable.Job{Name: "outer", Handler: "h", Data: nosy{n.Scheduler}}).start() // a deadlock
		if jobs, err := n.Jobs(context.Background(), durable.JobQuery{}); len(jobs) != 2 {
			t.Errorf("%d jobs, %v, want 2", len(jobs), err)
		}
		n.shut()
	})
}

func TestTwoSchedulersShareAManagerAndAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		a, m := c.managed(durable.Config{})
		job := durable.Job{Name: "j", Handler: "h", Timeout: time.Minute, Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}
		local := durable.Job{Name: "l", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}}
		a.handle("h", y.quick).add(job).add(local).start()
		b := &node{c: c, store: &hooked{Store: c.store, calls: map[string]int{}}, events: &events{}, log: &logs{}}
		var err error
		b.Scheduler, err = durable.New(b.store, durable.Config{Manager: m, Node: "managed", Retention: -1, Logger: slog.New(b.log)})
		if err != nil {
			t.Fatal(err)
		}
		b.handle("h", y.quick).add(job).add(local).start()
		c.clk.Advance(61 * time.Second)
		a.shut()
		c.clk.Advance(60 * time.Second)
		if got := len(c.runs(durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunSucceeded}})); got < 120 || got > 122 {
			t.Errorf("%d runs in 121 s, want one a second", got)
		}
		if got := len(c.runs(durable.RunQuery{Job: "l"})); got < 18 || got > 19 {
			t.Errorf("%d runs on every node, want 12 while both were there and 6 after", got)
		}
		b.shut()
	})
}

func TestInstantsAtTheEndOfTimeAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		once, err := cronsched.Parse("once " + end.Format(time.RFC3339))
		if err != nil {
			t.Skip(err)
		}
		for _, on := range []bool{false, true} {
			job := durable.Job{Name: fmt.Sprint("j", on), Handler: "h", RunOnEveryNode: on, Triggers: []durable.Trigger{{Schedule: once}}}
			job.Name = strings.ToLower(job.Name)
			c.node("a", durable.Config{}).handle("h", y.quick).add(job).start()
		}
		c.clk.Advance(time.Hour)
		if y.count() != 0 {
			t.Errorf("%d runs 7,000 years early", y.count())
		}
	})
}

func TestOnEveryNodeACalendarThatPanicsForAWhileCostsNoMore(t *testing.T) {
	c := newCluster(t)
	var y, z tally
	panics := false
	n := c.node("a", durable.Config{}).handle("h", y.quick).handle("good", z.quick)
	if err := n.AddCalendar("moody", moody{&panics}); err != nil {
		t.Fatal(err)
	}
	var triggers []durable.Trigger
	for name, s := range map[string]cronsched.Schedule{"cron": cron("*/10 * * * * *"), "every": every("00:00:10")} {
		on, err := s.On("moody", cronsched.RollNone)
		if err != nil {
			t.Fatal(err)
		}
		triggers = append(triggers, durable.Trigger{Name: name, Schedule: on})
	}
	job := everyNode(triggers...)
	job.AllowConcurrent = true // both may be due at the same time
	n.add(job).
		add(durable.Job{Name: "good", Handler: "good", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("*/10 * * * * *")}}}).start()
	c.clk.Advance(61 * time.Second)
	panics = true
	c.clk.Advance(2 * time.Minute)
	if z.count() != 18 {
		t.Errorf("%d runs of a job beside one whose calendar panics, want 18", z.count())
	}
	if len(n.events.of(durable.EventUnreadable)) == 0 {
		t.Error("nobody was told of the panic")
	}
	panics = false
	c.clk.Advance(time.Minute) // with the next refresh
	before := map[string]int{}
	for _, r := range y.all() {
		before[r.Trigger]++
	}
	c.clk.Advance(time.Minute)
	after := map[string]int{}
	for _, r := range y.all() {
		after[r.Trigger]++
	}
	for name, want := range map[string]int{"cron": 6, "every": 5} {
		if got := after[name] - before[name]; got < want {
			t.Errorf("%d runs of %s in the minute after, want %d", got, name, want)
		}
	}
	if got := len(c.runs(durable.RunQuery{States: []durable.RunState{durable.RunSucceeded}})); got != y.count()+z.count() {
		t.Errorf("%d of %d runs recorded", got, y.count()+z.count())
	}
}

func TestIntervalsThatCannotBeReckonedWithAreRefused(t *testing.T) {
	for _, config := range []durable.Config{{PollInterval: math.MaxInt64}, {NodeTimeout: math.MaxInt64}} {
		if _, err := durable.New(nil, config); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("New(%v, %v) = %v, want ErrInvalid", config.PollInterval, config.NodeTimeout, err)
		}
	}
	s, err := durable.New(durable.NewMemory(nil, durable.MemoryNow(nil)), durable.Config{
		PollInterval: 365 * 24 * time.Hour, NodeTimeout: 365 * 24 * time.Hour, MaxConcurrentRuns: math.MaxInt,
		ShutdownTimeout: math.MaxInt64, Retention: math.MaxInt64, MisfireThreshold: math.MaxInt64, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	if err := durable.Handle(s, "h", func(context.Context, durable.Run, noArgs) error { close(done); return nil }); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := errors.Join(s.AddJob(ctx, durable.Job{Name: "j", Handler: "h"}), s.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Trigger(ctx, "j", nil); err != nil {
		t.Fatal(err)
	}
	<-done
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
}

// A node that may not claim asks at its polls and no more, however many local runs end
// there.
func TestANodeThatDoesNotLeadAsksNoMoreThanItPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{Leader: &puppet{}}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).
			add(durable.Job{Name: "local", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
		c.clk.Advance(10 * time.Second)
		before, runs := n.store.count("claim"), y.count()
		c.clk.Advance(time.Minute)
		if got := n.store.count("claim") - before; got > 13 {
			t.Errorf("%d claims in a minute without leading, want one each 5 s", got)
		}
		if got := y.count() - runs; got < 59 {
			t.Errorf("%d local runs in a minute, want 60", got)
		}
	})
}

// What fell due while the node could not trust its lease is taken with the first
// heartbeat that is answered, not with the next poll.
func TestAClaimFollowsTheHeartbeatThatIsAnsweredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		p := &puppet{} // leads throughout: a change would wake the loop, too
		n := c.node("a", durable.Config{Leader: p, NodeTimeout: 6 * time.Second, PollInterval: time.Hour, MisfireThreshold: time.Hour}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("9 0 0 * * *")}}}).start()
		p.set(n.Node(), nil)
		c.clk.Advance(4 * time.Second) // a heartbeat: trusted until second 9, by the store until 10
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "beat" {
				return errAway
			}
			return do()
		})
		c.clk.Advance(5300 * time.Millisecond)
		if y.count() != 0 {
			t.Fatalf("%d runs while the lease was over, want 0", y.count())
		}
		n.store.set(nil)
		c.clk.Advance(15 * time.Second) // the heartbeat's backoff
		if y.count() != 1 {
			t.Errorf("%d runs once a heartbeat was answered, want 1", y.count())
		}
	})
}
