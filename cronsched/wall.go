package cronsched

import "math/bits"

// This file finds matches on a wall clock that never changes: no zone, no
// instant. All times of an expression's day are the product of three sets, so
// the same times recur each matching day and none is looked for by stepping.

const (
	noWall = -1         // no such wall second
	noDay  = ^uint32(0) // no such day
)

// nextWall gives the first matching wall second at or after w, or noWall.
func (e *Expression) nextWall(w int64) int64 {
	if uint64(w) >= wallLimit {
		if w > 0 {
			return noWall
		}
		w = 0
	}
	day, second := uint32(w)/secondsPerDay, uint32(w)%secondsPerDay
	if second > e.lastTime {
		day = e.nextDay(day + 1)
	} else if d := e.nextDay(day); d == day {
		return int64(day)*secondsPerDay + int64(e.nextTime(second))
	} else {
		day = d
	}
	if day == noDay {
		return noWall
	}
	return int64(day)*secondsPerDay + int64(e.firstTime)
}

// prevWall gives the last matching wall second at or before w, or noWall.
func (e *Expression) prevWall(w int64) int64 {
	if uint64(w) >= wallLimit {
		if w < 0 {
			return noWall
		}
		w = wallLimit - 1
	}
	day, second := uint32(w)/secondsPerDay, uint32(w)%secondsPerDay
	if second < e.firstTime {
		if day == 0 {
			return noWall
		}
		day = e.prevDay(day - 1)
	} else if d := e.prevDay(day); d == day {
		return int64(day)*secondsPerDay + int64(e.prevTime(second))
	} else {
		day = d
	}
	if day == noDay {
		return noWall
	}
	return int64(day)*secondsPerDay + int64(e.lastTime)
}

// matchesWall reports whether all fields match the wall second w.
func (e *Expression) matchesWall(w int64) bool {
	if uint64(w) >= wallLimit {
		return false
	}
	day, second := uint32(w)/secondsPerDay, uint32(w)%secondsPerDay
	return e.second>>(second%60)&1 != 0 &&
		e.minute>>(second/60%60)&1 != 0 &&
		e.hour>>(second/3600)&1 != 0 &&
		e.matchesDay(day)
}

// matchesDay reports whether the day, month and year fields match.
func (e *Expression) matchesDay(day uint32) bool {
	if e.everyDay {
		return true
	}
	year, month, dom := civil(day)
	return e.month>>month&1 != 0 && e.hasYear(year) && e.days.in(year, month)>>dom&1 != 0
}

// nextTime gives the first matching second of the day at or after s, which
// must not be after e.lastTime.
func (e *Expression) nextTime(s uint32) uint32 {
	hour, minute, second := s/3600, s/60%60, s%60
	if e.hour>>hour&1 != 0 {
		if e.minute>>minute&1 != 0 {
			if rest := e.second >> second; rest != 0 {
				return s + uint32(bits.TrailingZeros64(rest))
			}
		}
		if rest := e.minute >> (minute + 1); rest != 0 {
			minute += 1 + uint32(bits.TrailingZeros64(rest))
			return hour*3600 + minute*60 + e.firstTime%60
		}
	}
	hour += 1 + uint32(bits.TrailingZeros32(e.hour>>(hour+1)))
	return hour*3600 + e.firstTime%3600
}

// prevTime gives the last matching second of the day at or before s, which
// must not be before e.firstTime.
func (e *Expression) prevTime(s uint32) uint32 {
	hour, minute, second := s/3600, s/60%60, s%60
	if e.hour>>hour&1 != 0 {
		if e.minute>>minute&1 != 0 {
			if rest := e.second << (63 - second); rest != 0 {
				return s - uint32(bits.LeadingZeros64(rest))
			}
		}
		if rest := e.minute & (1<<minute - 1); rest != 0 {
			return hour*3600 + uint32(bits.Len64(rest)-1)*60 + e.lastTime%60
		}
	}
	hour = uint32(bits.Len32(e.hour&(1<<hour-1)) - 1)
	return hour*3600 + e.lastTime%3600
}

// nextDay gives the first matching day at or after day, or noDay.
func (e *Expression) nextDay(day uint32) uint32 {
	if day >= dayLimit {
		return noDay
	}
	if e.everyDay {
		return day
	}
	year, month, dom := civil(day)
	for {
		if !e.hasYear(year) {
			month = 12 // nothing more in this year
		} else if e.month>>month&1 != 0 {
			if rest := e.days.in(year, month) >> dom; rest != 0 {
				return dayBefore(year, month) + dom + uint32(bits.TrailingZeros32(rest))
			}
		}
		dom = 1
		if rest := e.month >> (month + 1); rest != 0 {
			month += 1 + uint32(bits.TrailingZeros16(rest))
			continue
		}
		if year++; year > lastYear {
			return noDay
		}
		month = uint32(bits.TrailingZeros16(e.month))
	}
}

// prevDay gives the last matching day at or before day, or noDay.
func (e *Expression) prevDay(day uint32) uint32 {
	if e.everyDay {
		return day
	}
	year, month, dom := civil(day)
	for {
		if !e.hasYear(year) {
			month = 1 // nothing earlier in this year
		} else if e.month>>month&1 != 0 {
			if rest := e.days.in(year, month) << (31 - dom); rest != 0 {
				return dayBefore(year, month) + dom - uint32(bits.LeadingZeros32(rest))
			}
		}
		dom = 31
		if rest := e.month & (1<<month - 1); rest != 0 {
			month = uint32(bits.Len16(rest) - 1)
			continue
		}
		if year--; year < firstYear {
			return noDay
		}
		month = uint32(bits.Len16(e.month) - 1)
	}
}

// hasYear reports whether the year field matches a year in range.
func (e *Expression) hasYear(year uint32) bool {
	if e.anyYear {
		return true
	}
	y := year - firstYear
	return e.years[y>>6]>>(y&63)&1 != 0
}
