package cronsched

import (
	"strconv"
	"strings"
	"time"
)

// A delay is written d.hh:mm:ss with an optional fraction of a second, or as
// Go writes durations.

const wantDelay = "want a delay above 0: [d.]hh:mm:ss with an optional fraction, as in 00:10:00 or 1.06:00:00, or a Go duration, as in 10m or 1h30m"

const dayDelay = 24 * time.Hour

// parseDelay reads either form. The error is of the time package, nil if there
// is nothing to add to wantDelay.
func parseDelay(s string) (d time.Duration, ok bool, err error) {
	if strings.IndexByte(s, ':') >= 0 {
		d, ok = parseClockDelay(s)
	} else {
		d, err = time.ParseDuration(s)
		ok = err == nil
	}
	return d, ok && d > 0, err
}

// parseClockDelay reads [d.]hh:mm:ss[.fraction].
func parseClockDelay(s string) (time.Duration, bool) {
	clock, fraction := s, ""
	var days uint64
	if dot := strings.IndexByte(s, '.'); dot >= 0 && dot < strings.IndexByte(s, ':') {
		var err error
		if days, err = strconv.ParseUint(s[:dot], 10, 32); err != nil {
			return 0, false
		}
		clock = s[dot+1:]
	}
	clock, fraction, fractional := strings.Cut(clock, ".")
	if len(clock) != len("hh:mm:ss") || clock[2] != ':' || clock[5] != ':' {
		return 0, false
	}
	hours, ok1 := twoDigits(clock[0:2], 24)
	minutes, ok2 := twoDigits(clock[3:5], 60)
	seconds, ok3 := twoDigits(clock[6:8], 60)
	nanos, ok4 := parseFraction(fraction)
	const maxDays = uint64(1<<63-1) / uint64(dayDelay)
	if !ok1 || !ok2 || !ok3 || fractional && !ok4 || days > maxDays {
		return 0, false
	}
	d := time.Duration(days)*dayDelay + hours*time.Hour + minutes*time.Minute + seconds*time.Second + nanos
	return d, d >= 0 // the last day overflows
}

func twoDigits(s string, limit int) (time.Duration, bool) {
	a, b := s[0]-'0', s[1]-'0'
	n := int(a)*10 + int(b)
	return time.Duration(n), a <= 9 && b <= 9 && n < limit
}

// parseFraction reads up to nine decimals of a second.
func parseFraction(s string) (time.Duration, bool) {
	if s == "" || len(s) > 9 {
		return 0, false
	}
	n := 0
	for i := range 9 {
		n *= 10
		if i < len(s) {
			if s[i]-'0' > 9 {
				return 0, false
			}
			n += int(s[i] - '0')
		}
	}
	return time.Duration(n), true
}

// appendDelay writes the canonical form: days only if there are any, the
// fraction without trailing zeros.
func appendDelay(b []byte, d time.Duration) []byte {
	if days := d / dayDelay; days > 0 {
		b = strconv.AppendInt(b, int64(days), 10)
		b = append(b, '.')
	}
	two := func(n time.Duration) { b = append(b, '0'+byte(n/10), '0'+byte(n%10)) }
	two(d % dayDelay / time.Hour)
	b = append(b, ':')
	two(d % time.Hour / time.Minute)
	b = append(b, ':')
	two(d % time.Minute / time.Second)
	if nanos := int64(d % time.Second); nanos > 0 {
		digits := strconv.AppendInt(nil, int64(time.Second)+nanos, 10)[1:]
		for digits[len(digits)-1] == '0' {
			digits = digits[:len(digits)-1]
		}
		b = append(append(b, '.'), digits...)
	}
	return b
}
