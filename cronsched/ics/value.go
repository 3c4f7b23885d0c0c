package ics

import (
	"fmt"
	"strings"
	"time"
)

// readTime reads a DATE or DATE-TIME value. A date is given as its midnight in
// UTC. A time without a zone is loc's.
func readTime(value string, params map[string][]string, loc *time.Location) (t time.Time, allDay bool, err error) {
	if len(value) == len("20060102") {
		t, err = time.Parse("20060102", value)
		return t, true, err
	}
	if strings.HasSuffix(value, "Z") {
		t, err = time.Parse("20060102T150405Z", value)
		return t, false, err
	}
	if ids := params["TZID"]; len(ids) > 0 {
		name := strings.TrimPrefix(strings.Trim(ids[0], `"`), "/")
		if name == "Local" || name == "" {
			return t, false, fmt.Errorf("TZID %q is not an IANA time zone", ids[0])
		}
		if loc, err = time.LoadLocation(name); err != nil {
			return t, false, fmt.Errorf("TZID %q is not an IANA time zone: %w", ids[0], err)
		}
	}
	t, err = time.ParseInLocation("20060102T150405", value, loc)
	return t, false, err
}

// readDuration reads a DURATION value: P1W, P2D, P1DT12H, PT1H30M.
func readDuration(value string) (time.Duration, error) {
	fail := fmt.Errorf("%q is not a duration of whole weeks, days, hours, minutes and seconds", value)
	rest, ok := strings.CutPrefix(strings.TrimPrefix(value, "+"), "P")
	if !ok || rest == "" {
		return 0, fail
	}
	units := map[byte]time.Duration{'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour}
	var total time.Duration
	for rest != "" {
		if rest[0] == 'T' {
			units = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second}
			if rest = rest[1:]; rest == "" {
				return 0, fail
			}
		}
		n, digits := time.Duration(0), 0
		for digits < len(rest) && rest[digits]-'0' <= 9 && digits < 9 {
			n = 10*n + time.Duration(rest[digits]-'0')
			digits++
		}
		if digits == 0 || digits == len(rest) {
			return 0, fail
		}
		unit, ok := units[rest[digits]]
		const longest = 200 * 365 * 24 * time.Hour
		if !ok || n > longest/unit || total > longest-n*unit {
			return 0, fail
		}
		total += n * unit
		rest = rest[digits+1:]
	}
	return total, nil
}
