package cronsched

import (
	"math"
	"time"
)

// A reason is how a search ended.
type reason uint8

const (
	due reason = iota // it found an instant
	noMore
	neverDue
	windowOver
	alreadyPast
	outsideWindow
	byHand
	unresolved
	excluded
	exhausted
	givenUp
)

// candidateLimit is how many candidates in a row a calendar may exclude before
// a search gives up. A stretch that is jumped over counts as one.
const candidateLimit = 10_000

func (p *plan) next(t time.Time) (time.Time, reason) {
	if p.unresolved() {
		return time.Time{}, unresolved
	}
	switch p.kind {
	case cron:
		u, why := p.nextSecond(max(unixFloor(t)+1, p.first))
		return p.instant(u, why)
	case every:
		return p.nextDelay(t)
	case once:
		at, why := p.onceAt()
		if why == due && !at.After(t) {
			return time.Time{}, alreadyPast
		}
		return at, why
	}
	return time.Time{}, byHand
}

func (p *plan) prev(t time.Time) (time.Time, reason) {
	if p.unresolved() {
		return time.Time{}, unresolved
	}
	switch p.kind {
	case cron:
		u, why := p.prevSecond(min(unixCeil(t)-1, p.last))
		return p.instant(u, why)
	case every:
		return p.prevDelay(t)
	case once:
		at, why := p.onceAt()
		if why == due && !at.Before(t) {
			return time.Time{}, noMore
		}
		return at, why
	}
	return time.Time{}, byHand
}

func (p *plan) instant(u int64, why reason) (time.Time, reason) {
	if why != due {
		return time.Time{}, why
	}
	return time.Unix(u, 0).In(p.expr.zone.loc), due
}

// nextSecond gives the first second at or after u at which a cron schedule is
// due. u is within the window's start.
func (p *plan) nextSecond(u int64) (int64, reason) {
	if p.anyDay != nil {
		return p.nextRolled(u)
	}
	from := u
	for n := range candidateLimit {
		b := p.expr.next(u)
		if b == noInstant || b > p.last {
			return 0, p.whyNoMore(from, b, n > 0)
		}
		if p.calendar == nil {
			return b, due
		}
		s := spanOf(p.calendar, b)
		if !s.excluded {
			return b, due
		}
		if s.end == endOfTime {
			return 0, excluded
		}
		u = s.end
	}
	return 0, exhausted
}

// whyNoMore tells why nothing is due from u on: b is the first instant of the
// expression that the calendar was not asked about, shut whether it excluded
// some before.
func (p *plan) whyNoMore(u, b int64, shut bool) reason {
	switch {
	case p.expr.never:
		return neverDue
	case u > p.last:
		return windowOver
	case shut:
		return excluded
	case b != noInstant:
		return windowOver
	}
	return noMore
}

// prevSecond gives the last second at or before u at which a cron schedule was
// due. u is within the window's end.
func (p *plan) prevSecond(u int64) (int64, reason) {
	if p.anyDay != nil {
		return p.prevRolled(u)
	}
	for range candidateLimit {
		b := p.expr.prev(u)
		if b == noInstant || b < p.first {
			return 0, noMore
		}
		if p.calendar == nil {
			return b, due
		}
		s := spanOf(p.calendar, b)
		if !s.excluded {
			return b, due
		}
		if s.start == -endOfTime {
			return 0, excluded
		}
		u = s.start - 1
	}
	return 0, exhausted
}

// onceAt gives the single instant, rolled if it has to be.
func (p *plan) onceAt() (time.Time, reason) {
	at := p.at
	if p.calendar != nil && p.calendar.Excludes(at) {
		moved := p.rollTime(at)
		if !moved.ok {
			return time.Time{}, excluded
		}
		at = moved.at
	}
	if !p.start.IsZero() && at.Before(p.start) || !p.end.IsZero() && at.After(p.end) {
		return time.Time{}, outsideWindow
	}
	return at, due
}

// nextDelay gives the first of end+delay, end+2*delay, … that is due or, with a
// roll, what the calendar excludes before that moves to, if that is earlier.
func (p *plan) nextDelay(end time.Time) (time.Time, reason) {
	end = end.Round(0).UTC()
	if !p.start.IsZero() && end.Before(p.start) {
		end = p.start.UTC()
	}
	at, why := p.nextOpen(end)
	if p.roll != RollNone {
		return p.nextMoved(end, at, why)
	}
	return at, why
}

// nextOpen is nextDelay without a roll.
func (p *plan) nextOpen(end time.Time) (time.Time, reason) {
	at := end.Add(p.delay)
	for range candidateLimit {
		if !p.end.IsZero() && at.After(p.end) {
			return time.Time{}, windowOver
		}
		until, shut := p.shutUntil(at)
		if !shut {
			return at, due
		}
		if until.IsZero() {
			return time.Time{}, excluded
		}
		at = p.delayTo(at.Add(p.delay), until)
	}
	return time.Time{}, exhausted
}

// delayTo adds delays to at until it is at or after t.
func (p *plan) delayTo(at, t time.Time) time.Time {
	if gap := t.Sub(at); gap > 0 {
		return at.Add(roundUp(gap, p.delay))
	}
	return at
}

// prevDelay is nextOpen towards the past.
func (p *plan) prevDelay(begin time.Time) (time.Time, reason) {
	at := begin.Round(0).UTC().Add(-p.delay)
	if !p.end.IsZero() && at.After(p.end) {
		at = p.end.UTC()
	}
	for range candidateLimit {
		if !p.start.IsZero() && at.Before(p.start.Add(p.delay)) {
			return time.Time{}, noMore
		}
		since, shut := p.shutSince(at)
		if !shut {
			return at, due
		}
		if since.IsZero() {
			return time.Time{}, excluded
		}
		at = at.Add(-p.delay)
		if gap := at.Sub(since); gap >= 0 {
			at = at.Add(-roundUp(gap+1, p.delay))
		}
	}
	return time.Time{}, exhausted
}

// roundUp gives the least multiple of d that is at least gap, or a smaller one
// if that is too large for a Duration.
func roundUp(gap, d time.Duration) time.Duration {
	n := gap / d * d
	if n == gap || n > math.MaxInt64-d {
		return n
	}
	return n + d
}

// shutUntil reports whether the calendar excludes t, and up to when. A zero
// time means for ever.
func (p *plan) shutUntil(t time.Time) (until time.Time, shut bool) {
	switch c := p.calendar.(type) {
	case nil:
		return t, false
	case Spanner:
		_, end, shut := c.Span(t)
		if !end.IsZero() && !end.After(t) {
			end = t
		}
		return end, shut
	default:
		return t, c.Excludes(t)
	}
}

// shutSince reports whether the calendar excludes t, and from when. A zero
// time means since ever.
func (p *plan) shutSince(t time.Time) (since time.Time, shut bool) {
	switch c := p.calendar.(type) {
	case nil:
		return t, false
	case Spanner:
		start, _, shut := c.Span(t)
		if start.After(t) {
			start = t
		}
		return start, shut
	default:
		return t, c.Excludes(t)
	}
}
