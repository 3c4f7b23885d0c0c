// Package businesscal makes cronsched calendars of the business calendars of
// github.com/rickar/cal/v2, which knows the public holidays of many countries.
//
// It is a module of its own, so that cronsched depends on nothing.
package businesscal

import (
	"fmt"
	"time"

	"github.com/rickar/cal/v2"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// The years for which a calendar is computed: those that cronsched searches,
// and what a roll may look at beyond.
const (
	firstYear = 1969
	lastYear  = 2101
)

// New makes a calendar that excludes the days that are no workdays of c, on
// loc's wall clock: weekends and holidays as they are observed. A nil loc is
// UTC.
//
// It asks c about every day once, which takes some tens of milliseconds, and
// keeps the answers: later changes of c are not seen, and c, which is not safe
// for concurrent use, is not used again. If c is limited to locations, loc must
// be one of them: c would have no holidays elsewhere.
//
// New leaves c's working hours aside. To fire within them, combine it:
//
//	hours, err := cronsched.DailyCalendar(9*time.Hour, 17*time.Hour, loc)
//	…
//	cronsched.CompositeCalendar(days, cronsched.InvertCalendar(hours))
func New(c *cal.BusinessCalendar, loc *time.Location) (cronsched.Spanner, error) {
	if c == nil {
		return nil, fmt.Errorf("businesscal: the calendar is nil")
	}
	if loc == nil {
		loc = time.UTC
	}
	asked, err := applicable(c, loc)
	if err != nil {
		return nil, err
	}
	var off []time.Time
	// At noon the day exists and is the day meant, whatever the clock changes.
	for day := time.Date(firstYear, 1, 1, 12, 0, 0, 0, asked); day.Year() <= lastYear; {
		if !c.IsWorkday(day) {
			off = append(off, day)
		}
		y, m, d := day.Date()
		day = time.Date(y, m, d+1, 12, 0, 0, 0, asked)
		if day.Day() == d { // the wall clock skips a whole day
			day = time.Date(y, m, d+2, 12, 0, 0, 0, asked)
		}
	}
	return cronsched.HolidayCalendar(off, loc), nil
}

// applicable gives the location to ask c with: c compares locations by
// pointer, so that an equal one by name would silently have no holidays.
func applicable(c *cal.BusinessCalendar, loc *time.Location) (*time.Location, error) {
	if c.IsApplicable(loc) {
		return loc, nil
	}
	for _, l := range c.Locations {
		if l != nil && l.String() == loc.String() {
			return l, nil
		}
	}
	return nil, fmt.Errorf("businesscal: the calendar %q is not for %v", c.Name, loc)
}
