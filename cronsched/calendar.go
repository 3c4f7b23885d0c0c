package cronsched

import (
	"slices"
	"time"
)

// A Calendar says which instants a schedule leaves out. It must be safe for
// concurrent use and give the same answer for the same instant each time.
//
// Implement Spanner as well if the calendar excludes long stretches: without
// it a search goes through them candidate by candidate, and gives up after
// 10,000.
type Calendar interface {
	// Excludes reports whether nothing may fire at t.
	Excludes(t time.Time) bool
}

// A Spanner is a Calendar that also knows how long its answer holds, so that a
// search can jump over what is excluded. All calendars of this package are
// Spanners.
type Spanner interface {
	Calendar
	// Span gives a stretch of time around t, start inclusive and end
	// exclusive, in which every instant has the answer that t has. A zero
	// start means since ever, a zero end for ever. The stretch may be shorter
	// than it could be: it is only to hold t.
	Span(t time.Time) (start, end time.Time, excluded bool)
}

// A span is a Spanner's answer in unix seconds.
type span struct {
	start, end int64 // -endOfTime and endOfTime: without end
	excluded   bool
}

// secondSpanner is what this package's calendars are to its searches: they
// answer by whole seconds.
type secondSpanner interface{ spanAt(u int64) span }

// spanOf asks any calendar about the second u.
func spanOf(c Calendar, u int64) span {
	switch c := c.(type) {
	case secondSpanner:
		return c.spanAt(u)
	case Spanner:
		start, end, excluded := c.Span(time.Unix(u, 0).UTC())
		s := span{-endOfTime, endOfTime, excluded}
		if !start.IsZero() {
			s.start = unixCeil(start)
		}
		if !end.IsZero() {
			s.end = unixCeil(end)
		}
		if s.start <= u && u < s.end {
			return s
		}
		return span{u, u + 1, excluded} // not around u: believe the answer alone
	}
	return span{u, u + 1, c.Excludes(time.Unix(u, 0).UTC())}
}

// A secondCalendar makes a Spanner of a secondSpanner.
type secondCalendar struct{ secondSpanner }

func (c secondCalendar) Excludes(t time.Time) bool { return c.spanAt(unixFloor(t)).excluded }

func (c secondCalendar) Span(t time.Time) (start, end time.Time, excluded bool) {
	s := c.spanAt(unixFloor(t))
	if s.start > -endOfTime {
		start = time.Unix(s.start, 0).UTC()
	}
	if s.end < endOfTime {
		end = time.Unix(s.end, 0).UTC()
	}
	return start, end, s.excluded
}

// CompositeCalendar excludes what any of its members excludes; without members
// it excludes nothing. It panics if a member is nil.
func CompositeCalendar(members ...Calendar) Spanner {
	if slices.Contains(members, nil) {
		panic("cronsched: CompositeCalendar with a nil member")
	}
	return secondCalendar{composite(slices.Clone(members))}
}

type composite []Calendar

func (c composite) spanAt(u int64) span {
	// Where no member excludes, the answer holds as long as all of theirs do;
	// where some do, as long as one of theirs does.
	open := span{-endOfTime, endOfTime, false}
	shut := span{u, u + 1, false}
	for _, member := range c {
		s := spanOf(member, u)
		if s.excluded {
			shut = span{min(shut.start, s.start), max(shut.end, s.end), true}
		} else {
			open = span{max(open.start, s.start), min(open.end, s.end), false}
		}
	}
	if shut.excluded {
		return shut
	}
	return open
}

// InvertCalendar excludes what another calendar does not: the way to a
// schedule that fires within business hours only. It panics if the calendar is
// nil.
func InvertCalendar(calendar Calendar) Spanner {
	if calendar == nil {
		panic("cronsched: InvertCalendar of nil")
	}
	return secondCalendar{inverted{calendar}}
}

type inverted struct{ of Calendar }

func (c inverted) spanAt(u int64) span {
	s := spanOf(c.of, u)
	s.excluded = !s.excluded
	return s
}
