package durable_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A puppet is a Leader that the test moves.
type puppet struct {
	mu     sync.Mutex
	leader string // prefix of the leading node's ID is enough for the test: its full ID
	elect  func(ctx context.Context) error
}

func (p *puppet) Elect(ctx context.Context, node string, ttl time.Duration) (string, error) {
	p.mu.Lock()
	leader, elect := p.leader, p.elect
	p.mu.Unlock()
	if elect != nil {
		if err := elect(ctx); err != nil {
			return "", err
		}
	}
	return leader, nil
}

func (p *puppet) Resign(context.Context, string) error { return nil }

func (p *puppet) set(leader string, elect func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leader, p.elect = leader, elect
}

func TestWithAStoreThatIsNotSharedAndALeaderOnlyTheLeaderClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := &puppet{}
		var y tally
		job := durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}
		a := c.node("a", durable.Config{Leader: p}).handle("h", y.quick).add(job).start()
		b := c.node("b", durable.Config{Leader: p}).handle("h", y.quick).add(job).start()
		c.clk.Advance(40 * time.Second)
		if y.count() != 0 {
			t.Fatalf("%d runs without a leader, want 0", y.count())
		}
		for _, leader := range []*node{a, b, a} { // it flaps
			p.set(leader.Node(), nil)
			c.clk.Advance(31 * time.Second) // both have asked
			before := y.count()
			c.clk.Advance(10 * time.Second)
			runs := y.all()[before:]
			if len(runs) < 9 {
				t.Errorf("%d runs in 10 s of leadership of %s, want 10", len(runs), leader.Node())
			}
			for _, r := range runs {
				if r.Node != leader.Node() {
					t.Errorf("run on %s while %s leads", r.Node, leader.Node())
				}
			}
			if !leader.Stats().Leading {
				t.Errorf("%s does not know that it leads", leader.Node())
			}
		}
		seen := map[time.Time]bool{}
		for _, r := range y.all() {
			if seen[r.ScheduledAt] {
				t.Errorf("firing of %v ran twice", r.ScheduledAt)
			}
			seen[r.ScheduledAt] = true
		}
		if up, down := len(a.events.of(durable.EventLeading)), len(a.events.of(durable.EventFollowing)); up != 2 || down != 1 {
			t.Errorf("a led %d times and ceased %d times, want 2 and 1", up, down)
		}
	})
}

func TestLeadershipEndsByItselfWhenTheElectionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, elect := range map[string]func(c *cluster) func(ctx context.Context) error{
			"error": func(*cluster) func(context.Context) error {
				return func(context.Context) error { return errors.New("away") }
			},
			"panic": func(*cluster) func(context.Context) error { return func(context.Context) error { panic("away") } },
			"goexit": func(*cluster) func(context.Context) error {
				return func(context.Context) error { runtime.Goexit(); return nil }
			},
			"block": func(c *cluster) func(context.Context) error {
				return func(ctx context.Context) error { return c.clk.Sleep(context.WithoutCancel(ctx), 20*time.Minute) }
			},
		} {
			c := newCluster(t)
			p := &puppet{}
			var y tally
			a := c.node("a", durable.Config{Leader: p}).handle("h", y.quick).
				add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}})
			p.set(a.Node(), nil)
			a.start()
			c.clk.Advance(30 * time.Second)
			p.set(a.Node(), elect(c))
			c.clk.Advance(76 * time.Second) // trust ends 90-15 s after the last election that went well
			before := y.count()
			c.clk.Advance(30 * time.Second)
			if got := y.count() - before; got != 0 || before < 95 {
				t.Errorf("%s: %d runs after %d when the leadership was over, want 0 after about 100", name, got, before)
			}
			p.set(a.Node(), nil)
			c.clk.Advance(10 * time.Minute)
			if got := y.count() - before; got == 0 {
				t.Errorf("%s: no run after the election was well again", name)
			}
		}
	})
}

func TestOneOfSeveralNodesLeadsAndAnotherFollowsAtOnceAfterItsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		var nodes []*node
		for _, id := range []string{"a", "b", "c"} {
			nodes = append(nodes, c.node(id, durable.Config{}).handle("h", y.quick).start())
		}
		leads := func() (l []*node) {
			for _, n := range nodes {
				if n.Stats().Leading {
					l = append(l, n)
				}
			}
			return l
		}
		for range 20 {
			c.clk.Advance(7 * time.Second)
			if l := leads(); len(l) != 1 || l[0] != nodes[0] {
				t.Fatalf("%d nodes lead, want a alone", len(l))
			}
		}
		nodes[0].shut()
		c.clk.Advance(30 * time.Second)
		if l := leads(); len(l) != 1 || l[0] == nodes[0] {
			t.Errorf("%d nodes lead within a period after the stop, want one of the others", len(l))
		}
	})
}

func TestMemoryLeaderElectsOneAtATime(t *testing.T) {
	ctx := context.Background()
	l := durable.MemoryLeader()
	for _, step := range []struct {
		node, want string
		resign     bool
	}{{"a", "a", false}, {"b", "a", false}, {"b", "", true}, {"b", "a", false}, {"a", "", true}, {"b", "b", false}} {
		if step.resign {
			if err := l.Resign(ctx, step.node); err != nil {
				t.Errorf("Resign(%q) = %v", step.node, err)
			}
			continue
		}
		if got, err := l.Elect(ctx, step.node, time.Hour); got != step.want || err != nil {
			t.Errorf("Elect(%q) = %q, %v, want %q", step.node, got, err, step.want)
		}
	}
}
