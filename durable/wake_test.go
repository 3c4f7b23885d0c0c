package durable_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// A hub is a Waker for the nodes of one process.
type hub struct {
	mu    sync.Mutex
	next  int
	fs    map[int]func(durable.Note)
	notes []durable.Note
	fail  func() error // called by Notify
}

func (h *hub) Notify(_ context.Context, n durable.Note) error {
	h.mu.Lock()
	h.notes = append(h.notes, n)
	fail := h.fail
	var fs []func(durable.Note)
	for _, f := range h.fs {
		fs = append(fs, f)
	}
	h.mu.Unlock()
	if fail != nil {
		return fail()
	}
	for _, f := range fs {
		f(n)
	}
	return nil
}

func (h *hub) Listen(f func(durable.Note)) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fs == nil {
		h.fs = map[int]func(durable.Note){}
	}
	h.next++
	id := h.next
	h.fs[id] = f
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.fs, id)
	}, nil
}

func (h *hub) count(n durable.Note) (k int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, note := range h.notes {
		if note == n {
			k++
		}
	}
	return k
}

func TestAnIdleNodePollsOncePerPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).start()
		before := n.store.count("claim")
		c.clk.Advance(10 * time.Minute)
		if got := n.store.count("claim") - before; got < 118 || got > 122 {
			t.Errorf("%d claims in 10 idle minutes, want 120", got)
		}
	})
}

func TestADueInstantThatIsKnownIsMetExactlyWhateverThePollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).start()
		for i := range 5 {
			at := c.clk.Now().Add(time.Duration(i)*1700*time.Millisecond + 1234567*time.Microsecond)
			s, err := cronsched.Once(at)
			if err != nil {
				t.Fatal(err)
			}
			n.add(durable.Job{Name: "j" + string(rune('0'+i)), Handler: "h", Triggers: []durable.Trigger{{Schedule: s}}})
		}
		c.clk.Advance(time.Minute)
		rows := c.runs(durable.RunQuery{})
		if len(rows) != 5 {
			t.Fatalf("%d runs, want 5", len(rows))
		}
		for _, r := range rows {
			if !r.StartedAt.Equal(r.ScheduledAt) {
				t.Errorf("run for %v started at %v", r.ScheduledAt, r.StartedAt)
			}
		}
	})
}

func TestSeveralNodesAddAtMostTenMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		for _, name := range []string{"a", "b", "c"} {
			c.node(name, durable.Config{}).handle("h", y.quick).
				add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).start()
		}
		c.clk.Advance(2 * time.Minute)
		rows := c.runs(durable.RunQuery{})
		late := 0
		for _, r := range rows[1:] {
			d := r.StartedAt.Sub(r.ScheduledAt)
			if d < 0 || d > 10*time.Millisecond {
				t.Errorf("run for %v started %v late, want at most 10ms", r.ScheduledAt, d)
			}
			if d > 0 {
				late++
			}
		}
		if len(rows) < 119 || late == 0 {
			t.Errorf("%d runs, %d of them spread, want 120, most of them", len(rows), late)
		}
	})
}

func TestAMinuteBoundaryWithThousandsOfTriggersIsWorkedOffAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick)
		for i := range 2000 {
			n.add(durable.Job{Name: "j" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)), Handler: "h",
				Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *")}}})
		}
		n.start()
		c.clk.Advance(61 * time.Second)
		if y.count() != 2000 {
			t.Errorf("%d runs a second after the minute, want 2000", y.count())
		}
	})
}

func TestWhatAnotherNodeAddsIsFoundAtThePollAndWithAWakerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, woken := range []bool{false, true} {
			c := newCluster(t)
			var w durable.Waker
			if woken {
				w = &hub{}
			}
			var y, z tally
			a := c.node("a", durable.Config{Waker: w, MaxConcurrentRuns: 1}).handle("only-a", z.quick).handle("h", y.quick).start()
			b := c.node("b", durable.Config{Waker: w}).handle("h", y.quick).start()
			_ = a
			c.clk.Advance(61 * time.Second)
			// b knows of the handler but is out of it: its claims fail
			b.handleless()
			b.trigger2("j")
			want := 0
			if woken {
				c.clk.Advance(50 * time.Millisecond)
				want = 1
			} else {
				c.clk.Advance(0)
			}
			if y.count() != want {
				t.Errorf("woken %v: %d runs at once, want %d", woken, y.count(), want)
			}
			c.clk.Advance(5100 * time.Millisecond)
			if y.count() != 1 {
				t.Errorf("woken %v: %d runs after a poll interval, want 1", woken, y.count())
			}
		}
	})
}

// handleless keeps the node from claiming.
func (n *node) handleless() {
	n.store.set(func(ctx context.Context, call string, do func() error) error {
		if call == "claim" {
			return errAway
		}
		return do()
	})
	n.c.clk.Advance(time.Second)
}

// trigger2 adds a job and runs it by hand.
func (n *node) trigger2(job string) {
	n.c.t.Helper()
	n.add(durable.Job{Name: job, Handler: "h"})
	if _, err := n.Trigger(context.Background(), job, nil); err != nil {
		n.c.t.Fatal(err)
	}
}

func TestNotesAreDebounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		h := &hub{}
		var y tally
		n := c.node("a", durable.Config{Waker: h, MaxConcurrentRuns: 1000}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", AllowConcurrent: true}).start()
		for range 500 {
			if _, err := n.Trigger(context.Background(), "j", nil); err != nil {
				t.Fatal(err)
			}
		}
		c.clk.Advance(9 * time.Millisecond)
		if got := h.count(durable.NoteDue); got != 1 {
			t.Errorf("%d notes for 500 triggers at once, want 1", got)
		}
		c.clk.Advance(time.Second)
		if got := h.count(durable.NoteDue); got != 2 {
			t.Errorf("%d notes a second later, want 2: another at the end of the window", got)
		}
		if y.count() != 500 {
			t.Errorf("%d runs, want 500", y.count())
		}
		if _, err := n.Trigger(context.Background(), "j", nil); err != nil {
			t.Fatal(err)
		}
		c.clk.Advance(time.Second)
		if got := h.count(durable.NoteDue); got != 3 {
			t.Errorf("%d notes after one more trigger, want 3", got)
		}
	})
}

func TestAWakerThatFailsPanicsOrBlocksCostsTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func(block chan struct{}) func() error{
			"error":  func(chan struct{}) func() error { return func() error { return errors.New("away") } },
			"panic":  func(chan struct{}) func() error { return func() error { panic("away") } },
			"goexit": func(chan struct{}) func() error { return func() error { runtime.Goexit(); return nil } },
			"block":  func(b chan struct{}) func() error { return func() error { <-b; return nil } },
		} {
			c := newCluster(t)
			block := make(chan struct{})
			h := &hub{fail: fail(block)}
			var y tally
			n := c.node("a", durable.Config{Waker: h}).handle("h", y.quick).add(durable.Job{Name: "j", Handler: "h"}).start()
			for range 10 {
				n.trigger("j")
				c.clk.Advance(time.Second)
			}
			if y.count() != 10 {
				t.Errorf("%s: %d runs, want 10", name, y.count())
			}
			if logged := len(n.log.with("note could not be sent")); name != "block" && name != "goexit" && logged != 1 {
				t.Errorf("%s: logged %d times in 10 s, want once", name, logged)
			}
			if sent := h.count(durable.NoteDue); name != "block" && sent < 10 {
				t.Errorf("%s: %d notes tried, want 10: it may be well again", name, sent)
			}
			close(block)
			n.shut()
		}
	})
}

// A badListener is a Waker whose Listen, or the end of it, goes wrong.
type badListener struct{ listen, stop func() error }

func (badListener) Notify(context.Context, durable.Note) error { return nil }
func (b badListener) Listen(func(durable.Note)) (func(), error) {
	if b.listen != nil {
		if err := b.listen(); err != nil {
			return nil, err
		}
	}
	return func() { _ = b.stop() }, nil
}

func TestAWakerThatCannotListenIsAnErrorOfStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		for name, listen := range map[string]func() error{
			"error": func() error { return away },
			"panic": func() error { panic(away) },
		} {
			c := newCluster(t)
			n := c.node("a", durable.Config{Waker: badListener{listen: listen}})
			if err := n.Start(context.Background()); err == nil {
				t.Errorf("%s: Start = nil, want an error", name)
			}
			n.shut()
		}
	})
}

func TestAWakerWhoseStopPanicsOrBlocksHoldsNoShutdownUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, stop := range map[string]func(b chan struct{}) func() error{
			"panic": func(chan struct{}) func() error { return func() error { panic("away") } },
			"block": func(b chan struct{}) func() error { return func() error { <-b; return nil } },
		} {
			c := newCluster(t)
			block := make(chan struct{})
			n := c.node("a", durable.Config{Waker: badListener{stop: stop(block)}}).start()
			took, err := c.await(n.stop(context.Background()))
			if took > 6*time.Second || err != nil {
				t.Errorf("%s: Shutdown took %v and gave %v, want 5s at most and nil", name, took, err)
			}
			close(block)
		}
	})
}

func TestAFailedStartCanBeTriedAgainAndListensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		h := &hub{}
		var y tally
		n := c.node("a", durable.Config{Waker: h}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}})
		for _, broken := range []string{"edit", "beat", "jobs"} {
			calls := 0
			n.store.set(func(ctx context.Context, call string, do func() error) error {
				if call == broken {
					if calls++; broken != "jobs" || calls > 1 {
						return errAway
					}
				}
				return do()
			})
			if err := n.Start(context.Background()); !errors.Is(err, errAway) {
				t.Errorf("Start without %s = %v, want %v", broken, err, errAway)
			}
		}
		n.store.set(nil)
		n.start()
		if err := n.Start(context.Background()); !errors.Is(err, durable.ErrStarted) {
			t.Errorf("Start again = %v, want ErrStarted", err)
		}
		h.mu.Lock()
		listening := len(h.fs)
		h.mu.Unlock()
		if listening != 1 {
			t.Errorf("%d listeners, want 1", listening)
		}
		c.clk.Advance(10 * time.Second)
		if y.count() != 10 {
			t.Errorf("%d runs in 10 s, want 10", y.count())
		}
		n.shut()
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.fs) != 0 {
			t.Errorf("%d listeners after the stop, want 0", len(h.fs))
		}
	})
}

func TestStepsOfTheWallClockNeitherRepeatNorStopAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 * * * * *"), Misfire: durable.Skip}}}).start()
		c.clk.Advance(150 * time.Second) // 2 runs
		c.clk.StepWall(-90 * time.Second)
		c.clk.Advance(2 * time.Minute)
		if y.count() != 3 { // at 00:03:00 on the wall, 3 minutes after the second
			t.Errorf("%d runs after a step back, want 3", y.count())
		}
		c.clk.StepWall(30 * time.Minute)
		c.clk.Advance(3 * time.Minute)
		runs := y.all()
		at := func(i, j durable.Run) int { return i.ScheduledAt.Compare(j.ScheduledAt) }
		if !slices.IsSortedFunc(runs, at) || len(runs) < 5 {
			t.Errorf("runs %+v, want 5 or more, in order", runs)
		}
		seen := map[string]bool{}
		for _, r := range runs {
			if seen[r.IdempotencyKey] {
				t.Errorf("%s ran twice", r.IdempotencyKey)
			}
			seen[r.IdempotencyKey] = true
		}
		_ = n
	})
}
