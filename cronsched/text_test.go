package cronsched_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// TestTextIsReadAndWrittenBack has texts with their canonical form, empty if
// they are it.
func TestTextIsReadAndWrittenBack(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"manual", ""},
		{"manual start=2026-01-01T00:00:00Z", ""},
		{"every 00:10:00", ""},
		{"every 00:10:00 x5", ""},
		{"every 1.06:00:00", ""},
		{"every 00:00:00.25", ""},
		{"every 106751.23:47:16.854775807", ""},
		{"every 10m", "every 00:10:00"},
		{"every 1h30m x007", "every 01:30:00 x7"},
		{"every 30h", "every 1.06:00:00"},
		{"every 0.00:00:01.500", "every 00:00:01.5"},
		{"every 1ns", "every 00:00:00.000000001"},
		{"@every 1h30m", "every 01:30:00"},
		{"TZ=Asia/Tokyo @every 1s", "every 00:00:01"},
		{"cron 0 0 9 * * MON-FRI tz=Asia/Shanghai", ""},
		{"cron 0 0 22 L * ? tz=UTC start=2026-01-01T00:00:00Z end=2027-01-01T00:00:00Z calendar=holidays", ""},
		{"cron  0\t0 09 * jan mon-fri", "cron 0 0 9 * JAN MON-FRI tz=UTC"},
		{"cron 0 3 * * * roll=next calendar=x overlap=both gap=after tz=Europe/Berlin", "cron 0 3 * * * tz=Europe/Berlin gap=after overlap=both calendar=x roll=next"},
		{"cron 0 3 * * * gap=skip overlap=first", "cron 0 3 * * * tz=UTC"},
		{"0 3 * * *", "cron 0 3 * * * tz=UTC"},
		{"0 0 3 * * ? *", "cron 0 0 3 * * ? * tz=UTC"},
		{"0 3 * * * tz=Asia/Tokyo", "cron 0 3 * * * tz=Asia/Tokyo"},
		{"*/0015 007 L-03 * fri#2,0l", "cron */15 7 L-3 * FRI#2,0L tz=UTC"},
		{"15/0099999999999999999999 * l,lw,15w * fril,tue#02", "cron 15/99999999999999999999 * L,LW,15W * FRIL,TUE#2 tz=UTC"},
		{"TZ=Asia/Tokyo 0 3 * * *", "cron 0 3 * * * tz=Asia/Tokyo"},
		{"CRON_TZ=Asia/Tokyo @daily", "cron 0 0 * * * tz=Asia/Tokyo"},
		{"@yearly", "cron 0 0 1 1 * tz=UTC"},
		{"@annually", "cron 0 0 1 1 * tz=UTC"},
		{"@monthly", "cron 0 0 1 * * tz=UTC"},
		{"@weekly", "cron 0 0 * * 0 tz=UTC"},
		{"@midnight", "cron 0 0 * * * tz=UTC"},
		{"@hourly end=2027-01-01T00:00:00Z", "cron 0 * * * * tz=UTC end=2027-01-01T00:00:00Z"},
		{"once 2026-10-01T08:00:00+08:00", ""},
		{"once 2026-10-01T08:00:00.5-03:30", ""},
		{"once 2026-10-01T08:00:00+00:00", "once 2026-10-01T08:00:00Z"},
		{"once 2026-10-01T08:00:00.250Z calendar=feiertage_ÄÖ roll=previous", "once 2026-10-01T08:00:00.25Z calendar=feiertage_ÄÖ roll=previous"},
		{"every 1h calendar=a=b roll=next", "every 01:00:00 calendar=a=b roll=next"},
	} {
		s, err := cronsched.Parse(c.text)
		if c.want == "" {
			c.want = c.text
		}
		if err != nil || s.String() != c.want {
			t.Errorf("Parse(%q) = %v, %v, want %s", c.text, s, err, c.want)
			continue
		}
		again, err := cronsched.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("Parse(%q) = %v, %v", s.String(), again, err)
		}
	}
}

func TestASchedulesJSONIsItsText(t *testing.T) {
	type config struct {
		At    cronsched.Schedule
		Spare cronsched.Schedule
	}
	in := config{At: cronsched.MustParse("0 3 * * * tz=Europe/Berlin")}
	text, err := json.Marshal(in)
	if want := `{"At":"cron 0 3 * * * tz=Europe/Berlin","Spare":"manual"}`; err != nil || string(text) != want {
		t.Fatalf("Marshal = %s, %v, want %s", text, err, want)
	}
	var out config
	if err := json.Unmarshal(text, &out); err != nil || out.At.String() != in.At.String() || !out.Spare.Manual() {
		t.Errorf("Unmarshal = %v, %v", out, err)
	}
	before := out.At.String()
	if err := json.Unmarshal([]byte(`{"At":"0 25 * * *"}`), &out); err == nil || out.At.String() != before {
		t.Errorf("Unmarshal of an error = %v, %v", out.At, err)
	}
}

func TestALocationWithoutAnIANANameIsNotMarshalled(t *testing.T) {
	e := expression(t, "0 3 * * *", "UTC")
	for _, c := range []struct {
		loc *time.Location
		ok  bool
	}{
		{nil, true},
		{time.UTC, true},
		{location(t, "Europe/Berlin"), true},
		{time.FixedZone("CET", 5), false},
		{time.FixedZone("", 3600), false},
		{time.FixedZone("UTC+1", 3600), false},
	} {
		s := cronsched.Cron(e.In(c.loc))
		text, err := s.MarshalText()
		if (err == nil) != c.ok {
			t.Errorf("%v: MarshalText = %s, %v", s, text, err)
		}
	}
}

func TestErrorsSayWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range []struct {
		text, field, piece string
		offset             int
		want               string // a part of the explanation
	}{
		{"", "schedule", "", 0, "want manual, every"},
		{"hourly", "schedule", "hourly", 0, "want manual, every"},
		{"* * * *", "expression", "", 7, "too few fields"},
		{"cron", "expression", "", 4, "too few fields"},
		{"* * * * * * * * tz=UTC", "expression", "*", 14, "too many fields"},
		{"60 * * * *", "minute", "60", 0, "0-59"},
		{"* 7,24 * * *", "hour", "24", 4, "0-23"},
		{"* * 0 * *", "day-of-month", "0", 4, "1-31"},
		{"* * 32 * *", "day-of-month", "32", 4, "1-31"},
		{"* * * 13 *", "month", "13", 6, "1-12"},
		{"* * * JANUARY *", "month", "JANUARY", 6, "three letters"},
		{"* * * * 8", "day-of-week", "8", 8, "0-7"},
		{"  * * * * MONDAY", "day-of-week", "MONDAY", 10, "three letters"},
		{"* * * * L", "day-of-week", "L", 8, "FRIL"},
		{"* * * * #L", "day-of-week", "#L", 8, "n#k"},
		{"* * * * FRI#6", "day-of-week", "FRI#6", 8, "1 to 5"},
		{"* * * * FRI#", "day-of-week", "FRI#", 8, "1 to 5"},
		{"* * * * FRI-MON", "day-of-week", "FRI-MON", 8, "FRI-SAT,SUN-MON"},
		{"* 22-2 * * *", "hour", "22-2", 2, "22-23,0-2"},
		{"* * * NOV-FEB *", "month", "NOV-FEB", 6, "NOV-12,1-FEB"},
		{"*/0 * * * *", "minute", "0", 2, "at least 1"},
		{"*/x * * * *", "minute", "*/x", 0, "whole number"},
		{"1,,2 * * * *", "minute", "", 2, "empty list item"},
		{"1, * * * *", "minute", "", 2, "empty list item"},
		{"-5 * * * *", "minute", "-5", 0, "0-59"},
		{"5- * * * *", "minute", "", 2, "0-59"},
		{"? * * * *", "minute", "?", 0, "0-59"},
		{"* * 1,? * *", "day-of-month", "?", 6, "1-31"},
		{"* * L-3W * *", "day-of-month", "L-3W", 4, "L-30"},
		{"* * L-31 * *", "day-of-month", "L-31", 4, "L-30"},
		{"* * LW-3 * *", "day-of-month", "LW-3", 4, "LW"},
		{"* * 32W * *", "day-of-month", "32", 4, "nW"},
		{"* * 1-5W * *", "day-of-month", "1-5W", 4, "nW"},
		{"0 0 0 1 1 * 1969", "year", "1969", 12, "1970-2099"},
		{"@fortnightly", "schedule", "@fortnightly", 0, "@every DELAY"},
		{"every", "every", "", 5, "10m"},
		{"every 0s", "every", "0s", 6, "above 0"},
		{"every -1m", "every", "-1m", 6, "above 0"},
		{"every 00:00:00", "every", "00:00:00", 6, "above 0"},
		{"every 24:00:00", "every", "24:00:00", 6, "[d.]hh:mm:ss"},
		{"every 1.2:00:00", "every", "1.2:00:00", 6, "[d.]hh:mm:ss"},
		{"every 106751.23:47:16.854775808", "every", "106751.23:47:16.854775808", 6, "[d.]hh:mm:ss"},
		{"every 00:00:00.1234567890", "every", "00:00:00.1234567890", 6, "[d.]hh:mm:ss"},
		{"every 00:00:00.", "every", "00:00:00.", 6, "[d.]hh:mm:ss"},
		{"every 1m x0", "every", "x0", 9, "x1"},
		{"every 1m x2147483648", "every", "x2147483648", 9, "x2147483647"},
		{"every 1m 5", "every", "5", 9, "total number"},
		{"once", "once", "", 4, "RFC 3339"},
		{"once 9999-12-31T23:59:59-24:00", "once", "9999-12-31T23:59:59-24:00", 5, "RFC 3339"},
		{"manual start=2026-01-01T00:00:00+24:00", "start", "2026-01-01T00:00:00+24:00", 13, "RFC 3339"},
		{"once tomorrow", "once", "tomorrow", 5, "RFC 3339"},
		{"once 2026-02-30T00:00:00Z", "once", "2026-02-30T00:00:00Z", 5, "RFC 3339"},
		{"once 2026-01-01T00:00:00", "once", "2026-01-01T00:00:00", 5, "RFC 3339"},
		{"0 3 * * * tz=Mars/City", "tz", "Mars/City", 13, "IANA"},
		{"0 3 * * * tz=", "tz", "", 13, "IANA"},
		{"0 3 * * * tz=Local", "tz", "Local", 13, "never used"},
		{"0 3 * * * tz=Europe//Berlin", "tz", "Europe//Berlin", 13, "IANA"},
		{"0 3 * * * tz=../Berlin", "tz", "../Berlin", 13, "IANA"},
		{"TZ=UTC 0 3 * * * tz=UTC", "tz", "UTC", 20, "already"},
		{"TZ=Nowhere 0 3 * * *", "tz", "Nowhere", 3, "IANA"},
		{"TZ=UTC cron 0 3 * * *", "schedule", "cron", 7, "bare expression"},
		{"manual tz=UTC", "tz", "tz=UTC", 7, "cron schedule"},
		{"every 1m overlap=both", "overlap", "overlap=both", 9, "cron schedule"},
		{"0 3 * * * gap=none", "gap", "none", 14, "gap=skip"},
		{"0 3 * * * overlap=second", "overlap", "second", 18, "overlap=first"},
		{"0 3 * * * roll=up calendar=x", "roll", "up", 15, "roll=next"},
		{"0 3 * * * roll=next", "roll", "", 19, "calendar="},
		{"0 3 * * * calendar=", "calendar", "", 19, "name"},
		{"0 3 * * * calendar=a\u00a0b", "calendar", "a\u00a0b", 19, "name"},
		{"0 3 * * * calendar=\xff", "calendar", "\xff", 19, "name"},
		{"0 3 * * * zone=UTC", "schedule", "zone=UTC", 10, "tz="},
		{"0 3 * * * tz=UTC 5", "schedule", "5", 17, "tz="},
		{"0 3 * * * tz=UTC tz=UTC", "tz", "tz=UTC", 17, "twice"},
		{"0 3 * * * start=yesterday", "start", "yesterday", 16, "RFC 3339"},
		{"0 3 * * * end=2025-01-01T00:00:00.50+00:00\tstart=2026-01-01T00:00:00Z", "end", "2025-01-01T00:00:00.50+00:00", 14, "before the start"},
		{"0 3 * * * end=0001-01-01T00:00:00Z", "end", "0001-01-01T00:00:00Z", 14, "no limit"},
		{"every 1m start=0001-01-01T02:00:00+02:00", "start", "0001-01-01T02:00:00+02:00", 15, "no limit"},
		{"* * * * 7-1", "day-of-week", "7-1", 8, "write SUN-1"},
		{"* * * * 07-TUE", "day-of-week", "07-TUE", 8, "write SUN-TUE"},
		{"0 3 * * * calendar=weekend=x start=2026-01-01T00:00:00Z end=2025-01-01T00:00:00Z", "end", "2025-01-01T00:00:00Z", 60, "before the start"},
	} {
		_, err := cronsched.Parse(c.text)
		var e *cronsched.ParseError
		if !errors.As(err, &e) {
			t.Errorf("Parse(%q) gives %v, want a *ParseError", c.text, err)
			continue
		}
		if e.Field != c.field || e.Text != c.piece || e.Offset != c.offset || !strings.Contains(e.Want, c.want) {
			t.Errorf("Parse(%q) gives field %q, text %q, offset %d, want %q; want field %q, text %q, offset %d, want %q", c.text, e.Field, e.Text, e.Offset, e.Want, c.field, c.piece, c.offset, c.want)
		}
		if !strings.HasPrefix(e.Error(), "cronsched: "+c.field+": ") {
			t.Errorf("Error() = %q", e.Error())
		}
	}
}

func TestACausedErrorUnwraps(t *testing.T) {
	_, err := cronsched.Parse("0 3 * * * tz=Mars/City")
	if errors.Unwrap(err) == nil {
		t.Errorf("%v has no cause", err)
	}
}

// TestGarbageIsAnErrorAtOnce times the whole table: each entry alone takes
// microseconds.
func TestGarbageIsAnErrorAtOnce(t *testing.T) {
	long := 10_000
	began := time.Now()
	for _, text := range []string{
		strings.Repeat("*", long), strings.Repeat("* ", long), strings.Repeat(",", long), strings.Repeat("9", long) + " * * * *",
		strings.Repeat("1,", long) + " * * * *", strings.Repeat("1-", long), strings.Repeat("\x00", long), strings.Repeat("\n", long),
		"* * * * " + strings.Repeat("L", long), "* * * * " + strings.Repeat("#", long), "* * * * MON#" + strings.Repeat("9", long),
		"* * L-" + strings.Repeat("9", long) + " * *", strings.Repeat("é", long), "every " + strings.Repeat("9", long) + "h",
		"every 1m x" + strings.Repeat("9", long), "every " + strings.Repeat("1:", long), "once " + strings.Repeat("2", long),
		"0 3 * * * tz=" + strings.Repeat("A/", long), "0 3 * * * " + strings.Repeat("tz=UTC ", long), "* * * * \v", "* * * *\u00a0*", "１ * * * *",
	} {
		if s, err := cronsched.Parse(text); err == nil {
			t.Errorf("Parse(%.20q…) = %v, want an error", text, s)
		} else if len(err.Error()) > 600 {
			t.Errorf("Parse(%.20q…) gives an error of %d bytes", text, len(err.Error()))
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the garbage took %v", took)
	}
}

func TestALongTextIsCutShortInTheMessage(t *testing.T) {
	_, err := cronsched.Parse("* * * * " + strings.Repeat("é", 30))
	if want := `"` + strings.Repeat("é", 20) + `…" at offset 8`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not contain %s", err, want)
	}
	if got, want := (&cronsched.CalendarError{Name: "c"}).Error(), `"c"`; !strings.Contains(got, want) {
		t.Errorf("%s does not contain %s", got, want)
	}
}

func TestAStepOfAnyNumberOfDigitsIsFine(t *testing.T) {
	e := expression(t, "5/"+strings.Repeat("9", 10_000)+" 3 * * *", "UTC")
	if next, _ := e.Next(date(2026, 1, 1)); !next.Equal(date(2026, 1, 1).Add(3*time.Hour + 5*time.Minute)) {
		t.Errorf("Next = %v, want 03:05", next)
	}
}

func TestDialectsGiveTheSameExpression(t *testing.T) {
	for _, c := range []struct {
		parse func(string) (*cronsched.Expression, error)
		text  string
		want  string // "" is an error
	}{
		{cronsched.ParseQuartz, "0 0 12 ? * 2-6", "0 0 12 ? * 1-5"},
		{cronsched.ParseQuartz, "0 0 12 ? * 1", "0 0 12 ? * 0"},
		{cronsched.ParseQuartz, "0 0 12 ? * 7", "0 0 12 ? * 6"},
		{cronsched.ParseQuartz, "0 0 12 ? * L", "0 0 12 ? * SAT"},
		{cronsched.ParseQuartz, "0 0 12 ? * 6L", "0 0 12 ? * 5L"},
		{cronsched.ParseQuartz, "0 0 12 ? * 6#3 2027", "0 0 12 ? * 5#3 2027"},
		{cronsched.ParseQuartz, "0 0 12 ? * MON-SUN,2/2", "0 0 12 ? * MON-SUN,1/2"},
		{cronsched.ParseQuartz, "0 0 12 LW * ?", "0 0 12 LW * ?"},
		{cronsched.ParseQuartz, "0 0 12 ? * 0", ""},
		{cronsched.ParseQuartz, "0 0 12 ? * 8", ""},
		{cronsched.ParseQuartz, "0 0 12 ? * ?", ""},
		{cronsched.ParseQuartz, "0 0 12 * * *", ""},
		{cronsched.ParseQuartz, "0 0 12 1 * MON", ""},
		{cronsched.ParseQuartz, "0 0 12 ? * 6-2", ""},
		{cronsched.ParseQuartz, "0 12 ? * MON", ""},
		{cronsched.ParseStandard, "*/5 9-17 * JAN MON-FRI", "*/5 9-17 * JAN MON-FRI"},
		{cronsched.ParseStandard, " @daily ", "0 0 * * *"},
		{cronsched.ParseStandard, "0 0 1,15 * MON", "0 0 1,15 * MON"},
		{cronsched.ParseStandard, "0 0 */2 * *", "0 0 */2 * *"},
		{cronsched.ParseStandard, "0 0 */2 * MON", ""}, // both must match there
		{cronsched.ParseStandard, "0 0 1 * */2", ""},
		{cronsched.ParseStandard, "@reboot", ""},
		{cronsched.ParseStandard, "0 0 0 * * *", ""},
		{cronsched.ParseStandard, "0 0 ? * *", ""},
		{cronsched.ParseStandard, "0 0 L * *", ""},
		{cronsched.ParseStandard, "0 0 1W * *", ""},
		{cronsched.ParseStandard, "0 0 * * 5L", ""},
		{cronsched.ParseStandard, "0 0 * * 5#1", ""},
		{cronsched.ParseCron, "0 0 0 L * ? 2027", "0 0 0 L * ? 2027"},
		{cronsched.ParseCron, "@daily", ""},
		{cronsched.ParseCron, "TZ=UTC 0 0 * * *", ""},
		{cronsched.ParseCron, "0 0 * * * tz=UTC", ""},
	} {
		e, err := c.parse(c.text)
		var p *cronsched.ParseError
		switch {
		case c.want == "" && !errors.As(err, &p):
			t.Errorf("%q gives %v, %v, want a *ParseError", c.text, e, err)
		case c.want != "" && (err != nil || e.String() != c.want):
			t.Errorf("%q = %v, %v, want %s", c.text, e, err, c.want)
		}
	}
}
