// Package cronrows is the family of rows that compares cron engines: what it
// costs to parse an expression and to find its next instant.
package cronrows

import (
	"fmt"
	"time"
)

// An expression is one line of cron, with a definition of what it means that
// shares nothing with any engine: which days, and which times of the day.
type expression struct {
	text string
	name string // in workload names
	day  func(y int, m time.Month, d int, wd time.Weekday) bool
	// at are the times of a day, as seconds; nil means every five minutes.
	at []int
}

var expressions = []expression{
	{text: "*/5 * * * *", name: "five-minutes",
		day: func(int, time.Month, int, time.Weekday) bool { return true }},
	{text: "0 0 22 L * ?", name: "last-day", at: []int{22 * 3600},
		day: func(y int, m time.Month, d int, _ time.Weekday) bool {
			return d == time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
		}},
	{text: "0 0 12 1 1 *", name: "new-year", at: []int{12 * 3600},
		day: func(_ int, m time.Month, d int, _ time.Weekday) bool { return m == time.January && d == 1 }},
	{text: "0 30 9 * * MON-FRI", name: "weekdays", at: []int{9*3600 + 1800},
		day: func(_ int, _ time.Month, _ int, wd time.Weekday) bool {
			return wd != time.Saturday && wd != time.Sunday
		}},
	{text: "0 0 0 29 2 *", name: "leap-day", at: []int{0},
		day: func(_ int, m time.Month, d int, _ time.Weekday) bool { return m == time.February && d == 29 }},
}

var zones = []string{"UTC", "America/New_York"}

// next is the oracle: day by day until one fits. None of the instants it is
// asked for lies near a change of the clocks, where engines may differ with
// good reason.
func (e expression) next(t time.Time) time.Time {
	if e.at == nil {
		return t.Truncate(5 * time.Minute).Add(5 * time.Minute)
	}
	y, m, d := t.Date()
	for ; ; d++ {
		noon := time.Date(y, m, d, 12, 0, 0, 0, time.UTC)
		if !e.day(noon.Year(), noon.Month(), noon.Day(), noon.Weekday()) {
			continue
		}
		for _, s := range e.at {
			if at := time.Date(y, m, d, 0, 0, s, 0, t.Location()); at.After(t) {
				return at
			}
		}
	}
}

const (
	steps   = 16  // of a chain, from the start of 2026
	randoms = 256 // instants from 2020 to 2040
)

func chainStart(loc *time.Location) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, loc) }

// verify compares an engine with the oracle along the chain.
func (e expression) verify(loc *time.Location, next func(time.Time) time.Time) error {
	t := chainStart(loc)
	for i := range steps {
		got, want := next(t), e.next(t)
		if !got.Equal(want) {
			return fmt.Errorf("step %d: %s after %s, want %s", i+1,
				got.In(loc).Format(time.DateTime), t.Format(time.DateTime), want.Format(time.DateTime))
		}
		t = want
	}
	return nil
}
