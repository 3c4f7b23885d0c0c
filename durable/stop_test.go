package durable_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/durable"
)

func TestAStopLetsRunsEndByThemselvesWhileTheNodeKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y, z tally
		job := durable.Job{Name: "j", Handler: "h", RequestsRecovery: true}
		a := c.node("a", durable.Config{NodeTimeout: 10 * time.Second, ShutdownTimeout: 2 * time.Minute}).
			handle("h", func(ctx context.Context, r durable.Run) error {
				y.begin(r)
				return y.end(c.clk.Sleep(ctx, 60*time.Second))
			}).add(job).start()
		b := c.node("b", durable.Config{NodeTimeout: 10 * time.Second}).start() // does not know the handler
		d := c.node("d", durable.Config{NodeTimeout: 10 * time.Second}).handle("h", z.quick).start()
		a.store.set(nil)
		for y.count() == 0 { // a has to be the one
			d.cut(true)
			a.trigger("j")
			d.cut(false)
		}
		c.clk.Advance(15 * time.Second)
		took, err := c.await(a.stop(context.Background()))
		if err != nil || took < 44*time.Second || took > 46*time.Second {
			t.Errorf("Shutdown took %v and gave %v, want 45s and nil", took, err)
		}
		if got := y.ended(); len(got) != 1 || got[0] != nil {
			t.Errorf("the run ended with %v, want nil", got)
		}
		c.clk.Advance(time.Minute)
		c.wantStates("j", "manual:succeeded")
		if z.count() != 0 || b.Stats().NodesDead+d.Stats().NodesDead != 0 {
			t.Errorf("%d runs elsewhere, %d dead, want none", z.count(), b.Stats().NodesDead+d.Stats().NodesDead)
		}
		nodes, _ := b.Nodes(context.Background())
		for _, n := range nodes {
			if n.ID == a.Node() {
				t.Errorf("%s is still in the store after a clean stop", n.ID)
			}
		}
	})
}

func TestAStopCancelsAfterShutdownTimeoutAndRecordsWhatBecameOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var obeys, deaf, again, next tally
		a := c.node("a", durable.Config{}).
			handle("obeys", obeys.held(gate)).handle("deaf", deaf.deaf(gate)).handle("again", again.held(gate)).
			add(durable.Job{Name: "obeys", Handler: "obeys"}).
			add(durable.Job{Name: "deaf", Handler: "deaf", RequestsRecovery: true}).
			add(durable.Job{Name: "again", Handler: "again", RequestsRecovery: true}).start()
		for _, j := range []string{"obeys", "deaf", "again"} {
			a.trigger(j)
		}
		b := c.node("b", durable.Config{}).handle("obeys", next.quick).handle("deaf", next.quick).handle("again", next.quick).start()
		done := a.stop(context.Background())
		c.clk.Advance(29 * time.Second)
		if len(obeys.ended()) != 0 {
			t.Error("cancelled before ShutdownTimeout")
		}
		c.clk.Advance(time.Second)
		if got := obeys.ended(); len(got) != 1 || !errors.Is(got[0], durable.ErrStopping) {
			t.Errorf("after ShutdownTimeout the run ended with %v, want ErrStopping", got)
		}
		c.clk.Advance(4900 * time.Millisecond)
		select {
		case err := <-done:
			t.Fatalf("Shutdown = %v before the 5 s for cancelled runs were over", err)
		default:
		}
		took, err := c.await(done)
		if err == nil || !strings.Contains(err.Error(), "deaf") || strings.Contains(err.Error(), "obeys") || took > time.Second {
			t.Errorf("Shutdown = %v after %v more, want it to name deaf, and soon", err, took)
		}
		c.wantStates("obeys", "manual:cancelled")
		c.clk.Advance(6 * time.Second)
		c.wantStates("again", "manual:cancelled", "recovery:succeeded") // at once
		if got := c.states("deaf"); len(got) != 1 || got[0] != "manual:interrupted" {
			t.Errorf("runs of deaf = %v, want it interrupted, and its slot kept", got)
		}
		for _, r := range c.runs(durable.RunQuery{}) {
			if r.State == durable.RunRunning {
				t.Errorf("record left running: %+v", r)
			}
		}
		if _, err := b.Trigger(context.Background(), "deaf", nil); !errors.Is(err, durable.ErrConflict) {
			t.Errorf("Trigger while the interrupted run has the slot = %v, want ErrConflict", err)
		}
		c.clk.Advance(60 * time.Second)
		if next.count() != 1 {
			t.Errorf("%d runs before the lease ended, want 1", next.count())
		}
		c.clk.Advance(60 * time.Second)
		got := c.states("deaf")
		if len(got) != 3 || got[0] != "manual:interrupted" || got[2] != "recovery:succeeded" {
			t.Errorf("runs of deaf after the lease = %v, want interrupted, skipped, recovery succeeded", got)
		}
		if st := b.Stats(); st.Recovered != 0 {
			t.Errorf("recovered again by the sweep: %d", st.Recovered)
		}
		gate.Open()
	})
}

func TestNothingIsClaimedOnceAStopHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var held, y tally
		a := c.node("a", durable.Config{}).handle("held", held.held(gate)).handle("h", y.quick).
			add(durable.Job{Name: "held", Handler: "held"}).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).
			add(durable.Job{Name: "l", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
		a.trigger("held")
		c.clk.Advance(3500 * time.Millisecond)
		done := a.stop(context.Background())
		before, claims := y.count(), a.store.count("claim")
		if before != 6 {
			t.Errorf("%d runs before the stop, want 6", before)
		}
		c.clk.Advance(20 * time.Second)
		if y.count() != before || a.store.count("claim") != claims {
			t.Errorf("%d runs and %d claims after the stop began, want none", y.count()-before, a.store.count("claim")-claims)
		}
		if _, err := a.TriggerAndWait(context.Background(), "j", nil); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("TriggerAndWait while stopping = %v, want ErrStopped", err)
		}
		gate.Open()
		if _, err := c.await(done); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		if err := a.Start(context.Background()); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("Start after the stop = %v, want ErrStopped", err)
		}
	})
}

func TestAClaimThatIsStuckHoldsAStopUpForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y, z tally
		a := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		a.store.set(func(ctx context.Context, call string, do func() error) error {
			err := do()
			if call == "claim" {
				_ = c.clk.Sleep(context.WithoutCancel(ctx), 20*time.Second)
			}
			return err
		})
		a.trigger("j")
		took, err := c.await(a.stop(context.Background()))
		if took < 5*time.Second || took > 6*time.Second || err != nil {
			t.Errorf("Shutdown took %v and gave %v, want 5s and nil", took, err)
		}
		c.node("b", durable.Config{}).handle("h", z.quick).start()
		c.clk.Advance(3 * time.Minute)
		if y.count() != 0 || z.count() != 1 {
			t.Errorf("%d runs began after Shutdown had returned, %d on the other node, want 0, 1", y.count(), z.count())
		}
		c.wantStates("j", "manual:cancelled", "manual:succeeded")
	})
}

func TestNoRunOfAJobOnEveryNodeBeginsWhileAStopWaitsForAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		a := c.node("a", durable.Config{}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h"}).
			add(durable.Job{Name: "l", Handler: "h", RunOnEveryNode: true, Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
		c.clk.Advance(2500 * time.Millisecond)
		a.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "claim" {
				_ = c.clk.Sleep(ctx, 4*time.Second)
			}
			return do()
		})
		a.Wake()
		c.clk.Advance(0)
		before := y.count()
		took, err := c.await(a.stop(context.Background()))
		if took < 3900*time.Millisecond || took > 4100*time.Millisecond || err != nil {
			t.Errorf("Shutdown took %v and gave %v, want 4s and nil", took, err)
		}
		if got := y.count() - before; before != 2 || got != 0 {
			t.Errorf("%d runs before the stop began, %d since, want 2, 0", before, got)
		}
	})
}

// Nobody has heard of what these claims have claimed when the stop comes.
func TestAStopHandsBackWhatAClaimThatHungHasClaimed(t *testing.T) {
	for name, tc := range map[string]struct {
		nodeTimeout, hangs, stop time.Duration
		revived                  uint64
	}{
		"the watchdog has given up on it":           {90 * time.Second, 10 * time.Minute, 65 * time.Second, 1},
		"its answer came after the lease had ended": {10 * time.Second, 9 * time.Second, 9 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var y, z tally
				a := c.node("a", durable.Config{NodeTimeout: tc.nodeTimeout}).handle("h", y.quick).
					add(durable.Job{Name: "j", Handler: "h"}).start()
				hung := false
				a.store.set(func(ctx context.Context, call string, do func() error) error {
					if call == "beat" { // nor did a heartbeat find it
						return errAway
					}
					err := do()
					if call == "claim" && !hung {
						hung = true
						_ = c.clk.Sleep(context.WithoutCancel(ctx), tc.hangs)
					}
					return err
				})
				a.trigger("j")
				c.clk.Advance(tc.stop)
				if got := a.Stats().Revived; got != tc.revived || y.count() != 0 {
					t.Fatalf("%d loops revived, %d runs, want %d, 0", got, y.count(), tc.revived)
				}
				a.store.set(nil)
				a.shut()
				c.node("b", durable.Config{}).handle("h", z.quick).start()
				c.clk.Advance(11 * time.Minute)
				if y.count() != 0 || z.count() != 1 {
					t.Errorf("%d runs here, %d on the other node, want 0, 1", y.count(), z.count())
				}
				c.wantStates("j", "manual:cancelled", "manual:succeeded")
			})
		})
	}
}

func TestShutdownsAgreeAndLaterOnesWaitForTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		a := c.node("a", durable.Config{}).handle("h", y.deaf(gate)).add(durable.Job{Name: "j", Handler: "h"}).start()
		a.trigger("j")
		first := a.stop(context.Background())
		short, cancel := context.WithCancel(context.Background())
		impatient := a.stop(short)
		var rest []<-chan error
		for range 20 {
			rest = append(rest, a.stop(context.Background()))
		}
		cancel()
		c.clk.Advance(0)
		select {
		case err := <-impatient:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a later Shutdown whose ctx ends = %v, want context.Canceled", err)
			}
		default:
			t.Error("a later Shutdown waits on although its ctx has ended")
		}
		_, want := c.await(first)
		if want == nil {
			t.Error("Shutdown = nil, want the run interrupted")
		}
		for _, done := range append(rest, a.stop(context.Background())) {
			if _, err := c.await(done); !errors.Is(err, want) {
				t.Errorf("a later Shutdown = %v, want %v", err, want)
			}
		}
		gate.Open()
	})
}

func TestShutdownBeforeStartAndWithAContextThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		n := c.node("a", durable.Config{})
		if took, err := c.await(n.stop(context.Background())); err != nil || took > 0 {
			t.Errorf("Shutdown before Start took %v and gave %v, want nil at once", took, err)
		}
		b := c.node("b", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h"}).start()
		b.trigger("j")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if took, err := c.await(b.stop(ctx)); err != nil || took > 100*time.Millisecond {
			t.Errorf("Shutdown with a ctx that has ended took %v and gave %v, want nil at once", took, err)
		}
		c.wantStates("j", "manual:cancelled")
	})
}

func TestShutdownFromInsideAHandlerGoesOnBehindItAndHurriesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		var inside error
		var n *node
		n = c.node("a", durable.Config{}).
			handle("stops", func(ctx context.Context, r durable.Run) error { inside = n.Shutdown(ctx); return nil }).
			handle("h", func(ctx context.Context, r durable.Run) error {
				y.begin(r)
				return y.end(c.clk.Sleep(ctx, 10*time.Second))
			}).
			add(durable.Job{Name: "stops", Handler: "stops"}).add(durable.Job{Name: "j", Handler: "h"}).start()
		n.trigger("j")
		n.trigger("stops")
		if !errors.Is(inside, taskmanager.ErrOwnRun) {
			t.Errorf("Shutdown inside = %v, want ErrOwnRun", inside)
		}
		if _, err := c.await(n.stop(context.Background())); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if got := y.ended(); len(got) != 1 || got[0] != nil {
			t.Errorf("the other run ended with %v, want nil: it had ShutdownTimeout", got)
		}
		c.wantStates("stops", "manual:succeeded")
	})
}

func TestShutdownAfterTheManagerWasClosedRecordsItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		n := c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
			y.begin(r)
			_ = gate.Wait(ctx)
			return y.end(ctx.Err()) // not the cause
		}).add(durable.Job{Name: "j", Handler: "h", RequestsRecovery: true, Retry: durable.Retry{MaxRetries: 1, Delay: time.Second}}).start()
		n.trigger("j")
		closed := make(chan error, 1)
		go func() { closed <- c.ms[0].Close() }()
		if _, err := c.await(closed); err == nil {
			t.Error("Close = nil, want the run cancelled")
		}
		if _, err := c.await(n.stop(context.Background())); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		c.wantStates("j", "manual:cancelled")
	})
}

func TestShutdownWithAStoreThatIsAwayOrDeafIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var release func()
		for name, hook := range map[string]func(c *cluster) func(context.Context, string, func() error) error{
			"away": func(*cluster) func(context.Context, string, func() error) error {
				return func(context.Context, string, func() error) error { return errAway }
			},
			"panics": func(*cluster) func(context.Context, string, func() error) error {
				return func(context.Context, string, func() error) error { panic("driver") }
			},
			"obeys": func(*cluster) func(context.Context, string, func() error) error {
				return func(ctx context.Context, _ string, _ func() error) error { <-ctx.Done(); return ctx.Err() }
			},
			"deaf": func(c *cluster) func(context.Context, string, func() error) error {
				gate := c.clk.NewGate()
				release = gate.Open
				return func(ctx context.Context, _ string, _ func() error) error {
					return gate.Wait(context.WithoutCancel(ctx))
				}
			},
		} {
			c := newCluster(t)
			var y tally
			n := c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
				y.begin(r)
				return y.end(c.clk.Sleep(ctx, 3*time.Second))
			}).add(durable.Job{Name: "j", Handler: "h"}).start()
			n.trigger("j")
			n.store.set(hook(c))
			took, err := c.await(n.stop(context.Background()))
			if err == nil || took > 60*time.Second {
				t.Errorf("%s: Shutdown took %v and gave %v, want an error within a minute", name, took, err)
			}
			time.Sleep(time.Minute) // of the bubble: what is left gives up
			if release != nil {
				release()
				release = nil
			}
		}
	})
}

func TestRunStopsWhenItsContextEndsOrSomebodyShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for _, byContext := range []bool{true, false} {
			var y tally
			n := c.node("a", durable.Config{}).handle("h", y.quick)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- n.Run(ctx) }()
			c.clk.Advance(time.Minute)
			if byContext {
				cancel()
			} else {
				n.shut()
			}
			if took, err := c.await(done); err != nil || took > time.Second {
				t.Errorf("Run = %v after %v, want nil at once", err, took)
			}
			cancel()
		}
	})
}

func TestAWaitEndsWithTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).start()
		var wg sync.WaitGroup
		errs := make(chan error, 1)
		wg.Go(func() { _, err := n.Wait(context.Background(), "no-such-run"); errs <- err })
		c.clk.Advance(time.Second)
		n.shut()
		wg.Wait()
		if err := <-errs; !errors.Is(err, durable.ErrStopped) {
			t.Errorf("Wait = %v, want ErrStopped", err)
		}
	})
}
