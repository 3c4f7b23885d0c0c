package ics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/cronsched/ics"
)

// file makes an iCalendar file of events' lines.
func file(events ...string) string {
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\n")
	for i, e := range events {
		fmt.Fprintf(&b, "BEGIN:VEVENT\r\n")
		if !strings.Contains(strings.ToUpper(e), "UID:") {
			fmt.Fprintf(&b, "UID:%d\r\n", i)
		}
		b.WriteString(strings.ReplaceAll(strings.TrimSpace(e), "\n", "\r\n"))
		b.WriteString("\r\nEND:VEVENT\r\n")
	}
	b.WriteString("END:VCALENDAR\r\n")
	return b.String()
}

func read(t testing.TB, loc *time.Location, events ...string) cronsched.Spanner {
	t.Helper()
	c, err := ics.Read(strings.NewReader(file(events...)), loc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// check asks about instants in RFC 3339, each with the answer after a blank.
func check(t *testing.T, c cronsched.Calendar, lines ...string) {
	t.Helper()
	for _, line := range lines {
		instant, answer, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339, instant)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := c.Excludes(at), answer == "excluded"; got != want {
			t.Errorf("Excludes(%s) = %v, want %s", instant, got, answer)
		}
	}
}

func TestAllDayEventsAreDaysOfTheGivenZone(t *testing.T) {
	c := read(t, location(t, "America/New_York"), "DTSTART;VALUE=DATE:20261225\nTRANSP:TRANSPARENT", "DTSTART;VALUE=DATE:20260308\nDTEND;VALUE=DATE:20260310")
	check(t, c,
		"2026-12-25T04:59:59Z open", "2026-12-25T05:00:00Z excluded", "2026-12-26T04:59:59Z excluded", "2026-12-26T05:00:00Z open",
		"2026-03-08T04:59:59Z open", "2026-03-08T05:00:00Z excluded", "2026-03-10T03:59:59Z excluded", "2026-03-10T04:00:00Z open")
}

// TestAPublishedFeedIsRead has what real files have around what counts: a byte
// order mark, a time zone's definition, folded lines, alarms, extensions.
func TestAPublishedFeedIsRead(t *testing.T) {
	feed := strings.ReplaceAll("\ufeff"+`BEGIN:VCALENDAR
PRODID:-//Google Inc//Google Calendar 70.9054//EN
VERSION:2.0
CALSCALE:GREGORIAN
METHOD:PUBLISH
X-WR-CALNAME:Feiertage
X-WR-TIMEZONE:Europe/Berlin
BEGIN:VTIMEZONE
TZID:Europe/Berlin
X-LIC-LOCATION:Europe/Berlin
BEGIN:DAYLIGHT
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
TZNAME:CEST
DTSTART:19700329T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
BEGIN:STANDARD
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
TZNAME:CET
DTSTART:19701025T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
DTSTART;VALUE=DATE:20261003
DTEND;VALUE=DATE:20261004
DTSTAMP:20260101T000000Z
UID:20261003_abc@google.com
CLASS:PUBLIC
CREATED:20210831T102041Z
DESCRIPTION:Gesetzlicher Feiertag\, an dem niemand arbeitet und dessen Besch
 reibung über eine Zeile hinausgeht
SEQUENCE:0
STATUS:CONFIRMED
SUMMARY:Tag der Deutschen Einheit
TRANSP:TRANSPARENT
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART;TZID=Europe/Berlin:20261224T120000
DTEND;TZID="Europe/Berlin":20261224T180000
SUMMARY:Heiligabend
BEGIN:VALARM
ACTION:DISPLAY
TRIGGER:-PT10M
DESCRIPTION:x
END:VALARM
END:VEVENT
END:VCALENDAR
`, "\n", "\r\n")
	c, err := ics.Read(strings.NewReader(feed), location(t, "Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, c,
		"2026-10-02T21:59:59Z open", "2026-10-02T22:00:00Z excluded", "2026-10-03T21:59:59Z excluded", "2026-10-03T22:00:00Z open",
		"2026-12-24T10:59:59Z open", "2026-12-24T11:00:00Z excluded", "2026-12-24T17:00:00Z open")
}

func TestTimedEventsArePeriods(t *testing.T) {
	c := read(t, location(t, "Europe/Berlin"),
		"DTSTART:20260504T100000Z\nDTEND:20260504T110000Z",
		"DTSTART;TZID=America/New_York:20260505T090000\nDURATION:PT1H30M",
		"DTSTART:20260506T090000\nDTEND:20260506T093000",
		"DTSTART:20260507T090000Z")
	check(t, c,
		"2026-05-04T09:59:59Z open", "2026-05-04T10:00:00Z excluded", "2026-05-04T10:59:59Z excluded", "2026-05-04T11:00:00Z open",
		"2026-05-05T13:00:00Z excluded", "2026-05-05T14:29:59Z excluded", "2026-05-05T14:30:00Z open",
		"2026-05-06T07:00:00Z excluded", "2026-05-06T07:30:00Z open",
		"2026-05-07T09:00:00Z open")
}

func TestRecurringEventsAreExpanded(t *testing.T) {
	c := read(t, location(t, "America/New_York"),
		"DTSTART;VALUE=DATE:20201225\nRRULE:FREQ=YEARLY",
		"DTSTART;VALUE=DATE:20201126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
		"DTSTART;TZID=America/New_York:20260302T120000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3\nEXDATE;TZID=America/New_York:20260309T120000\nRDATE;TZID=America/New_York:20260401T120000",
		"DTSTART;VALUE=DATE:20260601\nRRULE:FREQ=DAILY;UNTIL=20260603")
	check(t, c,
		"2098-12-25T12:00:00Z excluded", "2019-12-25T12:00:00Z open",
		"2026-11-26T12:00:00Z excluded", "2027-11-25T12:00:00Z excluded", "2027-11-26T12:00:00Z open",
		"2026-03-02T17:00:00Z excluded", "2026-03-09T16:00:00Z open", "2026-03-16T16:00:00Z excluded", "2026-03-16T17:00:00Z open",
		"2026-03-23T16:00:00Z open", "2026-04-01T16:00:00Z excluded",
		"2026-06-01T12:00:00Z excluded", "2026-06-03T12:00:00Z excluded", "2026-06-04T12:00:00Z open")
}

func TestAChangedInstanceReplacesTheOriginal(t *testing.T) {
	c := read(t, time.UTC,
		"UID:a\nDTSTART;VALUE=DATE:20260101\nRRULE:FREQ=MONTHLY",
		"UID:a\nRECURRENCE-ID;VALUE=DATE:20260201\nDTSTART;VALUE=DATE:20260203",
		"UID:a\nRECURRENCE-ID;VALUE=DATE:20260301\nDTSTART;VALUE=DATE:20260301\nSTATUS:CANCELLED")
	check(t, c,
		"2026-01-01T12:00:00Z excluded", "2026-02-01T12:00:00Z open", "2026-02-03T12:00:00Z excluded",
		"2026-03-01T12:00:00Z open", "2026-04-01T12:00:00Z excluded")
}

func TestCancelledEventsExcludeNothing(t *testing.T) {
	check(t, read(t, nil, "DTSTART;VALUE=DATE:20260101\nSTATUS:CANCELLED"), "2026-01-01T12:00:00Z open")
}

func TestPeriodsOfAnRdate(t *testing.T) {
	c := read(t, nil, "DTSTART:20260101T000000Z\nDTEND:20260101T010000Z\nRDATE;VALUE=PERIOD:20260102T000000Z/20260102T020000Z,20260103T000000Z/PT3H")
	check(t, c, "2026-01-01T00:30:00Z excluded", "2026-01-02T01:59:59Z excluded", "2026-01-03T02:59:59Z excluded", "2026-01-03T03:00:00Z open")
}

func TestASearchJumpsOverLongEvents(t *testing.T) {
	c := read(t, nil, "DTSTART:20260101T103000Z\nDTEND:20260601T081500Z", "DTSTART:20260301T000000Z\nDTEND:20260302T000000Z")
	s, err := cronsched.MustParse("cron * * * * * * calendar=c").Resolve(func(string) (cronsched.Calendar, bool) { return c, true })
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := s.Next(time.Date(2026, 1, 1, 10, 29, 59, 0, time.UTC)); !ok || !next.Equal(time.Date(2026, 6, 1, 8, 15, 0, 0, time.UTC)) {
		t.Errorf("Next = %v, %v, want 1 June 08:15", next, ok)
	}
	if prev, ok := s.Prev(time.Date(2026, 6, 1, 8, 15, 0, 0, time.UTC)); !ok || !prev.Equal(time.Date(2026, 1, 1, 10, 29, 59, 0, time.UTC)) {
		t.Errorf("Prev = %v, %v, want 1 January 10:29:59", prev, ok)
	}
}

func TestARuleOfHoursItNeverComesToHasNoInstance(t *testing.T) {
	c := read(t, nil,
		"DTSTART:20260101T030000Z\nDURATION:PT1H\nRRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=5",
		"DTSTART:20260101T030000Z\nDURATION:PT1H\nRRULE:FREQ=HOURLY;INTERVAL=9;BYHOUR=1,2,4\nRDATE:20260110T120000Z",
		"DTSTART:20260201T030000Z\nDURATION:PT1H\nRRULE:FREQ=HOURLY;INTERVAL=10;BYHOUR=5",
		"DTSTART:20260301T030000Z\nDURATION:PT1H\nRRULE:FREQ=MONTHLY;INTERVAL=9223372036854775807")
	check(t, c,
		"2026-01-01T03:30:00Z open", "2026-01-01T05:30:00Z open", "2026-01-02T01:30:00Z open", "2026-01-10T12:30:00Z excluded",
		"2026-02-01T03:30:00Z open", "2026-02-03T05:30:00Z excluded", "2026-03-01T03:30:00Z excluded", "2026-04-01T03:30:00Z open")
}

func TestLocalTimesAroundAChangeOfTheClock(t *testing.T) {
	for name, c := range map[string]struct {
		event string
		want  []string
	}{
		"a repeated time is the first": {
			"DTSTART;TZID=Europe/Berlin:20261025T020000\nDTEND;TZID=Europe/Berlin:20261025T040000",
			[]string{"2026-10-24T23:59:59Z open", "2026-10-25T00:30:00Z excluded", "2026-10-25T02:59:59Z excluded", "2026-10-25T03:00:00Z open"}},
		"a skipped time goes by the offset before": {
			"DTSTART;TZID=America/New_York:20260308T023000\nDTEND;TZID=America/New_York:20260308T050000",
			[]string{"2026-03-08T07:29:59Z open", "2026-03-08T07:30:00Z excluded", "2026-03-08T08:59:59Z excluded", "2026-03-08T09:00:00Z open"}},
		"an instance at a repeated time is the first": {
			"DTSTART;TZID=Europe/Berlin:20261001T020000\nDURATION:PT30M\nRRULE:FREQ=DAILY",
			[]string{"2026-10-25T00:15:00Z excluded", "2026-10-25T01:15:00Z open", "2026-10-26T01:15:00Z excluded"}},
		"an instance at a skipped time is none, nor counted": {
			"DTSTART;TZID=America/New_York:20260307T023000\nDURATION:PT30M\nRRULE:FREQ=DAILY;COUNT=2",
			[]string{"2026-03-07T07:45:00Z excluded", "2026-03-08T06:45:00Z open", "2026-03-08T07:45:00Z open", "2026-03-09T06:45:00Z excluded", "2026-03-10T06:45:00Z open"}},
		"a rule's own start is an instance": {
			"DTSTART;TZID=America/New_York:20260308T023000\nDURATION:PT30M\nRRULE:FREQ=DAILY;COUNT=2",
			[]string{"2026-03-08T07:45:00Z excluded", "2026-03-09T06:45:00Z excluded", "2026-03-10T06:45:00Z open"}},
		"exceptions and the end of a rule are instants": {
			"DTSTART;TZID=Europe/Berlin:20261023T023000\nDURATION:PT30M\nRRULE:FREQ=DAILY;UNTIL=20261027T013000Z\nEXDATE;TZID=Europe/Berlin:20261025T023000",
			[]string{"2026-10-24T00:45:00Z excluded", "2026-10-25T00:45:00Z open", "2026-10-25T01:45:00Z open", "2026-10-26T01:45:00Z excluded", "2026-10-27T01:45:00Z excluded", "2026-10-28T01:45:00Z open"}},
		"the end of a rule on the wall clock": {
			"DTSTART;TZID=America/New_York:20260302T210000\nDURATION:PT30M\nRRULE:FREQ=DAILY;UNTIL=20260303T210000",
			[]string{"2026-03-04T02:15:00Z excluded", "2026-03-05T02:15:00Z open"}},
	} {
		t.Run(name, func(t *testing.T) { check(t, read(t, nil, c.event), c.want...) })
	}
}

func TestADurationOfDaysGoesByTheWallClock(t *testing.T) {
	for _, event := range []string{
		"DTSTART;TZID=America/New_York:20261101T000000\nDURATION:P1D",
		"DTSTART;TZID=America/New_York:20261025T000000\nDURATION:P1D\nRRULE:FREQ=WEEKLY",
		"DTSTART:20260101T000000Z\nRDATE;VALUE=PERIOD;TZID=America/New_York:20261101T000000/P1D",
	} {
		check(t, read(t, nil, event),
			"2026-11-01T03:59:59Z open", "2026-11-01T04:00:00Z excluded", "2026-11-02T04:59:59Z excluded", "2026-11-02T05:00:00Z open")
	}
	check(t, read(t, nil, "DTSTART;TZID=America/New_York:20260301T000000\nDURATION:P1WT1H"), "2026-03-08T05:59:59Z excluded", "2026-03-08T06:00:00Z open")
	check(t, read(t, nil, "DTSTART;TZID=America/New_York:20261025T000000\nDTEND;TZID=America/New_York:20261026T000000\nRRULE:FREQ=WEEKLY"),
		"2026-11-02T03:59:59Z excluded", "2026-11-02T04:00:00Z open")
}

func TestAnEventWithoutARuleHasExceptionsToo(t *testing.T) {
	check(t, read(t, nil, "DTSTART;VALUE=DATE:20260101\nEXDATE;VALUE=DATE:20260101"), "2026-01-01T12:00:00Z open")
	check(t, read(t, nil, "UID:a\nDTSTART;VALUE=DATE:20260101", "UID:a\nRECURRENCE-ID;VALUE=DATE:20260101\nDTSTART;VALUE=DATE:20260105"),
		"2026-01-01T12:00:00Z open", "2026-01-05T12:00:00Z excluded")
}

func TestNamesAndValuesAreInAnyCase(t *testing.T) {
	check(t, read(t, nil,
		"uid:a\ndtstart;value=date:20260101\nrrule:freq=monthly\nexdate;value=date:20260401",
		"Uid:a\nrecurrence-id;value=date:20260201\ndtstart;value=date:20260203",
		"dtstart;tzid=America/New_York:20260110t000000\nduration:pt1h\nrdate;value=period;tzid=\"America/New_York\":20260111t000000/pt1h",
		"dtstart:20260120t000000z\ndtend:20260120t010000z\nstatus:Cancelled"),
		"2026-01-01T12:00:00Z excluded", "2026-02-01T12:00:00Z open", "2026-02-03T12:00:00Z excluded", "2026-03-01T12:00:00Z excluded", "2026-04-01T12:00:00Z open",
		"2026-01-10T05:30:00Z excluded", "2026-01-11T05:30:00Z excluded", "2026-01-20T00:30:00Z open")

	lower := strings.ToLower(file("DTSTART;VALUE=DATE:20260101", "DTSTART:20260102T000000Z\nDTE\n ND:20260102T010000Z\nBEGIN:VALARM\nDURATION:PT10H\nEND:VALARM"))
	c, err := ics.Read(strings.NewReader(lower), nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, "2026-01-01T12:00:00Z excluded", "2026-01-02T00:30:00Z excluded", "2026-01-02T05:00:00Z open")
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             "",
		"no calendar":       "hello\n",
		"cut short":         strings.TrimSuffix(file("DTSTART:20260102T000000Z"), "END:VCALENDAR\r\n"),
		"no start":          file("SUMMARY:x"),
		"bad date":          file("DTSTART;VALUE=DATE:20261332"),
		"bad time":          file("DTSTART:20260101T990000Z"),
		"windows zone":      file("DTSTART;TZID=W. Europe Standard Time:20260101T090000"),
		"machine zone":      file("DTSTART;TZID=Local:20260101T090000"),
		"end before start":  file("DTSTART:20260102T000000Z\nDTEND:20260101T000000Z"),
		"mixed kinds":       file("DTSTART;VALUE=DATE:20260102\nDTEND:20260103T000000Z"),
		"bad duration":      file("DTSTART:20260102T000000Z\nDURATION:1H"),
		"huge duration":     file("DTSTART:20260102T000000Z\nDURATION:P999999999W"),
		"part of a day":     file("DTSTART;VALUE=DATE:20260102\nDURATION:PT1H"),
		"bad rule":          file("DTSTART:20260102T000000Z\nRRULE:FREQ=SOMETIMES"),
		"no instances":      file("DTSTART:20260102T000000Z\nRRULE:FREQ=DAILY;COUNT=0"),
		"no interval":       file("DTSTART:20260102T000000Z\nRRULE:FREQ=DAILY;INTERVAL=00"),
		"no beginning":      file("DTSTART;VALUE=DATE:00010101\nRRULE:FREQ=YEARLY"),
		"long lists":        file("DTSTART:19700102T000000Z\nRRULE:FREQ=DAILY;BYHOUR=1" + strings.Repeat(",1", 20000) + ";BYMINUTE=1" + strings.Repeat(",1,2", 20000) + ";BYSECOND=1,2,3,4,5,6,7,8,9,10,11,12"),
		"rule too fine":     file("DTSTART:20260102T000000Z\nRRULE:FREQ=SECONDLY"),
		"too many":          file("DTSTART:19700102T000000Z\nRRULE:FREQ=HOURLY"),
		"too many days":     file("DTSTART;VALUE=DATE:19700101\nDTEND;VALUE=DATE:20991231\nRRULE:FREQ=DAILY"),
		"two rules":         file("DTSTART:20260102T000000Z\nRRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY"),
		"exception rule":    file("DTSTART:20260102T000000Z\nRRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY"),
		"and all following": file("DTSTART:20260102T000000Z\nRECURRENCE-ID;RANGE=THISANDFUTURE:20260102T000000Z"),
		"bad excluded date": file("DTSTART:20260102T000000Z\nRRULE:FREQ=DAILY\nEXDATE:x"),
		"bad added date":    file("DTSTART:20260102T000000Z\nRDATE:x"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ics.Read(strings.NewReader(text), nil); err == nil || !strings.HasPrefix(err.Error(), "ics: ") {
				t.Errorf("Read gives %v, want an error of this package", err)
			}
		})
	}
}

func ExampleRead() {
	feed := strings.Join([]string{
		"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//example//holidays//EN",
		"BEGIN:VEVENT", "UID:1", "DTSTART;VALUE=DATE:20201225", "DTEND;VALUE=DATE:20201227", "RRULE:FREQ=YEARLY", "SUMMARY:Christmas", "END:VEVENT",
		"END:VCALENDAR", "",
	}, "\r\n")
	holidays, err := ics.Read(strings.NewReader(feed), time.UTC)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cronsched.MustParse("cron 0 0 9 * * ? calendar=holidays").Resolve(func(string) (cronsched.Calendar, bool) {
		return holidays, true
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range s.Upcoming(time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC), 3) {
		fmt.Println(at.Format(time.RFC1123))
	}
	// Output:
	// Thu, 24 Dec 2026 09:00:00 UTC
	// Sun, 27 Dec 2026 09:00:00 UTC
	// Mon, 28 Dec 2026 09:00:00 UTC
}
