package taskmanager

import (
	"fmt"
	"time"
)

// A Schedule says when a task is due next. Next returns the earliest instant after
// its argument, or false if there is none. It must be safe for concurrent use and
// quick; if it panics, takes longer than five seconds, or returns an instant that
// is not after its argument, its task stops with ErrSchedule. It is called on a
// goroutine of its own, except by Schedule, RescheduleWith and Explain, which call it
// on the caller's and wait for as long as it takes.
//
// A schedule may have further methods that the engine asks for:
//
//	FixedDelay() (delay time.Duration, runs int, ok bool)
//
// if ok, the next instant is Next(end of the run), on monotonic time; runs, if not
// 0, is the total number of runs;
//
//	Manual() bool
//
// if true, the task has no instants of its own, and waits for RunNow;
//
//	Validate() error
//
// an error means that it cannot be scheduled as it is (a calendar that is only
// named, say); and
//
//	Reason(after time.Time) string
//
// says why Next(after) gives nothing. Its text is its String method's.
type Schedule interface {
	Next(after time.Time) (time.Time, bool)
}

// seatTimeout is how long a Schedule may take to answer.
const seatTimeout = int64(5 * time.Second)

// replayLimit is the largest step back of the wall clock that is taken for a
// correction: up to it, nothing fires twice. A larger one means that the clock was
// wrong before, and the schedule starts anew from now.
const replayLimit = 3 * time.Hour

// A seat is what a task with a Schedule has beside the rest. Guarded by task.mu.
//
// The next instant is sought on a goroutine of its own, beside the run, since Next
// is user code:
//
//	seated --due--> asking --Next--> seated, ended
//	asking --seatTimeout, panic, bad answer--> the task stops
type seat struct {
	schedule Schedule      // immutable
	shift    time.Duration // jitter: added to every instant; immutable
	delay    bool          // fixed delay; immutable
	runs     uint64        // the schedule's own number of runs, 0 if it has none; immutable
	manual   bool          // immutable
	start    time.Time     // by WithStartAt; immutable

	at     time.Time // the instant seated, without shift; zero if none
	served time.Time // the last instant that fell due
	asking bool
	until  int64  // when asking: the instant at which patience ends
	ended  bool   // there is no next instant
	turn   uint64 // counts the questions, so that a late answer is recognised

	gapFrom, gapTo time.Time // the last stretch that was not asked about

	place int // index in clockWatch.tasks; guarded by engine.mu
}

// seatOf is the task's seat, nil if it has none.
func (t *task) seatOf() *seat {
	if t.extra == nil {
		return nil
	}
	return t.extra.seat
}

// ask calls the user's Next.
func (s *seat) ask(after time.Time) (next time.Time, ok bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			ok, err = false, fmt.Errorf("%w: Next panicked: %w", ErrSchedule, newPanicError(v))
		}
	}()
	next, ok = s.schedule.Next(after)
	if ok && !next.After(after) {
		return next, false, fmt.Errorf("%w: Next(%v) returned %v, which is not after it", ErrSchedule, after, next)
	}
	return next, ok, nil
}

// fault is the end of a task because of its schedule.
func (s *seat) fault(t *task, err error) departure {
	return departure{task: t, how: stopped, reason: err, seat: s}
}

// notBeforeStart is the instant after which to ask, in place of after.
func (s *seat) notBeforeStart(after time.Time) time.Time {
	start := s.start
	if !s.delay {
		start = start.Add(-1) // an instant equal to it may fire
	}
	if start.After(after) {
		return start
	}
	return after
}

// unseated tells whether a task with a schedule has to be given its next instant.
// One with a fixed delay has to wait for the end of a run.
func (t *task) unseated() bool {
	s := t.seatOf()
	return s != nil && t.origin == never && !s.asking && !s.ended && !s.manual && !s.delay
}

// delayed tells whether the next tick counts from the end of the run before.
func (t *task) delayed() bool {
	s := t.seatOf()
	return t.single && (s == nil || s.delay)
}

// forgetDue leaves a delayed task without a next tick.
func (t *task) forgetDue() {
	t.origin = never
	if s := t.seatOf(); s != nil {
		s.at = time.Time{}
	}
}

// dueAfter sets the next tick of a delayed task from the end of a run.
func (t *task) dueAfter(end int64) {
	if t.seatOf() == nil {
		t.origin = later(end, time.Duration(t.interval))
		return
	}
	t.origin = never
	if !t.exhausted() {
		t.conf.m.engine.askNext(t)
	}
}

// exhausted tells whether the task's schedule has said that it has no further instant.
func (t *task) exhausted() bool {
	s := t.seatOf()
	return s != nil && s.ended
}

// fireSeated does what fire does, for a task with a Schedule. Called with
// engine.mu and the task's mu held.
func (e *engine) fireSeated(t *task, now int64) {
	s := t.extra.seat
	if s.asking {
		if s.until <= now {
			e.endAside(s.fault(t, fmt.Errorf("%w: Next has not returned for %v", ErrSchedule, time.Duration(seatTimeout))))
		}
		return
	}
	if !s.delay && !s.at.IsZero() {
		e.follow(t) // the two hands may have come apart since
	}
	r := t.fall(now)
	if r != nil && e.admit(r) {
		e.spawn(r)
	}
	e.refile(t, now)
	e.endIfOver(t)
}

// askNext has the task's next instant sought aside. Called with engine.mu and the
// task's mu held.
func (e *engine) askNext(t *task) {
	s := t.extra.seat
	now := e.source.Mono()
	s.asking, s.until = true, now+seatTimeout
	s.turn++
	e.fileAt(t, t.wakeAt(), now)
	e.begun()
	go e.answer(t, s, s.turn)
}

// answer is the goroutine that asks.
func (e *engine) answer(t *task, s *seat, turn uint64) {
	defer e.ended()
	defer func() {
		if v := recover(); v != nil {
			e.surface("answer", v)
			e.askAgain(t, s, turn)
		} else if e.answered(t, s, turn) { // Next called Goexit
			e.m.carryOut(s.fault(t, fmt.Errorf("%w: Next called runtime.Goexit", ErrSchedule)))
		}
	}()
	if e.fault != nil {
		e.fault("answer")
	}
	e.askAndSeat(t, s, turn)
}

// askAgain asks anew if a panic of our own has left the question open, or its answer
// untaken.
func (e *engine) askAgain(t *task, s *seat, turn uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life == live && t.extra.seat == s && s.turn == turn && t.origin == never && !s.ended {
		e.askNext(t)
	}
}

func (e *engine) askAndSeat(t *task, s *seat, turn uint64) {
	after, served, asked := e.askFrom(t, s)
	next, ok, err := s.ask(after)
	gap := false
	if err == nil && !s.delay && !served.IsZero() && served.Before(after) {
		between, some, _ := s.ask(served)
		gap = some && !between.After(after)
	}
	if !e.answered(t, s, turn) {
		return
	}
	if err != nil {
		e.m.carryOut(s.fault(t, err))
		return
	}
	e.seat(t, s, turn, answer{next, ok, asked}, func() {
		if gap {
			e.noteGap(t, s, served, after)
		}
	})
}

// An answer is what a schedule says.
type answer struct {
	at    time.Time // if ok
	ok    bool
	asked hands
}

// hands are an instant on the wall clock, and on the monotonic one.
type hands struct {
	wall time.Time
	mono int64
}

func (e *engine) hands() hands {
	wall, mono := e.source.Now()
	return hands{wall.Round(0), mono}
}

// at is the wall clock's instant for another one of the monotonic hand, by the distance
// that the two have; the zero Time if that is none.
func (h hands) at(mono int64) time.Time {
	if mono == 0 || mono == never {
		return time.Time{}
	}
	return h.wall.Add(time.Duration(mono - h.mono))
}

// wentBack tells whether the wall clock has been set back since.
func (h hands) wentBack(now hands) bool {
	return now.wall.Sub(h.wall)-time.Duration(now.mono-h.mono) <= -leastDrift
}

// askFrom is the instant after which the next one is sought, and the last served.
// It is now, or the last served if the wall clock has been put back to before that.
func (e *engine) askFrom(t *task, s *seat) (after, served time.Time, now hands) {
	t.mu.Lock()
	served = s.served
	t.mu.Unlock()
	now = e.hands()
	if s.delay {
		return now.wall, served, now
	}
	return s.askAfter(now.wall, served), served, now
}

// askAfter is the instant after which to ask at wall, when served was the last one.
func (s *seat) askAfter(wall, served time.Time) time.Time {
	after := s.notBeforeStart(wall.Add(-s.shift)).Round(0)
	if served.After(after) {
		return served
	}
	return after
}

// answered ends the question, and tells whether it was still open.
func (e *engine) answered(t *task, s *seat, turn uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.extra.seat != s || s.turn != turn || !s.asking {
		return false
	}
	s.asking = false
	return t.life == live
}

// seat takes the schedule's answer, unless it has been asked again meanwhile: two
// answers could be the same instant, before it was served and after.
func (e *engine) seat(t *task, s *seat, turn uint64, a answer, noteGap func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.extra.seat == s && s.turn == turn && t.life == live {
		if e.seatLocked(t, s, a) {
			noteGap()
		}
		e.refile(t, e.source.Mono())
	}
	e.endIfOver(t)
}

// seatLocked does not take an answer if the wall clock has been set back since the
// question: there may be an earlier instant now, and the task stays unseated.
func (e *engine) seatLocked(t *task, s *seat, a answer) bool {
	now := e.hands()
	switch {
	case !s.delay && a.asked.wentBack(now):
		return false
	case !a.ok:
		s.ended, s.at, t.origin = true, time.Time{}, never
		return true
	}
	s.at = a.at.Round(0)
	if s.delay { // by the monotonic hand, wherever the other one is by now
		t.seatBy(a.asked)
	} else {
		t.followEnd(now)
		t.seatBy(now)
	}
	return true
}

// follow sets the task's instant on the monotonic hand from the one seated, by the
// distance that the two hands have now.
func (e *engine) follow(t *task) {
	now := e.hands()
	t.followEnd(now)
	t.seatBy(now)
}

func (t *task) seatBy(h hands) {
	s := t.extra.seat
	away := s.at.Add(s.shift).Sub(h.wall)
	t.origin = h.mono + int64(away)
	if away > 0 && t.origin < h.mono { // further than nanoseconds can count
		t.origin = never - 1
	}
}

// followEnd sets the end of the grid on the monotonic hand, likewise.
func (t *task) followEnd(now hands) {
	if x := t.extra; !x.endGiven.IsZero() {
		x.endAt = later(now.mono, x.endGiven.Sub(now.wall))
	}
}

// noteGap is called with the task's mu held.
func (e *engine) noteGap(t *task, s *seat, from, to time.Time) {
	s.gapFrom, s.gapTo = from, to
	t.extra.counts.gaps++
	e.m.events.gap(t, from, to)
}
