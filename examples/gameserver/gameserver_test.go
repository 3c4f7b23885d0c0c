package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pipeNetwork is a listener whose connections are net.Pipes: in a synctest bubble
// they let time pass while everybody waits, which sockets do not.
type pipeNetwork struct {
	conns chan net.Conn
	once  sync.Once
	gone  chan struct{}
}

func newPipeNetwork() *pipeNetwork {
	return &pipeNetwork{conns: make(chan net.Conn), gone: make(chan struct{})}
}

func (n *pipeNetwork) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.gone:
		return nil, net.ErrClosed
	}
}

func (n *pipeNetwork) Close() error {
	n.once.Do(func() { close(n.gone) })
	return nil
}

func (n *pipeNetwork) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (n *pipeNetwork) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.gone:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (n *pipeNetwork) network() network { return network{game: n, dial: n.dial} }

// testGame returns a game that plays for ten seconds, and what it prints.
func testGame(t *testing.T, bots int, opts ...taskmanager.Option) (*game, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer // guarded by the console until run has returned
	g, err := newGame(config{
		snapshot: filepath.Join(t.TempDir(), "world.json"),
		bots:     bots,
		duration: 10 * time.Second,
	}, newConsole(&out, false), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return g, &out
}

func (g *game) task(t *testing.T, name string) taskmanager.Snapshot {
	t.Helper()
	for _, s := range g.manager.Report().Tasks {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no task %q", name)
	panic("unreachable")
}

func readSnapshot(file string) (worldState, error) {
	var state worldState
	b, err := os.ReadFile(file)
	if err != nil {
		return state, err
	}
	return state, json.Unmarshal(b, &state)
}

// TestTenSecondsOfGame plays a whole game and looks at all of it.
func TestTenSecondsOfGame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, out := testGame(t, 20)
		if err := g.run(t.Context(), newPipeNetwork().network()); err != nil {
			t.Fatalf("run() = %v, want nil\n%s", err, out)
		}
		checkTicks(t, g)
		checkBots(t, g)
		checkHeavy(t, g)
		checkMatchmaker(t, g)
		checkSnapshot(t, g)
		checkOutput(t, out.String())
	})
}

// checkTicks: fake time makes it exact. Ten seconds at 60 Hz are 600 ticks.
func checkTicks(t *testing.T, g *game) {
	w := g.task(t, "world.tick")
	if w.Runs != 600 || w.Ticks.Due() != 600 || w.Failures != 0 || w.Lateness.Max != 0 {
		t.Errorf("world.tick: %d runs of %d ticks, %d failures, at most %v late, want 600 of 600, 0, 0",
			w.Runs, w.Ticks.Due(), w.Failures, w.Lateness.Max)
	}
	if got := g.world.state().Tick; got != 600 {
		t.Errorf("the world is at tick %d, want 600", got)
	}
	for _, s := range g.manager.Report().Tasks {
		if s.Runs == 0 || s.State != taskmanager.Stopped || s.Panics != 0 || s.Cancelled != 0 {
			t.Errorf("%s: %d runs, %v, %d panics, %d cancelled, want some, stopped, 0, 0",
				s.Name, s.Runs, s.State, s.Panics, s.Cancelled)
		}
	}
}

func checkBots(t *testing.T, g *game) {
	b, idle := g.bots, g.server.traffic.idle.Load()
	joins, states, pings, byes := b.joins.Load(), b.states.Load(), b.pings.Load(), b.byes.Load()
	if states < 20*80 || pings < 20*8 {
		t.Errorf("20 bots were told %d states and %d pings, want at least 1,600 and 160", states, pings)
	}
	if idle == 0 || joins <= 20 {
		t.Errorf("%d sleepers were dropped, %d joins, want some and more than 20", idle, joins)
	}
	if lost := b.lost.Load(); lost != 0 || byes != joins {
		t.Errorf("%d connections failed, %d goodbyes to %d joins, want 0 and one each", lost, byes, joins)
	}
	if in, out := g.server.traffic.in.Load(), g.server.traffic.out.Load(); in == 0 || out < in {
		t.Errorf("%d bytes in, %d out, want some, and more out than in", in, out)
	}
	if left := g.world.size(); left != 0 {
		t.Errorf("%d players are left in the world, want 0", left)
	}
}

func checkHeavy(t *testing.T, g *game) {
	a := g.task(t, "analytics.rollup")
	if a.Timeouts == 0 || a.Timeouts != a.Failures || a.Successes == 0 || !errors.Is(a.LastError, taskmanager.ErrExecutionTimeout) {
		t.Errorf("analytics.rollup: %d time-outs, %d failures, %d successes, last error %v, want some, as many, some, a time-out",
			a.Timeouts, a.Failures, a.Successes, a.LastError)
	}
	if a.Duration.Max != 200*time.Millisecond {
		t.Errorf("analytics.rollup took at most %v, want its limit of 200ms", a.Duration.Max)
	}
	if s := g.task(t, "snapshot.save"); s.Ticks.Skipped() != 0 || s.Failures != 0 {
		t.Errorf("snapshot.save: %d skipped, %d failed, want none: it waits for its turn", s.Ticks.Skipped(), s.Failures)
	}
}

func checkMatchmaker(t *testing.T, g *game) {
	m := g.task(t, "matchmaker.sync")
	if m.Failures == 0 || m.ConsecutiveFailures != 0 || !errors.Is(m.LastError, errUpstream) {
		t.Errorf("matchmaker.sync: %d failures, %d in a row, last error %v, want some, 0, %v",
			m.Failures, m.ConsecutiveFailures, m.LastError, errUpstream)
	}
	if g.matchmaker.open != worldSeats-20 && g.matchmaker.open != worldSeats-19 {
		t.Errorf("after the outage the matchmaker knows of %d seats, want %d", g.matchmaker.open, worldSeats-20)
	}
}

func checkSnapshot(t *testing.T, g *game) {
	state, err := readSnapshot(g.cfg.snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if state.Tick != 600 || len(state.Players) < 19 {
		t.Errorf("the last snapshot has tick %d and %d players, want 600 and all that were there", state.Tick, len(state.Players))
	}
	if others, _ := filepath.Glob(g.cfg.snapshot + ".*"); len(others) != 0 {
		t.Errorf("left behind: %v, want nothing", others)
	}
}

func checkOutput(t *testing.T, out string) {
	for _, want := range []string{
		"  5.0s  world 60.0/s", "matchmaker.sync", "task recovered", "shutting down: time is up",
		"every run ended by itself", "world saved", "NAME ", "analytics.rollup ", "network: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not have %q", want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("the output has escape sequences, want none: it is no terminal")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestFailingTaskBacksOff asks for the task's state at the very moment of each
// failure, so it does not depend on how long the random delay is.
func TestFailingTaskBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *game
		var failures, backedOff atomic.Int64
		watch := taskmanager.ObserverFunc(func(e taskmanager.Event) {
			if e.Kind != taskmanager.KindFailed || e.Task != "matchmaker.sync" {
				return
			}
			failures.Add(1)
			h, ok := g.manager.Lookup(e.Task)
			if ok && h.State() == taskmanager.BackingOff && h.NextRun().After(e.Time) {
				backedOff.Add(1)
			}
		})
		g, _ = testGame(t, 0, taskmanager.WithObserver(watch))
		if err := g.run(t.Context(), newPipeNetwork().network()); err != nil {
			t.Fatal(err)
		}
		if f, b := failures.Load(), backedOff.Load(); f == 0 || b != f {
			t.Errorf("after %d of %d failures the task backed off, want all, and some", b, f)
		}
	})
}

// TestInterruptEndsTheGame stands for Ctrl-C.
func TestInterruptEndsTheGame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, out := testGame(t, 20)
		g.cfg.duration = 0
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*time.Millisecond, func() { interrupt(errors.New("interrupted")) })
		begun := time.Now()
		if err := g.run(ctx, newPipeNetwork().network()); err != nil {
			t.Fatalf("run() = %v, want nil", err)
		}
		if took := time.Since(begun); took < 2500*time.Millisecond || took > 3*time.Second {
			t.Errorf("the game took %v, want 2.5s and at most the run of a task more", took)
		}
		if !strings.Contains(out.String(), "shutting down: interrupted") {
			t.Errorf("the output does not tell of the interrupt:\n%s", out)
		}
	})
}

// TestStuckTaskIsReported: a shutdown that is not clean must not look like one.
func TestStuckTaskIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := testGame(t, 5)
		_, err := g.manager.ScheduleRecurring("stuck", time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = g.run(t.Context(), newPipeNetwork().network())
		var stuck *taskmanager.ShutdownError
		if !errors.As(err, &stuck) || len(stuck.Cancelled) != 1 || stuck.Cancelled[0].Name != "stuck" {
			t.Errorf("run() = %v, want the run of %q cancelled", err, "stuck")
		}
		if took := time.Since(begun); took != g.cfg.duration+drainLimit {
			t.Errorf("the game took %v, want its time and the drain limit", took)
		}
		if state, err := readSnapshot(g.cfg.snapshot); err != nil || state.Tick != 600 {
			t.Errorf("the last snapshot has tick %d, %v, want 600 all the same", state.Tick, err)
		}
	})
}

// TestUnsavedWorldIsReported: the file cannot be written.
func TestUnsavedWorldIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, out := testGame(t, 0)
		g.cfg.snapshot = filepath.Join(t.TempDir(), "no such folder", "world.json")
		if err := g.run(t.Context(), newPipeNetwork().network()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("run() = %v, want %v", err, os.ErrNotExist)
		}
		if strings.Contains(out.String(), "world saved") {
			t.Errorf("the output says it was saved:\n%s", out)
		}
	})
}

// brokenListener fails for good.
type brokenListener struct{ *pipeNetwork }

var errBroken = errors.New("broken")

func (brokenListener) Accept() (net.Conn, error) { return nil, errBroken }

func TestBrokenListenerEndsTheGame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := testGame(t, 3)
		pipes := newPipeNetwork()
		err := g.run(t.Context(), network{game: brokenListener{pipes}, dial: pipes.dial})
		if !errors.Is(err, errBroken) {
			t.Errorf("run() = %v, want %v", err, errBroken)
		}
	})
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		says string // "" for nothing
	}{
		{"", ""},
		{"-for 5s -bots 0 -debug=", ""},
		{"-bots -1 -for -1s", "gameserver: -bots -1: must not be negative\n-for -1s: must not be negative\n"},
		{"10s", "gameserver: unexpected [\"10s\"]\n"},
	} {
		var out bytes.Buffer
		_, err := parseFlags(strings.Fields(c.args), &out)
		if (err == nil) != (c.says == "") || out.String() != c.says {
			t.Errorf("parseFlags(%q) = %v and says %q, want %q", c.args, err, out.String(), c.says)
		}
	}
}
