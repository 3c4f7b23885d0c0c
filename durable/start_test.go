package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// fail has the calls of that name fail.
func (h *hooked) fail(name string) {
	h.set(func(_ context.Context, call string, do func() error) error {
		if call == name {
			return errAway
		}
		return do()
	})
}

func TestAStartThatFailsLeavesNothingBehindAndCanBeTriedAgain(t *testing.T) {
	for _, fails := range []string{"edit", "beat", "jobs", "listen", "prime"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			var y tally
			h := &hub{}
			var waker durable.Waker = h
			if fails == "listen" {
				waker = deafWaker{}
			}
			n := c.node("a", durable.Config{Waker: waker}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"})
			if n.store.fail(fails); fails == "prime" { // the second time that jobs are read
				n.store.set(func(_ context.Context, call string, do func() error) error {
					if call == "jobs" && len(h.fs) > 0 {
						return errAway
					}
					return do()
				})
			}
			if err := n.Run(context.Background()); !errors.Is(err, errAway) {
				t.Fatalf("%s: Run = %v, want %v", fails, err, errAway)
			}
			nodes, _, err := c.store.Nodes(context.Background())
			if err != nil || len(nodes) > 0 {
				t.Errorf("%s: nodes %+v, %v, want none", fails, nodes, err)
			}
			if len(h.fs) > 0 {
				t.Errorf("%s: %d listeners left", fails, len(h.fs))
			}
			for task := range c.ms[0].Tasks() {
				t.Errorf("%s: task %s left in the manager", fails, task.Name())
			}
			if fails == "listen" {
				return
			}
			n.store.set(nil)
			n.start()
			n.trigger("j")
			c.wantStates("j", "manual:succeeded")
			c.clk.Advance(5 * time.Minute) // it beats
			n.trigger("j")
			c.wantStates("j", "manual:succeeded", "manual:succeeded")
			n.shut()
		})
	}
}

func TestAStartWhoseFirstHeartbeatsAnswerGotLostLeavesNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node("a", durable.Config{}).handle("h", (&tally{}).quick)
		n.store.set(func(_ context.Context, call string, do func() error) error {
			if err := do(); call != "beat" {
				return err
			}
			return errAway
		})
		if err := n.Start(context.Background()); !errors.Is(err, errAway) {
			t.Errorf("Start = %v, want %v", err, errAway)
		}
		if nodes, _, err := c.store.Nodes(context.Background()); err != nil || len(nodes) > 0 {
			t.Errorf("nodes %+v, %v, want none", nodes, err)
		}
		n.handle("another", (&tally{}).quick) // registration goes on
		n.store.set(nil)
		n.start()
		n.shut()
	})
}

func TestAShutdownDuringStartEndsItWhateverItWasDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		h := &hub{}
		n := c.node("a", durable.Config{Waker: h}).handle("h", (&tally{}).quick)
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			err := do()
			if call == "jobs" && len(h.fs) > 0 { // the last thing
				<-ctx.Done()
			}
			return err
		})
		started := make(chan error)
		go func() { started <- n.Start(context.Background()) }()
		synctest.Wait()
		done := n.stop(context.Background())
		if err := <-started; !errors.Is(err, durable.ErrStopped) {
			t.Errorf("Start = %v, want ErrStopped", err)
		}
		if _, err := c.await(done); err != nil || len(h.fs) > 0 {
			t.Errorf("Shutdown = %v, %d listeners, want nil, 0", err, len(h.fs))
		}
	})
}

// Start calls user code: nothing that it may call waits for Start.
func TestUserCodeMayCallTheSchedulerThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		calls := callingWaker{}
		n := c.node("a", durable.Config{Waker: &calls}).handle("h", (&tally{}).quick)
		once := sync.OnceFunc(func() { n.add(durable.Job{Name: "by.middleware", Handler: "h"}) })
		if err := n.Use(func(next durable.Handler) durable.Handler { once(); return next }); err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		calls.f = func() {
			if err := n.Start(over); !errors.Is(err, durable.ErrStarted) {
				t.Errorf("Start in Start = %v, want ErrStarted", err)
			}
			if err := n.Shutdown(over); !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown in Start = %v, want that it goes on", err)
			}
		}
		started := make(chan error, 1)
		go func() { started <- n.Start(context.Background()) }()
		if _, err := c.await(started); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("Start = %v, want ErrStopped", err)
		}
		if err := n.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if job := c.job("by.middleware"); job.Job.Handler != "h" {
			t.Errorf("job %+v, want the one added", job)
		}
	})
}

type callingWaker struct{ f func() }

func (w *callingWaker) Notify(context.Context, durable.Note) error { return nil }
func (w *callingWaker) Listen(func(durable.Note)) (func(), error)  { w.f(); return func() {}, nil }

func TestShutdownEndsAStartThatHangs(t *testing.T) {
	for _, hangs := range []string{"edit", "beat", "jobs"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			n := c.node("a", durable.Config{}).handle("h", (&tally{}).quick).add(durable.Job{Name: "j", Handler: "h"})
			n.store.set(func(ctx context.Context, call string, do func() error) error {
				if call == hangs {
					<-ctx.Done()
					return ctx.Err()
				}
				return do()
			})
			started := make(chan error)
			go func() { started <- n.Start(context.Background()) }()
			synctest.Wait()
			done := n.stop(context.Background())
			if err := <-started; !errors.Is(err, durable.ErrStopped) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Start = %v, want ErrStopped and what it was doing", hangs, err)
			}
			if _, err := c.await(done); err != nil {
				t.Errorf("%s: Shutdown = %v, want nil", hangs, err)
			}
			if err := n.Start(context.Background()); !errors.Is(err, durable.ErrStopped) {
				t.Errorf("%s: Start after that = %v, want ErrStopped", hangs, err)
			}
		})
	}
}

// Notes that something is due come with each call by hand, of any node.
func TestNotesDoNotHaveUnreadableTriggersStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		h := &hub{}
		a := c.node("a", durable.Config{}).handle("h", y.quick)
		if err := a.AddCalendar("cal", openCalendar{}); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			a.add(durable.Job{Name: fmt.Sprint("j", i), Handler: "h", Triggers: []durable.Trigger{
				{Priority: 10, Schedule: cronsched.MustParse("cron 0 * * * * * calendar=cal")}}})
		}
		a.start()
		a.shut()
		c.clk.Advance(time.Minute)

		b := c.node("b", durable.Config{Waker: h}).handle("h", y.quick).handle("byhand", y.quick).
			add(durable.Job{Name: "byhand", Handler: "byhand", AllowConcurrent: true})
		b.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "claim" {
				_ = c.clk.Sleep(ctx, 3*time.Millisecond)
			}
			return do()
		})
		b.start()
		c.clk.Advance(500 * time.Millisecond)
		const calls = 500
		for range calls {
			b.trigger("byhand")
			c.clk.Advance(8 * time.Millisecond)
		}
		if ran := y.count(); ran < calls*9/10 {
			t.Errorf("%d of %d calls by hand have run", ran, calls)
		}
		b.shut()
	})
}

type openCalendar struct{}

func (openCalendar) Excludes(time.Time) bool { return false }

func TestOneKindOfCallThatAlwaysFailsIsOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{NodeTimeout: 3 * time.Second}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
		n.store.fail("expire") // say, for want of a permission
		c.clk.Advance(10 * time.Minute)
		if out, back := n.events.of(durable.EventOutage), n.events.of(durable.EventRestored); len(out) != 1 || len(back) != 0 {
			t.Errorf("%d outages, %d ends of one, want 1, 0", len(out), len(back))
		}
		n.store.set(nil)
		c.clk.Advance(time.Minute)
		if back := n.events.of(durable.EventRestored); len(back) != 1 || back[0].Duration < 9*time.Minute {
			t.Errorf("ends of the outage %+v, want one of 10m", back)
		}
		n.shut()
	})
}

// An editor is a transaction that is rolled back.
type editor struct{}

func (editor) Join(durable.Store) (durable.Editor, error) { return editor{}, nil }
func (editor) Edit(_ context.Context, _ string, _ durable.Scope, change func(*durable.Edit) error) error {
	return change(&durable.Edit{})
}

func TestNothingIsToldOfATransactionThatMayBeRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node("a", durable.Config{}).handle("h", (&tally{}).quick).start()
		w, err := n.Within(editor{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.AddJob(context.Background(), durable.Job{Name: "j", Handler: "h"}); err != nil {
			t.Fatal(err)
		}
		c.clk.Advance(time.Second)
		if got := n.events.of(durable.EventChanged); len(got) != 0 {
			t.Errorf("events %+v, want none", got)
		}
		n.shut()
	})
}

func TestTheFirstPanicOfAnObserverIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node("a", durable.Config{Observer: durable.ObserverFunc(func(durable.Event) { panic("bug in the adapter") })}).
			handle("h", (&tally{}).quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		n.trigger("j")
		n.trigger("j")
		c.clk.Advance(time.Second)
		if got := n.log.with("observer or log handler panicked"); len(got) != 1 {
			t.Errorf("log lines %q, want one", got)
		}
		n.shut()
	})
}
