package cronsched_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

func daily(t testing.TB, from, to time.Duration, loc *time.Location) cronsched.Spanner {
	t.Helper()
	c, err := cronsched.DailyCalendar(from, to, loc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A judged calendar comes with the plain rule that it must agree with.
type judged struct {
	name     string
	calendar cronsched.Spanner
	excludes func(t time.Time) bool
}

// plain hides a calendar's Span.
type plain struct{ cronsched.Calendar }

func judgedCalendars(t *testing.T, loc *time.Location) []judged {
	holidays := []time.Time{date(2026, 12, 25), date(2026, 3, 7), date(2026, 3, 8), date(2026, 3, 9), date(2026, 11, 1), date(2026, 3, 29), date(2026, 10, 25), date(2011, 12, 30)}
	isHoliday := func(at time.Time) bool {
		y, m, d := at.In(loc).Date()
		return slices.ContainsFunc(holidays, date(y, m, d).Equal)
	}
	isWeekend := func(at time.Time) bool {
		d := at.In(loc).Weekday()
		return d == time.Saturday || d == time.Sunday
	}
	hour := func(at time.Time) int { return at.In(loc).Hour() }
	night := daily(t, 22*time.Hour, 6*time.Hour, loc)
	isNight := func(at time.Time) bool { return hour(at) >= 22 || hour(at) < 6 }
	noon := daily(t, 12*time.Hour, 12*time.Hour+30*time.Second, loc)
	isNoon := func(at time.Time) bool {
		h, m, s := at.In(loc).Clock()
		return h == 12 && m == 0 && s < 30
	}
	holiday := cronsched.HolidayCalendar(holidays, loc)
	weekly := cronsched.WeeklyCalendar(nil, loc)
	expr := func(text string) *cronsched.Expression { return expression(t, text, loc.String()) }
	return []judged{
		{"holiday", holiday, isHoliday},
		{"weekly", weekly, isWeekend},
		{"night", night, isNight},
		{"until midnight", daily(t, 12*time.Hour, 24*time.Hour, loc), func(at time.Time) bool { return hour(at) >= 12 }},
		{"to midnight", daily(t, 12*time.Hour, 0, loc), func(at time.Time) bool { return hour(at) >= 12 }},
		{"noon", noon, isNoon},
		{"cron hours", cronsched.CronCalendar(expr("* * 0-7 * * *")), func(at time.Time) bool { return hour(at) < 8 }},
		{"cron minutes", cronsched.CronCalendar(expr("* 10-40 * * * *")), func(at time.Time) bool {
			m := at.In(loc).Minute()
			return m >= 10 && m <= 40
		}},
		{"cron seconds", cronsched.CronCalendar(expr("50-59,0-4 * * * * *")), func(at time.Time) bool {
			s := at.In(loc).Second()
			return s >= 50 || s < 5
		}},
		{"cron days", cronsched.CronCalendar(expr("* * * * 3 *")), func(at time.Time) bool { return at.In(loc).Month() == time.March }},
		{"cron always", cronsched.CronCalendar(expr("* * * * * *")), func(time.Time) bool { return true }},
		{"cron never", cronsched.CronCalendar(expr("0 0 30 2 *")), func(time.Time) bool { return false }},
		{"composite", cronsched.CompositeCalendar(holiday, weekly, plain{noon}), func(at time.Time) bool { return isHoliday(at) || isWeekend(at) || isNoon(at) }},
		{"nothing", cronsched.CompositeCalendar(), func(time.Time) bool { return false }},
		{"inverted night", cronsched.InvertCalendar(night), func(at time.Time) bool { return !isNight(at) }},
		{"business hours only", cronsched.InvertCalendar(cronsched.CompositeCalendar(holiday, weekly, night)), func(at time.Time) bool {
			return !(isHoliday(at) || isWeekend(at) || isNight(at))
		}},
	}
}

var calendarZones = []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana", "America/St_Johns"}

// TestCalendarsExcludeWhatTheirRuleSays compares Excludes and Span with the
// plain rule, at random instants and at both ends of each span.
func TestCalendarsExcludeWhatTheirRuleSays(t *testing.T) {
	r := random(5)
	for _, zone := range calendarZones {
		loc := location(t, zone)
		from := date(2026, 1, 1)
		if zone == "Pacific/Apia" {
			from = date(2011, 6, 1)
		}
		for _, c := range judgedCalendars(t, loc) {
			for range 300 {
				at := from.Add(time.Duration(r.Int64N(int64(366 * 24 * time.Hour))))
				want := c.excludes(at)
				if got := c.calendar.Excludes(at); got != want {
					t.Fatalf("%s in %s: Excludes(%v) = %v, want %v", c.name, zone, at.In(loc), got, want)
				}
				start, end, excluded := c.calendar.Span(at)
				if excluded != want || start.After(at) || !end.IsZero() && !end.After(at) {
					t.Fatalf("%s in %s: Span(%v) = %v, %v, %v, want %v around it", c.name, zone, at.In(loc), start.In(loc), end.In(loc), excluded, want)
				}
				if start.IsZero() {
					start = at
				}
				if end.IsZero() {
					end = at.AddDate(1, 0, 0)
				}
				for range 10 {
					probe := start.Add(time.Duration(r.Int64N(int64(end.Sub(start)) + 1))).Add(-1)
					if !probe.Before(start) && c.excludes(probe) != want {
						t.Fatalf("%s in %s: Span(%v) = %v, %v, but %v differs", c.name, zone, at.In(loc), start.In(loc), end.In(loc), probe.In(loc))
					}
				}
			}
		}
	}
}

// bound gives a schedule of every second, or of text, under a calendar.
func bound(t testing.TB, text string, c cronsched.Calendar) cronsched.Schedule {
	t.Helper()
	s, err := cronsched.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err = s.Resolve(func(string) (cronsched.Calendar, bool) { return c, true })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEverySecondFiresWhereTheCalendarIsOpen walks from excluded instants to the
// nearest open second, both ways.
func TestEverySecondFiresWhereTheCalendarIsOpen(t *testing.T) {
	r := random(6)
	for _, zone := range calendarZones {
		loc := location(t, zone)
		for _, c := range judgedCalendars(t, loc) {
			s := bound(t, "cron * * * * * * tz="+zone+" overlap=both calendar=c", c.calendar)
			for range 40 {
				at := date(2026, 1, 1).Add(time.Duration(r.Int64N(366*86400)) * time.Second)
				next, ok := s.Next(at)
				if !ok {
					if c.name != "cron always" {
						t.Fatalf("%s in %s: no Next(%v): %s", c.name, zone, at.In(loc), s.Reason(at))
					}
					continue
				}
				if c.excludes(next) || !next.After(at) {
					t.Fatalf("%s in %s: Next(%v) = %v is excluded", c.name, zone, at.In(loc), next)
				}
				for u := at.Unix() + 1; u < min(next.Unix(), at.Unix()+100_000); u += 1 + r.Int64N(60) {
					if !c.excludes(time.Unix(u, 0)) {
						t.Fatalf("%s in %s: Next(%v) = %v, but %v is open", c.name, zone, at.In(loc), next, time.Unix(u, 0).In(loc))
					}
				}
				prev, ok := s.Prev(next)
				if c.excludes(at) && ok && prev.After(at) || !c.excludes(at) && (!ok || prev.Before(at)) {
					t.Fatalf("%s in %s: Prev(%v) = %v, from %v", c.name, zone, next, prev.In(loc), at.In(loc))
				}
			}
		}
	}
}

func TestMonthsOfHolidaysAreJumpedOver(t *testing.T) {
	var days []time.Time
	for d := date(2026, 2, 1); d.Before(date(2026, 6, 1)); d = d.AddDate(0, 0, 1) {
		days = append(days, d)
	}
	s := bound(t, "cron * * * * * * calendar=c", cronsched.HolidayCalendar(days, nil))
	if next, ok := s.Next(date(2026, 2, 1)); !ok || !next.Equal(date(2026, 6, 1)) {
		t.Errorf("Next = %v, %v, want 1 June; %s", next, ok, s.Reason(date(2026, 2, 1)))
	}
	if prev, ok := s.Prev(date(2026, 6, 1)); !ok || !prev.Equal(date(2026, 2, 1).Add(-time.Second)) {
		t.Errorf("Prev = %v, %v, want 31 January 23:59:59", prev, ok)
	}
}

// TestTenThousandExcludedCandidatesEndTheSearch has a calendar that is no
// Spanner: the limit is exact.
func TestTenThousandExcludedCandidatesEndTheSearch(t *testing.T) {
	from := date(2026, 1, 1)
	for _, c := range []struct {
		excluded int
		ok       bool
	}{{9_999, true}, {10_000, false}} {
		open := from.Add(time.Duration(c.excluded+1) * time.Second)
		s := bound(t, "cron * * * * * * calendar=c", before{open})
		if next, ok := s.Next(from); ok != c.ok || ok && !next.Equal(open) {
			t.Errorf("%d excluded: Next = %v, %v, want %v", c.excluded, next, ok, c.ok)
		}
		if why := s.Reason(from); (why == "") != c.ok {
			t.Errorf("%d excluded: Reason = %q", c.excluded, why)
		}
	}
}

// before excludes what is before an instant, without saying how long.
type before struct{ open time.Time }

func (b before) Excludes(t time.Time) bool { return t.Before(b.open) }

// wrongSpan is a Spanner whose spans do not hold the instant asked for.
type wrongSpan struct{ before }

func (w wrongSpan) Span(t time.Time) (start, end time.Time, excluded bool) {
	return t.Add(time.Hour), t.Add(-time.Hour), w.Excludes(t)
}

func TestASpanThatMissesTheInstantDoesNoHarm(t *testing.T) {
	open := date(2026, 1, 1).Add(time.Hour)
	s := bound(t, "cron * * * * * * calendar=c", wrongSpan{before{open}})
	if next, ok := s.Next(date(2026, 1, 1)); !ok || !next.Equal(open) {
		t.Errorf("Next = %v, %v, want %v", next, ok, open)
	}
	e := bound(t, "every 1m calendar=c", wrongSpan{before{open}})
	if next, ok := e.Next(date(2026, 1, 1)); !ok || !next.Equal(open) {
		t.Errorf("every: Next = %v, %v, want %v", next, ok, open)
	}
	if prev, ok := e.Prev(date(2026, 1, 1)); ok {
		t.Errorf("every: Prev = %v, want none", prev)
	}
}

func TestDailyCalendarRefusesWhatIsNoPartOfADay(t *testing.T) {
	for _, c := range []struct{ from, to time.Duration }{
		{time.Hour, time.Hour}, {-1, time.Hour}, {24 * time.Hour, 0}, {0, 25 * time.Hour},
		{time.Millisecond, time.Hour}, {0, time.Millisecond}, {0, 0},
	} {
		if _, err := cronsched.DailyCalendar(c.from, c.to, nil); err == nil {
			t.Errorf("DailyCalendar(%v, %v) gives no error", c.from, c.to)
		}
	}
}

func TestConstructorsPanicOnWhatCannotBeMeant(t *testing.T) {
	for name, f := range map[string]func(){
		"nil member":      func() { cronsched.CompositeCalendar(nil) },
		"nil inverse":     func() { cronsched.InvertCalendar(nil) },
		"nil expression":  func() { cronsched.CronCalendar(nil) },
		"nil schedule":    func() { cronsched.Cron(nil) },
		"unknown gap":     func() { expression(t, "* * * * *", "UTC").WithGap(2) },
		"unknown overlap": func() { expression(t, "* * * * *", "UTC").WithOverlap(2) },
		"no weekday":      func() { cronsched.WeeklyCalendar([]time.Weekday{7}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestAWeekOfExcludedDaysNeverFires(t *testing.T) {
	s := bound(t, "cron 0 0 * * * calendar=c", cronsched.WeeklyCalendar([]time.Weekday{0, 1, 2, 3, 4, 5, 6}, nil))
	if next, ok := s.Next(date(2026, 1, 1)); ok {
		t.Errorf("Next = %v, want none", next)
	}
	if want := `the calendar "c" excludes every instant that is left`; s.Reason(date(2026, 1, 1)) != want {
		t.Errorf("Reason = %q, want %q", s.Reason(date(2026, 1, 1)), want)
	}
}
