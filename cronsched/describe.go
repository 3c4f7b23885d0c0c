package cronsched

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Describe says in an English sentence what the expression does, as in
// "At 09:00:00, Monday to Friday, in Asia/Shanghai".
func (e *Expression) Describe() string {
	f := e.fieldTexts()
	for k, full := range map[int]bool{
		secondField: e.second == 1<<60-1, minuteField: e.minute == 1<<60-1,
		hourField: e.hour == 1<<24-1, monthField: e.month == 1<<13-2, yearField: f[yearField] == "*/1",
	} {
		if full {
			f[k] = "*" // however it was written
		}
	}
	parts := []string{e.describeTime(f)}
	days := describeDays(f[domField], f[dowField])
	if days == "" && strings.HasPrefix(parts[0], "At ") && !strings.Contains(parts[0], "every") {
		days = "every day"
	}
	if days != "" {
		parts = append(parts, days)
	}
	if f[monthField] != "*" {
		parts = append(parts, "in "+describeItems(monthField, f[monthField]))
	}
	if f[yearField] != "*" {
		parts = append(parts, "in "+describeItems(yearField, f[yearField]))
	}
	parts = append(parts, "in "+e.zone.loc.String())
	if e.gap == GapAfter {
		parts = append(parts, "once after a clock change for the times that it skips")
	}
	if e.overlap == OverlapBoth {
		parts = append(parts, "twice at times that a clock change repeats")
	}
	return strings.Join(parts, ", ")
}

// Describe says in an English sentence what the schedule does.
func (s Schedule) Describe() string {
	p := s.plan()
	var text string
	switch p.kind {
	case manual:
		text = "Never by itself, only when triggered by hand"
	case every:
		text = shortDuration(p.delay) + " after the previous run completed"
		if p.runs > 0 {
			text += fmt.Sprintf(", %d %s in total", p.runs, plural(p.runs, "run"))
		}
	case cron:
		text = p.expr.Describe()
	case once:
		text = "Once, at " + formatInstant(p.at)
	}
	if !p.start.IsZero() {
		text += ", not before " + formatInstant(p.start)
	}
	if !p.end.IsZero() {
		text += ", not after " + formatInstant(p.end)
	}
	if p.calendarName == "" {
		return text
	}
	switch p.roll {
	case RollNext:
		return text + fmt.Sprintf(", moved to the next day that the calendar %q leaves open", p.calendarName)
	case RollPrevious:
		return text + fmt.Sprintf(", moved to the last day before that the calendar %q leaves open", p.calendarName)
	}
	return text + fmt.Sprintf(", except when the calendar %q excludes it", p.calendarName)
}

// fieldTexts gives the canonical fields in the seven-field form, ? as *.
func (e *Expression) fieldTexts() [fieldCount]string {
	texts := [fieldCount]string{secondField: "0", yearField: "*"}
	written := strings.Split(e.text, " ")
	first := secondField
	if len(written) == 5 {
		first = minuteField
	}
	for i, text := range written {
		if text == "?" {
			text = "*"
		}
		texts[first+i] = text
	}
	return texts
}

// shownTimes is how many times of day a description lists.
const shownTimes = 4

// describeTime puts the second, minute and hour fields into words.
func (e *Expression) describeTime(f [fieldCount]string) string {
	if n := bits.OnesCount64(e.second) * bits.OnesCount64(e.minute) * bits.OnesCount32(e.hour); n <= shownTimes {
		var times []string
		for s := e.firstTime; ; s = e.nextTime(s + 1) {
			times = append(times, clockTime(int64(s)))
			if s == e.lastTime {
				break
			}
		}
		return "At " + join(times, "and")
	}
	second, minute, hour := f[secondField], f[minuteField], f[hourField]
	var b strings.Builder
	switch {
	case second == "*":
		b.WriteString("Every second")
	case isEvenStep(second):
		b.WriteString("Every " + second[2:] + " seconds")
	case second != "0":
		b.WriteString("At " + describeValues(secondField, second, e.second))
	}
	switch {
	case b.Len() == 0 && minute == "0" && hour == "*":
		return "Every hour, on the hour"
	case b.Len() == 0 && minute == "*":
		b.WriteString("Every minute")
	case b.Len() == 0 && isEvenStep(minute):
		b.WriteString("Every " + minute[2:] + " minutes")
	case b.Len() == 0:
		b.WriteString("At " + describeValues(minuteField, minute, e.minute))
	case minute == "*":
		if second != "*" && !isEvenStep(second) {
			b.WriteString(" of every minute")
		}
	default:
		b.WriteString(" of " + describeValues(minuteField, minute, e.minute))
	}
	low, high, isRange := plainRange(hour)
	switch {
	case hour == "*":
		if minute != "*" && !isEvenStep(minute) {
			b.WriteString(" of every hour")
		}
	case isRange && (minute == "*" || isEvenStep(minute)):
		fmt.Fprintf(&b, " from %02d:00 to %02d:59", low, high)
	default:
		b.WriteString(" of " + describeValues(hourField, hour, uint64(e.hour)))
	}
	return b.String()
}

// shownRuns is how many values and runs of values a description lists.
const shownRuns = 8

// describeValues puts the values of a time field into words: every nth if that
// is how it was written and the step divides the field, else the values
// themselves, if they are not too many.
func describeValues(k int, text string, set uint64) string {
	name := fields[k].name
	if n, err := strconv.Atoi(strings.TrimPrefix(text, "*/")); isPlainStep(text) && err == nil && (fields[k].max+1)%n == 0 {
		return "every " + ordinal(text[2:]) + " " + name
	}
	var runs []string
	for rest := set; rest != 0; {
		low := bits.TrailingZeros64(rest)
		length := bits.TrailingZeros64(^(rest >> low))
		rest &^= (1<<length - 1) << low
		switch length {
		case 1:
			runs = append(runs, strconv.Itoa(low))
		case 2:
			runs = append(runs, strconv.Itoa(low), strconv.Itoa(low+1))
		default:
			runs = append(runs, fmt.Sprintf("%d to %d", low, low+length-1))
		}
	}
	switch {
	case len(runs) <= shownRuns:
	case isPlainStep(text):
		return "every " + ordinal(text[2:]) + " " + name
	default:
		return name + " " + text
	}
	return plural(bits.OnesCount64(set), name) + " " + join(runs, "and")
}

// describeDays puts the day fields into words, "" if any day matches.
func describeDays(dom, dow string) string {
	switch {
	case dom == "*" && dow == "*":
		return ""
	case dow == "*":
		return "on " + describeItems(domField, dom)
	case dom == "*":
		return describeItems(dowField, dow)
	}
	return "on " + describeItems(domField, dom) + ", or on " + describeItems(dowField, dow)
}

// describeItems puts a field's list into words.
func describeItems(k int, text string) string {
	var words []string
	for item := range strings.SplitSeq(text, ",") {
		if item == "*" {
			return describeItem(k, item)
		}
		words = append(words, describeItem(k, item))
	}
	return join(words, "and")
}

func describeItem(k int, item string) string {
	switch {
	case item == "L":
		return "the last day of the month"
	case item == "LW":
		return "the last Monday to Friday day of the month"
	case strings.HasPrefix(item, "L-"):
		n, _ := strconv.Atoi(item[2:])
		return fmt.Sprintf("%d %s before the last day of the month", n, plural(n, "day"))
	case k == domField && strings.HasSuffix(item, "W"):
		return "the Monday to Friday day nearest to day " + item[:len(item)-1] + " of the month"
	case k == dowField && strings.HasSuffix(item, "L"):
		return "the last " + valueName(k, item[:len(item)-1]) + " of the month"
	case strings.IndexByte(item, '#') > 0:
		day, nth, _ := strings.Cut(item, "#")
		return "the " + ordinal(nth) + " " + valueName(k, day) + " of the month"
	}
	values, step, stepped := strings.Cut(item, "/")
	low, high, ranged := strings.Cut(values, "-")
	if low == high {
		high, ranged, stepped = "", false, false
	}
	switch {
	case stepped && step != "1":
		return describeStep(k, low, high, step)
	case low == "*":
		return "every " + unitName(k)
	case stepped && !ranged:
		return describeStep(k, low, high, step)
	}
	text := valueName(k, low)
	switch {
	case !ranged:
	case k == dowField && valueOf(k, high)-valueOf(k, low) == 7:
		return "every day" // 0-7, SUN-7
	case k == dowField && valueOf(k, high) == valueOf(k, low): // 0-SUN
	default:
		text += " to " + valueName(k, high)
	}
	if k == domField {
		text = plural(1+len(high), "day") + " " + text
	}
	return text
}

// describeStep puts an item with a step into words. Only those values count
// that the step reaches; weekdays are named one by one.
func describeStep(k int, low, high, step string) string {
	first, last := fields[k].min, fields[k].max
	if k == dowField {
		last = 6
	}
	if low != "*" {
		first = valueOf(k, low)
	}
	if high != "" {
		if last = valueOf(k, high); last < first {
			last = 7 // SUN ends the week
		}
	}
	n, err := strconv.Atoi(step)
	if err != nil || n > tooLarge {
		n = tooLarge
	}
	one := func(v int) string { return describeItem(k, strconv.Itoa(v)) }
	switch {
	case first+n > last:
		return one(first)
	case k == dowField:
		var days []string
		for v := first; v <= min(last, first+6); v += n {
			days = append(days, one(v))
		}
		return join(days, "and")
	}
	text := unitName(k) + " from " + one(first)
	if n > 1 {
		text = ordinal(step) + " " + text
	}
	if high == "" {
		return "every " + text + " on"
	}
	return "every " + text + " to " + valueName(k, high)
}

// unitName gives what a field counts.
func unitName(k int) string {
	if k == domField || k == dowField {
		return "day"
	}
	return fields[k].name
}

// valueOf gives the value that a number or a name stands for.
func valueOf(k int, text string) int {
	if v := nameIndex(fields[k].names, text); v >= 0 {
		return fields[k].min + v
	}
	n, _ := strconv.Atoi(text)
	return n
}

// valueName gives a month's or a weekday's name, else the number as it is.
func valueName(k int, text string) string {
	switch k {
	case monthField:
		return time.Month(valueOf(k, text)).String()
	case dowField:
		return time.Weekday(valueOf(k, text) % 7).String()
	}
	return text
}

// isPlainStep reports whether a field is */n.
func isPlainStep(text string) bool {
	return strings.HasPrefix(text, "*/") && strings.IndexByte(text, ',') < 0
}

// isEvenStep reports whether a second or minute field is */n with an n that
// divides 60, so that the same time lies between all of its values.
func isEvenStep(text string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(text, "*/"))
	return isPlainStep(text) && err == nil && 60%n == 0
}

// plainRange reads a-b in numbers.
func plainRange(text string) (low, high int, ok bool) {
	a, b, ok := strings.Cut(text, "-")
	low, err1 := strconv.Atoi(a)
	high, err2 := strconv.Atoi(b)
	return low, high, ok && err1 == nil && err2 == nil
}

// ordinal gives 1st, 2nd, 3rd, 4th, … of a number in digits.
func ordinal(digits string) string {
	suffix := "th"
	if n := len(digits); n < 2 || digits[n-2] != '1' {
		switch digits[n-1] {
		case '1':
			suffix = "st"
		case '2':
			suffix = "nd"
		case '3':
			suffix = "rd"
		}
	}
	return digits + suffix
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func join(words []string, and string) string {
	n := len(words) - 1
	if n <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + and + " " + words[n]
}

// shortDuration is Duration.String without zero minutes and seconds at the
// end.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// clockTime gives a wall second's time of day.
func clockTime(w int64) string {
	s := floorMod(w, secondsPerDay)
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}
