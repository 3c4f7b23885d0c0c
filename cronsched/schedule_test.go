package cronsched_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// The engine finds these by optional interfaces.
var _ interface {
	Next(after time.Time) (time.Time, bool)
	Prev(before time.Time) (time.Time, bool)
	String() string
	FixedDelay() (delay time.Duration, runs int, ok bool)
	Manual() bool
	Validate() error
	Reason(after time.Time) string
} = cronsched.Schedule{}

func TestTheZeroScheduleIsManual(t *testing.T) {
	for _, s := range []cronsched.Schedule{{}, cronsched.Manual(), cronsched.MustParse("manual")} {
		if _, ok := s.Next(date(2026, 1, 1)); ok || !s.Manual() || s.String() != "manual" || s.Validate() != nil {
			t.Errorf("%v is not the manual schedule", s)
		}
		if _, ok := s.Prev(date(2026, 1, 1)); ok {
			t.Errorf("%v has a Prev", s)
		}
		if s.Reason(date(2026, 1, 1)) == "" {
			t.Error("no reason is given")
		}
	}
}

func TestADelayCountsFromTheEndOfTheRunBefore(t *testing.T) {
	s, err := cronsched.Every(90*time.Second, 3)
	if err != nil {
		t.Fatal(err)
	}
	if delay, runs, ok := s.FixedDelay(); delay != 90*time.Second || runs != 3 || !ok {
		t.Errorf("FixedDelay = %v, %v, %v", delay, runs, ok)
	}
	end := time.Now() // with a monotonic reading, which must not come through
	next, ok := s.Next(end)
	if want := end.Round(0).UTC().Add(90 * time.Second); !ok || next != want {
		t.Errorf("Next = %v, %v, want %v", next, ok, want)
	}
	if prev, ok := s.Prev(next); !ok || !prev.Equal(end) {
		t.Errorf("Prev = %v, %v, want %v", prev, ok, end)
	}
	if got := s.Upcoming(end, 10); len(got) != 3 {
		t.Errorf("Upcoming gives %d instants, want as many as runs, 3", len(got))
	}
	if _, _, ok := cronsched.MustParse("@daily").FixedDelay(); ok {
		t.Error("a cron schedule has a fixed delay")
	}
}

// TestWindows has each kind at the edges of its window.
func TestWindows(t *testing.T) {
	const window = " start=2026-05-01T00:00:00Z end=2026-05-02T00:00:00Z"
	for _, c := range []struct {
		text       string
		from       string
		next, prev string // "" is none
	}{
		{"@daily" + window, "2020-01-01T00:00:00Z", "2026-05-01T00:00:00Z", ""},
		{"@daily" + window, "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z", ""},
		{"@daily" + window, "2026-05-02T00:00:00Z", "", "2026-05-01T00:00:00Z"},
		{"@daily" + window, "2030-01-01T00:00:00Z", "", "2026-05-02T00:00:00Z"},
		{"@daily start=2026-05-01T00:00:00.5Z end=2026-05-02T00:00:00.5Z", "2020-01-01T00:00:00Z", "2026-05-02T00:00:00Z", ""},
		{"@daily start=2026-05-01T00:00:00.5Z end=2026-05-01T23:59:59.9Z", "2020-01-01T00:00:00Z", "", ""},
		{"every 6h" + window, "2020-01-01T00:00:00Z", "2026-05-01T06:00:00Z", ""},
		{"every 6h" + window, "2026-05-01T18:00:00Z", "2026-05-02T00:00:00Z", "2026-05-01T12:00:00Z"},
		{"every 6h" + window, "2026-05-01T18:00:01Z", "", "2026-05-01T12:00:01Z"},
		{"every 6h" + window, "2026-05-01T11:59:59Z", "2026-05-01T17:59:59Z", ""},
		{"every 6h" + window, "2030-01-01T00:00:00Z", "", "2026-05-02T00:00:00Z"},
		{"once 2026-05-01T00:00:00Z" + window, "2020-01-01T00:00:00Z", "2026-05-01T00:00:00Z", ""},
		{"once 2026-05-02T00:00:00Z" + window, "2026-05-01T23:59:59.999Z", "2026-05-02T00:00:00Z", ""},
		{"once 2026-05-02T00:00:00Z" + window, "2026-05-02T00:00:00Z", "", ""},
		{"once 2026-05-02T00:00:00Z" + window, "2026-05-02T00:00:00.001Z", "", "2026-05-02T00:00:00Z"},
		{"once 2026-05-02T00:00:00.5Z" + window, "2020-01-01T00:00:00Z", "", ""},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		s := cronsched.MustParse(c.text)
		format := func(at time.Time, ok bool) string {
			if !ok {
				return ""
			}
			return at.Format(time.RFC3339Nano)
		}
		if next := format(s.Next(from)); next != c.next {
			t.Errorf("%s: Next(%s) = %q, want %q", c.text, c.from, next, c.next)
		}
		if prev := format(s.Prev(from)); prev != c.prev {
			t.Errorf("%s: Prev(%s) = %q, want %q", c.text, c.from, prev, c.prev)
		}
		if why := s.Reason(from); (why == "") != (c.next != "") {
			t.Errorf("%s: Reason(%s) = %q", c.text, c.from, why)
		}
	}
}

func TestReasons(t *testing.T) {
	at := date(2026, 5, 1)
	nothing := cronsched.InvertCalendar(cronsched.CompositeCalendar())
	for _, c := range []struct{ text, want string }{
		{"manual", "a manual schedule never fires by itself"},
		{"0 0 30 2 *", "the expression never fires: no date matches it"},
		{"0 0 0 1 1 ? 2020", "the expression fires no more before the end of 2099"},
		{"@daily end=2026-04-01T00:00:00Z", "the window is over: nothing fires after 2026-04-01T00:00:00Z"},
		{"0 0 0 1 1 ? 2020 end=2026-04-01T00:00:00Z", "the window is over: nothing fires after 2026-04-01T00:00:00Z"},
		{"every 1h end=2026-04-01T00:00:00Z", "the window is over: nothing fires after 2026-04-01T00:00:00Z"},
		{"once 2026-04-01T00:00:00Z", "the one instant, 2026-04-01T00:00:00Z, is past"},
		{"once 2026-06-01T00:00:00Z end=2026-05-01T00:00:00Z", "the one instant, 2026-06-01T00:00:00Z, is outside the window"},
		{"once 2026-06-01T00:00:00Z calendar=c", `the calendar "c" excludes every instant that is left`},
		{"@daily calendar=c", `the calendar "c" excludes every instant that is left`},
		{"@daily calendar=c roll=next", `the calendar "c" excludes every instant that is left`},
		{"every 1h calendar=c", `the calendar "c" excludes every instant that is left`},
	} {
		s := bound(t, c.text, nothing)
		if got := s.Reason(at); got != c.want {
			t.Errorf("%s: Reason = %q, want %q", c.text, got, c.want)
		}
		if prev, ok := s.Prev(at); ok && strings.Contains(c.text, "calendar=") {
			t.Errorf("%s: Prev = %v, which the calendar excludes", c.text, prev)
		}
	}
}

func TestACalendarThatTakesAllIsTheReason(t *testing.T) {
	weekend := cronsched.WeeklyCalendar(nil, nil)
	for _, text := range []string{
		"0 9 * * SAT calendar=c", "0 9 * * SAT calendar=c end=2027-01-01T00:00:00Z",
		"0 0 9 3 1 ? 2026 calendar=c", "0 9 * * SAT calendar=c end=2026-01-03T12:00:00Z",
	} {
		const want = `the calendar "c" excludes every instant that is left`
		s := bound(t, text, weekend)
		if got := s.Reason(date(2026, 1, 1)); got != want {
			t.Errorf("%s: Reason = %q, want %q", text, got, want)
		}
	}
	s := bound(t, "0 9 * * SAT calendar=c end=2026-01-04T00:00:00Z", weekend)
	if got := s.Reason(date(2026, 1, 5)); !strings.HasPrefix(got, "the window is over") {
		t.Errorf("past the window: Reason = %q", got)
	}
	skipped := cronsched.MustParse("0 0 12 30 12 ? 2011 tz=Pacific/Apia").Lint(date(2000, 1, 1))
	if len(skipped) == 0 || !strings.Contains(skipped[0].Text, "skip") {
		t.Errorf("a day that the clock skips: Lint = %v", skipped)
	}
}

func TestAScheduleWithoutItsCalendarRefuses(t *testing.T) {
	for _, text := range []string{"@daily calendar=c", "every 1h calendar=c", "once 2026-06-01T00:00:00Z calendar=c", "@daily calendar=c roll=next"} {
		s := cronsched.MustParse(text)
		var e *cronsched.CalendarError
		if err := s.Validate(); !errors.As(err, &e) || e.Name != "c" {
			t.Errorf("%s: Validate = %v, want a *CalendarError", text, err)
		}
		if next, ok := s.Next(date(2026, 1, 1)); ok {
			t.Errorf("%s: Next = %v without the calendar", text, next)
		}
		if prev, ok := s.Prev(date(2027, 1, 1)); ok {
			t.Errorf("%s: Prev = %v without the calendar", text, prev)
		}
		if _, err := s.Resolve(func(string) (cronsched.Calendar, bool) { return nil, false }); !errors.As(err, &e) {
			t.Errorf("%s: Resolve = %v, want a *CalendarError", text, err)
		}
		resolved := bound(t, text, cronsched.CompositeCalendar())
		if err := resolved.Validate(); err != nil || resolved.String() != s.String() {
			t.Errorf("%s: resolved is %v, %v", text, resolved, err)
		}
		if s.Validate() == nil {
			t.Errorf("%s: Resolve changed the schedule itself", text)
		}
	}
}

func TestADelaySkipsWhatTheCalendarExcludesInStepsOfItself(t *testing.T) {
	weekend := cronsched.WeeklyCalendar(nil, nil)
	friday := date(2026, 5, 1).Add(10 * time.Hour)
	for _, c := range []struct {
		text string
		want time.Time
	}{
		{"every 24h calendar=c", date(2026, 5, 4).Add(10 * time.Hour)},
		{"every 7h calendar=c", date(2026, 5, 1).Add(17 * time.Hour)},
		{"every 15h calendar=c", date(2026, 5, 4).Add(13 * time.Hour)},
		{"every 1ns calendar=c", friday.Add(1)},
		{"every 36h calendar=c roll=next", date(2026, 5, 4).Add(10 * time.Hour)},
		{"every 36h calendar=c roll=previous", date(2026, 5, 1).Add(22 * time.Hour)},
	} {
		s := bound(t, c.text, weekend)
		if next, ok := s.Next(friday); !ok || !next.Equal(c.want) {
			t.Errorf("%s: Next(%v) = %v, %v, want %v", c.text, friday, next, ok, c.want)
		}
		// The same without Span, one candidate after the other.
		if p := bound(t, c.text, plain{weekend}); c.want.Sub(friday) > 0 {
			if next, ok := p.Next(friday); !ok || !next.Equal(c.want) {
				t.Errorf("%s without Span: Next(%v) = %v, %v, want %v", c.text, friday, next, ok, c.want)
			}
		}
	}
	s := bound(t, "every 15h calendar=c", weekend)
	if prev, ok := s.Prev(date(2026, 5, 4).Add(13 * time.Hour)); !ok || !prev.Equal(friday) {
		t.Errorf("Prev = %v, %v, want %v", prev, ok, friday)
	}
	// A nanosecond's delay jumps over the weekend like any other.
	ns := bound(t, "every 1ns calendar=c", weekend)
	if next, ok := ns.Next(date(2026, 5, 2)); !ok || !next.Equal(date(2026, 5, 4)) {
		t.Errorf("every 1ns: Next = %v, %v, want Monday", next, ok)
	}
	if prev, ok := ns.Prev(date(2026, 5, 4)); !ok || !prev.Equal(date(2026, 5, 2).Add(-1)) {
		t.Errorf("every 1ns: Prev = %v, %v, want the end of Friday", prev, ok)
	}
}

// always excludes everything, without saying for how long.
type always struct{}

func (always) Excludes(time.Time) bool { return true }

func TestEverySearchGivesUpOnACalendarThatNeverOpens(t *testing.T) {
	at := date(2026, 5, 1)
	for _, text := range []string{"* * * * * *", "@daily", "every 1s", "@daily roll=next", "@daily roll=previous", "every 1h roll=next", "once 2026-06-01T00:00:00Z roll=next"} {
		s := bound(t, text+" calendar=c", always{})
		if next, ok := s.Next(at); ok || s.Reason(at) == "" {
			t.Errorf("%v: Next = %v, %q", s, next, s.Reason(at))
		}
		if prev, ok := s.Prev(at); ok {
			t.Errorf("%v: Prev = %v", s, prev)
		}
	}
	if got, want := bound(t, "@daily calendar=c", always{}).Reason(at), `the calendar "c" excludes 10000 candidates in a row`; got != want {
		t.Errorf("Reason = %q, want %q", got, want)
	}
}

func TestSchedulesMadeInCodeAreThoseOfTheirText(t *testing.T) {
	e := expression(t, "0 0 9 * * MON-FRI", "Asia/Shanghai").WithGap(cronsched.GapAfter).WithOverlap(cronsched.OverlapBoth)
	s, err := cronsched.Cron(e).Within(date(2026, 1, 1), date(2027, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.On("holidays", cronsched.RollNext); err != nil {
		t.Fatal(err)
	}
	want := "cron 0 0 9 * * MON-FRI tz=Asia/Shanghai gap=after overlap=both start=2026-01-01T00:00:00Z end=2027-01-01T00:00:00Z calendar=holidays roll=next"
	if s.String() != want {
		t.Errorf("String = %s, want %s", s, want)
	}
	name, roll := s.Calendar()
	start, end := s.Window()
	if name != "holidays" || roll != cronsched.RollNext || !start.Equal(date(2026, 1, 1)) || !end.Equal(date(2027, 1, 1)) || s.Expression() != e {
		t.Errorf("%v gives %v, %v, %v, %v, %v", s, name, roll, start, end, s.Expression())
	}
	once, err := cronsched.Once(time.Date(2026, 1, 1, 0, 0, 0, 0, location(t, "Africa/Monrovia")))
	if err != nil || once.String() != "once 2026-01-01T00:00:00Z" {
		t.Errorf("Once = %v, %v", once, err)
	}
	old, err := cronsched.Once(time.Date(1971, 1, 1, 0, 0, 0, 0, location(t, "Africa/Monrovia")))
	if err != nil || old.String() != "once 1971-01-01T00:44:30Z" {
		t.Errorf("Once of an offset with seconds = %v, %v, want UTC", old, err)
	}
	if open, err := s.On("", cronsched.RollNone); err != nil || open.Validate() != nil {
		t.Errorf("On(\"\") = %v, %v", open, err)
	}
}

func TestConstructorsRefuseWhatCannotBeMeant(t *testing.T) {
	far := time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, f := range map[string]func() (cronsched.Schedule, error){
		"no delay":       func() (cronsched.Schedule, error) { return cronsched.Every(0, 0) },
		"negative delay": func() (cronsched.Schedule, error) { return cronsched.Every(-1, 0) },
		"negative runs":  func() (cronsched.Schedule, error) { return cronsched.Every(1, -1) },
		"far instant":    func() (cronsched.Schedule, error) { return cronsched.Once(far) },
		"far end":        func() (cronsched.Schedule, error) { return cronsched.Manual().Within(time.Time{}, far) },
		"end before start": func() (cronsched.Schedule, error) {
			return cronsched.Manual().Within(date(2026, 1, 2), date(2026, 1, 1))
		},
		"blank in a name": func() (cronsched.Schedule, error) { return cronsched.Manual().On("a b", cronsched.RollNone) },
		"roll alone":      func() (cronsched.Schedule, error) { return cronsched.Manual().On("", cronsched.RollNext) },
		"unknown roll":    func() (cronsched.Schedule, error) { return cronsched.Manual().On("a", 7) },
	} {
		if s, err := f(); err == nil {
			t.Errorf("%s: %v, want an error", name, s)
		}
	}
}

func TestMustParsePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	cronsched.MustParse("0 25 * * *")
}

func TestUpcomingGivesWhatThereIs(t *testing.T) {
	s := cronsched.MustParse("0 0 0 1 1 ? 2026-2028")
	if got := s.Upcoming(date(2026, 6, 1), 5); !slices.EqualFunc(got, []time.Time{date(2027, 1, 1), date(2028, 1, 1)}, time.Time.Equal) {
		t.Errorf("Upcoming = %v", got)
	}
	if got := s.Upcoming(date(2026, 6, 1), 0); got != nil {
		t.Errorf("Upcoming(0) = %v", got)
	}
	if got := s.Upcoming(date(2026, 6, 1), -1); got != nil {
		t.Errorf("Upcoming(-1) = %v", got)
	}
}

func TestAnotherCalendarForgetsTheRollOfTheOneBefore(t *testing.T) {
	rolled := bound(t, "cron 0 9 * * SAT calendar=c roll=next", cronsched.WeeklyCalendar(nil, nil))
	off, err := rolled.On("", cronsched.RollNone)
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := off.Next(date(2026, 1, 1)); !ok || !next.Equal(date(2026, 1, 3).Add(9*time.Hour)) {
		t.Errorf("without the calendar: Next = %v, %v, want Saturday, 3 January", next, ok)
	}
	dropping, err := rolled.On("c", cronsched.RollNone)
	if err != nil {
		t.Fatal(err)
	}
	dropping, err = dropping.Resolve(func(string) (cronsched.Calendar, bool) { return cronsched.WeeklyCalendar(nil, nil), true })
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := dropping.Next(date(2026, 1, 1)); ok {
		t.Errorf("without the roll: Next = %v, want none", next)
	}
}
