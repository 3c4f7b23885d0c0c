package businesscal_test

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/rickar/cal/v2"
	"github.com/rickar/cal/v2/us"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/cronsched/businesscal"
)

func newYork(t testing.TB) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func usCalendar() *cal.BusinessCalendar {
	c := cal.NewBusinessCalendar()
	c.Name = "us"
	c.AddHoliday(us.Holidays...)
	return c
}

func TestWeekendsAndObservedHolidaysAreExcluded(t *testing.T) {
	loc := newYork(t)
	c, err := businesscal.New(usCalendar(), loc)
	if err != nil {
		t.Fatal(err)
	}
	for day, want := range map[string]bool{
		"2026-07-02": false,
		"2026-07-03": true, // the 4th is a Saturday
		"2026-07-04": true,
		"2026-07-06": false,
		"2026-12-25": true,
		"2021-12-31": true, // New Year 2022, a Saturday
		"2026-03-08": true, // Sunday, clock change
		"2026-03-09": false,
	} {
		d, err := time.ParseInLocation(time.DateOnly, day, loc)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{d, d.Add(12 * time.Hour), d.Add(22*time.Hour + 59*time.Minute)} {
			if got := c.Excludes(at); got != want {
				t.Errorf("Excludes(%v) = %v, want %v", at, got, want)
			}
		}
	}
}

// TestEveryDayAgreesWithTheBusinessCalendar compares 20 years, and finds the
// spans to hold what they say.
func TestEveryDayAgreesWithTheBusinessCalendar(t *testing.T) {
	loc := newYork(t)
	business := usCalendar()
	c, err := businesscal.New(business, loc)
	if err != nil {
		t.Fatal(err)
	}
	for day := time.Date(2020, 1, 1, 12, 0, 0, 0, loc); day.Year() < 2040; day = day.AddDate(0, 0, 1) {
		if got, want := c.Excludes(day), !business.IsWorkday(day); got != want {
			t.Errorf("Excludes(%v) = %v, want %v", day, got, want)
		}
	}
}

func TestALocationTheCalendarIsNotForIsAnError(t *testing.T) {
	business := usCalendar()
	business.Locations = []*time.Location{newYork(t)}
	if _, err := businesscal.New(business, time.UTC); err == nil {
		t.Error("UTC gives no error")
	}
	// The time package gives another pointer for each load.
	c, err := businesscal.New(business, newYork(t))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Excludes(time.Date(2026, 12, 25, 17, 0, 0, 0, time.UTC)) {
		t.Error("Christmas is not excluded")
	}
	if _, err := businesscal.New(nil, nil); err == nil {
		t.Error("a nil calendar gives no error")
	}
}

func ExampleNew() {
	business := cal.NewBusinessCalendar()
	business.AddHoliday(us.Holidays...)
	days, err := businesscal.New(business, time.UTC)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cronsched.MustParse("cron 0 0 9 1 * ? calendar=us roll=next").Resolve(func(string) (cronsched.Calendar, bool) {
		return days, true
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range s.Upcoming(time.Date(2026, 7, 31, 0, 0, 0, 0, time.UTC), 3) {
		fmt.Println(at.Format(time.RFC1123))
	}
	// Output:
	// Mon, 03 Aug 2026 09:00:00 UTC
	// Tue, 01 Sep 2026 09:00:00 UTC
	// Thu, 01 Oct 2026 09:00:00 UTC
}
