package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

func everyNode(triggers ...durable.Trigger) durable.Job {
	return durable.Job{Name: "l", Handler: "h", RunOnEveryNode: true, Triggers: triggers}
}

func TestAJobOnEveryNodeRunsOnEachWithoutClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ys := map[string]*tally{"a": {}, "b": {}, "c": {}}
		job := everyNode(durable.Trigger{Name: "cron", Schedule: cron("*/10 * * * * *")}, durable.Trigger{Name: "every", Schedule: every("00:00:26")})
		var nodes []*node
		for _, name := range []string{"a", "b", "c"} {
			nodes = append(nodes, c.node(name, durable.Config{}).handle("h", ys[name].quick).add(job).start())
		}
		c.clk.Advance(61 * time.Second)
		keys := map[string]int{}
		for name, y := range ys {
			if y.count() != 8 {
				t.Errorf("%d runs on %s, want 6 of cron and 2 of every", y.count(), name)
			}
			for _, r := range y.all() {
				keys[r.IdempotencyKey]++
				if perNode := strings.HasSuffix(r.IdempotencyKey, "/"+r.Node); perNode != (r.Trigger == "every") {
					t.Errorf("key of a firing of %s is %q", r.Trigger, r.IdempotencyKey)
				}
				if r.Fence != 0 {
					t.Errorf("fence %d, want 0", r.Fence)
				}
			}
		}
		shared := 0
		for _, n := range keys {
			if n == 3 {
				shared++
			}
		}
		if shared != 6 || len(keys) != 12 {
			t.Errorf("%d keys on all nodes of %d, want 6 of 12", shared, len(keys))
		}
		perNode := map[string]int{}
		for _, r := range c.runs(durable.RunQuery{Job: "l"}) {
			perNode[r.Node]++
		}
		for _, n := range nodes {
			if perNode[n.Node()] != 8 {
				t.Errorf("%d rows of %s, want 8", perNode[n.Node()], n.Node())
			}
			if st := n.Stats(); st.Claimed != 0 {
				t.Errorf("%d claims, want 0", st.Claimed)
			}
		}
	})
}

func TestOnEveryNodeNoOverlapIsPerNodeAndASkippedFiringIsNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var a, b tally
		job := everyNode(durable.Trigger{Schedule: cron("*/10 * * * * *")})
		slow := func(y *tally) func(context.Context, durable.Run) error {
			return func(ctx context.Context, r durable.Run) error {
				y.begin(r)
				return y.end(c.clk.Sleep(ctx, 15*time.Second))
			}
		}
		c.node("a", durable.Config{}).handle("h", slow(&a)).add(job).start()
		c.node("b", durable.Config{}).handle("h", b.quick).add(job).start()
		c.clk.Advance(61 * time.Second)
		if a.most != 1 || a.count() != 3 || b.count() != 6 {
			t.Errorf("a: %d runs, %d at once, b: %d, want 3, 1, 6", a.count(), a.most, b.count())
		}
	})
}

func TestRetriesOnEveryNodeWaitInTheProcessAndAreDroppedByTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		job := everyNode(durable.Trigger{Schedule: cron("10 0 0 * * *")})
		job.Retry = durable.Retry{MaxRetries: 2, Delay: 10 * time.Second}
		fails := func(ctx context.Context, r durable.Run) error { _ = y.quick(ctx, r); return errors.New("no") }
		a := c.node("a", durable.Config{}).handle("h", fails).add(job).start()
		c.clk.Advance(21 * time.Second)
		runs := y.all()
		if len(runs) != 2 || runs[1].Attempt != 2 || runs[1].RetryOf != runs[0].ID || runs[1].IdempotencyKey != runs[0].IdempotencyKey ||
			!runs[1].ScheduledAt.Equal(runs[0].ScheduledAt) || runs[1].Kind != durable.KindRetry {
			t.Fatalf("runs %+v, want a retry of the first with its key and ScheduledAt", runs)
		}
		a.shut()
		c.clk.Advance(5 * time.Minute)
		c.node("a", durable.Config{}).handle("h", fails).add(job).start()
		c.clk.Advance(time.Minute)
		if y.count() != 2 {
			t.Errorf("%d runs, want 2: the last retry was dropped", y.count())
		}
	})
}

// As of other jobs.
func TestEventsAndCountersOfRunsOnEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node("a", durable.Config{Misfire: durable.Skip}).
			handle("h", func(ctx context.Context, r durable.Run) error {
				switch {
				case r.Attempt == 2:
					return nil
				case r.RetryOf == "":
					return durable.Snooze(2 * time.Second)
				}
				return errors.New("no")
			}).
			handle("slow", func(ctx context.Context, _ durable.Run) error { return c.clk.Sleep(ctx, 2*time.Second) }).
			add(durable.Job{Name: "j", Handler: "h", RunOnEveryNode: true, Retry: durable.Retry{MaxRetries: 1, Delay: 3 * time.Second},
				Triggers: []durable.Trigger{{Name: "t", Schedule: cron("10 0 0 * * *")}}}).
			add(durable.Job{Name: "slow", Handler: "slow", RunOnEveryNode: true}).start()
		c.clk.Advance(20 * time.Second)
		var followed []string
		for _, e := range n.events.of(durable.EventFollowed) {
			followed = append(followed, fmt.Sprint(e.Job, " ", e.Trigger, " ", e.RunKind, " ", e.Attempt, " ", e.Duration, " ", e.Run != ""))
		}
		if want := []string{"j t retry 1 2s true", "j t retry 2 3s true"}; !slices.Equal(followed, want) {
			t.Errorf("followed events %q, want %q", followed, want)
		}
		if st := n.Stats(); st.Retried != 1 || st.Snoozed != 1 || st.Failed != 1 || st.Succeeded != 1 {
			t.Errorf("Stats = %+v, want retried 1, snoozed 1, failed 1, succeeded 1", st)
		}
		n.trigger("slow")
		c.clk.Advance(time.Second)
		n.trigger("slow") // is skipped: it runs
		c.clk.Advance(10 * time.Second)
		started, ended, skipped := 0, 0, 0
		for _, kind := range []durable.EventKind{durable.EventStarted, durable.EventEnded, durable.EventSkipped} {
			for _, e := range n.events.of(kind) {
				if e.Job != "slow" {
					continue
				}
				switch kind {
				case durable.EventStarted:
					started++
				case durable.EventEnded:
					ended++
				default:
					skipped++
				}
			}
		}
		if started != 1 || ended != 1 || skipped != 1 {
			t.Errorf("%d started, %d ended, %d skipped events, want one each", started, ended, skipped)
		}
		c.wantStates("slow", "broadcast:succeeded", "broadcast:skipped")
	})
}

func TestARunOnEveryNodeWhoseDataIsNoObjectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		c.node("a", durable.Config{}).handle("h", y.quick).
			add(everyNode(durable.Trigger{Schedule: cron("0 * * * * *"), Data: map[string]int{"a": 1}})).start()
		c.edit("l", func(e *durable.Edit) { e.Job.Data = []byte(`[1]`) })
		c.clk.Advance(61 * time.Second)
		runs := c.runs(durable.RunQuery{Job: "l"})
		if len(runs) != 1 || runs[0].Code != durable.CodeValidation || y.count() != 0 {
			t.Errorf("runs %+v, %d of them in the handler, want one that failed validation", runs, y.count())
		}
	})
}

func TestABroadcastReachesEveryNodeThatIsThereOnceWithTheSameScheduledAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, woken := range []bool{false, true} {
			c := newCluster(t)
			config := durable.Config{}
			if woken {
				config.Waker = &hub{}
			}
			ys := map[string]*tally{"a": {}, "b": {}, "c": {}, "late": {}}
			var nodes []*node
			for _, name := range []string{"a", "b", "c"} {
				nodes = append(nodes, c.node(name, config).handle("h", ys[name].quick).add(everyNode()).start())
			}
			c.clk.Advance(2500 * time.Millisecond)
			id := nodes[1].trigger("l")
			if woken {
				c.clk.Advance(20 * time.Millisecond)
			} else {
				c.clk.Advance(5100 * time.Millisecond)
			}
			var at time.Time
			for _, name := range []string{"a", "b", "c"} {
				runs := ys[name].all()
				if len(runs) != 1 || runs[0].Kind != durable.KindBroadcast || !strings.Contains(runs[0].IdempotencyKey, id) {
					t.Fatalf("woken %v: runs on %s = %+v, want one broadcast %s", woken, name, runs, id)
				}
				if !at.IsZero() && !at.Equal(runs[0].ScheduledAt) {
					t.Errorf("ScheduledAt %v and %v", at, runs[0].ScheduledAt)
				}
				at = runs[0].ScheduledAt
			}
			c.node("late", config).handle("h", ys["late"].quick).add(everyNode()).start()
			c.clk.Advance(5 * time.Minute)
			for name, y := range ys {
				if want := map[bool]int{true: 0, false: 1}[name == "late"]; y.count() != want {
					t.Errorf("woken %v: %d runs on %s in the end, want %d", woken, y.count(), name, want)
				}
			}
		}
	})
}

func TestEveryBroadcastOfABurstReachesEveryNodeAndNoneALaterOne(t *testing.T) {
	for _, between := range []time.Duration{0, 100 * time.Millisecond} {
		c := newCluster(t)
		var a, b, late tally
		job := everyNode()
		job.AllowConcurrent = true
		n := c.node("a", durable.Config{}).handle("h", a.quick).add(job).start()
		c.node("b", durable.Config{}).handle("h", b.quick).add(job).start()
		c.clk.Advance(time.Second)
		for range 150 {
			n.trigger("l")
			c.clk.Advance(between)
		}
		c.clk.Advance(5100 * time.Millisecond)
		if a.count() != 150 || b.count() != 150 {
			t.Errorf("one each %v: %d and %d runs after a poll interval, want 150", between, a.count(), b.count())
		}
		c.node("late", durable.Config{}).handle("h", late.quick).add(job).start()
		c.clk.Advance(65 * time.Minute) // they are told for an hour
		if a.count() != 150 || b.count() != 150 || late.count() != 0 {
			t.Errorf("one each %v: %d, %d and %d runs in the end, want 150, 150 and none on the node that came later", between, a.count(), b.count(), late.count())
		}
	}
}

func TestABroadcastIsToldToNodesThatPollLessOftenThanTheCaller(t *testing.T) {
	c := newCluster(t)
	var y tally
	c.node("n", durable.Config{PollInterval: 25 * time.Minute}).handle("h", y.quick).add(everyNode()).start()
	c.clk.Advance(time.Minute)
	id := c.node("desk", durable.Config{}).trigger("l") // is never started
	c.clk.Advance(3 * time.Hour)
	runs := y.all()
	if len(runs) != 1 || runs[0].ID == id || !strings.HasSuffix(runs[0].IdempotencyKey, id) {
		t.Errorf("runs %+v, want one, whose key, and not ID, has the call's %s", runs, id)
	}
	if left := c.job("l").Triggers; len(left) != 0 {
		t.Errorf("three hours later there is still %+v", left)
	}
}

func TestEditsOfAJobOnEveryNodeAreFollowedAtOnceHereAndAtTheRefreshThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx := context.Background()
		var a, b tally
		job := everyNode(durable.Trigger{Schedule: cron("* * * * * *")})
		na := c.node("a", durable.Config{}).handle("h", a.quick).add(job).start()
		c.node("b", durable.Config{}).handle("h", b.quick).add(job).start()
		c.clk.Advance(10500 * time.Millisecond)
		check := func(what string, edit func() error, running bool) {
			t.Helper()
			if err := edit(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			c.clk.Advance(0)
			x := a.count()
			c.clk.Advance(10 * time.Second)
			if got := a.count() - x; (got == 10) != running || !running && got != 0 {
				t.Errorf("%s: %d runs here in the next 10 s, running %v", what, got, running)
			}
			c.clk.Advance(41 * time.Second) // the other's refresh
			y := b.count()
			c.clk.Advance(10 * time.Second)
			if got := b.count() - y; (got == 10) != running || !running && got != 0 {
				t.Errorf("%s: %d runs there in 10 s after the refresh, running %v", what, got, running)
			}
		}
		check("pause", func() error { return na.PauseJob(ctx, "l") }, false)
		check("resume", func() error { return na.ResumeJob(ctx, "l") }, true)
		check("pause trigger", func() error { return na.PauseTrigger(ctx, "l", "default") }, false)
		check("resume trigger", func() error { return na.ResumeTrigger(ctx, "l", "default") }, true)
		check("another schedule", func() error {
			return na.ReplaceTrigger(ctx, "l", durable.Trigger{Schedule: cron("0 0 0 1 1 ?")})
		}, false)
		check("the first again", func() error {
			return na.ReplaceTrigger(ctx, "l", durable.Trigger{Schedule: cron("* * * * * *")})
		}, true)
		check("remove", func() error { return na.RemoveJob(ctx, "l") }, false)
	})
}

func TestAnEditWhileItRunsDoesNotDoubleAnEveryTriggerOnEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx := context.Background()
		var y tally
		n := c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
			y.begin(r)
			return y.end(c.clk.Sleep(ctx, 5*time.Second))
		}).add(everyNode(durable.Trigger{Schedule: every("00:00:10")})).start()
		c.clk.Advance(12 * time.Second) // it runs
		if err := n.ReplaceTrigger(ctx, "l", durable.Trigger{Schedule: every("00:00:20")}); err != nil {
			t.Fatal(err)
		}
		c.clk.Advance(3 * time.Second) // it has ended: next in 20 s, then every 25
		before := y.count()
		c.clk.Advance(101 * time.Second)
		if got := y.count() - before; got != 4 {
			t.Errorf("%d runs in 101 s, want 4: at 20, 45, 70, 95", got)
		}
	})
}

func TestTheRunsOfAnEveryTriggerOnEveryNodeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		c.node("a", durable.Config{}).handle("h", y.quick).add(everyNode(durable.Trigger{Schedule: every("00:00:10 x3")})).start()
		c.clk.Advance(5 * time.Minute)
		if y.count() != 3 {
			t.Errorf("%d runs, want 3", y.count())
		}
	})
}

func TestOnEveryNodeWorkGoesOnWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).add(everyNode(durable.Trigger{Schedule: cron("0 * * * * *")})).start()
		c.clk.Advance(30 * time.Second)
		n.cut(true)
		c.clk.Advance(10 * time.Minute)
		if y.count() != 10 {
			t.Errorf("%d runs in 10 min without a store, want 10", y.count())
		}
		n.cut(false)
		c.clk.Advance(time.Minute)
		if got := len(c.runs(durable.RunQuery{})); got < 10 {
			t.Errorf("%d records when the store is back, want 10 or more", got)
		}
	})
}

func TestFiringsOfALocalTriggerThatAreSkippedDoNotCountAsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
			y.begin(r)
			if r.Kind == durable.KindBroadcast {
				_ = c.clk.Sleep(ctx, 35*time.Second)
			}
			return y.end(nil)
		}).add(durable.Job{Name: "l", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: every("10s x3")}}}).start()
		n.trigger("l")
		c.clk.Advance(10 * time.Minute)
		if y.count() != 4 {
			t.Errorf("%d runs, want that by hand and three: %v", y.count(), c.states("l"))
		}
		n.shut()
	})
}

func TestLocalTriggersMisfireAsOthersDo(t *testing.T) {
	for _, policy := range []durable.Misfire{durable.RunOnce, durable.Skip} {
		for _, end := range []string{"", " end=2026-01-01T00:10:30Z"} {
			var rows [2][]durable.RunRow // of the cluster's job, and of the local one
			for i := range rows {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					n := c.node("a", durable.Config{NodeTimeout: 24 * time.Hour}).handle("h", (&tally{}).quick).
						add(durable.Job{Name: "j", Handler: "h", RunOnEveryNode: i == 1,
							Triggers: []durable.Trigger{{Misfire: policy, Schedule: cron("0 */2 * * * *" + end)}}}).start()
					c.clk.Advance(9*time.Minute + 10*time.Second)
					c.clk.Stall(31*time.Minute + 55*time.Second)
					c.clk.Advance(time.Second)
					rows[i] = c.runs(durable.RunQuery{Job: "j"})
					n.shut()
				})
			}
			told := func(rows []durable.RunRow) (l []string) {
				for _, r := range rows {
					text := r.State.String()
					if r.State == durable.RunSkipped {
						text += fmt.Sprint(" for ", r.ScheduledAt.Format("15:04"), ", passed ", r.Passed)
					}
					l = append(l, text)
				}
				return l
			}
			if a, b := told(rows[0]), told(rows[1]); !slices.Equal(a, b) {
				t.Errorf("%v%s: the cluster's job %q, the local one %q", policy, end, a, b)
			}
		}
	}
}
