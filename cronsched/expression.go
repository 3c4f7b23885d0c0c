package cronsched

import (
	"fmt"
	"iter"
	"math/bits"
	"time"
)

// An Expression is a parsed cron expression on the wall clock of one location.
//
// It is immutable: In, WithGap and WithOverlap give changed copies. All methods
// may be called from any number of goroutines at once; Next, Prev and Matches
// do not allocate. Two expressions with the same location, Gap and Overlap mean
// the same if their String is the same. The zero value is not usable: ParseCron, ParseQuartz and
// ParseStandard make expressions.
type Expression struct {
	second, minute uint64 // bit v: the value v matches
	hour           uint32
	month          uint16

	anyYear  bool // no year field, or exactly *
	everyDay bool // all days of all years match
	never    bool // no day matches in any year
	gap      Gap
	overlap  Overlap

	firstTime, lastTime uint32 // the first and last matching second of a day

	days  dayRule
	years [3]uint64 // bit y: 1970+y

	zone *zone
	text string
}

// Gap says what becomes of wall times that a forward clock change skips.
type Gap uint8

const (
	// GapSkip does not fire for them that day. It is the default.
	GapSkip Gap = iota
	// GapAfter fires once for all of them, at the first instant after the gap.
	GapAfter
)

// String gives the value of gap= in a schedule's text.
func (g Gap) String() string {
	if g == GapAfter {
		return "after"
	}
	return "skip"
}

// Overlap says what becomes of wall times that a backward clock change
// repeats.
type Overlap uint8

const (
	// OverlapFirst fires the first time only. It is the default, and what a
	// daily job wants.
	OverlapFirst Overlap = iota
	// OverlapBoth fires both times. It is what an hourly job wants, which
	// would else pause for the length of the overlap.
	OverlapBoth
)

// String gives the value of overlap= in a schedule's text.
func (o Overlap) String() string {
	if o == OverlapBoth {
		return "both"
	}
	return "first"
}

// In gives the same expression on the wall clock of another location. A nil
// location is UTC, as in a new expression.
func (e *Expression) In(loc *time.Location) *Expression {
	c := *e
	c.zone = zoneOf(loc)
	return &c
}

// WithGap gives the same expression with another rule for skipped wall times.
// It panics if the rule is not one of the Gap constants.
func (e *Expression) WithGap(gap Gap) *Expression {
	if gap > GapAfter {
		panic(fmt.Sprintf("cronsched: WithGap(%d)", uint8(gap)))
	}
	c := *e
	c.gap = gap
	return &c
}

// WithOverlap gives the same expression with another rule for repeated wall
// times. It panics if the rule is not one of the Overlap constants.
func (e *Expression) WithOverlap(overlap Overlap) *Expression {
	if overlap > OverlapBoth {
		panic(fmt.Sprintf("cronsched: WithOverlap(%d)", uint8(overlap)))
	}
	c := *e
	c.overlap = overlap
	return &c
}

// Location is where the expression's wall clock hangs.
func (e *Expression) Location() *time.Location { return e.zone.loc }

// String gives the canonical text, in the grammar of ParseCron whatever the
// dialect it was read in: fields as they were written, in upper case, without
// leading zeros, separated by one space.
func (e *Expression) String() string { return e.text }

// Next gives the earliest instant after t at which the expression fires, in
// the expression's location. It is false if there is none up to the end of
// 2099 on the wall clock.
func (e *Expression) Next(t time.Time) (time.Time, bool) {
	return e.instant(e.next(unixFloor(t) + 1))
}

// Prev gives the latest instant before t at which the expression fires, in the
// expression's location. It is false if there is none since the beginning of
// 1970 on the wall clock.
func (e *Expression) Prev(t time.Time) (time.Time, bool) {
	return e.instant(e.prev(unixCeil(t) - 1))
}

// Matches reports whether the expression fires in the second that t is in. A
// wall time that matches the fields but does not fire, being the second
// showing of a repeated one, is no match; see Overlap.
func (e *Expression) Matches(t time.Time) bool { return e.fires(unixFloor(t)) }

// Upcoming gives the next n instants after t, fewer if there are no more.
func (e *Expression) Upcoming(t time.Time, n int) []time.Time { return take(e.All(t), n) }

// All gives all instants after t in order.
func (e *Expression) All(t time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for next, ok := e.Next(t); ok && yield(next); next, ok = e.Next(next) {
		}
	}
}

func (e *Expression) instant(u int64) (time.Time, bool) {
	if u == noInstant {
		return time.Time{}, false
	}
	return time.Unix(u, 0).In(e.zone.loc), true
}

// take collects at most n instants.
func take(all iter.Seq[time.Time], n int) []time.Time {
	if n <= 0 {
		return nil
	}
	var ts []time.Time
	for t := range all {
		if ts = append(ts, t); len(ts) == n {
			break
		}
	}
	return ts
}

// unixFloor gives the second that t is in.
func unixFloor(t time.Time) int64 { return near(t.Unix()) }

// unixCeil gives the first second at or after t.
func unixCeil(t time.Time) int64 {
	u := unixFloor(t)
	if t.Nanosecond() > 0 {
		u++
	}
	return u
}

// near brings seconds that are ages away from the years served to where a zone
// has ranges and sums do not overflow.
func near(u int64) int64 {
	const ages = 1 << 50
	return min(max(u, -ages), ages)
}

// finish derives what the search wants to have at hand from the parsed fields.
func (e *Expression) finish() {
	e.firstTime = uint32(bits.TrailingZeros32(e.hour))*3600 +
		uint32(bits.TrailingZeros64(e.minute))*60 + uint32(bits.TrailingZeros64(e.second))
	e.lastTime = uint32(bits.Len32(e.hour)-1)*3600 +
		uint32(bits.Len64(e.minute)-1)*60 + uint32(bits.Len64(e.second)-1)
	const allMonths = 1<<13 - 2
	e.everyDay = e.anyYear && e.month == allMonths && e.days.domAny && e.days.dowAny
	e.never = e.nextDay(0) == noDay
}
