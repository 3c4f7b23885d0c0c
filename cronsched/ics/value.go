package ics

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// unfold makes one line of each that goes on in the next.
func unfold(text []byte) []byte {
	for _, fold := range []string{"\r\n ", "\r\n\t", "\n ", "\n\t"} {
		text = bytes.ReplaceAll(text, []byte(fold), nil)
	}
	return text
}

// upperNames changes the names of properties, parameters and components, which
// may be in any case, to upper case, as the parser wants them.
func upperNames(text []byte) {
	for line := range bytes.Lines(text) {
		upperLine(line)
		if bytes.HasPrefix(line, []byte("BEGIN:")) || bytes.HasPrefix(line, []byte("END:")) {
			copy(line, bytes.ToUpper(line))
		}
	}
}

// upperLine changes the names before the line's value.
func upperLine(line []byte) {
	inName, quoted := true, false
	for i, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ':':
			return
		case c == ';':
			inName = true
		case c == '=':
			inName = false
		case inName && 'a' <= c && c <= 'z':
			line[i] = c - 'a' + 'A'
		}
	}
}

// A local is a time on the wall clock of a zone.
type local struct {
	wall time.Time // in UTC
	zone *time.Location
}

// localOf gives what the wall clock of t's location shows.
func localOf(t time.Time) local {
	_, offset := t.Zone()
	return local{t.UTC().Add(time.Duration(offset) * time.Second), t.Location()}
}

// instant gives the instant by RFC 5545, section 3.3.5: the first one that
// shows the time or, if a change of the clock skips it, shown being false, that
// by the offset before the change.
func (l local) instant() (t time.Time, shown bool) {
	// No zone changes its offset twice within three days: a day before and a day after,
	// whatever the offset, the two are known.
	for _, days := range []int{-1, 1} {
		_, offset := l.wall.AddDate(0, 0, days).In(l.zone).Zone()
		at := l.wall.Add(-time.Duration(offset) * time.Second).In(l.zone)
		if localOf(at).wall.Equal(l.wall) {
			return at, true
		}
		if days < 0 {
			t = at
		}
	}
	return t, false
}

// A span is a length of time: days of the wall clock, which may be longer or
// shorter than 24 hours, and what comes on top.
type span struct {
	days  int
	exact time.Duration
}

// after gives the end of a span that begins at t.
func (s span) after(t time.Time) time.Time {
	if s.days != 0 {
		l := localOf(t)
		l.wall = l.wall.AddDate(0, 0, s.days)
		t, _ = l.instant()
	}
	return t.Add(s.exact)
}

// nominal is the length with days of 24 hours.
func (s span) nominal() time.Duration { return time.Duration(s.days)*24*time.Hour + s.exact }

// readTime reads a DATE or DATE-TIME value. A date is given as its midnight in
// UTC. A time without a zone is loc's.
func readTime(value string, params map[string][]string, loc *time.Location) (t time.Time, allDay bool, err error) {
	l, allDay, err := readLocal(value, params, loc)
	if err != nil {
		return t, allDay, err
	}
	t, _ = l.instant()
	return t, allDay, nil
}

// readLocal is readTime before the clock's changes are looked at.
func readLocal(value string, params map[string][]string, loc *time.Location) (l local, allDay bool, err error) {
	value = strings.ToUpper(value)
	if len(value) == len("20060102") {
		l.wall, err = time.Parse("20060102", value)
		l.zone = time.UTC
		return l, true, err
	}
	if strings.HasSuffix(value, "Z") {
		l.wall, err = time.Parse("20060102T150405Z", value)
		l.zone = time.UTC
		return l, false, err
	}
	if ids := params["TZID"]; len(ids) > 0 {
		name := strings.TrimPrefix(strings.Trim(ids[0], `"`), "/")
		if name == "Local" || name == "" {
			return l, false, fmt.Errorf("TZID %q is not an IANA time zone", ids[0])
		}
		if loc, err = time.LoadLocation(name); err != nil {
			return l, false, fmt.Errorf("TZID %q is not an IANA time zone: %w", ids[0], err)
		}
	}
	l.wall, err = time.Parse("20060102T150405", value)
	l.zone = loc
	return l, false, err
}

// readDuration reads a DURATION value: P1W, P2D, P1DT12H, PT1H30M.
func readDuration(value string) (span, error) {
	fail := fmt.Errorf("%q is not a duration of whole weeks, days, hours, minutes and seconds", value)
	rest, ok := strings.CutPrefix(strings.TrimPrefix(strings.ToUpper(value), "+"), "P")
	if !ok || rest == "" {
		return span{}, fail
	}
	units := map[byte]time.Duration{'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour}
	var total span
	for rest != "" {
		if rest[0] == 'T' {
			units = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second}
			if rest = rest[1:]; rest == "" {
				return span{}, fail
			}
		}
		n, digits := time.Duration(0), 0
		for digits < len(rest) && rest[digits]-'0' <= 9 && digits < 9 {
			n = 10*n + time.Duration(rest[digits]-'0')
			digits++
		}
		if digits == 0 || digits == len(rest) {
			return span{}, fail
		}
		unit, ok := units[rest[digits]]
		const longest = 200 * 365 * 24 * time.Hour
		if !ok || n > longest/unit || total.nominal() > longest-n*unit {
			return span{}, fail
		}
		if day := 24 * time.Hour; unit >= day {
			total.days += int(n * (unit / day))
		} else {
			total.exact += n * unit
		}
		rest = rest[digits+1:]
	}
	return total, nil
}
