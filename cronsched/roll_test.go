package cronsched_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// rolled is the definition of roll= in the plainest way: every instant of the
// expression from months before to months after, each moved day by day.
func rolled(e *cronsched.Expression, c cronsched.Calendar, from, to time.Time, towards int) []time.Time {
	const margin = 60 // days, longer than any stretch the tests exclude
	seen := map[int64]bool{}
	for b := range e.All(from.AddDate(0, 0, -margin)) {
		if b.After(to.AddDate(0, 0, margin)) {
			break
		}
		if !c.Excludes(b) {
			seen[b.Unix()] = true
			continue
		}
		y, m, d := b.Date()
		h, min, s := b.Clock()
		if !b.Equal(showing(y, m, d, h, min, s, e.Location())) {
			continue // the second showing of a repeated wall time does not move
		}
		for k := 1; k <= margin; k++ {
			at := showing(y, m, d+k*towards, h, min, s, e.Location())
			if !at.IsZero() && !c.Excludes(at) {
				seen[at.Unix()] = true
				break
			}
		}
	}
	var ts []time.Time
	for u := range seen {
		if at := time.Unix(u, 0); !at.Before(from) && at.Before(to) {
			ts = append(ts, at.In(e.Location()))
		}
	}
	slices.SortFunc(ts, time.Time.Compare)
	return ts
}

// showing gives the first instant at which a wall clock shows a time, zero if
// it does not.
func showing(year int, month time.Month, day, hour, min, sec int, loc *time.Location) time.Time {
	at, ok := firstShowing(time.Date(year, month, day, hour, min, sec, 0, time.UTC).Unix(), loc)
	if !ok {
		return time.Time{}
	}
	return at
}

// TestRollAgreesWithItsDefinition compares Next and Prev with the set that the
// definition gives, on expressions of few and many times and days.
func TestRollAgreesWithItsDefinition(t *testing.T) {
	r := random(7)
	texts := []string{
		"0 0 9 * * *", "0 0 9 * * SAT,SUN", "0 30 2 * * *", "0 30 1 1,15 * *", "0 0 22 L * ?", "0 0 9 * * MON-FRI",
		"0 */20 * * * SAT", "0 15,45 */3 * * SUN", "0 0 23 * * FRI#1", "0 0 0 * * *", "0 30 0 8 * *",
	}
	for _, zone := range calendarZones {
		loc := location(t, zone)
		for _, text := range texts {
			for _, c := range judgedCalendars(t, loc) {
				switch c.name {
				case "cron always", "cron seconds", "cron days":
					continue // they exclude more than the definition's margin, or too finely
				}
				for range rounds(t, 1) {
					if r.IntN(6) == 0 {
						roll := []string{"next", "previous"}[r.IntN(2)]
						overlap := []string{"first", "both"}[r.IntN(2)]
						checkRoll(t, r, text, c, loc, roll, overlap)
					}
				}
			}
		}
	}
}

func checkRoll(t *testing.T, r *rand.Rand, text string, c judged, loc *time.Location, roll, overlap string) {
	t.Helper()
	schedule := fmt.Sprintf("cron %s tz=%s overlap=%s calendar=c roll=%s", text, loc, overlap, roll)
	s := bound(t, schedule, c.calendar)
	months := []time.Month{time.February, time.March, time.October, time.December}
	from := date(2026, months[r.IntN(len(months))], 15)
	if loc.String() == "Pacific/Apia" {
		from = date(2011, 12, 15)
	}
	to := from.AddDate(0, 0, 30)
	towards := 1
	if roll == "previous" {
		towards = -1
	}
	want := rolled(s.Expression(), c.calendar, from, to, towards)
	probes := 12
	if len(want) == 0 {
		probes = 1 // a search for what never comes goes to its limit
	}
	for range probes {
		at := from.Add(time.Duration(r.Int64N(30*86400)) * time.Second)
		if len(want) > 0 && r.IntN(2) == 0 {
			at = want[r.IntN(len(want))]
		}
		i, found := slices.BinarySearchFunc(want, at, time.Time.Compare)
		before := i - 1
		if found {
			i++
		}
		if next, ok := s.Next(at); i < len(want) && (!ok || !next.Equal(want[i])) || i == len(want) && ok && next.Before(to) {
			t.Fatalf("%s, %s: Next(%v) = %v, %v; want index %d of %v", schedule, c.name, at, next, ok, i, want)
		}
		if prev, ok := s.Prev(at); before >= 0 && (!ok || !prev.Equal(want[before])) || before < 0 && ok && !prev.Before(from) {
			t.Fatalf("%s, %s: Prev(%v) = %v, %v; want index %d of %v", schedule, c.name, at, prev, ok, before, want)
		}
	}
}

func TestRolledInstantsThatBecomeEqualAreOne(t *testing.T) {
	s := bound(t, "cron 0 0 9 * * * calendar=weekend roll=next", cronsched.WeeklyCalendar(nil, nil))
	got := s.Upcoming(date(2026, 5, 1), 3) // a Friday
	want := []time.Time{date(2026, 5, 1), date(2026, 5, 4), date(2026, 5, 5)}
	for i := range want {
		want[i] = want[i].Add(9 * time.Hour)
	}
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("Upcoming = %v, want %v", got, want)
	}
}

func TestRollKeepsToTheWindow(t *testing.T) {
	weekend := cronsched.WeeklyCalendar(nil, nil)
	for _, c := range []struct {
		text string
		want []time.Time
	}{
		// Saturday's and Sunday's are before the start, Monday, to which they move, is not.
		{"cron 0 0 9 * * SAT start=2026-05-04T00:00:00Z end=2026-05-09T00:00:00Z calendar=c roll=next", []time.Time{date(2026, 5, 4)}},
		{"cron 0 0 9 * * SAT start=2026-05-04T09:00:01Z end=2026-05-11T08:00:00Z calendar=c roll=next", nil},
		{"cron 0 0 9 * * SUN start=2026-05-04T00:00:00Z end=2026-05-08T09:00:00Z calendar=c roll=previous", []time.Time{date(2026, 5, 8)}},
	} {
		s := bound(t, c.text, weekend)
		got := s.Upcoming(date(2026, 1, 1), 5)
		for i := range got {
			got[i] = got[i].Truncate(24 * time.Hour)
		}
		if !slices.EqualFunc(got, c.want, time.Time.Equal) {
			t.Errorf("%s: Upcoming = %v, want %v", c.text, got, c.want)
		}
	}
}

func TestRollOfASingleInstant(t *testing.T) {
	weekend := cronsched.WeeklyCalendar(nil, time.FixedZone("", 8*3600))
	for text, want := range map[string]string{
		"once 2026-05-02T09:00:00+08:00 calendar=c roll=next":     "2026-05-04T09:00:00+08:00",
		"once 2026-05-02T09:00:00+08:00 calendar=c roll=previous": "2026-05-01T09:00:00+08:00",
		"once 2026-05-04T09:00:00+08:00 calendar=c roll=previous": "2026-05-04T09:00:00+08:00",
		"once 2026-05-02T09:00:00+08:00 calendar=c":               "",
	} {
		s := bound(t, text, weekend)
		got := ""
		if next, ok := s.Next(date(2026, 1, 1)); ok {
			got = next.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: Next = %q, want %q", text, got, want)
		}
	}
}

// TestARolledDelayIsTheEarliest has delays whose first instants are excluded: what
// they move to may be later than the first that is not, and earlier than that of
// an instant before.
func TestARolledDelayIsTheEarliest(t *testing.T) {
	weekend := cronsched.WeeklyCalendar(nil, nil)
	lunch := cronsched.CronCalendar(expression(t, "* * 12 * * MON-FRI", "UTC"))
	for _, c := range []struct {
		text     string
		calendar cronsched.Calendar
		from     string
		want     string
	}{
		{"every 1h calendar=c roll=next", lunch, "2026-01-02T11:00:00Z", "2026-01-02T13:00:00Z"},
		{"every 1h calendar=c roll=next", calendarFunc(lunch.Excludes), "2026-01-02T11:00:00Z", "2026-01-02T13:00:00Z"},
		{"every 30h calendar=c roll=next", weekend, "2026-01-02T12:00:00Z", "2026-01-05T00:00:00Z"},
		{"every 17h calendar=c roll=next", weekend, "2026-01-02T11:00:00Z", "2026-01-05T04:00:00Z"},
		{"every 41h calendar=c roll=next", weekend, "2026-01-02T09:00:00Z", "2026-01-05T02:00:00Z"},
		{"every 17h calendar=c roll=previous", weekend, "2026-01-02T11:00:00Z", "2026-01-02T14:00:00Z"},
		{"every 1s calendar=c roll=previous", weekend, "2026-01-02T23:59:59Z", "2026-01-05T00:00:00Z"},
		{"every 1s calendar=c roll=next", weekend, "2026-01-02T23:59:59Z", "2026-01-05T00:00:00Z"},
		{"every 48h calendar=c roll=next end=2026-01-04T12:00:00Z", weekend, "2026-01-01T09:00:00Z", ""},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if next, ok := bound(t, c.text, c.calendar).Next(from); ok {
			got = next.Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%s: Next(%s) = %q, want %q", c.text, c.from, got, c.want)
		}
	}
}

func TestRollGivesUpAfterAYear(t *testing.T) {
	leap := "cron 0 0 9 29 2 ? 2028 calendar=c roll=next"
	for _, c := range []struct {
		days int
		ok   bool
	}{{366, true}, {367, false}} {
		var days []time.Time
		for k := range c.days {
			days = append(days, date(2028, 2, 29+k))
		}
		s := bound(t, leap, cronsched.HolidayCalendar(days, nil))
		want := date(2028, 2, 29+366).Add(9 * time.Hour)
		if next, ok := s.Next(date(2028, 1, 1)); ok != c.ok || ok && !next.Equal(want) {
			t.Errorf("%d days excluded: Next = %v, %v, want %v, %v", c.days, next, ok, want, c.ok)
		}
		if prev, ok := s.Prev(date(2040, 1, 1)); ok != c.ok || ok && !prev.Equal(want) {
			t.Errorf("%d days excluded: Prev = %v, %v, want %v, %v", c.days, prev, ok, want, c.ok)
		}
	}
}

// TestRollOfManyTimesOnFewDaysIsBounded looks from the day after for the next
// leap day, with every second of it a candidate.
func TestRollOfManyTimesOnFewDaysIsBounded(t *testing.T) {
	s := bound(t, "cron * * * 29 2 * calendar=c roll=next", daily(t, 22*time.Hour, 6*time.Hour, nil))
	began := time.Now()
	next, ok := s.Next(date(2028, 3, 1))
	if want := date(2032, 2, 29).Add(6 * time.Hour); !ok || !next.Equal(want) {
		t.Errorf("Next = %v, %v, want %v", next, ok, want)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Next took %v", took)
	}
}

// TestARollOutlastsAClosedCalendar has calendars that are no Spanners and are
// closed for years: with a roll, the search goes through as many candidates as
// without.
func TestARollOutlastsAClosedCalendar(t *testing.T) {
	from, to := date(2020, 1, 1), date(2024, 1, 1)
	years := calendarFunc(func(t time.Time) bool { return !t.Before(from) && t.Before(to) })
	for _, text := range []string{
		"0 9 * * *", "0 9,17 * * MON-FRI", "0 */6 * * * tz=Europe/Berlin", "30 2 * * * tz=Europe/Berlin", "0 0 1 * *",
	} {
		plain := bound(t, text+" calendar=c", years)
		next := bound(t, text+" calendar=c roll=next", years)
		previous := bound(t, text+" calendar=c roll=previous", years)
		// In the middle, what rolls comes from a year around at most: both ends
		// are too far away for it.
		inside := from.AddDate(1, 6, 0)
		if want, ok := plain.Next(inside); !ok {
			t.Errorf("%s: no Next of %v", text, inside)
		} else if got, ok := previous.Next(inside); !ok || !got.Equal(want) {
			t.Errorf("%s roll=previous: Next(%v) = %v, %v, want %v", text, inside, got, ok, want)
		} else if got, ok := next.Next(inside); !ok || got.Before(to) || got.After(want) {
			t.Errorf("%s roll=next: Next(%v) = %v, %v, want from %v to %v", text, inside, got, ok, to, want)
		}
		inside = to.AddDate(-1, -6, 0)
		if want, ok := plain.Prev(inside); !ok {
			t.Errorf("%s: no Prev of %v", text, inside)
		} else if got, ok := next.Prev(inside); !ok || !got.Equal(want) {
			t.Errorf("%s roll=next: Prev(%v) = %v, %v, want %v", text, inside, got, ok, want)
		} else if got, ok := previous.Prev(inside); !ok || !got.Before(from) || got.Before(want) {
			t.Errorf("%s roll=previous: Prev(%v) = %v, %v, want from %v to %v", text, inside, got, ok, want, from)
		}
	}
}

// TestALongRunOfHolidaysIsCheap: a run of days is one stretch however long.
func TestALongRunOfHolidaysIsCheap(t *testing.T) {
	var days []time.Time
	for d := date(1960, 1, 1); d.Year() < 2110; d = d.AddDate(0, 0, 1) {
		days = append(days, d)
	}
	never := cronsched.HolidayCalendar(days, location(t, "America/New_York"))
	for _, text := range []string{"* * * * * *", "0 9 * * *", "every 1s", "every 24h"} {
		for _, roll := range []string{"", " roll=next", " roll=previous"} {
			s := bound(t, text+" calendar=c"+roll, never)
			begin := time.Now()
			if next, ok := s.Next(date(2026, 1, 1)); ok && never.Excludes(next) {
				t.Errorf("%s%s: Next = %v, which is excluded", text, roll, next)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("%s%s: Next took %v", text, roll, took)
			}
		}
	}
}

// TestATargetIsFoundThoughAllElseIsClosed has a few open days in a calendar of
// very many short closed stretches: looking for instants that need no roll is
// in vain for 10,000 candidates, and those that roll are found all the same.
func TestATargetIsFoundThoughAllElseIsClosed(t *testing.T) {
	open := date(2026, 10, 3) // a Saturday
	days := cronsched.InvertCalendar(cronsched.CompositeCalendar(
		cronsched.CronCalendar(expression(t, "15-20 30 3 * * *", "UTC")),
		cronsched.HolidayCalendar([]time.Time{open}, nil)))
	want := open.Add(9*time.Hour + 15*time.Minute)
	next := bound(t, "0 15,45 9,17 * * FRI calendar=c roll=next", days)
	if got, ok := next.Next(want.Add(-time.Second)); !ok || !got.Equal(want) {
		t.Errorf("Next = %v, %v, want %v", got, ok, want)
	}
	previous := bound(t, "0 15,45 9,17 * * SUN calendar=c roll=previous", days)
	if got, ok := previous.Prev(want.Add(time.Second)); !ok || !got.Equal(want) {
		t.Errorf("Prev = %v, %v, want %v", got, ok, want)
	}
}

// A calendarFunc is a calendar that is no Spanner.
type calendarFunc func(t time.Time) bool

func (f calendarFunc) Excludes(t time.Time) bool { return f(t) }

// closedFrom is a calendar that says nothing of stretches.
type closedFrom struct{ from, to time.Time }

func (c closedFrom) Excludes(t time.Time) bool { return !t.Before(c.from) && t.Before(c.to) }

// Of all times of day each day is asked about once, and not once for each day before.
func TestAClosedMonthIsNoLimitForAnExpressionOfManyTimes(t *testing.T) {
	from, to := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	december, err := cronsched.ParseCron("* * * 12 *")
	if err != nil {
		t.Fatal(err)
	}
	for name, calendar := range map[string]cronsched.Calendar{
		"without stretches":  closedFrom{from, to},
		"a stretch a second": cronsched.CronCalendar(december),
	} {
		for _, roll := range []string{"", " roll=next", " roll=previous"} {
			for _, minutes := range []int{5, 10, 30} {
				s := bound(t, fmt.Sprintf("cron */%d * * * * calendar=c%s", minutes, roll), calendar)
				before := from.Add(-time.Duration(minutes) * time.Minute)
				if next, ok := s.Next(before); !ok || !next.Equal(to) {
					t.Errorf("%s: Next of %v = %v, %v, want %v", name, s, next, ok, to)
				}
				if prev, ok := s.Prev(to); !ok || !prev.Equal(before) {
					t.Errorf("%s: Prev of %v = %v, %v, want %v", name, s, prev, ok, before)
				}
			}
		}
	}
}

// What has not been looked at may be due: no later instant is given instead.
func TestASearchThatGivesUpGivesNothing(t *testing.T) {
	from := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for _, roll := range []string{" roll=next", " roll=previous"} {
		s := bound(t, "cron */5 * * * * calendar=c"+roll, closedFrom{from, from.AddDate(0, 2, 0)})
		if next, ok := s.Next(from); ok {
			t.Errorf("Next of %v = %v, want none: more than 10,000 candidates are excluded", s, next)
		}
		if prev, ok := s.Prev(from.AddDate(0, 2, 0)); ok {
			t.Errorf("Prev of %v = %v, want none", s, prev)
		}
	}
}
