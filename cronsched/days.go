package cronsched

import "math/bits"

// A dayRule is the two day fields of an expression. Its answer is the set of
// matching days of one month, bit d for day d.
type dayRule struct {
	dom      uint32   // bit d: day d of the month
	fromLast uint32   // bit n: n days before the last day (L is bit 0)
	nearest  uint32   // bit d: the Monday-Friday nearest to day d (dW)
	nth      [5]uint8 // nth[k-1] bit w: the k-th weekday w (w#k)
	weekdays uint8    // bit w: every weekday w
	lastOf   uint8    // bit w: the last weekday w of the month (wL)

	lastWorkday bool // LW
	domAny      bool // day-of-month is exactly * or ?
	dowAny      bool // day-of-week is exactly * or ?
	special     bool // any of nearest, lastWorkday, lastOf, nth
}

// in gives the matching days of one month. If both fields are restricted a
// day matches if either does.
func (r *dayRule) in(year, month uint32) uint32 {
	length := monthLength(year, month)
	all := uint32(1)<<(length+1) - 2
	if r.domAny && r.dowAny {
		return all
	}
	// Bit n of fromLast stands for day length-n: the word reversed and shifted.
	days := r.dom | bits.Reverse32(r.fromLast)>>(31-length)
	if !r.dowAny || r.special {
		first := weekday(dayBefore(year, month) + 1)
		days |= repeatWeek(r.weekdays, first)
		if r.special {
			days |= r.specialDays(first, length)
		}
	}
	return days & all
}

// repeatWeek lays a set of weekdays over a month whose first day is the
// weekday first.
func repeatWeek(week uint8, first uint32) uint32 {
	const everySeven = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28 | 1<<35
	return uint32(uint64(week)*everySeven>>first) << 1
}

// specialDays gives the days of the items that go by weekdays in another way
// than every week: nW, LW, nL and n#k. It may set bits past the end of the month.
func (r *dayRule) specialDays(first, length uint32) (days uint32) {
	for rest := r.nearest; rest != 0; rest &= rest - 1 {
		if d := uint32(bits.TrailingZeros32(rest)); d <= length {
			days |= 1 << nearestWorkday(d, first, length)
		}
	}
	if r.lastWorkday {
		days |= 1 << nearestWorkday(length, first, length)
	}
	if r.lastOf != 0 {
		days |= repeatWeek(r.lastOf, first) & (0x7f << (length - 6))
	}
	for k, week := range r.nth {
		if week != 0 {
			days |= repeatWeek(week, first) & (0x7f << (7*uint32(k) + 1))
		}
	}
	return days
}

// nearestWorkday gives the Monday-Friday nearest to day d without leaving the
// month.
func nearestWorkday(d, first, length uint32) uint32 {
	switch (first + d - 1) % 7 {
	case 6: // Saturday
		if d == 1 {
			return 3
		}
		return d - 1
	case 0: // Sunday
		if d == length {
			return d - 2
		}
		return d + 1
	}
	return d
}
