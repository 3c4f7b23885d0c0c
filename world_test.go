package taskmanager_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// A world is a manager on fake time. When its test ends it checks the books: the
// ledger of every interval task against the instants of its grid, counted one by
// one, and runs against outcomes.
type world struct {
	t   *testing.T
	m   *taskmanager.TaskManager
	clk *tasktest.Clock

	age    time.Duration // what the monotonic hand has been moved by
	grids  []grid
	others bool // there are tasks that are not in grids

	diary
}

// A grid is what is known of a task independently of the engine.
type grid struct {
	h     *taskmanager.Handle
	from  time.Duration // age at which it was scheduled
	until time.Duration // age at which it was stopped; 0 if it was not
	every time.Duration // 0: a schedule
}

func newWorld(t *testing.T, opts ...taskmanager.Option) *world {
	t.Helper()
	w := &world{t: t}
	w.m, w.clk = tasktest.New(t, append([]taskmanager.Option{
		taskmanager.WithObserver(&w.diary), taskmanager.WithLogger(slog.New(&w.diary)),
	}, opts...)...)
	w.now, w.start = w.clk.Now, w.clk.Now()
	t.Cleanup(w.checkBooks)
	return w
}

func (w *world) advance(d time.Duration) { w.t.Helper(); w.clk.Advance(d); w.age += d }
func (w *world) stall(d time.Duration)   { w.t.Helper(); w.clk.Stall(d); w.age += d }

func (w *world) keep(h *taskmanager.Handle, err error, every time.Duration) *taskmanager.Handle {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.grids = append(w.grids, grid{h: h, from: w.age, every: every})
	return h
}

// every schedules an interval task, without jitter unless opts say otherwise.
func (w *world) every(name string, interval time.Duration, fn taskmanager.Func, opts ...taskmanager.TaskOption) *taskmanager.Handle {
	w.t.Helper()
	h, err := w.m.ScheduleRecurring(name, interval, fn, append([]taskmanager.TaskOption{taskmanager.WithJitter(0)}, opts...)...)
	return w.keep(h, err, interval)
}

func (w *world) ticks(name string, interval time.Duration, fn taskmanager.TickFunc, opts ...taskmanager.TaskOption) *taskmanager.Handle {
	w.t.Helper()
	h, err := w.m.ScheduleTicks(name, interval, fn, append([]taskmanager.TaskOption{taskmanager.WithJitter(0)}, opts...)...)
	return w.keep(h, err, interval)
}

func (w *world) schedule(name string, s taskmanager.Schedule, fn taskmanager.Func, opts ...taskmanager.TaskOption) *taskmanager.Handle {
	w.t.Helper()
	h, err := w.m.Schedule(name, s, fn, opts...)
	return w.keep(h, err, 0)
}

func (w *world) stop(h *taskmanager.Handle) {
	h.Stop()
	for i := range w.grids {
		if w.grids[i].h == h {
			w.grids[i].until = w.age
		}
	}
}

func (w *world) checkBooks() {
	t := w.t
	t.Helper()
	var sum taskmanager.Ledger
	for _, g := range w.grids {
		checkRuns(t, g.h)
		sum = plus(sum, g.h.Ticks())
		opts := g.h.Options()
		over := g.h.Err() != nil && g.until == 0 || g.h.State() == taskmanager.Complete
		if g.every == 0 || over || g.h.Interval() != g.every || opts.Jitter > 0 || opts.FixedDelay || opts.MaxRuns > 0 || !opts.StartAt.IsZero() || !opts.EndAt.IsZero() {
			continue
		}
		until := w.age
		if g.until > 0 {
			until = g.until
		}
		var want uint64
		at := g.from
		if !opts.Immediately {
			at += g.every
		}
		for ; at <= until; at += g.every {
			want++
		}
		if l := g.h.Ticks(); l.Due() != want {
			t.Errorf("%s: the ledger has %d ticks, the grid %d: %+v", g.h.Name(), l.Due(), want, l)
		}
	}
	totals := w.m.Totals()
	if totals.Runs != totals.Successes+totals.Failures+totals.Cancelled+uint64(totals.Running) {
		t.Errorf("Totals do not add up: %+v", totals)
	}
	if totals.EnginePanics != 0 {
		t.Errorf("EnginePanics = %d, want 0", totals.EnginePanics)
	}
	if !w.others && totals.Ticks != sum {
		t.Errorf("Totals().Ticks = %+v, want the sum of the tasks', %+v", totals.Ticks, sum)
	}
}

// checkRuns checks one task's snapshot against itself.
func checkRuns(t *testing.T, h *taskmanager.Handle) {
	t.Helper()
	s := h.Snapshot()
	if s.Runs != s.Successes+s.Failures+s.Cancelled+uint64(s.InFlight) {
		t.Errorf("%s: runs do not add up: %+v", s.Name, s)
	}
	if s.Ticks.Ran > s.Runs {
		t.Errorf("%s: %d ticks ran in %d runs", s.Name, s.Ticks.Ran, s.Runs)
	}
	if ended := s.Runs - uint64(s.InFlight); s.Duration.Count != ended || s.Lateness.Count != ended {
		t.Errorf("%s: distributions of %d and %d runs, want %d", s.Name, s.Lateness.Count, s.Duration.Count, ended)
	}
}

func plus(a, b taskmanager.Ledger) taskmanager.Ledger {
	a.Ran += b.Ran
	a.SkippedRunning += b.SkippedRunning
	a.SkippedBackoff += b.SkippedBackoff
	a.SkippedLimit += b.SkippedLimit
	a.SkippedPaused += b.SkippedPaused
	a.Missed += b.Missed
	a.Coalesced += b.Coalesced
	a.Dropped += b.Dropped
	a.Pending += b.Pending
	return a
}

// wantTicks checks a ledger.
func wantTicks(t *testing.T, h *taskmanager.Handle, want taskmanager.Ledger) {
	t.Helper()
	if got := h.Ticks(); got != want {
		t.Errorf("%s: Ticks = %+v,\nwant %+v", h.Name(), got, want)
	}
}

// A diary writes down what happens: lines of the test's own, events, log lines.
type diary struct {
	now   func() time.Time
	start time.Time

	mu     sync.Mutex
	lines  []string
	events []taskmanager.Event
	logged []string
}

// note adds a line with the time on the clock.
func (d *diary) note(format string, args ...any) {
	line := fmt.Sprint(d.now().Sub(d.start), " ", fmt.Sprintf(format, args...))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("happened:\n\t%s\nwant:\n\t%s", strings.Join(d.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (d *diary) Observe(e taskmanager.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// of returns the events of a task that have one of the kinds; all if none is given.
func (d *diary) of(task string, kinds ...taskmanager.Kind) (found []taskmanager.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e.Task == task && (len(kinds) == 0 || slices.Contains(kinds, e.Kind)) {
			found = append(found, e)
		}
	}
	return found
}

// ticksOf adds up the ticks that events of that kind told of.
func (d *diary) ticksOf(task string, kind taskmanager.Kind) (n uint64) {
	for _, e := range d.of(task, kind) {
		n += e.Count
	}
	return n
}

func (d *diary) Enabled(context.Context, slog.Level) bool { return true }
func (d *diary) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *diary) WithGroup(string) slog.Handler            { return d }
func (d *diary) Handle(_ context.Context, r slog.Record) error {
	task := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "task" {
			task = " " + a.Value.String()
		}
		return true
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logged = append(d.logged, r.Level.String()+" "+r.Message+task)
	return nil
}

func (d *diary) wantLog(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.logged, want) {
		t.Errorf("logged:\n\t%s\nwant:\n\t%s", strings.Join(d.logged, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func nothing(context.Context) error { return nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A handClock is a time source whose timers the test calls itself, on its own
// goroutine, when it likes: early, twice, while another call is stuck in a run. The
// engine takes it for a real clock.
type handClock struct {
	mu     sync.Mutex
	mono   int64
	timers []*handTimer
	arms   int // how often one has been armed
}

type handTimer struct {
	clock *handClock
	when  int64 // 0: stopped
	f     func()
}

func (c *handClock) option() taskmanager.Option { return seam.WithSource(c).(taskmanager.Option) }

func newHandClock() *handClock { return &handClock{mono: 1} }

func (c *handClock) Now() (time.Time, int64) {
	mono := c.Mono()
	return time.Date(2026, 1, 1, 0, 0, 0, int(mono%1e9), time.UTC).Add(time.Duration(mono-mono%1e9) - 1), mono
}

func (c *handClock) Mono() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

func (c *handClock) TwoHands() bool { return true }

func (c *handClock) NewTimer(f func()) seam.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{clock: c, f: f}
	c.timers = append(c.timers, t)
	return t
}

func (t *handTimer) Reset(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.when = t.clock.mono + int64(max(0, d))
	t.clock.arms++
}

func (t *handTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.when = 0
}

// armed is the earliest instant a timer is armed for, 0 if none is.
func (c *handClock) armed() (when int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.next(); t != nil {
		when = t.when
	}
	return when
}

// next is the timer that is armed for the earliest instant, nil if none is armed. Called
// with c.mu held.
func (c *handClock) next() (next *handTimer) {
	for _, t := range c.timers {
		if t.when > 0 && (next == nil || t.when < next.when) {
			next = t
		}
	}
	return next
}

func (c *handClock) timesArmed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arms
}

// move sets the hand on by d, and calls no timer.
func (c *handClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono += int64(d)
}

// ring calls the engine's timer, whatever it is armed for.
func (c *handClock) ring() { c.call(func() *handTimer { return c.timers[0] }) }

func (c *handClock) call(which func() *handTimer) {
	c.mu.Lock()
	t := which()
	t.when = 0
	c.mu.Unlock()
	t.f()
}

// run moves from timer to timer for d.
func (c *handClock) run(d time.Duration) {
	target := c.Mono() + int64(d)
	for when := c.armed(); when > 0 && when <= target; when = c.armed() {
		c.move(time.Duration(max(0, when-c.Mono())))
		c.call(c.next)
	}
	c.move(time.Duration(target - c.Mono()))
}
