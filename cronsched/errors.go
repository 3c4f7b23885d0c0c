package cronsched

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A ParseError says which part of a text cannot be understood, where it
// stands, and what would be right. Every error of Parse, ParseCron,
// ParseQuartz, ParseStandard and UnmarshalText about the text itself is one.
type ParseError struct {
	// Field names the part: a cron field such as "minute" or "day-of-week",
	// a key such as "tz" or "start", or "schedule" or "expression" for the
	// whole text.
	Field string
	// Text is the offending piece, unabridged. It is empty when something is
	// missing.
	Text string
	// Offset is where Text begins in the text that was parsed, in bytes.
	Offset int
	// Want says what is wrong or what would be right, in words.
	Want string
	// Err is the cause, if there is one: the time package's error about an
	// instant, a duration or a zone.
	Err error
}

// Error gives the whole message in one line. A long Text is cut short.
func (e *ParseError) Error() string {
	var b strings.Builder
	b.WriteString("cronsched: ")
	b.WriteString(e.Field)
	b.WriteString(": ")
	if e.Text != "" {
		b.WriteString(strconv.Quote(abridge(e.Text)))
		b.WriteByte(' ')
	}
	b.WriteString("at offset ")
	b.WriteString(strconv.Itoa(e.Offset))
	b.WriteString(": ")
	b.WriteString(e.Want)
	return b.String()
}

// Unwrap gives the cause, so that errors.Is and errors.As reach it.
func (e *ParseError) Unwrap() error { return e.Err }

// shownText is how many bytes of an offending text a message repeats.
const shownText = 40

func abridge(s string) string {
	if len(s) <= shownText {
		return s
	}
	n := shownText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// A CalendarError says that a schedule refers to a calendar that it is not
// bound to: Resolve was not called, or knew no calendar of that name.
type CalendarError struct {
	Name string // as in calendar=Name
}

func (e *CalendarError) Error() string {
	return "cronsched: calendar " + strconv.Quote(e.Name) + " is not resolved: no calendar of that name was given to Resolve"
}
