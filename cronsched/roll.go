package cronsched

import "time"

// With a roll, an excluded instant moves to another day. What is due is then
// the set
//
//	the instants that the calendar leaves
//	and the targets of those that it excludes,
//
// in order and each once. A search looks for the nearest of both: direct ones
// among the expression's instants, targets among the expression's times of day
// on any day, for a target keeps its time of day. Asking whether such an
// instant is the target of some excluded day is quick, since the days between
// must be excluded as well.
//
// Only regular instants move: one that fires because of gap=after, or in the
// second showing of a repeated wall time, is dropped if it is excluded. A
// target is always the first showing; a day that does not show the wall time
// is passed over like an excluded one.

const (
	rollDays = 366
	// probeLimit bounds the questions to the calendar in each half of a search.
	// Only an expression of many times of day that are closed for years comes
	// near it.
	probeLimit = 50_000
)

// A rollSearch is one search.
type rollSearch struct {
	*plan
	probes int
	// shut remembers for each time of day the days that were found closed last, so that a
	// calendar is not asked about the same month, or year, again for each candidate. A time's
	// place in few is its second modulo the size; those whose place is taken are in more, by
	// their second: a search among few times allocates nothing.
	few  [13]shutDays
	more map[int64]shutDays
}

// shutDays are the wall seconds from, from+1 day, … up to to, at none of which
// something can fire.
type shutDays struct{ from, to int64 }

// has reports whether w is one of them.
func (d shutDays) has(w int64) bool {
	return d.from <= w && w <= d.to && (w-d.from)%secondsPerDay == 0 && d.from != d.to
}

func (s *rollSearch) span(u int64) span {
	s.probes++
	return spanOf(s.calendar, u)
}

func (s *rollSearch) spent() bool { return s.probes >= probeLimit }

// onAnyDay gives the expression's times on every day.
func (e *Expression) onAnyDay() *Expression {
	c := *e
	c.gap, c.overlap = GapSkip, OverlapFirst
	c.days = dayRule{domAny: true, dowAny: true}
	c.month, c.anyYear = 1<<13-2, true
	c.finish()
	return &c
}

// towards gives the direction of a roll in days.
func (r Roll) towards() int64 {
	if r == RollPrevious {
		return -1
	}
	return 1
}

// firstShowing gives the instant at which the wall clock first shows w.
func (z *zone) firstShowing(w int64) (u int64, ok bool) {
	r := &z.ranges[z.rangeShowing(w)]
	return w - r.offset, w >= r.wallStart()
}

// regularWall gives the wall second that u shows, if the expression matches
// it and it is the first showing.
func (e *Expression) regularWall(u int64) (w int64, ok bool) {
	r := &e.zone.ranges[e.zone.rangeAt(u)]
	w = u + r.offset
	return w, w >= r.fresh && e.matchesWall(w)
}

// target gives where the excluded instant u moves to.
func (s *rollSearch) target(u int64) (int64, bool) {
	begin, ok := s.expr.regularWall(u)
	if !ok {
		return 0, false
	}
	shut := s.shutAt(begin % secondsPerDay)
	step := s.roll.towards() * secondsPerDay
	w := begin
	for w != begin+rollDays*step {
		w += step
		if uint64(w) >= wallLimit {
			break
		}
		if shut.has(w) {
			// On to the last of them, but not too far.
			if step > 0 {
				w = min(shut.to, begin+rollDays*step)
			} else {
				w = max(shut.from, begin+rollDays*step)
			}
			continue
		}
		if u, ok := s.expr.zone.firstShowing(w); ok && !s.span(u).excluded {
			s.remember(begin, w-step)
			return u, true
		}
	}
	s.remember(begin, w)
	return 0, false
}

// remember notes that at these wall seconds, and the days between, nothing can fire.
func (s *rollSearch) remember(a, b int64) {
	time, days := a%secondsPerDay, shutDays{min(a, b), max(a, b)}
	if place := &s.few[time%int64(len(s.few))]; *place == (shutDays{}) || place.from%secondsPerDay == time {
		*place = days
		return
	}
	if s.more == nil {
		s.more = map[int64]shutDays{}
	}
	s.more[time] = days
}

func (s *rollSearch) shutAt(time int64) shutDays {
	if days := s.few[time%int64(len(s.few))]; days.from%secondsPerDay == time {
		return days
	}
	return s.more[time]
}

// isTarget reports whether some excluded instant moves to x, a firing of
// anyDay that the calendar leaves. If not, no wall second from x's to bound is
// a target either, as long as the offset is x's: bound is not before x's wall
// second if forward, not after it else.
func (s *rollSearch) isTarget(x int64, forward bool) (found bool, bound int64) {
	z := s.expr.zone
	r := &z.ranges[z.rangeAt(x)]
	wx := x + r.offset
	bound = wx
	w := wx
	for day := range rollDays {
		w -= s.roll.towards() * secondsPerDay
		if uint64(w) >= wallLimit {
			break
		}
		u, shown := z.firstShowing(w)
		if !shown {
			continue
		}
		at := s.span(u)
		if at.excluded {
			if s.expr.matchesWall(w) {
				return true, 0
			}
			continue
		}
		if day == 0 {
			// The day next to a target must be excluded at that time.
			o := &z.ranges[z.rangeAt(u)]
			if forward {
				bound = wx + min(at.end, o.end) - u - 1
			} else {
				bound = wx - (u - max(at.start, o.fresh-o.offset))
			}
		}
		break
	}
	return false, bound
}

// nextRolled is nextSecond with a roll.
func (p *plan) nextRolled(u int64) (int64, reason) {
	search := rollSearch{plan: p}
	limit, why := search.nextDirect(u)
	search.probes = 0 // a fruitless half must not starve the other
	if x, ok := search.nextTarget(u, limit); ok {
		limit, why = x, due
	}
	if why == due && limit > p.last {
		return 0, windowOver
	}
	return limit, why
}

// nextDirect gives the first instant at or after u that the calendar leaves,
// or an earlier target of those before it. If it gives up, limit is how far it has looked.
func (s *rollSearch) nextDirect(u int64) (limit int64, why reason) {
	limit = endOfTime
	from, shut := u, false
	for n := 0; n < candidateLimit && !s.spent(); n++ {
		b := s.expr.next(from)
		if b == noInstant || b >= limit {
			if limit < endOfTime {
				return limit, due
			}
			return limit, s.whyNoMore(u, b, shut)
		}
		at := s.span(b)
		if !at.excluded {
			return b, due
		}
		if x, ok := s.target(b); ok && x >= u {
			limit = min(limit, x)
		}
		shut = shut || b <= s.last
		from = at.end
	}
	if limit <= from {
		return limit, due
	}
	return from, s.whyEnded()
}

// whyEnded is why a half of a search has given up.
func (s *rollSearch) whyEnded() reason {
	if s.spent() {
		return givenUp
	}
	return exhausted
}

// nextTarget gives the first target at or after u and before limit.
func (s *rollSearch) nextTarget(u, limit int64) (int64, bool) {
	excludedInARow := 0
	for !s.spent() {
		x := s.anyDay.next(u)
		if x == noInstant || x >= limit || x > s.last {
			return 0, false
		}
		at := s.span(x)
		if at.excluded {
			if excludedInARow++; excludedInARow == candidateLimit {
				return 0, false
			}
			u = at.end
			continue
		}
		excludedInARow = 0
		found, bound := s.isTarget(x, true)
		if found {
			return x, true
		}
		u = s.expr.zone.skipTo(x, bound)
	}
	return 0, false
}

// skipTo gives the first second after x whose wall second is past bound,
// within x's range of offsets.
func (z *zone) skipTo(x, bound int64) int64 {
	r := &z.ranges[z.rangeAt(x)]
	return max(min(bound-r.offset+1, r.end), x+1)
}

// skipBackTo gives the last second before x whose wall second is before bound,
// within x's range of offsets.
func (z *zone) skipBackTo(x, bound int64) int64 {
	r := &z.ranges[z.rangeAt(x)]
	return min(max(bound-r.offset-1, r.start-1), x-1)
}

// prevRolled is prevSecond with a roll.
func (p *plan) prevRolled(u int64) (int64, reason) {
	search := rollSearch{plan: p}
	limit, why := search.prevDirect(u)
	search.probes = 0
	if x, ok := search.prevTarget(u, limit); ok {
		limit, why = x, due
	}
	if why == due && limit < p.first {
		return 0, noMore
	}
	return limit, why
}

// prevDirect is nextDirect towards the past.
func (s *rollSearch) prevDirect(u int64) (limit int64, why reason) {
	limit = -endOfTime
	from := u
	for n := 0; n < candidateLimit && !s.spent(); n++ {
		b := s.expr.prev(from)
		if b == noInstant || b <= limit {
			if limit == -endOfTime {
				return limit, noMore
			}
			return limit, due
		}
		at := s.span(b)
		if !at.excluded {
			return b, due
		}
		if x, ok := s.target(b); ok && x <= u {
			limit = max(limit, x)
		}
		from = at.start - 1
	}
	if limit >= from {
		return limit, due
	}
	return from, s.whyEnded()
}

// prevTarget is nextTarget towards the past.
func (s *rollSearch) prevTarget(u, limit int64) (int64, bool) {
	excludedInARow := 0
	for !s.spent() {
		x := s.anyDay.prev(u)
		if x == noInstant || x <= limit || x < s.first {
			return 0, false
		}
		at := s.span(x)
		if at.excluded {
			if excludedInARow++; excludedInARow == candidateLimit {
				return 0, false
			}
			u = at.start - 1
			continue
		}
		excludedInARow = 0
		found, bound := s.isTarget(x, false)
		if found {
			return x, true
		}
		u = s.expr.zone.skipBackTo(x, bound)
	}
	return 0, false
}

// A move is what a roll makes of an instant outside cron.
type move struct {
	at   time.Time
	days int
	ok   bool
	// same is up to when instants that are later than the moved one move by as
	// many days, or are moved nowhere either. Zero is for ever.
	same time.Time
}

// rollTime rolls an excluded instant outside cron: the same time of day by the
// offset it shows.
func (p *plan) rollTime(t time.Time) (m move) {
	if p.roll == RollNone {
		return m
	}
	for ; m.days <= rollDays; m.days++ {
		by := time.Duration(p.roll.towards()) * time.Duration(m.days) * 24 * time.Hour
		m.at = t.Add(by)
		until, shut := p.shutUntil(m.at)
		if !until.IsZero() && (m.same.IsZero() || until.Add(-by).Before(m.same)) {
			m.same = until.Add(-by)
		}
		if !shut {
			m.ok = true
			return m
		}
	}
	return m
}

// nextMoved gives the earliest of at, the first instant that the calendar leaves
// (if why says so), and the targets after end of those that it excludes before.
func (p *plan) nextMoved(end, at time.Time, why reason) (time.Time, reason) {
	limit := at
	b := end.Add(p.delay)
	for probes := 0; ; {
		if probes >= probeLimit {
			if why != due {
				why = givenUp
			}
			break
		}
		if p.roll == RollNext && why == due {
			limit = at.Add(-24 * time.Hour) // what moves later moves past at
		}
		if !limit.IsZero() && !b.Before(limit) || !p.end.IsZero() && b.After(p.end) {
			break
		}
		m := p.rollTime(b)
		probes += m.days + 1
		skip := m.same
		if m.ok && !m.at.After(end) {
			// What moves by as many days from earlier than this moves there, too.
			if s := end.Add(b.Sub(m.at)); skip.IsZero() || s.Before(skip) {
				skip = s
			}
		} else if m.ok && (p.end.IsZero() || !m.at.After(p.end)) && (why != due || m.at.Before(at)) {
			at, why = m.at, due
		}
		if skip.IsZero() {
			break
		}
		b = p.delayTo(b.Add(p.delay), skip)
	}
	return at, why
}
