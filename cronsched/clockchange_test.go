package cronsched_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// Both changes of 2026 in New York and Berlin, as the instants of the change.
var (
	newYorkGap     = time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	newYorkOverlap = time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)
	berlinGap      = time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
)

// between gives the firings of a schedule from an instant on, before another.
func between(s cronsched.Schedule, from, to time.Time) []time.Time {
	var ts []time.Time
	for t := range s.All(from.Add(-1)) {
		if !t.Before(to) {
			break
		}
		ts = append(ts, t)
	}
	return ts
}

func clocks(ts []time.Time) []string {
	var s []string
	for _, t := range ts {
		s = append(s, t.Format("02 15:04 -07"))
	}
	return s
}

func TestAnHourAcrossTheGapHasAsManyFiringsAsAnyOther(t *testing.T) {
	for _, c := range []struct {
		zone string
		gap  time.Time
	}{{"America/New_York", newYorkGap}, {"Europe/Berlin", berlinGap}} {
		for expr, want := range map[string]int{"* * * * *": 60, "*/15 * * * *": 4, "0 * * * *": 1} {
			for _, gap := range []string{"skip", "after"} {
				s := cronsched.MustParse(expr + " tz=" + c.zone + " gap=" + gap)
				from := c.gap.Add(-30 * time.Minute)
				if got := between(s, from, from.Add(time.Hour)); len(got) != want {
					t.Errorf("%v: %d firings in the hour across the gap, want %d: %v", s, len(got), want, clocks(got))
				}
			}
		}
	}
}

func TestASkippedTimeDoesNotFireOrFiresOnceAfterTheGap(t *testing.T) {
	for _, c := range []struct {
		text string
		gap  time.Time
		want []string
	}{
		{"30 2 * * * tz=America/New_York", newYorkGap, []string{"07 02:30 -05", "09 02:30 -04"}},
		{"30 2 * * * tz=America/New_York gap=after", newYorkGap, []string{"07 02:30 -05", "08 03:00 -04", "09 02:30 -04"}},
		{"*/20 2 * * * tz=America/New_York gap=after", newYorkGap.Add(time.Hour), []string{"07 02:20 -05", "07 02:40 -05", "08 03:00 -04", "09 02:00 -04", "09 02:20 -04", "09 02:40 -04"}},
		{"0 2,3 * * * tz=America/New_York gap=after", newYorkGap, []string{"07 02:00 -05", "07 03:00 -05", "08 03:00 -04", "09 02:00 -04"}},
		{"30 2 * * * tz=Europe/Berlin", berlinGap, []string{"28 02:30 +01", "30 02:30 +02"}},
		{"30 2 * * * tz=Europe/Berlin gap=after", berlinGap, []string{"28 02:30 +01", "29 03:00 +02", "30 02:30 +02"}},
	} {
		s := cronsched.MustParse(c.text)
		if got := clocks(between(s, c.gap.Add(-24*time.Hour-50*time.Minute), c.gap.Add(24*time.Hour))); !slices.Equal(got, c.want) {
			t.Errorf("%s = %v, want %v", c.text, got, c.want)
		}
	}
}

func TestARepeatedTimeFiresFirstOrBothTimes(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"30 1 * * * tz=America/New_York", []string{"01 01:30 -04"}},
		{"30 1 * * * tz=America/New_York overlap=both", []string{"01 01:30 -04", "01 01:30 -05"}},
		{"0 * * * * tz=America/New_York", []string{"01 01:00 -04", "01 02:00 -05"}},
		{"0 * * * * tz=America/New_York overlap=both", []string{"01 01:00 -04", "01 01:00 -05", "01 02:00 -05"}},
		{"*/30 * * * * tz=America/New_York", []string{"01 01:00 -04", "01 01:30 -04", "01 02:00 -05", "01 02:30 -05"}},
		{"*/30 * * * * tz=America/New_York overlap=both", []string{"01 01:00 -04", "01 01:30 -04", "01 01:00 -05", "01 01:30 -05", "01 02:00 -05", "01 02:30 -05"}},
	} {
		s := cronsched.MustParse(c.text)
		from, to := newYorkOverlap.Add(-time.Hour), newYorkOverlap.Add(2*time.Hour)
		got := between(s, from, to)
		if !slices.Equal(clocks(got), c.want) {
			t.Errorf("%s = %v, want %v", c.text, clocks(got), c.want)
		}
		// A process that starts anywhere in between sees the same instants.
		for at := from; at.Before(to); at = at.Add(7 * time.Minute) {
			next, _ := s.Next(at)
			i, found := slices.BinarySearchFunc(got, at, time.Time.Compare)
			if found {
				i++
			}
			if i < len(got) && !next.Equal(got[i]) {
				t.Errorf("%s: Next(%v) = %v, want %v", c.text, at.In(next.Location()), next, got[i])
			}
		}
	}
}

func TestAYearsWalkOnlyGoesForward(t *testing.T) {
	for _, zone := range oracleZones {
		for _, text := range []string{"*/30 * * * *", "30 2 * * *", "0 0 * * *", "59 23 L * *"} {
			for _, options := range []string{"", " gap=after", " overlap=both", " gap=after overlap=both"} {
				s := cronsched.MustParse(text + " tz=" + zone + options)
				last := date(2026, 1, 1)
				for at := range s.All(last) {
					if at.Year() > 2026 {
						break
					}
					if !at.After(last) {
						t.Fatalf("%v: %v follows %v", s, at, last)
					}
					last = at
				}
				if last.Before(date(2026, 12, 30)) {
					t.Errorf("%v: the last instant of the year is %v", s, last)
				}
			}
		}
	}
}

func TestOddZones(t *testing.T) {
	for _, c := range []struct {
		name, text, from string
		want             []string // with the zone's offset
	}{
		{"half an hour's gap", "15 2 * * * tz=Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-05T02:15:00+11:00"}},
		{"half an hour's gap, after", "15 2 * * * tz=Australia/Lord_Howe gap=after", "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"half an hour's overlap", "45 1 * * * tz=Australia/Lord_Howe overlap=both", "2026-04-04T00:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-06T01:45:00+10:30"}},
		{"a skipped day", "0 12 * * * tz=Pacific/Apia", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"}},
		{"a skipped day, after", "0 12 * * * tz=Pacific/Apia gap=after", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"}},
		{"the last Friday is skipped", "0 12 * * FRIL tz=Pacific/Apia", "2011-12-01T00:00:00Z",
			[]string{"2012-01-27T12:00:00+14:00"}},
		{"no midnight in Havana", "0 0 * * * tz=America/Havana", "2026-03-07T04:00:00Z",
			[]string{"2026-03-07T00:00:00-05:00", "2026-03-09T00:00:00-04:00"}},
		{"no midnight in Beirut, after", "0 0 * * * tz=Asia/Beirut gap=after", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"}},
		{"no midnight in Santiago", "30 0 * * * tz=America/Santiago", "2026-09-05T12:00:00Z",
			[]string{"2026-09-07T00:30:00-03:00"}},
		{"Dublin's winter time is the negative one", "30 1 * * * tz=Europe/Dublin overlap=both", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T01:30:00+01:00", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
		{"Kathmandu's quarters", "0 0 1 1 * tz=Asia/Kathmandu", "1985-12-31T00:00:00Z",
			[]string{"1987-01-01T00:00:00+05:45", "1988-01-01T00:00:00+05:45"}},
		{"Cairo's summer time of 2014, in four changes", "30 0 * * FRI tz=Africa/Cairo", "2014-05-14T00:00:00Z",
			[]string{"2014-05-23T00:30:00+03:00"}},
		{"Monrovia's seconds", "0 0 7 1 * tz=Africa/Monrovia", "1972-01-01T00:00:00Z",
			[]string{"1973-01-07T00:00:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, at := range cronsched.MustParse(c.text).Upcoming(from, len(c.want)) {
				got = append(got, at.Format(time.RFC3339))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s after %s = %v, want %v", c.text, c.from, got, c.want)
			}
		})
	}
}

func TestAYearForwardOnEverySecondIsOneStep(t *testing.T) {
	s := cronsched.MustParse("* * * * * * tz=America/New_York")
	from := date(2027, 6, 1).Add(250 * time.Millisecond)
	if next, ok := s.Next(from); !ok || !next.Equal(date(2027, 6, 1).Add(time.Second)) {
		t.Errorf("Next(%v) = %v, %v", from, next, ok)
	}
}

// TestTheSearchEndsWithTheYears2099And1970 goes by the zone's wall clock.
func TestTheSearchEndsWithTheYears2099And1970(t *testing.T) {
	for _, zone := range []string{"UTC", "America/New_York", "Pacific/Kiritimati", "Africa/Monrovia"} {
		loc := location(t, zone)
		for _, text := range []string{"* * * * * *", "0 0 0 * * *", "59 59 23 L 12 ?"} {
			e := expression(t, text, zone)
			last, ok := e.Prev(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC))
			if y, m, d := last.Date(); !ok || y != 2099 || m != 12 || d != 31 {
				t.Errorf("%s in %s: the last instant is %v", text, zone, last)
			}
			if next, ok := e.Next(last); ok {
				t.Errorf("%s in %s: Next(%v) = %v, want none", text, zone, last, next)
			}
			first, ok := e.Next(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC))
			if !ok || first.Year() != 1970 {
				t.Errorf("%s in %s: the first instant is %v", text, zone, first)
			}
			if prev, ok := e.Prev(first); ok {
				t.Errorf("%s in %s: Prev(%v) = %v, want none", text, zone, first, prev)
			}
		}
		if got, _ := expression(t, "* * * * * *", zone).Next(time.Time{}); !got.Equal(time.Date(1970, 1, 1, 0, 0, 0, 0, loc)) {
			t.Errorf("the first second in %s is %v", zone, got)
		}
	}
}

func TestInstantsAgesAwayDoNotOverflow(t *testing.T) {
	e := expression(t, "0 0 1 1 *", "America/New_York")
	for _, sec := range []int64{-1 << 60, -1 << 52, 1 << 52, 1 << 60} {
		at := time.Unix(sec, 999_999_999)
		next, okNext := e.Next(at)
		prev, okPrev := e.Prev(at)
		if okNext && !next.After(at) || okPrev && !prev.Before(at) || okNext && okPrev {
			t.Errorf("Next(%d) = %v, %v; Prev = %v, %v", sec, next, okNext, prev, okPrev)
		}
	}
}
