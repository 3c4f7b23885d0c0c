package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// nobody is a Leader that elects nobody.
type nobody struct{}

func (nobody) Elect(context.Context, string, time.Duration) (string, error) { return "", nil }
func (nobody) Resign(context.Context, string) error                         { return nil }

func TestADeadNodesRunIsLostAndRecoveredOnceIfItsJobRequestsThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var dead, live tally
		jobs := []durable.Job{
			{Name: "again", Handler: "h", RequestsRecovery: true, Triggers: []durable.Trigger{{Schedule: cron("5 0 0 * * *")}}},
			{Name: "never", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("5,20 * * * * *")}}},
		}
		a := c.node("a", durable.Config{}).handle("h", dead.deaf(gate))
		for _, j := range jobs {
			a.add(j)
		}
		a.start()
		c.clk.Advance(6 * time.Second)
		if dead.count() != 2 {
			t.Fatalf("%d runs on a, want 2", dead.count())
		}
		var others []*node
		for _, name := range []string{"b", "c", "d"} {
			others = append(others, c.node(name, durable.Config{}).handle("h", live.quick).start())
		}
		c.clk.Advance(120 * time.Second)
		if got := c.states("never"); len(got) != 1 || got[0] != "schedule:running" {
			t.Fatalf("runs of never while a lives = %v, want its one", got)
		}
		a.cut(true)
		c.clk.Advance(88 * time.Second) // 120+6 is 6 s after a heartbeat: the lease has some time to go
		for _, r := range c.runs(durable.RunQuery{}) {
			if r.State == durable.RunLost {
				t.Fatalf("run of %s lost before the lease was over", r.Job)
			}
		}
		c.clk.Advance(15 * time.Second)
		c.wantStates("again", "schedule:lost", "recovery:succeeded")
		rows := c.runs(durable.RunQuery{Job: "again"})
		if first, second := rows[0], rows[1]; first.IdempotencyKey != second.IdempotencyKey || !first.ScheduledAt.Equal(second.ScheduledAt) ||
			second.RetryOf != first.ID || first.Code != durable.CodeLost || second.Fence <= first.Fence {
			t.Errorf("recovery %+v of %+v: want the same key and ScheduledAt, and a larger fence", second, first)
		}
		for _, r := range live.all() {
			if r.Job == "never" && r.Kind != durable.KindSchedule {
				t.Errorf("never was repeated: %+v", r)
			}
		}
		c.clk.Advance(time.Minute)
		if got := c.states("never"); len(got) < 3 || got[0] != "schedule:lost" || got[2] != "schedule:succeeded" {
			t.Errorf("runs of never = %v, want its trigger free after the lost one", got)
		}
		var died, lost, recovered uint64
		for _, n := range others {
			st := n.Stats()
			died, lost, recovered = died+st.NodesDead, lost+st.Lost, recovered+st.Recovered
		}
		if died != 1 || lost != 2 || recovered != 1 {
			t.Errorf("dead, lost, recovered = %d, %d, %d, want 1, 2, 1 over all nodes", died, lost, recovered)
		}

		// a comes back
		was := a.Node()
		a.cut(false)
		c.clk.Advance(time.Minute)
		if a.Node() == was {
			t.Error("a goes on under the ID that is dead")
		}
		if got := a.events.of(durable.EventNodeLost); len(got) != 1 || got[0].Detail != was {
			t.Errorf("node lost events of a = %+v, want one of %s", got, was)
		}
		gate.Open()
		told := 0
		for _, err := range dead.ended() { // there may be a third run: of the new life
			if errors.Is(err, durable.ErrLeaseLost) {
				told++
			}
		}
		if told != 2 {
			t.Errorf("%d of a's runs saw ErrLeaseLost as the end of their context, want both", told)
		}
		c.clk.Advance(time.Minute)
		if st := a.Stats(); st.Refused != 2 {
			t.Errorf("a had %d ends refused, want 2", st.Refused)
		}
		c.wantStates("again", "schedule:lost", "recovery:succeeded")
	})
}

func TestALateEndDoesNotFreeTheSlotOfTheRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		late, hold := c.clk.NewGate(), c.clk.NewGate()
		var dead, live tally
		job := durable.Job{Name: "j", Handler: "h", RequestsRecovery: true}
		a := c.node("a", durable.Config{}).handle("h", dead.deaf(late)).add(job).start()
		a.trigger("j")
		b := c.node("b", durable.Config{}).handle("h", live.held(hold)).start()
		c.clk.Advance(91 * time.Second)
		a.cut(true)
		c.clk.Advance(100 * time.Second)
		if live.count() != 1 {
			t.Fatalf("%d runs on b, want the recovery", live.count())
		}
		a.cut(false)
		late.Open()
		c.clk.Advance(time.Minute)
		if _, err := b.Trigger(context.Background(), "j", nil); !errors.Is(err, durable.ErrConflict) {
			t.Errorf("Trigger while the recovery runs = %v, want ErrConflict", err)
		}
		if live.most != 1 {
			t.Errorf("%d runs at once, want 1", live.most)
		}
		hold.Open()
		c.clk.Advance(time.Second)
		c.wantStates("j", "manual:lost", "recovery:succeeded", "manual:skipped")
	})
}

func TestNodesThatStallTogetherRenewBeforeAnyIsDeclaredDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		a := c.node("a", durable.Config{}).handle("h", y.held(gate)).add(durable.Job{Name: "j", Handler: "h"}).start()
		b := c.node("b", durable.Config{}).handle("h", y.held(gate)).start()
		a.trigger("j")
		c.clk.Advance(91 * time.Second)
		c.clk.Stall(3 * time.Minute)
		c.clk.Advance(3 * time.Minute)
		if n := a.Stats().NodesDead + b.Stats().NodesDead; n != 0 {
			t.Errorf("%d nodes declared dead, want 0: all can renew", n)
		}
		gate.Open()
		c.clk.Advance(time.Second)
		if y.count() != 1 {
			t.Errorf("%d runs, want 1", y.count())
		}
	})
}

func TestWithoutALeaderAnyNodeTakesOverWithinFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, led := range []bool{true, false} {
			c := newCluster(t)
			gate := c.clk.NewGate()
			var y tally
			config := durable.Config{}
			a := c.node("a", durable.Config{Leader: nobody{}}).handle("h", y.deaf(gate))
			a.store.Store = sharedStore{c.store}
			a.add(durable.Job{Name: "j", Handler: "h"}).start()
			if !led {
				config.Leader = nobody{}
			}
			b := c.node("b", config).handle("h", y.deaf(gate))
			b.store.Store = sharedStore{c.store}
			b.start()
			a.trigger("j")
			c.clk.Advance(120 * time.Second)
			a.cut(true)
			from, to := 90*time.Second, 92*time.Second
			if !led {
				from, to = from+5*time.Second, to+5*time.Second
			}
			c.clk.Advance(from)
			if got := b.events.of(durable.EventNodeDead); len(got) != 0 {
				t.Errorf("led %v: dead %v after the last heartbeat: too early", led, from)
			}
			c.clk.Advance(to - from + time.Millisecond)
			if got := b.events.of(durable.EventNodeDead); len(got) != 1 {
				t.Errorf("led %v: %d nodes dead %v after the last heartbeat, want 1", led, len(got), to)
			}
			gate.Open()
		}
	})
}

// A sharedStore says that other processes see it.
type sharedStore struct{ durable.Store }

func (sharedStore) Shared() bool { return true }

func TestAfterAnOutageOfAShortLeaseAllSurvivorsRenewBeforeAnyIsDeclaredDead(t *testing.T) {
	for range 20 { // the backoff is random
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			var nodes []*node
			for _, name := range []string{"a", "b", "c"} {
				nodes = append(nodes, c.node(name, durable.Config{NodeTimeout: 3 * time.Second}).start())
			}
			c.clk.Advance(10 * time.Second)
			for _, n := range nodes {
				n.cut(true)
			}
			c.clk.Advance(2 * time.Minute)
			for _, n := range nodes {
				n.cut(false)
			}
			c.clk.Advance(time.Minute)
			for _, n := range nodes {
				if st := n.Stats(); st.NodesDead != 0 {
					t.Errorf("%s declared %d nodes dead, want none", n.Node(), st.NodesDead)
				}
			}
		})
	}
}

func TestAfterAnOutageAllSurvivorsRenewBeforeAnyIsDeclaredDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var y tally
		var nodes []*node
		for _, name := range []string{"a", "b", "c"} {
			n := c.node(name, durable.Config{}).handle("h", y.held(gate))
			n.add(durable.Job{Name: "j" + name, Handler: "h", AllowConcurrent: true, RequestsRecovery: true})
			nodes = append(nodes, n.start())
		}
		for _, name := range []string{"a", "b", "c"} {
			nodes[0].trigger("j" + name)
		}
		c.clk.Advance(100 * time.Second)
		for _, n := range nodes {
			n.cut(true)
		}
		c.clk.Advance(10 * time.Minute)
		for i, n := range nodes { // one hears of the store again before the others do
			n.cut(false)
			c.clk.Advance(time.Duration(i) * 7 * time.Second)
		}
		c.clk.Advance(5 * time.Minute)
		for _, n := range nodes {
			if st := n.Stats(); st.NodesDead != 0 || st.Lost != 0 {
				t.Errorf("%s: %d nodes dead, %d runs lost, want none", n.Node(), st.NodesDead, st.Lost)
			}
		}
		gate.Open()
		c.clk.Advance(time.Minute)
		for _, name := range []string{"ja", "jb", "jc"} {
			c.wantStates(name, "manual:succeeded")
		}
	})
}

func TestARestartOnTheSameStoreGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		job := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}}
		first := c.node("a", durable.Config{}).handle("h", y.quick).add(job).start()
		c.clk.Advance(3 * time.Minute)
		first.shut()
		second := c.node("a", durable.Config{}).handle("h", y.quick).add(job).start()
		if first.Node() == second.Node() {
			t.Errorf("both lives are %q", first.Node())
		}
		c.clk.Advance(2 * time.Minute)
		if y.count() != 5 {
			t.Errorf("%d runs in 5 min over a restart, want 5", y.count())
		}
		nodes, _ := second.Nodes(context.Background())
		if len(nodes) != 1 {
			t.Errorf("Nodes = %+v, want the second life only", nodes)
		}
	})
}

// A backlog is made up for in order also across the end of the node in its midst: by a
// stop, a crash, or a stop that hands back what it has not started.
func TestAnInterruptedBacklogGoesOnWhereItStopped(t *testing.T) {
	for _, end := range []string{"stop", "crash", "handed back"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var y, z tally
				gate := c.clk.NewGate()
				a := c.node("a", durable.Config{ShutdownTimeout: -1}).handle("h", func(ctx context.Context, r durable.Run) error {
					y.begin(r)
					if y.count() == 3 {
						return y.end(gate.Wait(ctx))
					}
					return y.end(nil)
				}).add(durable.Job{Name: "j", Handler: "h", RequestsRecovery: true, Triggers: []durable.Trigger{
					{Schedule: cron("0 * * * * *"), Misfire: durable.RunAll},
				}}).start()
				start := c.clk.Now()
				if end == "handed back" { // the answer of the third claim takes long, and gets lost
					a.store.set(func(ctx context.Context, call string, do func() error) error {
						err := do()
						if running := c.job("j").Running; call == "claim" && y.count() == 2 && len(running) == 1 && running[0].ID != y.all()[1].ID {
							_ = c.clk.Sleep(context.WithoutCancel(ctx), time.Second)
							return errAway
						}
						return err
					})
				}
				c.clk.Stall(10 * time.Minute)
				c.clk.Advance(500 * time.Millisecond)
				if end == "crash" {
					a.cut(true)
				} else {
					a.shut()
				}
				b := c.node("b", durable.Config{}).handle("h", z.quick).start()
				c.clk.Advance(4 * time.Minute)
				runs := z.all()
				if len(runs) < 8 {
					t.Fatalf("%d runs after the %s, want 8 and more; %v", len(runs), end, c.states("j"))
				}
				for i, r := range runs {
					if want := start.Add(time.Duration(i+3) * time.Minute); !r.ScheduledAt.Equal(want) {
						t.Fatalf("run %d after the %s is for %v, want %v", i, end, r.ScheduledAt, want)
					}
				}
				b.shut()
			})
		})
	}
}

// As one whose job somebody has locked.
func TestARunOfADeadNodeThatTheStoreDoesNotEndHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		gate := c.clk.NewGate()
		var dead, live tally
		a := c.node("a", durable.Config{MaxConcurrentRuns: 50}).handle("h", dead.deaf(gate)).
			add(durable.Job{Name: "x", Handler: "h"}).add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true, RequestsRecovery: true}).start()
		for i := range 20 {
			if a.trigger("j"); i == 10 {
				a.trigger("x")
			}
		}
		c.clk.Advance(time.Second)
		a.cut(true)
		b := c.node("b", durable.Config{MaxConcurrentRuns: 50}).handle("h", live.quick)
		store := &refusing{b.store.Store, "x"}
		b.store.Store = store
		b.start()
		c.clk.Advance(2 * time.Minute)
		recovered := durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunSucceeded}}
		if got := len(c.runs(recovered)); got != 20 || live.count() != 20 {
			t.Errorf("%d runs are recovered, by %d runs, want 20", got, live.count())
		}
		c.wantStates("x", "manual:running")
		store.job = ""
		c.clk.Advance(30 * time.Second)
		c.wantStates("x", "manual:lost")
		gate.Open()
	})
}
