package durable_test

import (
	"context"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// The loops, the call of the store by which each is broken, and what tells that it
// works: that call again.
var loopCalls = map[string]string{"claim": "claim", "finish": "finish", "beat": "beat", "sweep": "expire", "elect": "lease", "local": "jobs"}

func TestALoopThatHangsIsRevivedAndWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for loop, broken := range loopCalls {
			c := newCluster(t)
			gate := c.clk.NewGate()
			var y tally
			n := c.node("a", durable.Config{}).handle("h", y.quick).
				add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
			c.clk.Advance(2 * time.Minute)
			hung, after := 0, 0
			n.store.set(func(ctx context.Context, call string, do func() error) error {
				if call != broken {
					return do()
				}
				if hung++; hung == 1 {
					err := do()
					_ = gate.Wait(context.WithoutCancel(ctx))
					return err
				}
				after++
				return do()
			})
			c.clk.Advance(10 * time.Minute)
			if got := n.log.with("ERROR durable: loop revived loop=" + loop); len(got) != 1 {
				t.Errorf("%s: %d lines at error level of its revival, want 1: %q", loop, len(got), got)
			}
			if got := n.events.of(durable.EventRevived); len(got) != 1 || got[0].Detail != loop || n.Stats().Revived != 1 {
				t.Errorf("%s: revived events %+v, Stats %d, want one", loop, got, n.Stats().Revived)
			}
			if after == 0 {
				t.Errorf("%s: it did not work again", loop)
			}
			before := y.count()
			c.clk.Advance(time.Minute)
			if got := y.count() - before; got < 59 {
				t.Errorf("%s: %d runs a minute after its revival, want 60", loop, got)
			}
			gate.Open() // the old round comes back, and does no harm
			before = y.count()
			c.clk.Advance(time.Minute)
			if got := y.count() - before; got < 59 || got > 61 {
				t.Errorf("%s: %d runs a minute after the old round came back, want 60", loop, got)
			}
			seen := map[string]bool{}
			for _, r := range y.all() {
				if seen[r.ID] {
					t.Errorf("%s: run %s of %v started twice", loop, r.ID, r.ScheduledAt)
				}
				seen[r.ID] = true
			}
			if st := n.Stats(); st.Running != 0 || st.Pending != 0 {
				t.Errorf("%s: running %d, pending %d, want 0", loop, st.Running, st.Pending)
			}
			for _, r := range c.runs(durable.RunQuery{States: []durable.RunState{durable.RunRunning}}) {
				t.Errorf("%s: run %s is left running", loop, r.ID)
			}
			n.store.set(nil)
		}
	})
}

func TestALoopWhoseRoundPanicsOrLeavesByGoexitGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for how, fail := range map[string]func(){"panic": func() { panic("broken") }, "goexit": runtime.Goexit} {
			for loop, broken := range loopCalls {
				c := newCluster(t)
				var y tally
				n := c.node("a", durable.Config{}).handle("h", y.quick).
					add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
				c.clk.Advance(2 * time.Minute)
				times := 0
				n.store.set(func(ctx context.Context, call string, do func() error) error {
					if call == broken {
						if times++; times <= 3 {
							fail()
						}
					}
					return do()
				})
				c.clk.Advance(5 * time.Minute)
				if times <= 3 {
					t.Errorf("%s, %s: %d calls, want it to go on after 3 failures", loop, how, times)
				}
				before := y.count()
				c.clk.Advance(time.Minute)
				if got := y.count() - before; got < 59 {
					t.Errorf("%s, %s: %d runs a minute later, want 60", loop, how, got)
				}
				if loop != "elect" && n.Stats().LoopErrors < 3 {
					t.Errorf("%s, %s: %d loop errors, want 3", loop, how, n.Stats().LoopErrors)
				}
				n.store.set(nil)
			}
		}
	})
}

func TestAWakeIsNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A job is triggered at each point of the claim's way.
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{MaxConcurrentRuns: 100}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true}).start()
		inside := 0
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			err := do()
			if call == "claim" && inside < 50 {
				inside++
				_, _ = n.Trigger(context.WithoutCancel(ctx), "j", nil) // after the claim has looked
			}
			return err
		})
		n.trigger("j")
		c.clk.Advance(0)
		if y.count() != 51 {
			t.Errorf("%d runs at once, want 51", y.count())
		}
		n.store.set(nil)
	})
}

func TestEveryLoopIsNamedInTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.node("a", durable.Config{}).start()
		known := 0
		for h := range c.ms[0].Tasks() {
			name := h.Name()
			if i := strings.LastIndex(name, "/"); i >= 0 && !strings.Contains(name, "fence") {
				if _, ok := loopCalls[name[i+1:]]; !ok && name[i+1:] != "watch" {
					t.Errorf("loop %s has no test of its revival", name)
				}
				known++
			}
		}
		if known < 7 {
			t.Errorf("%d loops found, want 7", known)
		}
	})
}

// A slowRecorder hangs in its tenth Finish, and keeps the ends it was given.
type slowRecorder struct {
	durable.Store
	gate       *tasktest.Gate
	calls      int
	given, was []durable.End
}

func (s *slowRecorder) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	if s.calls++; s.calls == 10 {
		s.given, s.was = r.Ends, slices.Clone(r.Ends)
		_ = s.gate.Wait(context.WithoutCancel(ctx))
	}
	return s.Store.Finish(ctx, r)
}

func TestARecordThatIsGivenUpOnKeepsItsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		store := &slowRecorder{Store: c.store, gate: gate}
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}})
		n.store.Store = store
		n.start()
		c.clk.Advance(20 * time.Minute)
		if got := len(c.runs(durable.RunQuery{States: []durable.RunState{durable.RunSucceeded}})); got < 100 {
			t.Errorf("%d runs were recorded after the one that hangs, want many", got)
		}
		if len(store.given) == 0 || !reflect.DeepEqual(store.given, store.was) {
			t.Errorf("the ends under way became %+v, were %+v", store.given, store.was)
		}
		gate.Open()
		c.clk.Advance(time.Minute)
	})
}
