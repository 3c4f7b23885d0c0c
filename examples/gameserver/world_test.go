package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
)

// TestWorldIsRound: who walks on and on stays inside, and comes around.
func TestWorldIsRound(t *testing.T) {
	w := newWorld()
	id := w.join("me")
	for _, d := range [][2]int{{1, 0}, {-1, -1}, {0, 1}} {
		w.steer(id, d[0], d[1])
		for tick := range int64(2 * worldSize / speed * tickRate) {
			w.step(tick)
			if p := w.state().Players[0]; p.X < 0 || p.X >= worldSize || p.Y < 0 || p.Y >= worldSize {
				t.Fatalf("at tick %d the player is at %v, %v", tick, p.X, p.Y)
			}
		}
	}
	if score := w.state().Players[0].Score; score == 0 {
		t.Error("the player found no coin on the way")
	}
	if len(w.coins) != coinCount {
		t.Errorf("there are %d coins, want %d", len(w.coins), coinCount)
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct{ x, min, max float64 }{
		{5, 5, 5}, {-1, worldSize - 1, worldSize - 1}, {worldSize, 0, 0}, {-1e-300, worldSize - 1, worldSize},
	} {
		if got := wrap(c.x); got < c.min || got > c.max || got >= worldSize {
			t.Errorf("wrap(%v) = %v, want between %v and %v", c.x, got, c.min, c.max)
		}
	}
}

func TestLeavingTakesOneOut(t *testing.T) {
	w := newWorld()
	a, b, c := w.join("a"), w.join("b"), w.join("c")
	w.leave(b)
	w.leave(b)
	players := w.state().Players
	if len(players) != 2 || players[0].ID != a || players[1].ID != c {
		t.Errorf("left are %+v, want a and c", players)
	}
}

// TestSnapshotIsWholeAtAllTimes reads the file again and again while it is replaced.
func TestSnapshotIsWholeAtAllTimes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not replace a file that is open")
	}
	file := filepath.Join(t.TempDir(), "world.json")
	state := worldState{Players: make([]player, 1000)}
	if err := save(t.Context(), file, state); err != nil {
		t.Fatal(err)
	}
	saved := make(chan error, 1)
	go func() {
		var err error
		for state.Tick = 1; state.Tick <= 50 && err == nil; state.Tick++ {
			err = save(t.Context(), file, state)
		}
		saved <- err
	}()
	for last := int64(0); last < 50; {
		state, err := readSnapshot(file)
		if err != nil || len(state.Players) != 1000 || state.Tick < last {
			t.Fatalf("after tick %d the file has tick %d and %d players, %v, want a later one and 1,000",
				last, state.Tick, len(state.Players), err)
		}
		last = state.Tick
		select {
		case err := <-saved:
			if err != nil {
				t.Fatal(err)
			}
			saved = nil
		default:
		}
	}
}

// TestSaveThatIsTooLateChangesNothing: the time limit of the task passes before the
// new file is in place.
func TestSaveThatIsTooLateChangesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "world.json")
	if err := save(t.Context(), file, worldState{Tick: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := save(ctx, file, worldState{Tick: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("save() = %v, want %v", err, context.Canceled)
	}
	if state, err := readSnapshot(file); err != nil || state.Tick != 1 {
		t.Errorf("the file has tick %d, %v, want 1", state.Tick, err)
	}
	if others, _ := filepath.Glob(file + ".*"); len(others) != 0 {
		t.Errorf("left behind: %v, want nothing", others)
	}
}

// TestTerminalIsRedrawn: the block stays at the bottom, and the log above it.
func TestTerminalIsRedrawn(t *testing.T) {
	var out bytes.Buffer
	c := newConsole(&out, true)
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { _ = c.status("one", "table\n") }, "\x1b[?7lone\n\ntable\n\x1b[?7h"},
		{func() { c.printf("log\n") }, "\x1b[3A\r\x1b[Jlog\n\x1b[?7lone\n\ntable\n\x1b[?7h"},
		{func() { _ = c.status("two", "") }, "\x1b[3A\r\x1b[J\x1b[?7ltwo\n\n\x1b[?7h"},
		{c.clear, "\x1b[2A\r\x1b[J"},
		{func() { c.printf("end\n") }, "end\n"},
	} {
		out.Reset()
		step.do()
		if got := out.String(); got != step.want {
			t.Errorf("printed %q, want %q", got, step.want)
		}
	}
}
