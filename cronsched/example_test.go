package cronsched_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

func ExampleParse() {
	s, err := cronsched.Parse("cron 0 0 9 * * MON-FRI tz=Asia/Shanghai")
	if err != nil {
		fmt.Println(err)
		return
	}
	next, ok := s.Next(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	fmt.Println(next, ok)
	// Output: 2026-05-04 09:00:00 +0800 CST true
}

func ExampleParse_error() {
	_, err := cronsched.Parse("0 9 * * MONDAY")
	fmt.Println(err)
	var e *cronsched.ParseError
	if errors.As(err, &e) {
		fmt.Println(e.Field, e.Text, e.Offset)
	}
	// Output:
	// cronsched: day-of-week: "MONDAY" at offset 8: want *, ?, a weekday 0-7 or SUN-SAT (three letters), a range, a step, nL, n#k, or a list of these
	// day-of-week MONDAY 8
}

func ExampleExpression_Next() {
	e, err := cronsched.ParseCron("0 0 22 L * ?")
	if err != nil {
		fmt.Println(err)
		return
	}
	next, ok := e.Next(time.Date(2028, 2, 1, 0, 0, 0, 0, time.UTC))
	fmt.Println(next, ok)
	// Output: 2028-02-29 22:00:00 +0000 UTC true
}

func ExampleExpression_WithOverlap() {
	loc, err := time.LoadLocation("America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	hourly, err := cronsched.ParseCron("0 * * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	e := hourly.In(loc).WithOverlap(cronsched.OverlapBoth)
	for _, at := range e.Upcoming(time.Date(2026, 11, 1, 4, 30, 0, 0, time.UTC), 3) {
		fmt.Println(at)
	}
	// Output:
	// 2026-11-01 01:00:00 -0400 EDT
	// 2026-11-01 01:00:00 -0500 EST
	// 2026-11-01 02:00:00 -0500 EST
}

func ExampleSchedule_All() {
	s := cronsched.MustParse("@monthly tz=Europe/Berlin")
	for at := range s.All(time.Date(2026, 2, 15, 0, 0, 0, 0, time.UTC)) {
		if at.Month() > time.May {
			break
		}
		fmt.Println(at)
	}
	// Output:
	// 2026-03-01 00:00:00 +0100 CET
	// 2026-04-01 00:00:00 +0200 CEST
	// 2026-05-01 00:00:00 +0200 CEST
}

func ExampleSchedule_Resolve() {
	calendars := map[string]cronsched.Calendar{"weekend": cronsched.WeeklyCalendar(nil, time.UTC)}
	payday := cronsched.MustParse("cron 0 0 9 L * ? calendar=weekend roll=previous")
	payday, err := payday.Resolve(func(name string) (cronsched.Calendar, bool) {
		c, ok := calendars[name]
		return c, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range payday.Upcoming(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), 3) {
		fmt.Println(at.Format("Mon 2 Jan 15:04"))
	}
	// Output:
	// Thu 30 Apr 09:00
	// Fri 29 May 09:00
	// Tue 30 Jun 09:00
}

func ExampleSchedule_Describe() {
	fmt.Println(cronsched.MustParse("*/10 9-17 * * MON-FRI tz=Europe/London").Describe())
	// Output: Every 10 minutes from 09:00 to 17:59, Monday to Friday, in Europe/London
}

func ExampleSchedule_Lint() {
	s := cronsched.MustParse("30 2 13 * FRI tz=America/New_York")
	for _, w := range s.Lint(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		fmt.Println(w)
	}
	// Output:
	// day-of-month and day-of-week are both given: a day that matches either one fires, not only days that match both (either-day)
}

func ExampleSchedule_Reason() {
	s := cronsched.MustParse("0 0 30 2 *")
	fmt.Println(s.Reason(time.Now()))
	// Output: the expression never fires: no date matches it
}

func ExampleParseQuartz() {
	e, err := cronsched.ParseQuartz("0 0 12 ? * 2-6")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e)
	// Output: 0 0 12 ? * 1-5
}

func ExampleInvertCalendar() {
	hours, err := cronsched.DailyCalendar(9*time.Hour, 17*time.Hour, time.UTC)
	if err != nil {
		fmt.Println(err)
		return
	}
	outside := cronsched.CompositeCalendar(cronsched.InvertCalendar(hours), cronsched.WeeklyCalendar(nil, time.UTC))
	s, err := cronsched.MustParse("every 3h calendar=outside").Resolve(func(string) (cronsched.Calendar, bool) {
		return outside, true
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range s.Upcoming(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), 3) {
		fmt.Println(at.Format("Mon 15:04"))
	}
	// Output:
	// Fri 15:00
	// Mon 09:00
	// Mon 12:00
}
