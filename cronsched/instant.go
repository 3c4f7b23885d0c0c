package cronsched

import "math"

// This file lays the wall clock of wall.go over a zone's changes.

// noInstant stands for "there is none": no instant is that early.
const noInstant = math.MinInt64

// next gives the first second at or after u at which the expression fires, or
// noInstant.
func (e *Expression) next(u int64) int64 {
	z := e.zone
	u = near(u)
	i := z.rangeAt(u)
	r := &z.ranges[i]
	w := u + r.offset
	if e.gap == GapAfter && u == r.start && e.firesInGapBefore(i) {
		return u
	}
	for {
		if e.overlap == OverlapFirst && w < r.fresh {
			w = r.fresh
		}
		m := e.nextWall(w)
		if m != noWall && m < r.wallEnd() {
			return m - r.offset
		}
		if i == len(z.ranges)-1 {
			return noInstant
		}
		if e.overlap == OverlapBoth {
			// A backward change close ahead shows wall times before w again.
			if n := &z.ranges[i+1]; n.wallStart() < w {
				i++
				r, w = n, n.wallStart()
				continue
			}
		}
		if m == noWall {
			return noInstant
		}
		// Nothing matches between w and m, so all ranges up to m's are passed.
		// In any location, however often it changes, the search goes forward.
		for i = max(z.rangeShowing(m), i+1); m >= z.ranges[i].wallEnd(); {
			i++
		}
		r = &z.ranges[i]
		if m >= r.wallStart() {
			if e.overlap == OverlapFirst && m < r.fresh {
				w = m
				continue
			}
			return m - r.offset
		}
		if e.gap == GapAfter {
			return r.start
		}
		w = r.wallStart()
	}
}

// prev gives the last second at or before u at which the expression fires, or
// noInstant.
func (e *Expression) prev(u int64) int64 {
	z := e.zone
	u = near(u)
	i := z.rangeAt(u)
	w := u + z.ranges[i].offset
	for {
		r := &z.ranges[i]
		if e.overlap == OverlapFirst && w < r.fresh {
			// Within the second showing: go back to the end of the first.
			i--
			w = z.ranges[i].wallEnd() - 1
			continue
		}
		m := e.prevWall(w)
		if m != noWall && m >= r.wallStart() && (e.overlap == OverlapBoth || m >= r.fresh) {
			return m - r.offset
		}
		if e.overlap == OverlapBoth && i > 0 {
			// Before a backward change the wall clock was ahead of w.
			if end := z.ranges[i-1].wallEnd(); end-1 > w {
				i--
				w = end - 1
				continue
			}
		}
		if m == noWall {
			return noInstant
		}
		// i is not 0 here, the first range has no beginning. In any location,
		// however often it changes, the search goes back.
		for i = min(z.rangeShowingLast(m), i-1); m < z.ranges[i].wallStart(); {
			i--
		}
		r = &z.ranges[i]
		if m < r.wallEnd() {
			if e.overlap == OverlapFirst && m < r.fresh {
				w = m
				continue
			}
			return m - r.offset
		}
		if e.gap == GapAfter {
			return r.end
		}
		w = r.wallEnd() - 1
	}
}

// fires reports whether the expression fires at the second u.
func (e *Expression) fires(u int64) bool {
	i := e.zone.rangeAt(u)
	r := &e.zone.ranges[i]
	w := u + r.offset
	if e.matchesWall(w) && (e.overlap == OverlapBoth || w >= r.fresh) {
		return true
	}
	return e.gap == GapAfter && u == r.start && e.firesInGapBefore(i)
}

// firesInGapBefore reports whether the expression matches a wall second that
// the change at the start of range i skips.
func (e *Expression) firesInGapBefore(i int) bool {
	if i == 0 {
		return false
	}
	from, to := e.zone.ranges[i-1].wallEnd(), e.zone.ranges[i].wallStart()
	if from >= to {
		return false
	}
	m := e.nextWall(from)
	return m != noWall && m < to
}
