package taskmanager

import (
	"reflect"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// newSource puts a clock behind the engine's seam. The real one is not read
// through the Clock interface but straight, for speed.
func newSource(c clock.Clock) seam.Source {
	if reflect.TypeOf(c) == reflect.TypeOf(clock.New()) {
		return realSource{base: time.Now().Add(-1)}
	}
	return newClockSource(c)
}

// realSource is package time. It is the one place that calls it; its base belongs
// to one manager, so that one made in a synctest bubble lives on the bubble's time.
type realSource struct{ base time.Time }

func (s realSource) Now() (time.Time, int64) {
	now := time.Now()
	return now, int64(now.Sub(s.base))
}

func (s realSource) Mono() int64    { return int64(time.Since(s.base)) }
func (s realSource) TwoHands() bool { return true }

func (s realSource) NewTimer(f func()) seam.Timer {
	t := time.AfterFunc(maxDuration, f)
	t.Stop()
	return realTimer{t}
}

type realTimer struct{ *time.Timer }

func (t realTimer) Reset(d time.Duration) { t.Timer.Reset(d) }
func (t realTimer) Stop()                 { t.Timer.Stop() }

// clockSource is a clock of package clock that is not the real one: its Mock, or
// somebody's own. It has one hand unless its Now has a monotonic reading.
//
// Of the Mock's timers only AfterFunc is of use here: one with a channel blocks
// the Mock, with its lock held, as soon as nobody takes what it sends.
type clockSource struct {
	clock    clock.Clock
	twoHands bool

	// handMu guards the next two, and is held while the clock is read: else a reader
	// that another has overtaken would look like a clock set back.
	handMu sync.Mutex
	base   time.Time // the instant at which the monotonic hand was at 0
	last   time.Time // the latest reading

	mu      sync.Mutex
	quiet   *sync.Cond // one of the following has changed
	changes uint64     // how often
	busy    int        // pieces of work going on
	pumping int        // callbacks going on
	driven  bool       // by package tasktest: settle each run before the next
}

func newClockSource(c clock.Clock) *clockSource {
	now := c.Now()
	s := &clockSource{clock: c, base: now.Add(-1), last: now, twoHands: now != now.Round(0)}
	s.quiet = sync.NewCond(&s.mu)
	return s
}

// Now reads the clock. If it has been set back, which a Mock can be, the monotonic
// hand goes on from where it was.
func (s *clockSource) Now() (time.Time, int64) {
	s.handMu.Lock()
	defer s.handMu.Unlock()
	now := s.clock.Now()
	if now.Before(s.last) {
		s.base = s.base.Add(-s.last.Sub(now))
	}
	s.last = now
	return now, int64(now.Sub(s.base))
}

func (s *clockSource) Mono() int64 {
	_, mono := s.Now()
	return mono
}

func (s *clockSource) TwoHands() bool { return s.twoHands }

func (s *clockSource) NewTimer(f func()) seam.Timer {
	return &clockTimer{source: s, f: f}
}

func (s *clockSource) change(counter *int, delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*counter += delta
	s.changes++
	s.quiet.Broadcast()
}

// Busy counts the work begun and not ended.
func (s *clockSource) Busy(delta int) { s.change(&s.busy, delta) }

// Settle waits for the work to end if a test drives the clock through package
// tasktest. Else it cannot wait: the Mock moves on by itself.
func (s *clockSource) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.driven && s.busy > 0 {
		s.quiet.Wait()
	}
}

// state tells whether anything is going on, and the number of changes so far.
func (s *clockSource) state() (idle bool, changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy == 0 && s.pumping == 0, s.changes
}

// await returns when there have been more changes, or stop tells to give up.
func (s *clockSource) await(changes uint64, stop func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.changes == changes && !stop() {
		s.quiet.Wait()
	}
}

// An inspector is the seam by which package tasktest drives a manager on a Mock.
type inspector struct {
	engine *engine
	source *clockSource
}

func (i inspector) NextWake() (time.Time, bool) {
	i.engine.mu.Lock()
	when := i.engine.wheel.wake()
	i.engine.mu.Unlock()
	if when == never {
		return time.Time{}, false
	}
	now, mono := i.source.Now()
	return now.Add(time.Duration(when - mono)), true
}

func (i inspector) Drive(on bool) {
	i.source.mu.Lock()
	i.source.driven = on
	i.source.quiet.Broadcast()
	i.source.mu.Unlock()
	i.engine.armAnew() // the Mock may have been set back since
}

func (i inspector) Settled(stop <-chan struct{}) bool {
	stopped := false
	give := make(chan struct{})
	defer close(give)
	go func() {
		select {
		case <-stop:
			i.source.mu.Lock()
			stopped = true
			i.source.quiet.Broadcast()
			i.source.mu.Unlock()
		case <-give:
		}
	}()
	for {
		idle, changes := i.source.state()
		if idle {
			if next, ok := i.NextWake(); !ok || next.After(i.source.clock.Now()) {
				return true
			}
		}
		i.source.await(changes, func() bool { return stopped })
		i.source.mu.Lock()
		gaveUp := stopped
		i.source.mu.Unlock()
		if gaveUp {
			return false
		}
	}
}

// clockTimer is a timer on such a clock.
type clockTimer struct {
	source *clockSource
	f      func()
	timer  *clock.Timer // nil until first armed. A timer is used by one goroutine at a time; the engine's under engine.mu
	turn   sync.Mutex   // held while f runs: the Mock's calls, and our own, one by one
}

// call is what the clock calls.
func (t *clockTimer) call() {
	t.source.change(&t.source.pumping, +1)
	t.called()
}

func (t *clockTimer) called() {
	defer t.source.change(&t.source.pumping, -1)
	t.turn.Lock()
	defer t.turn.Unlock()
	t.f()
}

// Reset does not leave to the clock what is due now: the Mock would come to that when
// it moves the next time.
func (t *clockTimer) Reset(d time.Duration) {
	switch {
	case d <= 0:
		t.Stop()
		t.source.change(&t.source.pumping, +1) // at once, so that Settled waits for it
		go t.called()
	case t.timer == nil:
		t.timer = t.source.clock.AfterFunc(d, t.call)
	default:
		t.timer.Reset(d)
	}
}

func (t *clockTimer) Stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}
