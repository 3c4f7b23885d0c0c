// Package ics makes cronsched calendars of iCalendar files (RFC 5545), the form
// in which public holidays and company calendars are published.
//
// It is a module of its own, so that cronsched depends on nothing.
package ics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	ical "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// instanceLimit is how many instances all events of a file may have together,
// each day of an all-day event counted.
const instanceLimit = 1_000_000

// horizon ends the expansion of recurring events: no schedule looks beyond.
var horizon = time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC)

// Read reads a whole iCalendar file and makes a calendar that excludes the
// time of its VEVENTs: the days of all-day events on loc's wall clock, and the
// periods of timed ones, whose times without a zone are loc's too. A nil loc
// is UTC.
//
// RRULE, RDATE, EXDATE and changed instances (RECURRENCE-ID) are expanded up to
// the year 2100, one million instances at most. Cancelled events exclude
// nothing; whether an event counts as busy (TRANSP) does not matter, for
// holiday feeds call their days transparent. A time zone must have an IANA
// name. Rules of FREQ=MINUTELY and SECONDLY, EXRULE and RANGE=THISANDFUTURE are
// errors.
//
// The calendar is computed here and immutable: it jumps over what it excludes,
// and answers without allocation.
func Read(r io.Reader, loc *time.Location) (cronsched.Spanner, error) {
	if loc == nil {
		loc = time.UTC
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("ics: %w", err)
	}
	text = unfold(bytes.TrimPrefix(text, []byte("\ufeff")))
	// The parser takes a file that ends early for a whole one, and holidays
	// would be missing without a word.
	if !bytes.HasSuffix(bytes.ToUpper(bytes.TrimSpace(text)), []byte("END:VCALENDAR")) {
		return nil, errors.New("ics: the file does not end with END:VCALENDAR: it is no iCalendar file or not whole")
	}
	upperNames(text)
	file, err := ical.ParseCalendarWithOptions(bytes.NewReader(text), ical.WithUnknownPropertyHandler(ical.AcceptUnknownPropertyHandler))
	if err != nil {
		return nil, fmt.Errorf("ics: %w", err)
	}
	b := builder{loc: loc, changed: map[string][]time.Time{}}
	var events []event
	for i, v := range file.Events() {
		e, err := readEvent(v, loc)
		if err != nil {
			return nil, fmt.Errorf("ics: event %d, UID %q: %w", i+1, v.Id(), err)
		}
		if e.changes != nil {
			b.changed[e.uid] = append(b.changed[e.uid], *e.changes)
		}
		if !e.cancelled {
			events = append(events, e)
		}
	}
	for _, e := range events {
		if err := b.expand(e); err != nil {
			return nil, fmt.Errorf("ics: UID %q: %w", e.uid, err)
		}
	}
	return cronsched.CompositeCalendar(cronsched.HolidayCalendar(b.days, loc), merge(b.periods)), nil
}

// A builder collects what the events exclude.
type builder struct {
	loc       *time.Location
	changed   map[string][]time.Time // by UID: instances that another event replaces
	days      []time.Time            // midnights in UTC standing for loc's days
	periods   []period
	instances int
}

// expand adds all instances of an event.
func (b *builder) expand(e event) error {
	starts, err := b.recur(e)
	if err != nil {
		return err
	}
	for _, start := range starts {
		b.add(e, start)
		if b.instances > instanceLimit {
			return errTooMany
		}
	}
	b.periods = append(b.periods, e.addedPeriods...)
	return nil
}

var errTooMany = fmt.Errorf("the file has more than %d instances", instanceLimit)

// recur gives the starts of an event: its own or those of its rule, and those
// added, without those removed or replaced.
func (b *builder) recur(e event) ([]time.Time, error) {
	gone := map[int64]bool{}
	for _, t := range e.removed {
		gone[t.Unix()] = true
	}
	if e.changes == nil {
		for _, t := range b.changed[e.uid] {
			gone[t.Unix()] = true
		}
	}
	all := e.added
	if e.rule == nil {
		first, _ := e.start.instant()
		all = append(all, first)
	} else {
		instances, err := b.follow(e)
		if err != nil {
			return nil, err
		}
		all = append(all, instances...)
	}
	return slices.DeleteFunc(all, func(t time.Time) bool { return gone[t.Unix()] }), nil
}

// follow gives the instances of an event's rule. rrule-go computes on the wall
// clock, as if that never changed; an instance that a change skips is none
// (RFC 5545, section 3.3.10), unless it is the event's own start.
func (b *builder) follow(e event) ([]time.Time, error) {
	option := *e.rule
	option.Dtstart = e.start.wall
	option.Interval = min(option.Interval, farApart)
	option.Count, option.Until = 0, horizon.AddDate(0, 0, 1)
	rule, err := rrule.NewRRule(option)
	if err != nil || missesItsHours(option) {
		return nil, err
	}
	last := horizon
	if until := e.rule.Until; !until.IsZero() && until.Before(last) && e.rule.Count == 0 {
		last = until
	}
	var starts []time.Time
	for next := rule.Iterator(); ; {
		wall, ok := next()
		if !ok {
			return starts, nil
		}
		start, shown := local{wall, e.start.zone}.instant()
		if start.After(last) {
			return starts, nil
		}
		if !shown && !wall.Equal(e.start.wall) {
			continue
		}
		starts = append(starts, start)
		switch {
		case len(starts)+b.instances > instanceLimit:
			return nil, errTooMany
		case len(starts) == e.rule.Count:
			return starts, nil
		}
	}
}

// farApart is an interval of a rule that leads past the horizon from any start,
// be it in hours, and that rrule-go can add up.
const farApart = 1 << 25

// missesItsHours reports whether an hourly rule never comes to an hour of its
// BYHOUR: its hours are all equal modulo gcd(INTERVAL, 24). rrule-go would look
// for one for ever.
func missesItsHours(o rrule.ROption) bool {
	step, rest := 24, max(o.Interval, 1)
	for rest != 0 {
		step, rest = rest, step%rest
	}
	return o.Freq == rrule.HOURLY && len(o.Byhour) > 0 &&
		!slices.ContainsFunc(o.Byhour, func(h int) bool { return (h-o.Dtstart.Hour())%step == 0 })
}

// add excludes one instance.
func (b *builder) add(e event, start time.Time) {
	b.instances++
	if !e.allDay {
		if end := e.length.after(start); end.After(start) {
			b.periods = append(b.periods, period{start, end})
		}
		return
	}
	for length := e.length.nominal(); length > 0 && start.Before(horizon); length -= 24 * time.Hour {
		b.days = append(b.days, start)
		b.instances++
		start = start.AddDate(0, 0, 1)
	}
}

// A period is a stretch of time, end exclusive.
type period struct{ start, end time.Time }

// periods is a calendar of stretches in order that do not touch.
type periods []period

// merge puts periods in order and joins those that overlap or touch.
func merge(all []period) periods {
	slices.SortFunc(all, func(a, b period) int { return a.start.Compare(b.start) })
	var merged periods
	for _, p := range all {
		if n := len(merged); n > 0 && !p.start.After(merged[n-1].end) {
			if p.end.After(merged[n-1].end) {
				merged[n-1].end = p.end
			}
			continue
		}
		merged = append(merged, p)
	}
	return merged
}

// Excludes implements cronsched.Calendar.
func (ps periods) Excludes(t time.Time) bool {
	_, _, excluded := ps.Span(t)
	return excluded
}

// Span implements cronsched.Spanner.
func (ps periods) Span(t time.Time) (start, end time.Time, excluded bool) {
	// The first period that ends after t.
	i, _ := slices.BinarySearchFunc(ps, t, func(p period, t time.Time) int {
		if p.end.After(t) {
			return 1
		}
		return -1
	})
	if i < len(ps) && !ps[i].start.After(t) {
		return ps[i].start, ps[i].end, true
	}
	if i > 0 {
		start = ps[i-1].end
	}
	if i < len(ps) {
		end = ps[i].start
	}
	return start, end, false
}

// An event is what counts of a VEVENT.
type event struct {
	uid       string
	cancelled bool
	allDay    bool
	start     local // all-day: midnight in UTC
	length    span
	rule      *rrule.ROption
	added     []time.Time
	removed   []time.Time
	changes   *time.Time // the instance of uid that this event replaces

	addedPeriods []period
}

func readEvent(v *ical.VEvent, loc *time.Location) (event, error) {
	e := event{uid: v.Id()}
	if p := v.GetProperty(ical.ComponentPropertyStatus); p != nil {
		e.cancelled = strings.EqualFold(p.Value, "CANCELLED")
	}
	start := v.GetProperty(ical.ComponentPropertyDtStart)
	if start == nil {
		return e, errors.New("no DTSTART")
	}
	var err error
	if e.start, e.allDay, err = readLocal(start.Value, start.ICalParameters, loc); err != nil {
		return e, fmt.Errorf("DTSTART: %w", err)
	}
	if e.length, err = readLength(v, e, loc); err != nil {
		return e, err
	}
	if v.GetProperty(ical.ComponentPropertyExrule) != nil {
		return e, errors.New("EXRULE is not supported")
	}
	if p := v.GetProperty(ical.ComponentPropertyRecurrenceId); p != nil {
		if _, ok := p.ICalParameters["RANGE"]; ok {
			return e, errors.New("RECURRENCE-ID with a RANGE is not supported")
		}
		t, _, err := readTime(p.Value, p.ICalParameters, loc)
		if err != nil {
			return e, fmt.Errorf("RECURRENCE-ID: %w", err)
		}
		e.changes = &t
	}
	return e, readRecurrence(v, &e, loc)
}

// nought is the part of a rule that is 0 and must not be, "" if there is none. rrule-go
// takes it for one that is not given: COUNT=0 would be without end.
func nought(rule string) string {
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(part, "=")
		if (name == "COUNT" || name == "INTERVAL") && strings.Trim(value, "0") == "" {
			return part
		}
	}
	return ""
}

// compact leaves each value of a rule's lists once: rrule-go multiplies their lengths.
func compact(o *rrule.ROption) {
	for _, list := range []*[]int{&o.Bysetpos, &o.Bymonth, &o.Bymonthday, &o.Byyearday, &o.Byweekno, &o.Byhour, &o.Byminute, &o.Bysecond, &o.Byeaster} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	var days []rrule.Weekday
	for _, day := range o.Byweekday {
		if !slices.Contains(days, day) {
			days = append(days, day)
		}
	}
	o.Byweekday = days
}

// readRecurrence reads RRULE, RDATE and EXDATE.
func readRecurrence(v *ical.VEvent, e *event, loc *time.Location) error {
	rules := v.GetProperties(ical.ComponentPropertyRrule)
	if len(rules) > 1 {
		return errors.New("more than one RRULE")
	}
	if len(rules) == 1 {
		floating := time.FixedZone("", 0) // marks an UNTIL on the wall clock
		option, err := rrule.StrToROptionInLocation(strings.ToUpper(rules[0].Value), floating)
		if err != nil {
			return fmt.Errorf("RRULE %q: %w", rules[0].Value, err)
		}
		if option.Freq > rrule.HOURLY {
			return fmt.Errorf("RRULE %q: FREQ=%v is too fine", rules[0].Value, option.Freq)
		}
		if part := nought(rules[0].Value); part != "" {
			return fmt.Errorf("RRULE %q: %s must be positive", rules[0].Value, part)
		}
		if e.start.wall.IsZero() { // which rrule-go takes for none, and begins now
			return errors.New("RRULE: an event that recurs cannot begin on the first day of the year 1")
		}
		if option.Until.Location() == floating {
			option.Until, _ = local{option.Until.UTC(), e.start.zone}.instant()
		}
		compact(option)
		e.rule = option
	}
	for _, p := range v.GetProperties(ical.ComponentPropertyRdate) {
		for value := range strings.SplitSeq(p.Value, ",") {
			if err := e.addDate(value, p.ICalParameters, loc); err != nil {
				return fmt.Errorf("RDATE: %w", err)
			}
		}
	}
	for _, p := range v.GetProperties(ical.ComponentPropertyExdate) {
		for value := range strings.SplitSeq(p.Value, ",") {
			t, _, err := readTime(value, p.ICalParameters, loc)
			if err != nil {
				return fmt.Errorf("EXDATE: %w", err)
			}
			e.removed = append(e.removed, t)
		}
	}
	return nil
}

// addDate reads one value of an RDATE, a start or a period.
func (e *event) addDate(value string, params map[string][]string, loc *time.Location) error {
	from, to, isPeriod := strings.Cut(value, "/")
	start, _, err := readTime(from, params, loc)
	if err != nil {
		return err
	}
	if !isPeriod {
		e.added = append(e.added, start)
		return nil
	}
	length, err := readDuration(to)
	if err != nil {
		end, _, err := readTime(to, params, loc)
		if err != nil {
			return err
		}
		length = span{exact: end.Sub(start)}
	}
	if end := length.after(start); end.After(start) {
		e.addedPeriods = append(e.addedPeriods, period{start, end})
	}
	return nil
}

// readLength reads DTEND, the exact length, or DURATION, whose days are the wall
// clock's (RFC 5545, section 3.3.6). An all-day event without either is one day
// long, a timed one excludes nothing.
func readLength(v *ical.VEvent, e event, loc *time.Location) (span, error) {
	if p := v.GetProperty(ical.ComponentPropertyDtEnd); p != nil {
		start, _ := e.start.instant()
		end, allDay, err := readTime(p.Value, p.ICalParameters, loc)
		switch {
		case err != nil:
			return span{}, fmt.Errorf("DTEND: %w", err)
		case allDay != e.allDay:
			return span{}, errors.New("DTSTART and DTEND are not both dates or both times")
		case end.Before(start):
			return span{}, errors.New("DTEND is before DTSTART")
		case e.allDay && end.Equal(start): // not allowed, but published
			return span{days: 1}, nil
		}
		return span{exact: end.Sub(start)}, nil
	}
	if p := v.GetProperty(ical.ComponentPropertyDuration); p != nil {
		length, err := readDuration(p.Value)
		if err != nil {
			return span{}, fmt.Errorf("DURATION: %w", err)
		}
		if e.allDay && length.nominal()%(24*time.Hour) != 0 {
			return span{}, fmt.Errorf("DURATION %q of an all-day event is not in whole days", p.Value)
		}
		return length, nil
	}
	if e.allDay {
		return span{days: 1}, nil
	}
	return span{}, nil
}
