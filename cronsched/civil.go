package cronsched

// Wall-clock times are counted in seconds since 1970-01-01 00:00:00 as the
// wall clock shows it, whatever the zone: instant + offset. Days are counted
// from the same date. In the years this package serves, 1970-2099, every
// fourth year is a leap year (2000 is one, 1900 and 2100 are outside), so that
// the calendar is a plain 1461-day cycle.
const (
	firstYear = 1970
	lastYear  = 2099

	secondsPerDay = 86400
	dayLimit      = 47482                    // days before 2100-01-01
	wallLimit     = dayLimit * secondsPerDay // the first wall second that is out of range
)

// The cycle is counted from 1968-03-01, so that the leap day is its last one.
const (
	epochMarch   = 671 // days from 1968-03-01 to 1970-01-01
	daysPerCycle = 1461
)

// civil gives the date of a day in [0, dayLimit).
func civil(day uint32) (year, month, dom uint32) {
	n := 4*(day+epochMarch) + 3
	year = 1968 + n/daysPerCycle
	doy := n % daysPerCycle / 4 // day of a year that begins in March
	mp := (5*doy + 2) / 153
	dom = doy - (153*mp+2)/5 + 1
	if mp < 10 {
		return year, mp + 3, dom
	}
	return year + 1, mp - 9, dom
}

// dayBefore counts the days from 1970-01-01 to the last day of the month
// before: adding a day of the month gives that day's number.
func dayBefore(year, month uint32) uint32 {
	if month <= 2 {
		year--
		month += 12
	}
	return (year-1968)*daysPerCycle/4 + (153*(month-3)+2)/5 - epochMarch - 1
}

var monthLengths = [13]uint8{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func monthLength(year, month uint32) uint32 {
	if month == 2 && year%4 == 0 {
		return 29
	}
	return uint32(monthLengths[month])
}

// weekday gives 0 for Sunday to 6 for Saturday.
func weekday(day uint32) uint32 { return (day + 4) % 7 }
