package cronsched

import (
	"encoding"
	"fmt"
	"time"
)

var (
	_ encoding.TextMarshaler   = Schedule{}
	_ encoding.TextUnmarshaler = (*Schedule)(nil)
)

// Parse reads a schedule from its text: one of
//
//	manual
//	every DELAY [xN]
//	cron EXPRESSION
//	once INSTANT
//
// and then, in any order, each at most once, tz=, gap= and overlap= (cron
// only), start=, end=, calendar= and roll=. It also reads what other libraries
// write: an expression without the word cron, with or without TZ=ZONE or
// CRON_TZ=ZONE before it, @yearly, @annually, @monthly, @weekly, @daily,
// @midnight, @hourly, and @every DELAY. A text that cannot be understood gives
// a *ParseError.
func Parse(text string) (Schedule, error) {
	r := reader{src: text, p: *manualPlan}
	if err := r.read(); err != nil {
		return Schedule{}, err
	}
	return r.schedule(), nil
}

// MustParse is Parse for texts that are known to be right, as in a package's
// variables. It panics with Parse's error.
func MustParse(text string) Schedule {
	s, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// UnmarshalText is Parse.
func (s *Schedule) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// MarshalText is String, except that it gives an error for a cron schedule
// whose location no IANA name gives: Parse could not read it back.
func (s Schedule) MarshalText() ([]byte, error) {
	if p := s.plan(); p.kind == cron {
		name := p.expr.zone.loc.String()
		if z, err := zoneNamed(name); err != nil || !z.sameOffsets(p.expr.zone) {
			return nil, fmt.Errorf("cronsched: the location %q of the schedule is not the IANA time zone of that name: its text could not be read back", name)
		}
	}
	return s.appendText(nil), nil
}

// String gives the canonical text, which Parse reads back to an equal
// schedule. The zone is always written, the defaults of gap=, overlap= and
// roll= never.
func (s Schedule) String() string { return string(s.appendText(make([]byte, 0, 64))) }

func (s Schedule) appendText(b []byte) []byte {
	p := s.plan()
	b = append(b, p.kind.String()...)
	switch p.kind {
	case every:
		b = appendDelay(append(b, ' '), p.delay)
		if p.runs > 0 {
			b = fmt.Appendf(b, " x%d", p.runs)
		}
	case cron:
		b = append(append(b, ' '), p.expr.text...)
		b = append(append(b, " tz="...), p.expr.zone.loc.String()...)
		if p.expr.gap != GapSkip {
			b = append(append(b, " gap="...), p.expr.gap.String()...)
		}
		if p.expr.overlap != OverlapFirst {
			b = append(append(b, " overlap="...), p.expr.overlap.String()...)
		}
	case once:
		b = append(append(b, ' '), formatInstant(p.at)...)
	}
	if !p.start.IsZero() {
		b = append(append(b, " start="...), formatInstant(p.start)...)
	}
	if !p.end.IsZero() {
		b = append(append(b, " end="...), formatInstant(p.end)...)
	}
	if p.calendarName != "" {
		b = append(append(b, " calendar="...), p.calendarName...)
	}
	if p.roll != RollNone {
		b = append(append(b, " roll="...), p.roll.String()...)
	}
	return b
}

func formatInstant(t time.Time) string { return t.Format(time.RFC3339Nano) }

// plainInstant keeps of a time what RFC 3339 can say: the instant and an
// offset of whole minutes below a day, else in UTC.
func plainInstant(t time.Time) time.Time {
	t = t.Round(0)
	_, offset := t.Zone()
	if offset == 0 || offset%60 != 0 || offset <= -secondsPerDay || offset >= secondsPerDay {
		return t.UTC()
	}
	return t.In(time.FixedZone("", offset))
}

func checkInstant(t time.Time) error {
	if year := plainInstant(t).Year(); year < 0 || year > 9999 {
		return fmt.Errorf("the instant's year is %d, want 0 to 9999", year)
	}
	return nil
}
