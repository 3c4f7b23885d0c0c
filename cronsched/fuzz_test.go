package cronsched_test

import (
	"errors"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// FuzzParseCron wants an expression that reads its own text back, or a
// *ParseError that points into the text.
func FuzzParseCron(f *testing.F) {
	for _, text := range []string{
		"* * * * *", "*/5 0-23/2 ? JAN-dec mon-SUN", "0 0 22 L,L-3,LW,15W * ? 2024/4", "0 0 * * FRIL,5#2,0-7/3,SAT-7",
		"60 * * * *", "0 0 30 2 *", "5-1 * * * *", "\t* *  * * *\n", "*/99999999999999999999 * * * *", "* * * * #L",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (*cronsched.Expression, error){cronsched.ParseCron, cronsched.ParseQuartz, cronsched.ParseStandard} {
			e, err := parse(text)
			if err != nil {
				checkParseError(t, text, err)
				continue
			}
			again, err := cronsched.ParseCron(e.String())
			if err != nil || again.String() != e.String() {
				t.Fatalf("%q reads as %q, which reads as %v, %v", text, e, again, err)
			}
			from := date(2026, 1, 1)
			next, ok := e.Next(from)
			if n, o := again.Next(from); n != next || o != ok {
				t.Fatalf("%q gives %v, %v, but %q %v, %v", text, next, ok, again, n, o)
			}
			_, _ = e.Describe(), e.Lint(from)
		}
	})
}

func checkParseError(t *testing.T, text string, err error) {
	t.Helper()
	var e *cronsched.ParseError
	if !errors.As(err, &e) || e.Field == "" || e.Want == "" {
		t.Fatalf("%q gives %#v", text, err)
	}
	if e.Offset < 0 || e.Offset+len(e.Text) > len(text) || e.Field != "end" && text[e.Offset:e.Offset+len(e.Text)] != e.Text {
		t.Fatalf("%q gives %#v, which does not point at its text", text, e)
	}
}

// FuzzScheduleText wants a schedule that reads its own text back, or a
// *ParseError that points into the text.
func FuzzScheduleText(f *testing.F) {
	for _, text := range []string{
		"manual", "every 00:10:00 x5", "every 1.06:00:00", "every 1h30m", "@every 5m start=2026-01-01T00:00:00Z",
		"cron 0 0 9 * * MON-FRI tz=Asia/Shanghai gap=after overlap=both", "CRON_TZ=Europe/Berlin @daily calendar=x roll=next",
		"once 2026-10-01T08:00:00.25+08:00 end=2027-01-01T00:00:00Z", "0 3 * * * tz=UTC roll=previous calendar=a=b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := cronsched.Parse(text)
		if err != nil {
			checkParseError(t, text, err)
			return
		}
		marshalled, err := s.MarshalText()
		if err != nil {
			t.Fatalf("%q reads as %v: %v", text, s, err)
		}
		again, err := cronsched.Parse(string(marshalled))
		if err != nil || again.String() != s.String() || s.String() != string(marshalled) {
			t.Fatalf("%q reads as %q, which reads as %v, %v", text, s, again, err)
		}
		from := date(2026, 1, 1)
		next, ok := s.Next(from)
		if n, o := again.Next(from); !n.Equal(next) || o != ok || ok == (s.Reason(from) != "") {
			t.Fatalf("%q gives %v, %v, but %q %v, %v; %s", text, next, ok, again, n, o, s.Reason(from))
		}
		_, _ = s.Describe(), s.Lint(from)
	})
}

// FuzzNext wants instants that are after what was asked for, match, strictly
// increase, and that Prev finds again.
func FuzzNext(f *testing.F) {
	f.Add("*/5 * * * *", uint8(1), int64(1772949600), uint8(0))
	f.Add("30 2 29 2 ?", uint8(6), int64(1143900000), uint8(1))
	f.Add("0 0 * * FRIL", uint8(11), int64(1325239200), uint8(2))
	f.Add("59 59 23 L-3,15W * MON#5 */3", uint8(13), int64(4102444799), uint8(3))
	f.Fuzz(func(t *testing.T, text string, zone uint8, from int64, policy uint8) {
		e, err := cronsched.ParseCron(text)
		if err != nil {
			return
		}
		e = e.In(location(t, oracleZones[int(zone)%len(oracleZones)]))
		e = e.WithGap(cronsched.Gap(policy & 1)).WithOverlap(cronsched.Overlap(policy >> 1 & 1))
		at := time.Unix(from%(1<<40), 0)
		for range 20 {
			next, ok := e.Next(at)
			if !ok {
				return
			}
			if !next.After(at) || !e.Matches(next) || next.Nanosecond() != 0 || next.Year() > 2099 || next.Location() != e.Location() {
				t.Fatalf("%q in %v: Next(%v) = %v", text, e.Location(), at, next)
			}
			if prev, ok := e.Prev(next); ok && prev.After(at) {
				t.Fatalf("%q in %v: Next(%v) = %v, but Prev of that is %v", text, e.Location(), at, next, prev)
			}
			if prev, ok := e.Prev(next.Add(1)); !ok || !prev.Equal(next) {
				t.Fatalf("%q in %v: Prev does not find %v again: %v", text, e.Location(), next, prev)
			}
			at = next
		}
	})
}
