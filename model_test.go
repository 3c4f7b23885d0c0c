package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// The model is a task as the spec describes it, in the plainest way: it walks from
// instant to instant and decides each tick by itself. The random test below does the
// same operations on it and on the engine, and wants all that can be seen to be equal.
type model struct {
	opts     taskmanager.RecurringOptions
	interval time.Duration
	now      time.Duration // since the test's start
	due      time.Duration // of the next tick
	noDue    bool          // no tick is set: fixed delay, during a run
	index    int64         // of the next tick
	over     bool
	paused   bool

	running  bool
	end      time.Duration // of the run
	fails    bool          // it will
	timesOut bool
	held     []int64
	floor    time.Duration
	streak   int

	starts []string
	ledger taskmanager.Ledger
	runs   struct{ started, successes, failures, timeouts, cancelled uint64 }
	next   body // what the next run does
}

// A body is how a run behaves.
type body struct {
	lasts   time.Duration
	fails   bool
	ignores bool // its context
}

func (m *model) advance(d time.Duration) {
	for target := m.now + d; ; {
		at, what := target, ""
		earliest := func(t time.Duration, name string) {
			if t <= at && t >= m.now {
				at, what = t, name
			}
		}
		if !m.over && !m.noDue {
			earliest(m.due, "tick")
		}
		if !m.over && !m.running && len(m.held) > 0 {
			earliest(max(m.floor, m.now), "floor")
		}
		if m.running {
			earliest(m.end, "end")
		}
		m.now = at
		switch what {
		case "":
			return
		case "tick":
			m.tick()
		case "floor":
			m.serveHeld()
		case "end":
			m.finish()
		}
	}
}

func (m *model) tick() {
	k := m.index
	m.index++
	m.due += m.interval
	m.noDue = m.opts.FixedDelay
	policy := m.opts.Overlap
	switch {
	case m.paused:
		m.ledger.SkippedPaused++
	case m.floor > m.now:
		m.ledger.SkippedBackoff += uint64(len(m.held))
		m.held = []int64{k}
	case m.running && policy == taskmanager.Skip:
		m.ledger.SkippedRunning++
	case m.running && policy == taskmanager.Coalesce:
		m.ledger.Coalesced += uint64(len(m.held))
		m.held = []int64{k}
	case m.running:
		m.held = append(m.held, k)
		if len(m.held) > catchUp {
			m.held = m.held[1:]
			m.ledger.Dropped++
		}
	default:
		m.start(k)
	}
	if m.opts.FixedDelay && m.noDue && !m.running && len(m.held) == 0 && !m.paused {
		panic("model: a delayed task with nothing to come")
	}
}

const catchUp = 3

func (m *model) serveHeld() {
	if m.floor > 0 && m.heldByBackoff() {
		m.ledger.SkippedBackoff += uint64(len(m.held) - 1)
		m.held = m.held[len(m.held)-1:]
	}
	k := m.held[0]
	m.held = m.held[1:]
	m.start(k)
}

// heldByBackoff tells whether the floor was what the held ticks waited for last.
func (m *model) heldByBackoff() bool { return m.floor == m.now }

func (m *model) start(k int64) {
	b := m.next
	m.running = true
	m.runs.started++
	if k >= 0 {
		m.ledger.Ran++
	}
	m.starts = append(m.starts, fmt.Sprintf("%v #%d", m.now, k))
	m.end, m.fails, m.timesOut = m.now+b.lasts, b.fails, false
	if limit := m.opts.ExecutionTimeout; limit > 0 && b.lasts >= limit {
		m.fails, m.timesOut = true, true
		if !b.ignores {
			m.end = m.now + limit
		}
	}
	if m.opts.MaxRuns > 0 && m.runs.started >= m.opts.MaxRuns {
		m.noDue, m.due = true, 1<<62
		m.ledger.Missed += uint64(len(m.held))
		m.held = nil
	}
}

func (m *model) finish() {
	m.running = false
	if m.fails {
		m.runs.failures++
		m.streak++
		if m.timesOut {
			m.runs.timeouts++
		}
		if m.streak >= m.opts.FailuresBeforeBackoff {
			m.floor = max(m.floor, m.now+delayAfter(m.streak-m.opts.FailuresBeforeBackoff))
		}
	} else {
		m.runs.successes++
		m.streak = 0
	}
	if m.over {
		return
	}
	if m.opts.MaxRuns > 0 && m.runs.started >= m.opts.MaxRuns {
		m.over = true
		return
	}
	if m.opts.FixedDelay && len(m.held) == 0 {
		m.due, m.noDue = m.now+m.interval, m.paused // paused: Resume sets it
	}
	if m.floor > m.now && len(m.held) > 1 {
		m.ledger.SkippedBackoff += uint64(len(m.held) - 1)
		m.held = m.held[len(m.held)-1:]
	}
}

func (m *model) pause() {
	if m.over || m.paused {
		return
	}
	m.paused = true
	m.ledger.SkippedPaused += uint64(len(m.held))
	m.held = nil
}

func (m *model) resume() {
	if m.over || !m.paused {
		return
	}
	m.paused = false
	if m.opts.FixedDelay && m.noDue && !m.running {
		m.due, m.noDue = m.now+m.interval, false
	}
}

func (m *model) runNow() error {
	switch {
	case m.over || m.opts.MaxRuns > 0 && m.runs.started >= m.opts.MaxRuns:
		return taskmanager.ErrStopped
	case m.running:
		return taskmanager.ErrAlreadyRunning
	}
	m.start(-1)
	return nil
}

func (m *model) reschedule(interval time.Duration) {
	if m.over {
		return
	}
	m.ledger.Missed += uint64(len(m.held))
	m.held = nil
	m.interval, m.index = interval, 1
	m.due, m.noDue = m.now+interval, false
	if m.opts.MaxRuns > 0 && m.runs.started >= m.opts.MaxRuns {
		m.noDue = true
	}
}

func (m *model) stop() {
	if m.over {
		return
	}
	m.over = true
	m.ledger.Missed += uint64(len(m.held))
	m.held = nil
	if m.running && !m.next.ignores {
		m.cancel()
	}
}

func (m *model) cancel() {
	m.running = false
	m.runs.cancelled++
}

// A steps policy gives delays that the model can know.
type steps struct{ n int }

func delayAfter(n int) time.Duration {
	return time.Duration(min(n, 4))*37*time.Millisecond + 11*time.Microsecond
}
func (s *steps) NextBackOff() time.Duration { s.n++; return delayAfter(s.n - 1) }
func (s *steps) Reset()                     { s.n = 0 }

func randomOptions(r *rand.Rand) taskmanager.RecurringOptions {
	o := taskmanager.DefaultRecurringOptions()
	o.Jitter = 0
	o.BackoffCap = 0
	o.Backoff = func() backoff.BackOff { return &steps{} }
	o.FailuresBeforeBackoff = 1 + r.IntN(3)
	switch r.IntN(5) {
	case 0:
		o.FixedDelay = true
	case 1:
		o.Overlap = taskmanager.Coalesce
	case 2:
		o.Overlap = taskmanager.CatchUp(catchUp)
	}
	if r.IntN(3) == 0 {
		o.ExecutionTimeout = time.Duration(1+r.IntN(60))*time.Millisecond + 777
	}
	if r.IntN(4) == 0 {
		o.MaxRuns = uint64(1 + r.IntN(20))
	}
	return o
}

// randomTime has an odd number of nanoseconds, so that no two things fall together
// whose order the spec leaves open.
func randomTime(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most))) | 1
}

func TestTheEngineAgreesWithTheModel(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { againstModel(t, seed, 60) })
	}
}

func againstModel(t *testing.T, seed uint64, operations int) {
	r := rand.New(rand.NewPCG(seed, 1))
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	start := clk.Now()
	opts := randomOptions(r)
	interval := 10*time.Millisecond + randomTime(r, 40*time.Millisecond)
	mod := &model{opts: opts, interval: interval, due: interval, index: 1, next: body{lasts: randomTime(r, 20*time.Millisecond)}}
	var starts []string
	h, err := m.ScheduleTicks("t", interval, func(ctx context.Context, tick taskmanager.Tick) error {
		b := mod.next // as when the run starts; the test changes it between moves only
		starts = append(starts, fmt.Sprintf("%v #%d", clk.Now().Sub(start), tick.Index))
		if tick.Index >= 0 && tick.Lateness < 0 {
			t.Errorf("lateness %v", tick.Lateness)
		}
		if b.ignores {
			ctx = context.WithoutCancel(ctx)
		}
		if err := clk.Sleep(ctx, b.lasts); err != nil {
			return err
		}
		if b.fails {
			return errors.New("as told")
		}
		return nil
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for range operations {
		var did string
		switch p := r.IntN(20); {
		case p < 12:
			d := randomTime(r, 200*time.Millisecond)
			did = fmt.Sprintf("advance %v", d)
			mod.advance(d)
			clk.Advance(d)
		case p < 14:
			if mod.running { // a run has to keep to what it was when it began
				continue
			}
			mod.next = body{lasts: randomTime(r, 90*time.Millisecond), fails: r.IntN(2) == 0, ignores: r.IntN(4) == 0}
			did = fmt.Sprintf("bodies %+v", mod.next)
		case p < 15:
			did = "pause"
			mod.pause()
			_ = h.Pause()
		case p < 17:
			did = "resume"
			mod.resume()
			_ = h.Resume()
		case p < 18:
			did = "run now"
			want := mod.runNow()
			if got := h.RunNow(); !errors.Is(got, want) {
				t.Fatalf("RunNow = %v, want %v", got, want)
			}
			clk.Advance(0)
		case p < 19:
			d := 10*time.Millisecond + randomTime(r, 40*time.Millisecond)
			did = fmt.Sprintf("reschedule %v", d)
			mod.reschedule(d)
			_ = h.Reschedule(d)
		default:
			if r.IntN(20) > 0 {
				continue
			}
			did = "stop"
			mod.stop()
			h.Stop()
			clk.Advance(0)
		}
		log = append(log, did)
		if diff := mod.differs(h.Snapshot(), starts); diff != "" {
			t.Fatalf("seed %d, options %+v: %s\nafter %q", seed, opts, diff, log)
		}
	}
}

// differs compares all that can be seen.
func (m *model) differs(s taskmanager.Snapshot, starts []string) string {
	want := m.ledger
	want.Pending = uint64(len(m.held))
	if s.Ticks != want {
		return fmt.Sprintf("ledger = %+v, want %+v", s.Ticks, want)
	}
	if !slices.Equal(starts, m.starts) {
		return fmt.Sprintf("starts = %q,\nwant %q", starts, m.starts)
	}
	got := [...]uint64{s.Runs, s.Successes, s.Failures, s.Timeouts, s.Cancelled}
	if w := [...]uint64{m.runs.started, m.runs.successes, m.runs.failures, m.runs.timeouts, m.runs.cancelled}; got != w {
		return fmt.Sprintf("runs, successes, failures, time-outs, cancelled = %v, want %v", got, w)
	}
	if s.Runs != s.Successes+s.Failures+s.Cancelled+uint64(s.InFlight) {
		return fmt.Sprintf("runs do not add up: %+v", s)
	}
	if s.ConsecutiveFailures != m.streak {
		return fmt.Sprintf("consecutive failures = %d, want %d", s.ConsecutiveFailures, m.streak)
	}
	if (s.InFlight > 0) != m.running {
		return fmt.Sprintf("in flight = %d, want running %v", s.InFlight, m.running)
	}
	return ""
}
