package cronsched

import "time"

// OffsetRanges gives the table of a location: the first second and the offset
// of each range but the first, which has no beginning.
func OffsetRanges(loc *time.Location) (starts, offsets []int64) {
	for _, r := range newZone(loc).ranges[1:] {
		starts, offsets = append(starts, r.start), append(offsets, r.offset)
	}
	return starts, offsets
}

// TableOffset gives the offset of an instant as the table has it.
func TableOffset(loc *time.Location, u int64) int64 {
	z := zoneOf(loc)
	return z.ranges[z.rangeAt(u)].offset
}

// CivilOfDay gives the date of a day number, and the way back.
func CivilOfDay(day uint32) (year, month, dom, back uint32) {
	year, month, dom = civil(day)
	return year, month, dom, dayBefore(year, month) + dom
}

const DayLimit = dayLimit
