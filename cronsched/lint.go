package cronsched

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Warning is something about a schedule that its author should know before
// it goes into production.
type Warning struct {
	Code string // one of those that Lint lists, for programs
	Text string // for people
}

// String gives the text with the code in parentheses.
func (w Warning) String() string { return w.Text + " (" + w.Code + ")" }

// Lint gives what is doubtful about the expression, nothing if all is well.
// Clock changes are looked for in the year of now and the next. The codes:
//
//	never           no date matches, it never fires
//	no-more         it fires no more after now
//	leap-year       it fires in leap years only
//	either-day      day-of-month and day-of-week are both restricted: either matches
//	uneven-step     a step does not divide its field, the last interval is shorter
//	every-second    it fires every second of the minutes that match
//	weekday-number  a weekday's number means another day in Quartz
//	skipped-time    a clock change skips a time at which it would fire
//	repeated-time   a clock change repeats a time at which it fires
func (e *Expression) Lint(now time.Time) []Warning {
	if e.never {
		return []Warning{{"never", "never fires: no date from 1970 to 2099 matches"}}
	}
	var ws []Warning
	if _, ok := e.Next(now); !ok {
		why := "the last date that matches is past"
		if e.nextWall(unixFloor(now)+offsetAt(e.zone.loc, unixFloor(now))) != noWall {
			why = "changes of the clock skip all times that are left"
		}
		ws = append(ws, Warning{"no-more", "fires no more: " + why})
	}
	if e.onlyLeapDays() {
		ws = append(ws, Warning{"leap-year", "fires in leap years only: in others no day of February matches"})
	}
	if !e.days.domAny && !e.days.dowAny {
		ws = append(ws, Warning{"either-day", "day-of-month and day-of-week are both given: a day that matches either one fires, not only days that match both"})
	}
	f := e.fieldTexts()
	for k, text := range f {
		ws = append(ws, e.lintSteps(k, text)...)
	}
	if e.second == 1<<60-1 {
		ws = append(ws, Warning{"every-second", "fires every second of each minute that matches; for once a minute the second is 0"})
	}
	if w, ok := lintWeekdayNumbers(f[dowField]); ok {
		ws = append(ws, w)
	}
	return append(ws, e.lintClockChanges(now)...)
}

// Lint gives what is doubtful about the schedule: what it says about the
// expression, and with further codes
//
//	no-more         nothing is due after now, and why
//	fixed-delay     @every counts from the end of a run here, other libraries
//	                count from its start
func (s Schedule) Lint(now time.Time) []Warning {
	p := s.plan()
	var ws []Warning
	if p.kind == cron {
		ws = p.expr.Lint(now)
		if len(ws) > 0 && (ws[0].Code == "never" || ws[0].Code == "no-more") {
			return ws
		}
	}
	if p.wasAtEvery {
		ws = append(ws, Warning{"fixed-delay", "@every is a fixed delay here: it counts from the end of the previous run, not from its start"})
	}
	if _, why := p.next(now); why != due && why != byHand && why != unresolved {
		ws = append(ws, Warning{"no-more", "fires no more: " + s.Reason(now)})
	}
	return ws
}

// onlyLeapDays reports whether what matches are days of February that other
// years than leap years do not have, such as the 29th.
func (e *Expression) onlyLeapDays() bool {
	if e.month != 1<<2 {
		return false
	}
	for year := uint32(firstYear); year <= lastYear; year++ {
		if monthLength(year, 2) == 28 && e.days.in(year, 2) != 0 {
			return false
		}
	}
	return true
}

// lintSteps looks for steps over a whole field that do not divide it, unless the
// field's other items fill it or go further.
func (e *Expression) lintSteps(k int, text string) []Warning {
	sizes := [fieldCount]int{secondField: 60, minuteField: 60, hourField: 24, domField: 31, monthField: 12, dowField: 7}
	size := sizes[k]
	if size == 0 || strings.HasPrefix(text, "*,") || strings.Contains(text, ",*,") || strings.HasSuffix(text, ",*") {
		return nil // years do not wrap, and * is all there is
	}
	highest := bits.Len64([...]uint64{
		secondField: e.second, minuteField: e.minute, hourField: uint64(e.hour),
		domField: uint64(e.days.dom), monthField: uint64(e.month), dowField: uint64(e.days.weekdays),
	}[k]) - 1
	var ws []Warning
	for item := range strings.SplitSeq(text, ",") {
		digits, ok := strings.CutPrefix(item, "*/")
		if !ok {
			continue
		}
		step, err := strconv.Atoi(digits)
		switch {
		case err != nil || step > size:
			ws = append(ws, Warning{"uneven-step", fmt.Sprintf("%s %s: the step is larger than the field, only %d is left", fields[k].name, item, fields[k].min)})
		case size%step != 0:
			last := fields[k].min + (size-1)/step*step
			if last < highest {
				continue
			}
			ws = append(ws, Warning{"uneven-step", fmt.Sprintf("%s %s does not divide evenly: after %d comes %d again, a shorter interval", fields[k].name, item, last, fields[k].min)})
		}
	}
	return ws
}

// lintWeekdayNumbers looks for weekdays written as numbers.
func lintWeekdayNumbers(text string) (Warning, bool) {
	for item := range strings.SplitSeq(text, ",") {
		day, _, _ := strings.Cut(item, "/")
		day, _, _ = strings.Cut(day, "#")
		low, high, _ := strings.Cut(strings.TrimSuffix(day, "L"), "-")
		for _, value := range []string{low, high} {
			if n, err := strconv.Atoi(value); err == nil {
				here := time.Weekday(n % 7)
				there := "no day"
				if n > 0 {
					there = time.Weekday(n - 1).String()
				}
				return Warning{"weekday-number", fmt.Sprintf("weekday %d is %v here, but %s in Quartz; the name is safer: %s", n, here, there, strings.ToUpper(here.String()[:3]))}, true
			}
		}
	}
	return Warning{}, false
}

// lintClockChanges goes through the zone's changes of this year and the next.
func (e *Expression) lintClockChanges(now time.Time) []Warning {
	year := now.In(e.zone.loc).Year()
	from := time.Date(year, 1, 1, 0, 0, 0, 0, e.zone.loc).Unix()
	to := time.Date(year+2, 1, 1, 0, 0, 0, 0, e.zone.loc).Unix()
	var ws []Warning
	for i := e.zone.rangeAt(from) + 1; i < len(e.zone.ranges) && e.zone.ranges[i].start < to; i++ {
		before, after := e.zone.ranges[i-1].wallEnd(), e.zone.ranges[i].wallStart()
		low, high := min(before, after), max(before, after)
		if m := e.nextWall(low); m == noWall || m >= high {
			continue
		} else if w, ok := e.lintChange(before, after, m); ok {
			ws = append(ws, w)
		}
	}
	return ws
}

// lintChange words what happens when the wall clock goes from before to after,
// m being the first match in between.
func (e *Expression) lintChange(before, after, m int64) (Warning, bool) {
	everyHour := e.hour == 1<<24-1
	change := fmt.Sprintf("%s: the clock in %s goes from %s to %s, ", wallDate(before), e.zone.loc, clockTime(before), clockTime(after))
	if before < after {
		switch {
		case everyHour && e.keepsPace(after-before) && (e.gap == GapSkip || e.matchesWall(after)):
			return Warning{}, false // no real time is left out
		case e.gap == GapAfter:
			return Warning{"skipped-time", change + clockTime(m) + " does not exist and fires at " + clockTime(after) + " instead"}, true
		}
		return Warning{"skipped-time", change + clockTime(m) + " does not exist and does not fire that day; gap=after would fire at " + clockTime(after)}, true
	}
	switch {
	case everyHour && e.overlap == OverlapBoth && e.keepsPace(before-after):
		return Warning{}, false // no real time is left out
	case everyHour && e.overlap == OverlapFirst:
		return Warning{"repeated-time", change + fmt.Sprintf("and nothing fires for %s of real time; overlap=both goes on", shortDuration(time.Duration(before-after)*time.Second))}, true
	case e.overlap == OverlapBoth:
		return Warning{"repeated-time", change + clockTime(m) + " is shown twice and fires both times"}, true
	}
	return Warning{"repeated-time", change + clockTime(m) + " is shown twice and fires the first time only; overlap=both would fire both times"}, true
}

// keepsPace reports whether an expression of every hour fires at the same
// intervals of real time over a clock change of so many seconds: within an
// hour, its minutes are the same when moved by the change.
func (e *Expression) keepsPace(change int64) bool {
	shift := change / 60 % 60
	moved := (e.minute<<shift | e.minute>>(60-shift)) & (1<<60 - 1)
	return change < secondsPerDay && change%60 == 0 && moved == e.minute
}

// wallDate gives a wall second's date.
func wallDate(w int64) string { return time.Unix(w, 0).UTC().Format(time.DateOnly) }
