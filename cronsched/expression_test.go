package cronsched_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

func TestChangedExpressionsAreCopies(t *testing.T) {
	e := expression(t, "30 2 * * *", "UTC")
	berlin := e.In(location(t, "Europe/Berlin")).WithGap(cronsched.GapAfter)
	if got := e.Location(); got != time.UTC {
		t.Errorf("the original is in %v", got)
	}
	if next, _ := e.Next(date(2026, 3, 29)); !next.Equal(date(2026, 3, 29).Add(150 * time.Minute)) {
		t.Errorf("the original gives %v", next)
	}
	if next, _ := berlin.Next(date(2026, 3, 29)); !next.Equal(berlinGap) {
		t.Errorf("the copy gives %v, want %v", next, berlinGap)
	}
}

func TestMatchesHoldsForAWholeSecond(t *testing.T) {
	e := expression(t, "0 30 9 * * *", "UTC")
	nine := date(2026, 1, 1).Add(9*time.Hour + 30*time.Minute)
	for shift, want := range map[time.Duration]bool{-1: false, 0: true, time.Second - 1: true, time.Second: false} {
		if got := e.Matches(nine.Add(shift)); got != want {
			t.Errorf("Matches(%v) = %v, want %v", nine.Add(shift), got, want)
		}
	}
}

func TestNextPrevAndMatchesDoNotAllocate(t *testing.T) {
	ts := randomInstants(64)
	weekdays := cronsched.CompositeCalendar(cronsched.WeeklyCalendar(nil, nil), cronsched.HolidayCalendar([]time.Time{date(2026, 1, 1)}, nil))
	for _, text := range append(slices.Clone(benchmarked), "0 0 3 15W,LW * FRI#2 2020-2090/3") {
		for _, options := range []string{"", " tz=America/New_York gap=after overlap=both", " calendar=c", " calendar=c roll=next"} {
			s := bound(t, text+options, weekdays)
			e := s.Expression()
			i := 0
			allocs := testing.AllocsPerRun(200, func() {
				at := ts[i&63]
				s.Next(at)
				s.Prev(at)
				e.Next(at)
				e.Prev(at)
				e.Matches(at)
				i++
			})
			if allocs != 0 {
				t.Errorf("%v: %v allocations", s, allocs)
			}
		}
	}
}

// TestExpressionsAreSharedBetweenGoroutines is for the race detector.
func TestExpressionsAreSharedBetweenGoroutines(t *testing.T) {
	s := cronsched.MustParse("*/5 * * * * tz=America/New_York")
	e := expression(t, "*/5 * * * *", "UTC")
	ts := randomInstants(64)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i, at := range ts {
				s.Next(at)
				s.Prev(ts[(i+g)%64])
				e.In(location(t, oracleZones[(i+g)%8])).Next(at)
				if _, err := cronsched.Parse("0 3 * * * tz=" + oracleZones[(i*g)%len(oracleZones)]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"cron 0 0 9 * * MON-FRI tz=Asia/Shanghai", "At 09:00:00, Monday to Friday, in Asia/Shanghai"},
		{"0 9,17 * * *", "At 09:00:00 and 17:00:00, every day, in UTC"},
		{"*/5 * * * *", "Every 5 minutes, in UTC"},
		{"0 * * * *", "Every hour, on the hour, in UTC"},
		{"30 * * * *", "At minute 30 of every hour, in UTC"},
		{"15,45 9-17 * * *", "At minutes 15 and 45 of hours 9 to 17, every day, in UTC"},
		{"*/10 9-17 * * 1-5", "Every 10 minutes from 09:00 to 17:59, Monday to Friday, in UTC"},
		{"0 */2 * * *", "At minute 0 of every 2nd hour, in UTC"},
		{"* * * * *", "Every minute, in UTC"},
		{"* * * * * *", "Every second, in UTC"},
		{"* 0 * * * *", "Every second of minute 0 of every hour, in UTC"},
		{"*/15 * * * * *", "Every 15 seconds, in UTC"},
		{"30 * * * * *", "At second 30 of every minute, in UTC"},
		{"30 */5 8 * * *", "At second 30 of every 5th minute of hour 8, in UTC"},
		{"1-58/3 0 * * *", "At minute 1-58/3 of hour 0, every day, in UTC"},
		{"0 0 22 L * ?", "At 22:00:00, on the last day of the month, in UTC"},
		{"0 0 1,15 * *", "At 00:00:00, on day 1 and day 15, in UTC"},
		{"0 0 1-7 * *", "At 00:00:00, on days 1 to 7, in UTC"},
		{"0 0 */2 * *", "At 00:00:00, on every 2nd day from day 1 on, in UTC"},
		{"0 0 L-3,15W,LW * *", "At 00:00:00, on 3 days before the last day of the month, the Monday to Friday day nearest to day 15 of the month and the last Monday to Friday day of the month, in UTC"},
		{"0 0 * JAN,3-5 FRIL,MON#2", "At 00:00:00, the last Friday of the month and the 2nd Monday of the month, in January and March to May, in UTC"},
		{"1 3,4,0/11 */11,*/13 * FRI#1,FRI#3", "At minute 1 of hours 0, 3, 4, 11 and 22, on every 11th day from day 1 on and every 13th day from day 1 on, or on the 1st Friday of the month and the 3rd Friday of the month, in UTC"},
		{"0 0 13 * FRI", "At 00:00:00, on day 13, or on Friday, in UTC"},
		// Steps that do not do what they seem to say.
		{"*/1 */1 * */1 *", "Every minute, in UTC"},
		{"0-59 0-23 * 1-12 *", "Every minute, in UTC"},
		{"0 */1 * * *", "Every hour, on the hour, in UTC"},
		{"0 0 */1 * MON", "At 00:00:00, on every day, or on Monday, in UTC"},
		{"*/7 * * * *", "At every 7th minute of every hour, in UTC"},
		{"*/40 * * * *", "At minutes 0 and 40 of every hour, in UTC"},
		{"*/90 * * * *", "At minute 0 of every hour, in UTC"},
		{"*/45 * * * * *", "At seconds 0 and 45 of every minute, in UTC"},
		{"*/7 9-17 * * *", "At every 7th minute of hours 9 to 17, in UTC"},
		{"0 */5 * * *", "At minute 0 of hours 0, 5, 10, 15 and 20, every day, in UTC"},
		{"0 0 1-7/2 * *", "At 00:00:00, on every 2nd day from day 1 to 7, in UTC"},
		{"0 0 5/1,20/99999999999999999999 * *", "At 00:00:00, on every day from day 5 on and day 20, in UTC"},
		{"0 0 1 */5,*/13 *", "At 00:00:00, on day 1, in every 5th month from January on and January, in UTC"},
		{"0 0 * * */2", "At 00:00:00, Sunday, Tuesday, Thursday and Saturday, in UTC"},
		{"0 0 * * 0-7/7", "At 00:00:00, Sunday, in UTC"},
		{"0 0 1-1 * MON-MON/2", "At 00:00:00, on day 1, or on Monday, in UTC"},
		{"0 0 *,5 * *", "At 00:00:00, on every day, in UTC"},
		{"0 0 * * 7/3", "At 00:00:00, Sunday, in UTC"},
		{"0 0 * * FRI-SUN/2", "At 00:00:00, Friday and Sunday, in UTC"},
		{"0 0 0 1 1 ? */4", "At 00:00:00, on day 1, in January, in every 4th year from 1970 on, in UTC"},
		{"0 0 0 29 2 ? 2024/4", "At 00:00:00, on day 29, in February, in every 4th year from 2024 on, in UTC"},
		{"0 0 0 1 1 ? 2027", "At 00:00:00, on day 1, in January, in 2027, in UTC"},
		{"30 2 * * * tz=Europe/Berlin gap=after overlap=both", "At 02:30:00, every day, in Europe/Berlin, once after a clock change for the times that it skips, twice at times that a clock change repeats"},
		{"manual", "Never by itself, only when triggered by hand"},
		{"every 1h30m x1", "1h30m after the previous run completed, 1 run in total"},
		{"every 00:00:00.25 x5", "250ms after the previous run completed, 5 runs in total"},
		{"once 2026-10-01T08:00:00+08:00 calendar=x roll=next", `Once, at 2026-10-01T08:00:00+08:00, moved to the next day that the calendar "x" leaves open`},
		{"@daily start=2026-01-01T00:00:00Z end=2027-01-01T00:00:00Z calendar=x", `At 00:00:00, every day, in UTC, not before 2026-01-01T00:00:00Z, not after 2027-01-01T00:00:00Z, except when the calendar "x" excludes it`},
		{"0 0 * * 0-7", "At 00:00:00, every day, in UTC"},
		{"0 0 * * SUN-7", "At 00:00:00, every day, in UTC"},
		{"0 0 * * 0-SUN", "At 00:00:00, Sunday, in UTC"},
		{"0 0 * * 1-SUN", "At 00:00:00, Monday to Sunday, in UTC"},
		{"0 0 * * 1/9223372036854775807", "At 00:00:00, Monday, in UTC"},
		{"0 0 2/9223372036854775807 * *", "At 00:00:00, on day 2, in UTC"},
	} {
		if got := cronsched.MustParse(c.text).Describe(); got != c.want {
			t.Errorf("%s: Describe = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestLint(t *testing.T) {
	now := date(2026, 6, 1)
	for _, c := range []struct {
		text string
		want string // the codes, separated by blanks
	}{
		{"0 9 * * MON-FRI", ""},
		{"0 0 30 2 *", "never"},
		{"0 0 0 1 1 ? 2020", "no-more"},
		{"0 0 0 29 2 *", "leap-year"},
		{"0 0 ? 2 TUE#5", "leap-year"},
		{"0 0 28,29 2 *", ""},
		{"0 0 L-28 2 *", "leap-year"},
		{"0 0 29W 2 *", "leap-year"},
		{"0 0 0 1 2 ? 2028", ""},
		{"0 0 L 2 *", ""},
		{"0 0 13 * FRI", "either-day"},
		{"*/7 * * * *", "uneven-step"},
		{"*/15 */6 * */3 *", ""},
		{"*/61 */5 */2 * *", "uneven-step uneven-step uneven-step"},
		{"0 0 0 1 1 ? */7", ""},
		{"* * * * * *", "every-second"},
		{"* 0 9 * * *", "every-second"},
		{"0 9 * * 1-5", "weekday-number"},
		{"0 9 * * 0", "weekday-number"},
		{"0 9 * * FRI#2,SUNL,*/2", "uneven-step"},
		{"30 2 * * * tz=America/New_York", "skipped-time skipped-time"},
		{"30 2 * * * tz=America/New_York gap=after", "skipped-time skipped-time"},
		{"30 1 * * * tz=America/New_York", "repeated-time repeated-time"},
		{"30 1 * * * tz=America/New_York overlap=both", "repeated-time repeated-time"},
		{"0 * * * * tz=America/New_York", "repeated-time repeated-time"},
		{"0 * * * * tz=America/New_York overlap=both", ""},
		{"30 3 * * * tz=America/New_York", ""},
		// The change is half an hour: an hourly run is missing or comes twice, or
		// none.
		{"45 * * * * tz=Australia/Lord_Howe overlap=both", "repeated-time repeated-time"},
		{"15 * * * * tz=Australia/Lord_Howe overlap=both", "skipped-time skipped-time"},
		{"*/15 * * * * tz=Australia/Lord_Howe overlap=both", ""},
		{"0 * * * * tz=Antarctica/Troll overlap=both", ""},
		{"30 2 * * SAT tz=America/New_York", ""},
		{"30 * * * * tz=America/New_York gap=after overlap=both", "skipped-time skipped-time"},
		{"0,30 * * * * tz=America/New_York gap=after overlap=both", ""},
		{"*/7,58 * * * *", ""},
		{"*/7,50 * * * *", "uneven-step"},
		{"*,*/7 * * * *", ""},
		{"@every 5m", "fixed-delay"},
		{"every 5m", ""},
		{"every 5m end=2026-01-01T00:00:00Z", "no-more"},
		{"once 2026-01-01T00:00:00Z", "no-more"},
		{"@daily end=2026-01-01T00:00:00Z", "no-more"},
		{"@daily calendar=x", ""},
		{"manual", ""},
	} {
		var codes []string
		for _, w := range cronsched.MustParse(c.text).Lint(now) {
			codes = append(codes, w.Code)
			if w.Text == "" || !strings.HasSuffix(w.String(), "("+w.Code+")") {
				t.Errorf("%s: the warning reads %q", c.text, w)
			}
		}
		if got := strings.Join(codes, " "); got != c.want {
			t.Errorf("%s: Lint = %q, want %q", c.text, got, c.want)
		}
	}
}

// In crontabs a step after a number is no step: 5/15 is minute 5.
func TestCrontabsHaveStepsAfterRangesOnly(t *testing.T) {
	for text, want := range map[string]string{
		"5/15 * * * *": "5-59/15", "0 2/3 * * *": "2-23/3", "0 0 1/2 * *": "1-31/2", "0 0 * 1/6 *": "1-12/6", "0 0 * * MON/2": "MON-",
	} {
		if _, err := cronsched.ParseStandard(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseStandard(%q) = %v, want it to say to write %s", text, err, want)
		}
		if _, err := cronsched.ParseCron(text); err != nil {
			t.Errorf("ParseCron(%q) = %v", text, err)
		}
	}
	if _, err := cronsched.ParseStandard("*/15 1-20/3 * * *"); err != nil {
		t.Error(err)
	}
}
