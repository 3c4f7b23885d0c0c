package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestAnOutageIsLoggedSeldomCausesNoStormAndWorkResumesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *"), Misfire: durable.Skip}}}).start()
		c.clk.Advance(30 * time.Second)
		n.cut(true)
		c.clk.Advance(time.Minute)
		for minute := range 10 {
			before := n.store.count()
			c.clk.Advance(time.Minute)
			if got := n.store.count() - before; got == 0 || got > 60 {
				t.Errorf("%d calls of the store in minute %d of the outage, want 1 to 60", got, minute)
			}
		}
		if got := len(n.log.with("store does not answer")); got == 0 || got > 70 {
			t.Errorf("%d lines about it in 11 min, want at most one a minute for each kind of call", got)
		}
		if got := n.events.of(durable.EventOutage); len(got) != 1 || got[0].Err == nil {
			t.Errorf("outage events %+v, want 1", got)
		}
		n.cut(false)
		before := n.store.count()
		c.clk.Advance(time.Minute)
		if got := n.store.count() - before; got > 400 {
			t.Errorf("%d calls of the store in the minute after the outage, want no storm", got)
		}
		runs := y.count()
		c.clk.Advance(time.Minute)
		if got := y.count() - runs; got != 60 {
			t.Errorf("%d runs a minute, want 60", got)
		}
		if got := n.events.of(durable.EventRestored); len(got) != 1 || got[0].Duration < 10*time.Minute+55*time.Second || got[0].Duration > 11*time.Minute+20*time.Second {
			t.Errorf("restored events %+v, want 1 of about 11m", got)
		}
	})
}

func TestAClaimThatIsRefusedWhileHeartbeatsFailIsNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).start()
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "beat" {
				return errAway
			}
			return do()
		})
		c.clk.Advance(2 * time.Minute) // the lease is over: ErrNodeDead
		before := n.store.count("claim")
		c.clk.Advance(time.Minute)
		if got := n.store.count("claim") - before; got > 60 {
			t.Errorf("%d claims in a minute without a lease, want 60 at most", got)
		}
		n.store.set(nil)
		c.clk.Advance(20 * time.Second)
		n.add(durable.Job{Name: "j", Handler: "h"})
		n.trigger("j")
		if y.count() != 1 {
			t.Errorf("%d runs when all is well again, want 1", y.count())
		}
	})
}

func TestAStoreThatTakesNoEndsStopsClaimsAtTheSlotsAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{MaxConcurrentRuns: 4}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
		c.clk.Advance(10 * time.Second)
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "finish" {
				return errAway // read-only, or full
			}
			return do()
		})
		before := y.count()
		finishes := n.store.count("finish")
		c.clk.Advance(5 * time.Minute)
		if got := y.count() - before; got != 8 {
			t.Errorf("%d runs while no end could be recorded, want 8: twice the slots", got)
		}
		if st := n.Stats(); st.Pending != 8 || st.Running != 0 {
			t.Errorf("pending %d, running %d, want 8, 0", st.Pending, st.Running)
		}
		if got := n.store.count("finish") - finishes; got > 5*60 {
			t.Errorf("%d calls of Finish in 5 min, want no storm", got)
		}
		n.store.set(nil)
		c.clk.Advance(time.Minute)
		if st := n.Stats(); st.Pending != 0 || st.Refused != 0 || st.Succeeded != uint64(y.count()) {
			t.Errorf("Stats %+v after %d runs, want all succeeded", st, y.count())
		}
		for _, r := range c.runs(durable.RunQuery{Job: "j"}) {
			if r.State != durable.RunSucceeded {
				t.Errorf("run %s is %v", r.ID, r.State)
			}
		}
	})
}

func TestAnEndThatCouldNotBeRecordedIsTriedAgainWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		failed := false
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "finish" && !failed {
				failed = true
				return errAway
			}
			return do()
		})
		n.trigger("j")
		c.clk.Advance(2 * time.Second)
		c.wantStates("j", "manual:succeeded")
	})
}

// refusing is a Finish that fails for batches with an end of that job.
type refusing struct {
	durable.Store
	job string
}

func (r *refusing) Finish(ctx context.Context, req durable.FinishRequest) ([]bool, error) {
	if slices.ContainsFunc(req.Ends, func(e durable.End) bool { return e.Run.Job == r.job }) {
		return nil, errAway
	}
	return r.Store.Finish(ctx, req)
}

// As one whose job somebody has locked, or whose text the store cannot take.
func TestAnEndThatTheStoreRefusesHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		gate := c.clk.NewGate()
		n := c.node("a", durable.Config{MaxConcurrentRuns: 100}).handle("h", y.held(gate)).handle("quick", y.quick).
			add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true}).
			add(durable.Job{Name: "x", Handler: "h", AllowConcurrent: true}).
			add(durable.Job{Name: "later", Handler: "quick"}).start()
		store := &refusing{n.store.Store, "x"}
		n.store.Store = store
		for i := range 60 {
			if n.trigger("j"); i%20 == 0 {
				n.trigger("x")
			}
		}
		gate.Open()
		c.clk.Advance(3 * time.Second)
		if got := c.runs(durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunSucceeded}}); len(got) != 60 {
			t.Errorf("%d of 60 other ends recorded within 3 s, want all", len(got))
		}
		for range 20 {
			before := n.store.count("finish")
			n.trigger("later")
			c.clk.Advance(3 * time.Second)
			if got := c.runs(durable.RunQuery{Job: "later", States: []durable.RunState{durable.RunRunning}}); len(got) != 0 {
				t.Errorf("%d ends that came later are not recorded within 3 s, want none", len(got))
			}
			c.clk.Advance(27 * time.Second)
			if got := n.store.count("finish") - before; got > 30 {
				t.Errorf("%d calls of Finish in half a minute, want no storm", got)
			}
		}
		if st := n.Stats(); st.Pending != 3 {
			t.Errorf("Pending = %d, want the 3 that are refused", st.Pending)
		}
		if len(n.log.with("end of a run cannot be recorded")) == 0 {
			t.Error("the log does not say which ends are refused")
		}
		if got := len(n.events.of(durable.EventRestored)); got > 3 {
			t.Errorf("%d times the store is said to answer again, want 3 at most", got)
		}
		store.job = ""
		c.clk.Advance(15 * time.Second)
		c.wantStates("x", "manual:succeeded", "manual:succeeded", "manual:succeeded")
	})
}

// slowly is a Finish that takes its time, and for ever if there is an end of that job.
type slowly struct {
	durable.Store
	takes time.Duration
	job   string
}

func (s *slowly) Finish(ctx context.Context, req durable.FinishRequest) ([]bool, error) {
	takes := time.After(s.takes)
	if slices.ContainsFunc(req.Ends, func(e durable.End) bool { return e.Run.Job == s.job }) {
		takes = nil
	}
	select {
	case <-takes:
		return s.Store.Finish(ctx, req)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start starts a scheduler on the store with jobs j and x, whose runs wait for the gate, if
// there is one. It is on the bubble's clock, which calls of a store are bounded by.
func (s *slowly) start(t *testing.T, gate chan struct{}) *durable.Scheduler {
	t.Helper()
	ctx := context.Background()
	s.Store = durable.NewMemory()
	sched, err := durable.New(s, durable.Config{MaxConcurrentRuns: 50, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	done := func(context.Context, durable.Run, noArgs) error {
		if gate != nil {
			<-gate
		}
		return nil
	}
	if err := durable.Handle(sched, "h", done); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"j", "x"} {
		if err := sched.AddJob(ctx, durable.Job{Name: job, Handler: "h", AllowConcurrent: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sched.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return sched
}

// wantEnds wants so many runs of j to have succeeded.
func wantEnds(t *testing.T, s *durable.Scheduler, want int) {
	t.Helper()
	runs, err := s.Runs(context.Background(), durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunSucceeded}})
	if err != nil || len(runs) < want {
		t.Errorf("%d ends are recorded, %v, want %d or more", len(runs), err, want)
	}
}

func TestAStopRecordsTheOtherEndsThoughTheStoreHangsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := slowly{takes: 10 * time.Millisecond, job: "x"}
		s := store.start(t, gate)
		for i := range 40 {
			if i == 0 {
				trigger(t, s, "x")
			}
			trigger(t, s, "j")
		}
		time.Sleep(time.Second) // all are running
		time.AfterFunc(time.Second, func() { close(gate) })
		if err := s.Shutdown(context.Background()); err == nil || !strings.Contains(err.Error(), "1 runs") {
			t.Errorf("Shutdown = %v, want it to tell of 1 end", err)
		}
		wantEnds(t, s, 40)
	})
}

func TestEndsAreRecordedThoughTheStoreIsSlowOrHangsForOne(t *testing.T) {
	for name, c := range map[string]struct {
		store  slowly
		within time.Duration
		want   int
	}{
		"every call takes seconds": {slowly{takes: 6 * time.Second}, 5 * time.Minute, 10},
		"it hangs for one end":     {slowly{takes: 200 * time.Millisecond, job: "x"}, 30 * time.Second, 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.store.start(t, nil)
				for i := range 40 {
					if i == 20 {
						trigger(t, s, "x")
					}
					trigger(t, s, "j")
				}
				time.Sleep(c.within)
				wantEnds(t, s, c.want)
				_ = s.Shutdown(context.Background())
			})
		})
	}
}

func trigger(t *testing.T, s *durable.Scheduler, job string) {
	t.Helper()
	if _, err := s.Trigger(t.Context(), job, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAStopRecordsTheOtherEndsThoughSomeAreRefused(t *testing.T) {
	const refused = 9
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		gate := c.clk.NewGate()
		n := c.node("a", durable.Config{}).handle("h", y.held(gate)).
			add(durable.Job{Name: "x", Handler: "h", AllowConcurrent: true}).add(durable.Job{Name: "j", Handler: "h"}).start()
		n.store.Store = &refusing{n.store.Store, "x"}
		for range refused {
			n.trigger("x")
		}
		n.trigger("j")
		done := n.stop(context.Background())
		gate.Open()
		took, err := c.await(done)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d runs", refused)) || took > 15*time.Second {
			t.Errorf("Shutdown took %v and gave %v, want it to tell of %d ends", took, err, refused)
		}
		c.wantStates("j", "manual:succeeded")
	})
}
