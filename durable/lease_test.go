package durable_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestANodeIsNamedByItsConfigThenTheEnvironmentThenTheHost(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("é", 100)
	for _, tc := range []struct{ config, nodeID, hostname, want string }{
		{"given", "env", "box", "given"},
		{"", "env", "box", "env"},
		{"", "", "box", "box"},
		{"", "", "", host},
		{"", long, "", long[:48]},
		{"", "a\xffb", "", "a�b"},
		{strings.Repeat("n", 48), "", "", strings.Repeat("n", 48)},
	} {
		t.Setenv("TASKMANAGER_NODE_ID", tc.nodeID)
		t.Setenv("HOSTNAME", tc.hostname)
		var ids []string
		for range 2 {
			s, err := durable.New(nil, durable.Config{Node: tc.config})
			if err != nil {
				t.Fatalf("New(Node: %q): %v", tc.config, err)
			}
			ids = append(ids, s.Node())
			if err := s.Shutdown(context.Background()); err != nil {
				t.Errorf("Shutdown = %v, want nil", err)
			}
		}
		for _, id := range ids {
			if suffix, ok := strings.CutPrefix(id, tc.want+"-"); !ok || len(suffix) < 8 {
				t.Errorf("Node() = %q, want %q and an incarnation", id, tc.want)
			}
			if n := utf8.RuneCountInString(id); n > 64 || !utf8.ValidString(id) {
				t.Errorf("Node() = %q of %d characters, want valid text of at most 64", id, n)
			}
		}
		if ids[0] == ids[1] {
			t.Errorf("two schedulers are both %q, want each its own", ids[0])
		}
	}
}

func TestANodeNameThatIsTooLongOrNoTextIsRefused(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", 49), "a\xffb"} {
		_, err := durable.New(nil, durable.Config{Node: name})
		var field *durable.FieldError
		if !errors.As(err, &field) || field.Field != "Node" {
			t.Errorf("New(Node: %q) = %v, want a *FieldError of Node", name, err)
		}
	}
}

func TestTheNodesIDIsPrintedAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node("a", durable.Config{}).start()
		if got := n.log.with("started"); len(got) != 1 || !strings.Contains(got[0], "node="+n.Node()) {
			t.Errorf("log at start = %q, want one line with node=%s", got, n.Node())
		}
	})
}

func TestANodeBeatsOnceAThirdOfNodeTimeoutHoweverManyRunsItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true}).start()
		for range 7 {
			n.trigger("j")
		}
		before := n.store.count("beat")
		c.clk.Advance(10 * time.Minute)
		if got := n.store.count("beat") - before; got != 20 {
			t.Errorf("%d heartbeats in 10 min with 7 runs, want 20", got)
		}
		nodes, err := n.Nodes(context.Background())
		if err != nil || len(nodes) != 1 || nodes[0].ID != n.Node() || nodes[0].Dead {
			t.Errorf("Nodes = %+v, %v, want the one node", nodes, err)
		}
		if y.count() != 7 {
			t.Errorf("%d runs, want 7", y.count())
		}
		gate.Open()
	})
}

func TestANodeCutOffCancelsExclusiveRunsBeforeItsLeaseCanHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
			c := newCluster(t)
			gate := c.clk.NewGate()
			var excl, conc tally
			var at atomic.Int64
			began := c.clk.Now()
			moved := time.Duration(0)
			n := c.node("a", durable.Config{}).
				handle("x", func(ctx context.Context, r durable.Run) error {
					excl.begin(r)
					err := gate.Wait(ctx)
					at.Store(int64(c.clk.Now().Sub(began) - moved))
					return excl.end(err)
				}).
				handle("c", conc.held(gate)).
				add(durable.Job{Name: "x", Handler: "x"}).
				add(durable.Job{Name: "c", Handler: "c", AllowConcurrent: true}).start()
			n.trigger("x")
			n.trigger("c")
			c.clk.Advance(30 * time.Second) // the last heartbeat
			n.cut(true)
			moved = step
			c.clk.StepWall(step)
			c.clk.Advance(89 * time.Second)
			if got := excl.ended(); len(got) != 1 || !errors.Is(got[0], durable.ErrLeaseLost) {
				t.Errorf("wall stepped by %v: exclusive run ended with %v, want ErrLeaseLost", step, got)
			}
			if got := time.Duration(at.Load()); got != 105*time.Second {
				t.Errorf("wall stepped by %v: it ended at %v, want 1m45s: 75 s after the last heartbeat", step, got)
			}
			if got := conc.ended(); len(got) != 0 {
				t.Errorf("wall stepped by %v: concurrent run ended with %v, want it to go on", step, got)
			}
			if got := n.events.of(durable.EventFenced); len(got) != 1 || got[0].Count != 1 {
				t.Errorf("fenced events = %+v, want one of 1 run", got)
			}
			n.cut(false)
			gate.Open()
		}
	})
}

func TestAClaimWhoseAnswerComesAfterTheLeaseIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		a := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", RequestsRecovery: true}).start()
		b := c.node("b", durable.Config{}).handle("h", y.quick).start()
		_ = b
		c.clk.Advance(91 * time.Second)
		slow := true
		b.store.set(func(ctx context.Context, call string, do func() error) error { // b claims nothing meanwhile
			if call == "claim" && slow {
				return errAway
			}
			return do()
		})
		a.store.set(func(ctx context.Context, call string, do func() error) error {
			switch call {
			case "claim":
				err := do()
				_ = c.clk.Sleep(context.WithoutCancel(ctx), 100*time.Second)
				return err
			case "beat":
				return errAway
			}
			return do()
		})
		a.trigger("j")
		c.clk.Advance(85 * time.Second)
		if y.count() != 0 {
			t.Fatalf("%d runs while the claim's answer is on its way, want 0", y.count())
		}
		slow = false
		b.store.set(nil)
		c.clk.Advance(60 * time.Second)
		runs := y.all()
		if len(runs) != 1 || runs[0].Kind != durable.KindRecovery || runs[0].Node != b.Node() {
			t.Errorf("runs = %+v, want one recovery on b", runs)
		}
		c.wantStates("j", "manual:lost", "recovery:succeeded")
		a.store.set(nil)
		c.clk.Advance(time.Minute)
		if y.count() != 1 {
			t.Errorf("%d runs after all is well again, want 1", y.count())
		}
	})
}

func TestARunWhoseClaimsAnswerGotLostIsAdoptedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		lost := 0
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			err := do()
			if call == "claim" && lost == 0 {
				lost++
				return errAway
			}
			return err
		})
		n.trigger("j")
		c.clk.Advance(0)
		if y.count() != 1 {
			t.Errorf("%d runs at once, want 1: a heartbeat finds it", y.count())
		}
		c.clk.Advance(5 * time.Minute)
		if y.count() != 1 {
			t.Errorf("%d runs, want 1", y.count())
		}
		c.wantStates("j", "manual:succeeded")
		if got := len(n.log.with("adopted")); got != 1 {
			t.Errorf("%d lines about adoption, want 1", got)
		}
	})
}

func TestARunAdoptedWhileItsClaimIsOnItsWayIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{NodeTimeout: 3 * time.Second}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
		slow := false
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			err := do()
			if call == "claim" && slow {
				slow = false
				_ = c.clk.Sleep(context.WithoutCancel(ctx), 5*time.Second)
			}
			return err
		})
		slow = true
		n.trigger("j")
		c.clk.Advance(time.Minute)
		if y.count() != 1 {
			t.Errorf("%d runs of one firing, want 1", y.count())
		}
		c.wantStates("j", "manual:succeeded")
	})
}

func TestAnEndWhoseAnswerGotLostIsNotCountedTwiceNorRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", func(ctx context.Context, r durable.Run) error {
			_ = y.quick(ctx, r)
			if y.count() == 1 {
				return errors.New("once")
			}
			return nil
		}).add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 3, Delay: time.Second}}).start()
		lost := 0
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			err := do()
			if call == "finish" && lost < 3 {
				lost++
				return errAway
			}
			if call == "runs" && lost == 3 { // nor can it be found out at once
				lost++
				return errAway
			}
			return err
		})
		n.trigger("j")
		c.clk.Advance(5 * time.Minute)
		st := n.Stats()
		if st.Failed != 1 || st.Retried != 1 || st.Succeeded != 1 || st.Refused != 0 || st.Pending != 0 {
			t.Errorf("Stats = %+v, want failed 1, retried 1, succeeded 1, refused 0, pending 0", st)
		}
		if y.count() != 2 {
			t.Errorf("%d runs, want 2", y.count())
		}
		if got := n.events.of(durable.EventEnded); len(got) != 2 {
			t.Errorf("%d ended events, want 2", len(got))
		}
		c.wantStates("j", "manual:failed", "retry:succeeded")
	})
}

func TestASkewedNodeClaimsNothingEarlyAndSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, offset := range []time.Duration{-2 * time.Second, 2 * time.Second, 900 * time.Millisecond} {
			c := newCluster(t)
			c.offset = offset
			var y tally
			n := c.node("a", durable.Config{}).handle("h", y.quick).
				add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("*/7 * * * * *")}}}).start()
			c.clk.Advance(5 * time.Minute)
			rows := c.runs(durable.RunQuery{Job: "j"})
			if len(rows) < 42 {
				t.Fatalf("offset %v: %d runs in 5 min, want 42 or more", offset, len(rows))
			}
			for _, r := range rows {
				if late := r.StartedAt.Sub(r.ScheduledAt); late < 0 || late > time.Second {
					t.Errorf("offset %v: run for %v started at %v", offset, r.ScheduledAt, r.StartedAt)
				}
			}
			want := 1
			if offset.Abs() < time.Second {
				want = 0
			}
			got := n.events.of(durable.EventSkew)
			if len(got) != want || want > 0 && got[0].Duration != offset {
				t.Errorf("offset %v: skew events %+v, want %d", offset, got, want)
			}
			if st := n.Stats(); st.Skew != offset {
				t.Errorf("Stats().Skew = %v, want %v", st.Skew, offset)
			}
		}
	})
}

func TestARunIsCancelledFromAnotherNodeByTheNextHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		a := c.node("a", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h"}).start()
		id := a.trigger("j")
		b := c.node("b", durable.Config{}).handle("h", y.held(gate)).start()
		if n, err := b.Cancel(context.Background(), "j"); n != 1 || err != nil {
			t.Fatalf("Cancel = %d, %v, want 1", n, err)
		}
		c.clk.Advance(30 * time.Second)
		if got := y.ended(); len(got) != 1 || !errors.Is(got[0], durable.ErrCancelled) {
			t.Errorf("the run ended with %v, want ErrCancelled", got)
		}
		c.wantStates("j", "manual:cancelled")
		if _, err := b.Cancel(context.Background(), id); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("Cancel of a run that has ended = %v, want ErrNotFound", err)
		}
	})
}

func TestTheFenceRisesStrictlyWithEachRunOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		job := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}
		for _, name := range []string{"a", "b", "c"} {
			c.node(name, durable.Config{}).handle("h", y.quick).add(job).start()
		}
		c.clk.Advance(3*time.Minute + 500*time.Millisecond)
		runs := y.all()
		if len(runs) != 180 {
			t.Errorf("%d runs of 180 firings", len(runs))
		}
		if !slices.IsSortedFunc(runs, func(a, b durable.Run) int { return int(a.Fence - b.Fence) }) {
			t.Error("fences do not rise")
		}
		seen := map[int64]bool{}
		at := map[time.Time]int{}
		for _, r := range runs {
			if seen[r.Fence] || r.Fence <= 0 {
				t.Errorf("fence %d twice, or not positive", r.Fence)
			}
			seen[r.Fence] = true
			if at[r.ScheduledAt]++; at[r.ScheduledAt] > 1 {
				t.Errorf("firing of %v ran %d times", r.ScheduledAt, at[r.ScheduledAt])
			}
		}
	})
}
