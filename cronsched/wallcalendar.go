package cronsched

import (
	"fmt"
	"slices"
	"time"
)

// A wallRule excludes by what a wall clock shows. stretch gives wall seconds
// around w, to exclusive, that share w's answer; it need not be the longest.
type wallRule interface {
	stretch(w int64) (from, to int64, excluded bool)
}

// A wallCalendar hangs a rule's wall clock in a zone. Its spans end where the
// zone's offset changes, for a rule knows nothing of that.
type wallCalendar struct {
	zone *zone
	rule wallRule
}

func newWallCalendar(loc *time.Location, rule wallRule) Spanner {
	return secondCalendar{wallCalendar{zoneOf(loc), rule}}
}

func (c wallCalendar) spanAt(u int64) span {
	r := &c.zone.ranges[c.zone.rangeAt(u)]
	from, to, excluded := c.rule.stretch(u + r.offset)
	s := span{r.start, r.end, excluded}
	if from > -endOfTime {
		s.start = max(s.start, from-r.offset)
	}
	if to < endOfTime {
		s.end = min(s.end, to-r.offset)
	}
	return s
}

// HolidayCalendar excludes whole days: the dates that the given times show,
// each in its own location, as days of loc's wall clock. A nil loc is UTC.
func HolidayCalendar(dates []time.Time, loc *time.Location) Spanner {
	days := make([]int64, len(dates))
	for i, d := range dates {
		year, month, day := d.Date()
		days[i] = time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / secondsPerDay
	}
	slices.Sort(days)
	var runs holidays
	for _, day := range days {
		if n := len(runs); n > 0 && day <= runs[n-1].end {
			runs[n-1].end = day + 1
		} else {
			runs = append(runs, dayRun{day, day + 1})
		}
	}
	return newWallCalendar(loc, runs)
}

// A dayRun is a run of day numbers, end exclusive.
type dayRun struct{ first, end int64 }

// holidays are runs in order that do not touch.
type holidays []dayRun

func (h holidays) stretch(w int64) (from, to int64, excluded bool) {
	day := floorDiv(w, secondsPerDay)
	// The first run that ends after the day.
	i, _ := slices.BinarySearchFunc(h, day, func(r dayRun, day int64) int {
		if r.end > day {
			return 1
		}
		return -1
	})
	if i < len(h) && h[i].first <= day {
		return h[i].first * secondsPerDay, h[i].end * secondsPerDay, true
	}
	from, to = -endOfTime, endOfTime
	if i > 0 {
		from = h[i-1].end * secondsPerDay
	}
	if i < len(h) {
		to = h[i].first * secondsPerDay
	}
	return from, to, false
}

// WeeklyCalendar excludes the given weekdays of loc's wall clock; none given
// means Saturday and Sunday. A nil loc is UTC. It panics if a day is not one
// of time.Sunday to time.Saturday.
func WeeklyCalendar(days []time.Weekday, loc *time.Location) Spanner {
	if len(days) == 0 {
		days = []time.Weekday{time.Saturday, time.Sunday}
	}
	var week weekly
	for _, d := range days {
		if d < time.Sunday || d > time.Saturday {
			panic(fmt.Sprintf("cronsched: WeeklyCalendar with the weekday %d", int(d)))
		}
		week |= 1 << d
	}
	return newWallCalendar(loc, week)
}

// weekly has bit d for weekday d.
type weekly uint8

func (k weekly) has(day int64) bool { return k>>floorMod(day+4, 7)&1 != 0 }

func (k weekly) stretch(w int64) (from, to int64, excluded bool) {
	if k == 1<<7-1 {
		return -endOfTime, endOfTime, true
	}
	first := floorDiv(w, secondsPerDay)
	end := first + 1
	excluded = k.has(first)
	for k.has(first-1) == excluded {
		first--
	}
	for k.has(end) == excluded {
		end++
	}
	return first * secondsPerDay, end * secondsPerDay, excluded
}

// DailyCalendar excludes a part of each day of loc's wall clock, from the time
// of day from up to but not including to, both since midnight in whole
// seconds, from in [0, 24h) and to in [0, 24h]. If from is after to the part
// crosses midnight. Equal times are an error. A nil loc is UTC.
func DailyCalendar(from, to time.Duration, loc *time.Location) (Spanner, error) {
	const day = 24 * time.Hour
	switch {
	case from < 0 || from >= day || from%time.Second != 0:
		return nil, fmt.Errorf("cronsched: DailyCalendar: from is %v, want whole seconds in [0, 24h)", from)
	case to < 0 || to > day || to%time.Second != 0:
		return nil, fmt.Errorf("cronsched: DailyCalendar: to is %v, want whole seconds in [0, 24h]", to)
	case from == to:
		return nil, fmt.Errorf("cronsched: DailyCalendar: from and to are both %v: the excluded part would be empty or the whole day", from)
	}
	return newWallCalendar(loc, daily{int64(from / time.Second), int64(to / time.Second)}), nil
}

// daily excludes seconds of the day.
type daily struct{ from, to int64 }

func (d daily) stretch(w int64) (from, to int64, excluded bool) {
	second := floorMod(w, secondsPerDay)
	midnight := w - second
	low, high := min(d.from, d.to), max(d.from, d.to)
	inner := d.from < d.to // the part between low and high is the excluded one
	switch {
	case second < low:
		return midnight + high - secondsPerDay, midnight + low, !inner
	case second < high:
		return midnight + low, midnight + high, inner
	}
	return midnight + high, midnight + low + secondsPerDay, !inner
}

// CronCalendar excludes every second whose wall time in the expression's
// location matches its fields: "* * 0-7 * * *" excludes 00:00:00 to 07:59:59.
// How the expression treats clock changes does not matter. It panics if e is
// nil.
func CronCalendar(e *Expression) Spanner {
	if e == nil {
		panic("cronsched: CronCalendar of a nil Expression")
	}
	return secondCalendar{wallCalendar{e.zone, cronRule{e}}}
}

type cronRule struct{ e *Expression }

func (c cronRule) stretch(w int64) (from, to int64, excluded bool) {
	if !c.e.matchesWall(w) {
		from, to = -endOfTime, endOfTime
		if m := c.e.prevWall(w); m != noWall {
			from = m + 1
		}
		if m := c.e.nextWall(w); m != noWall {
			to = m
		}
		return from, to, false
	}
	unit := c.unit()
	from = w - floorMod(w, unit)
	to = from + unit
	// A run longer than this goes on in the next span.
	const maxSteps = 366
	for range maxSteps {
		if !c.e.matchesWall(to) {
			break
		}
		to += unit
	}
	for range maxSteps {
		if !c.e.matchesWall(from - 1) {
			break
		}
		from -= unit
	}
	return from, to, true
}

// unit gives the longest unit whose seconds match all or none.
func (c cronRule) unit() int64 {
	const all60, all24 = 1<<60 - 1, 1<<24 - 1
	switch {
	case c.e.second != all60:
		return 1
	case c.e.minute != all60:
		return 60
	case c.e.hour != all24:
		return 3600
	}
	return secondsPerDay
}

func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}
