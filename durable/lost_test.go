package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// Answers of the store that get lost.

func TestAStopHandsBackARunWhoseClaimGotLost(t *testing.T) {
	for _, during := range []bool{false, true} { // the stop
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			var y, z tally
			a := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Paused: true}).start()
			c.clk.Advance(time.Second)
			a.store.set(func(ctx context.Context, call string, do func() error) error {
				if call == "beat" && !during {
					return errAway
				}
				err := do()
				if call == "claim" && len(c.job("j").Running) == 1 {
					if during {
						_ = c.clk.Sleep(context.WithoutCancel(ctx), time.Second)
					}
					return errAway
				}
				return err
			})
			id := a.trigger("j")
			if !during {
				a.store.set(nil) // the outage is over
			}
			a.shut()
			c.wantStates("j", "manual:cancelled")
			c.clk.Advance(time.Second) // runs are in the order of their starts
			c.node("b", durable.Config{}).handle("h", z.quick).start()
			c.clk.Advance(time.Minute)
			// It is still a call by hand, which a paused job obeys.
			c.wantStates("j", "manual:cancelled", "manual:succeeded")
			if y.count() != 0 || z.count() != 1 || z.all()[0].RetryOf != id {
				t.Errorf("%d runs here, %+v there, want none, and one for %s", y.count(), z.all(), id)
			}
		})
	}
}

func TestAStopSaysThatItCouldNotAskForLostClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.node("a", durable.Config{}).handle("h", (&tally{}).quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		a.store.set(func(_ context.Context, call string, do func() error) error {
			if call == "claim" {
				_ = do()
			}
			return errAway
		})
		if _, err := a.Trigger(context.Background(), "j", nil); err == nil {
			t.Fatal("Trigger goes through a store that is away")
		}
		a.Wake()
		c.clk.Advance(time.Second)
		if _, err := c.await(a.stop(context.Background())); err == nil {
			t.Error("Shutdown = nil, though a claim's answer got lost and the store is away")
		}
	})
}

// The end of an interrupted run is recorded again when its answer got lost.
func TestAnInterruptedRunIsRecoveredOnceHoweverOftenThatIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y, z tally
		gate, recovery := c.clk.NewGate(), c.clk.NewGate()
		a := c.node("a", durable.Config{ShutdownTimeout: -1}).handle("h", y.deaf(gate)).
			add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, RequestsRecovery: true}).start()
		a.trigger("j")
		b := c.node("b", durable.Config{PollInterval: 50 * time.Millisecond}).handle("h", z.held(recovery)).handle("o", z.quick).
			add(durable.Job{Name: "other", Handler: "o"}).start()
		lost := 0
		a.store.set(func(_ context.Context, call string, do func() error) error {
			err := do()
			if call == "finish" && lost == 0 {
				lost++
				return errAway
			}
			return err
		})
		_, _ = c.await(a.stop(context.Background()))
		c.clk.Advance(time.Second)
		b.trigger("other")
		c.clk.Advance(time.Minute)
		c.wantStates("other", "manual:succeeded")
		recovery.Open()
		c.clk.Advance(5 * time.Minute)
		c.wantStates("j", "manual:interrupted", "recovery:succeeded")
		gate.Open()
		b.shut()
	})
}

// A cancel can come while the answer of the run's claim is on its way.
func TestARunIsCancelledThoughItHasNotBegunYet(t *testing.T) {
	for name, c := range map[string]struct{ here, lost bool }{
		"on its node": {here: true}, "on another node": {}, "and the answer gets lost": {lost: true}, "on its node, and the answer gets lost": {here: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t)
				var y tally
				h := &hub{}
				gate := cl.clk.NewGate()
				a := cl.node("a", durable.Config{Waker: h}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h"}).start()
				b := cl.node("b", durable.Config{Waker: h}).start()
				cl.clk.Advance(time.Second)
				did := false
				a.store.set(func(_ context.Context, call string, do func() error) error {
					err := do()
					if call != "claim" || did || len(cl.job("j").Running) == 0 {
						return err
					}
					did = true
					by := b
					if c.here {
						by = a
					}
					if n, err := by.Cancel(context.Background(), "j"); n != 1 || err != nil {
						t.Errorf("Cancel = %d, %v, want 1", n, err)
					}
					if c.lost {
						return errAway
					}
					return err
				})
				a.trigger("j")
				cl.clk.Advance(10 * time.Second)
				cl.wantStates("j", "manual:cancelled")
				gate.Open()
				a.shut()
				b.shut()
			})
		})
	}
}

// Another node cancels a run, and it ends otherwise before its node hears of that.
func TestNothingFollowsARunThatSomebodyHasCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(c *cluster, a *node, gate *tasktest.Gate)
		want string
	}{
		"it fails":         {func(_ *cluster, _ *node, gate *tasktest.Gate) { gate.Open() }, "manual:failed"},
		"its node stops":   {func(_ *cluster, a *node, _ *tasktest.Gate) { a.shut() }, "manual:cancelled"},
		"its node is gone": {func(_ *cluster, a *node, _ *tasktest.Gate) { a.cut(true) }, "manual:lost"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t)
				gate := cl.clk.NewGate()
				var y, z tally
				a := cl.node("a", durable.Config{ShutdownTimeout: -1}).handle("h", func(ctx context.Context, r durable.Run) error {
					y.begin(r)
					return y.end(errors.Join(gate.Wait(ctx), errors.New("failed")))
				}).add(durable.Job{Name: "j", Handler: "h", RequestsRecovery: true, Retry: durable.Retry{MaxRetries: 5, Delay: time.Second}}).start()
				id := a.trigger("j")
				b := cl.node("b", durable.Config{}).handle("h", z.quick).start()
				if n, err := b.Cancel(context.Background(), id); n != 1 || err != nil {
					t.Fatalf("Cancel = %d, %v, want 1", n, err)
				}
				c.end(cl, a, gate)
				cl.clk.Advance(10 * time.Minute)
				cl.wantStates("j", c.want)
				if y.count() != 1 || z.count() != 0 {
					t.Errorf("%d runs on its node, %d on the other, want 1, 0", y.count(), z.count())
				}
			})
		})
	}
}
