package cronsched

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A zone is a location's offsets over the years served, laid out so that the
// offset of an instant is found without a search and without asking the time
// package. It is immutable and shared by all expressions of the location.
//
// A location changes its offset at the boundary of two ranges:
//
//	forward:   wall [end of i, start of i+1) is the gap, never shown
//	backward:  wall [start of i+1, end of i) is the overlap, shown twice
//
// No zone of the database changes its offset twice within a week in these
// years (a test holds this), so a wall second is shown at most twice, and the
// second showing is always in the range after the first. In a location of
// other data that changes more often a search still ends, and what it finds
// matches, but it may take a third showing for a first.
type zone struct {
	loc    *time.Location
	ranges []offsetRange // contiguous, at least one, from the beginning to the end of time
	// index[b] is the range at the first second of bucket b. A bucket is
	// 2^bucketBits seconds, about 48 days, so two steps at most follow. It is
	// empty if there is one range only.
	index []uint16
	// The extreme offsets bound where the instant of a wall second may lie.
	minOffset, maxOffset int64
}

// An offsetRange is a stretch of time with one offset.
type offsetRange struct {
	start, end int64 // unix seconds, end exclusive
	offset     int64 // seconds east of UTC
	// fresh is the first wall second of the range that is not a repetition of
	// the range before: the overlap's end after a backward change, else the
	// range's own first wall second.
	fresh int64
}

func (r *offsetRange) wallStart() int64 { return r.start + r.offset }
func (r *offsetRange) wallEnd() int64   { return r.end + r.offset }

const (
	bucketBits = 22
	// The table reaches two days past the years served on either side: no
	// offset is as large.
	tableStart = -2 * secondsPerDay
	tableEnd   = wallLimit + 2*secondsPerDay
	// endOfTime is beyond every instant that is looked up, and far enough from
	// overflow to have an offset added.
	endOfTime = 1 << 60
)

var utcZone = newZone(time.UTC)

// newZone reads a location's changes of offset.
func newZone(loc *time.Location) *zone {
	z := &zone{loc: loc}
	offset := offsetAt(loc, tableStart)
	z.add(-endOfTime, offset)
	for u := int64(tableStart); u < tableEnd; {
		next := nextChange(loc, u)
		if o := offsetAt(loc, next); o != offset && next < tableEnd {
			z.add(next, o)
			offset = o
		}
		u = next
	}
	z.ranges = slices.Clone(z.ranges) // without the room that it grew into
	if len(z.ranges) > 1 {
		z.index = make([]uint16, (tableEnd-tableStart)>>bucketBits+1)
		i := 0
		for b := range z.index {
			for u := tableStart + int64(b)<<bucketBits; u >= z.ranges[i].end; {
				i++
			}
			z.index[b] = uint16(i)
		}
	}
	return z
}

// add appends a range that begins at start.
func (z *zone) add(start, offset int64) {
	r := offsetRange{start: start, end: endOfTime, offset: offset, fresh: start + offset}
	if n := len(z.ranges); n > 0 {
		last := &z.ranges[n-1]
		last.end = start
		r.fresh = max(r.fresh, last.wallEnd())
		z.minOffset, z.maxOffset = min(z.minOffset, offset), max(z.maxOffset, offset)
	} else {
		z.minOffset, z.maxOffset = offset, offset
	}
	z.ranges = append(z.ranges, r)
}

func offsetAt(loc *time.Location, u int64) int64 {
	_, offset := time.Unix(u, 0).In(loc).Zone()
	return int64(offset)
}

// nextChange gives an instant after u up to which the offset does not change:
// the end of the time package's range. On the last day of a leap year that
// end may lie before u (it takes every year to have 365 days), so there the
// change, if any, is looked for within a day.
func nextChange(loc *time.Location, u int64) int64 {
	_, end := time.Unix(u, 0).In(loc).ZoneBounds()
	if end.IsZero() {
		return tableEnd
	}
	if end.Unix() > u {
		return end.Unix()
	}
	low, high := u, u+secondsPerDay
	offset := offsetAt(loc, low)
	for high-low > 1 {
		if mid := low + (high-low)/2; offsetAt(loc, mid) == offset {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// rangeAt gives the index of the range that holds the unix second u.
func (z *zone) rangeAt(u int64) int {
	if len(z.index) == 0 {
		return 0
	}
	b := min(max(u-tableStart, 0)>>bucketBits, int64(len(z.index)-1))
	i := int(z.index[b])
	for u >= z.ranges[i].end {
		i++
	}
	// Before the table's start there is one range, the first.
	return i
}

// rangeShowing gives the first range that ends after the wall second w: the
// one that shows w for the first time or, if none does, the one after the gap.
func (z *zone) rangeShowing(w int64) int {
	i := z.rangeAt(w - z.maxOffset)
	for w >= z.ranges[i].wallEnd() {
		i++
	}
	return i
}

// rangeShowingLast gives the last range that begins at or before the wall
// second w: the one that shows w for the last time or, if none does, the one
// before the gap.
func (z *zone) rangeShowingLast(w int64) int {
	i := z.rangeAt(w - z.minOffset)
	for i > 0 && w < z.ranges[i].wallStart() {
		i--
	}
	return i
}

// sameOffsets reports whether two zones show the same wall clock throughout.
func (z *zone) sameOffsets(o *zone) bool { return slices.Equal(z.ranges, o.ranges) }

// Building a table costs some 100 µs and 10 kB, so tables are shared: those of
// names for good (there are some 600), those of other locations as long as
// few are in use. A slot of recentZones holds the last location that hashed to
// it, which bounds what a program that makes locations without end can keep.
var (
	namedZones  sync.Map // name to *zone
	recentZones [16]atomic.Pointer[zone]
)

// zoneOf gives the table of any location.
func zoneOf(loc *time.Location) *zone {
	if loc == nil || loc == time.UTC {
		return utcZone
	}
	name := loc.String()
	if z, ok := namedZones.Load(name); ok && z.(*zone).loc == loc {
		return z.(*zone)
	}
	hash := uint32(0)
	for i := range len(name) {
		hash = hash*31 + uint32(name[i])
	}
	slot := &recentZones[hash%uint32(len(recentZones))]
	if z := slot.Load(); z != nil && z.loc == loc {
		return z
	}
	z := newZone(loc)
	slot.Store(z)
	return z
}

var errZoneName = errors.New("not a name of the IANA time zone database")

// zoneNamed gives the table of an IANA name.
func zoneNamed(name string) (*zone, error) {
	if z, ok := namedZones.Load(name); ok {
		return z.(*zone), nil
	}
	if !isZoneName(name) {
		return nil, errZoneName
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	z := utcZone
	if loc != time.UTC {
		z = newZone(loc)
	}
	kept, _ := namedZones.LoadOrStore(name, z)
	return kept.(*zone), nil
}

// isZoneName keeps out what time.LoadLocation would take beyond IANA names:
// the empty name, Local, paths that reach one file under many names, and what
// else a system keeps beside its zones: its own zone, and copies of all of them,
// with leap seconds or without.
func isZoneName(name string) bool {
	if name == "" || name == "Local" || name == "localtime" || name == "posixrules" || len(name) > 64 ||
		strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return false
		}
	}
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || c == '\\' || c == '=' {
			return false
		}
	}
	return true
}

// wantZone words the error for a zone that zoneNamed refused.
func wantZone(name string) string {
	switch {
	case name == "Local":
		return "the machine's own zone is never used: name it, as in tz=Europe/Berlin"
	case name == "":
		return "want an IANA time zone name, as in tz=Europe/Berlin"
	}
	if _, err := time.LoadLocation("Europe/London"); err != nil {
		return "unknown time zone; this system has no zone data: install tzdata, or import _ \"time/tzdata\" in the program"
	}
	return "unknown time zone; want an IANA name, as in tz=Europe/Berlin"
}
