package durable_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A badLog is a slog.Handler that does something to its caller.
type badLog struct{ do func() }

func (badLog) Enabled(context.Context, slog.Level) bool { return true }
func (l badLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l badLog) WithGroup(string) slog.Handler          { return l }
func (l badLog) Handle(context.Context, slog.Record) error {
	l.do()
	return nil
}

func TestObserversAndLogHandlersThatMisbehaveHarmNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		_ = block
		for name, do := range map[string]func(n **node, block chan struct{}){
			"panic":  func(**node, chan struct{}) { panic("observer") },
			"goexit": func(**node, chan struct{}) { runtime.Goexit() },
			"block":  func(_ **node, b chan struct{}) { <-b },
			"call back": func(n **node, _ chan struct{}) {
				if *n != nil {
					_ = (*n).Stats()
					_, _ = (*n).Status(context.Background(), "j")
					_ = (*n).PauseTrigger(context.Background(), "j", "none")
				}
			},
		} {
			c := newCluster(t)
			var y tally
			var n *node
			block := make(chan struct{})
			bad := func() { do(&n, block) }
			made := c.node("a", durable.Config{Observer: durable.ObserverFunc(func(durable.Event) { bad() }), Logger: slog.New(badLog{bad})}).
				handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
			n = made
			c.clk.Advance(20 * time.Minute)
			if y.count() != 1200 {
				t.Errorf("%s: %d runs in 20 min, want 1200", name, y.count())
			}
			if dropped := n.Stats().Dropped; (dropped > 0) != (name == "block") {
				t.Errorf("%s: %d notes dropped", name, dropped)
			}
			took, err := c.await(n.stop(context.Background()))
			if err != nil || took > 6*time.Second {
				t.Errorf("%s: Shutdown took %v and gave %v, want nil within 5 s", name, took, err)
			}
			close(block)
		}
	})
}

func TestEventsComeInOrderWithTheirParticulars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node("a", durable.Config{}).handle("h", func(context.Context, durable.Run) error { panic("once") }).
			add(durable.Job{Name: "j", Handler: "h", Retry: durable.Retry{MaxRetries: 1, Delay: 2 * time.Second}}).start()
		id := n.trigger("j")
		c.clk.Advance(5 * time.Second)
		var got []durable.EventKind
		for _, e := range n.events.all {
			if e.Job == "j" && e.Kind != durable.EventChanged {
				got = append(got, e.Kind)
				if e.Node != n.Node() || e.Time.IsZero() || e.Run == "" {
					t.Errorf("event %+v lacks its node, time or run", e)
				}
			}
		}
		want := []durable.EventKind{durable.EventStarted, durable.EventEnded, durable.EventFollowed, durable.EventStarted, durable.EventEnded}
		if len(got) != len(want) {
			t.Fatalf("events %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("event %d is %v, want %v", i, got[i], want[i])
			}
		}
		if e := n.events.of(durable.EventEnded)[0]; e.Run != id || e.State != durable.RunFailed || e.Code != durable.CodePanic || e.Attempt != 1 {
			t.Errorf("ended event %+v", e)
		}
		if st := n.Stats(); st.Claimed != 2 || st.Failed != 2 || st.Retried != 1 || st.Running != 0 || st.LeaseFor <= 0 {
			t.Errorf("Stats = %+v, want 2 claimed and failed, 1 retried", st)
		}
		if got := len(n.log.with("ERROR durable: run failed")); got != 2 {
			t.Errorf("%d lines at error level about panics, want 2", got)
		}
	})
}
