package cronsched

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Schedule answers when something is due. There are four kinds:
//
//	manual          never by itself
//	every D [xN]    D after the previous run completed
//	cron EXPR       when the expression fires
//	once T          at the instant T
//
// each with an optional window and an optional calendar. A Schedule is an
// immutable value of one word: pass it by value, share it between goroutines;
// Within, On and Resolve give changed ones. Compare schedules by their String.
// The zero value is Manual().
type Schedule struct{ p *plan }

type kind uint8

const (
	manual kind = iota
	every
	cron
	once
)

func (k kind) String() string { return [...]string{"manual", "every", "cron", "once"}[k] }

// A plan is a schedule's content. It is not changed once a Schedule has it.
type plan struct {
	kind  kind
	roll  Roll
	runs  int           // every: the total number, 0 without end
	delay time.Duration // every
	// wasAtEvery: every, written as @every, which Lint has something to say to.
	wasAtEvery bool
	expr       *Expression // cron
	at         time.Time   // once

	// anyDay fires at expr's times on every day: where a rolled instant may
	// come to lie. It is nil unless kind is cron, roll is set and calendar bound.
	anyDay *Expression

	start, end time.Time // zero: open
	// first and last are the window in whole seconds.
	first, last int64

	calendarName string
	calendar     Calendar // nil until resolved
}

// Roll says what becomes of an instant that the calendar excludes.
type Roll uint8

const (
	// RollNone drops it. It is the default.
	RollNone Roll = iota
	// RollNext moves it to the same wall time on the nearest following day on
	// which the calendar does not exclude that, within 366 days.
	RollNext
	// RollPrevious is RollNext towards the preceding days.
	RollPrevious
)

// String gives the value of roll= in a schedule's text, empty for RollNone.
func (r Roll) String() string {
	switch r {
	case RollNext:
		return "next"
	case RollPrevious:
		return "previous"
	}
	return ""
}

var manualPlan = &plan{kind: manual, first: math.MinInt64, last: math.MaxInt64}

func (s Schedule) plan() *plan {
	if s.p == nil {
		return manualPlan
	}
	return s.p
}

// with gives a copy of the schedule with something changed.
func (s Schedule) with(change func(p *plan)) Schedule {
	p := *s.plan()
	change(&p)
	return Schedule{&p}
}

// Manual gives the schedule that never fires by itself.
func Manual() Schedule { return Schedule{} }

// Every gives the schedule of a fixed delay: delay after the previous run
// completed, runs times in total, 0 for without end. The delay must be
// positive and runs in [0, 2^31).
func Every(delay time.Duration, runs int) (Schedule, error) {
	if delay <= 0 {
		return Schedule{}, fmt.Errorf("cronsched: Every: the delay is %v, want more than 0", delay)
	}
	if runs < 0 || runs > math.MaxInt32 {
		return Schedule{}, fmt.Errorf("cronsched: Every: runs is %d, want 0 (without end) to %d", runs, math.MaxInt32)
	}
	return Schedule{}.with(func(p *plan) { p.kind, p.delay, p.runs = every, delay, runs }), nil
}

// Cron gives the schedule of an expression, in its location and with its rules
// for clock changes. If the location is not one that an IANA name gives
// (time.Local, time.FixedZone), the schedule works but MarshalText refuses it.
// Cron panics if e is nil.
func Cron(e *Expression) Schedule {
	if e == nil {
		panic("cronsched: Cron of a nil Expression")
	}
	return Schedule{}.with(func(p *plan) { p.kind, p.expr = cron, e })
}

// Once gives the schedule of a single instant. Its text keeps the offset that
// t shows. The year must be in [0, 9999], as RFC 3339 has it.
func Once(t time.Time) (Schedule, error) {
	if err := checkInstant(t); err != nil {
		return Schedule{}, fmt.Errorf("cronsched: Once: %w", err)
	}
	return Schedule{}.with(func(p *plan) { p.kind, p.at = once, plainInstant(t) }), nil
}

// Within gives the same schedule with a window: nothing fires before start or
// after end; an instant equal to either may. The first run of an every
// schedule is one delay after start. A zero time leaves that side open.
func (s Schedule) Within(start, end time.Time) (Schedule, error) {
	for _, t := range []time.Time{start, end} {
		if err := checkInstant(t); err != nil && !t.IsZero() {
			return Schedule{}, fmt.Errorf("cronsched: Within: %w", err)
		}
	}
	if !start.IsZero() && !end.IsZero() && end.Before(start) {
		return Schedule{}, fmt.Errorf("cronsched: Within: end %v is before start %v", end, start)
	}
	return s.with(func(p *plan) { p.setWindow(start, end) }), nil
}

func (p *plan) setWindow(start, end time.Time) {
	p.start, p.end = time.Time{}, time.Time{}
	p.first, p.last = math.MinInt64, math.MaxInt64
	if !start.IsZero() {
		p.start = plainInstant(start)
		p.first = unixCeil(start)
	}
	if !end.IsZero() {
		p.end = plainInstant(end)
		p.last = unixFloor(end)
	}
}

// On gives the same schedule with a calendar, referred to by name, and what
// becomes of instants that it excludes. The schedule refuses to fire until
// Resolve binds the name. An empty name takes the calendar away; roll must
// then be RollNone.
func (s Schedule) On(calendar string, roll Roll) (Schedule, error) {
	if err := checkCalendarName(calendar); err != nil {
		return Schedule{}, err
	}
	if roll > RollPrevious {
		return Schedule{}, fmt.Errorf("cronsched: On: unknown roll %d", roll)
	}
	if roll != RollNone && calendar == "" {
		return Schedule{}, errors.New("cronsched: On: a roll without a calendar")
	}
	return s.with(func(p *plan) { p.calendarName, p.roll, p.calendar, p.anyDay = calendar, roll, nil, nil }), nil
}

func checkCalendarName(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("cronsched: calendar name %q is not UTF-8", abridge(name))
	}
	for _, r := range name {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return fmt.Errorf("cronsched: calendar name %q has blanks or control characters", abridge(name))
		}
	}
	return nil
}

// Resolve gives the same schedule bound to the calendar it names; lookup says
// which that is. A schedule that names none is returned as it is. The error is
// a *CalendarError if lookup does not know the name.
func (s Schedule) Resolve(lookup func(name string) (Calendar, bool)) (Schedule, error) {
	name := s.plan().calendarName
	if name == "" {
		return s, nil
	}
	calendar, ok := lookup(name)
	if !ok || calendar == nil {
		return Schedule{}, &CalendarError{Name: name}
	}
	return s.with(func(p *plan) {
		p.calendar, p.anyDay = calendar, nil
		if p.kind == cron && p.roll != RollNone {
			p.anyDay = p.expr.onAnyDay()
		}
	}), nil
}

// Validate gives a *CalendarError while the schedule names a calendar that it
// is not bound to. Such a schedule has no Next and no Prev.
func (s Schedule) Validate() error {
	if p := s.plan(); p.unresolved() {
		return &CalendarError{Name: p.calendarName}
	}
	return nil
}

func (p *plan) unresolved() bool { return p.calendarName != "" && p.calendar == nil }

// Manual reports whether the schedule is of the manual kind.
func (s Schedule) Manual() bool { return s.plan().kind == manual }

// FixedDelay gives the delay and the total number of runs (0: without end) of
// an every schedule; ok is false for the other kinds. Whoever runs it counts
// the runs and knows when they end.
func (s Schedule) FixedDelay() (delay time.Duration, runs int, ok bool) {
	p := s.plan()
	return p.delay, p.runs, p.kind == every
}

// Expression gives the expression of a cron schedule, nil for the other kinds.
func (s Schedule) Expression() *Expression { return s.plan().expr }

// Window gives the schedule's start and end, zero where it is open.
func (s Schedule) Window() (start, end time.Time) { return s.plan().start, s.plan().end }

// Calendar gives the name of the schedule's calendar, empty if there is none,
// and what becomes of instants that it excludes.
func (s Schedule) Calendar() (name string, roll Roll) { return s.plan().calendarName, s.plan().roll }

// Next gives the earliest instant after t at which the schedule is due. For a
// cron schedule it is in the expression's location, and false past the end of
// 2099. For an every schedule t is the end of the previous run, and the
// instant, in UTC, is t plus the delay: if the calendar excludes that, plus
// twice the delay, and so on, or what one of those left out moves to, if that is
// earlier. Next is false if there is no such instant;
// Reason says why.
func (s Schedule) Next(t time.Time) (time.Time, bool) {
	at, why := s.plan().next(t)
	return at, why == due
}

// Prev gives the latest instant before t at which the schedule was due. For an
// every schedule, whose runs cannot be known, it is the mirror image of Next
// without a roll: t minus the delay, or minus twice the delay, and so on.
func (s Schedule) Prev(t time.Time) (time.Time, bool) {
	at, why := s.plan().prev(t)
	return at, why == due
}

// Upcoming gives the next n instants after t, fewer if there are no more.
func (s Schedule) Upcoming(t time.Time, n int) []time.Time { return take(s.All(t), n) }

// All gives all instants after t in order. For an every schedule these are the
// instants if runs took no time, as many as it has runs in total.
func (s Schedule) All(t time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		left := s.plan().runs
		for next, ok := s.Next(t); ok && yield(next); next, ok = s.Next(next) {
			if left--; left == 0 {
				return
			}
		}
	}
}

// Reason says in words why Next(t) gives nothing: "" if it gives something.
func (s Schedule) Reason(t time.Time) string {
	p := s.plan()
	_, why := p.next(t)
	switch why {
	case due:
		return ""
	case unresolved:
		return fmt.Sprintf("the calendar %q is not resolved", p.calendarName)
	case byHand:
		return "a manual schedule never fires by itself"
	case neverDue:
		return "the expression never fires: no date matches it"
	case windowOver:
		return "the window is over: nothing fires after " + formatInstant(p.end)
	case alreadyPast:
		return "the one instant, " + formatInstant(p.at) + ", is past"
	case outsideWindow:
		return "the one instant, " + formatInstant(p.at) + ", is outside the window"
	case excluded:
		return fmt.Sprintf("the calendar %q excludes every instant that is left", p.calendarName)
	case exhausted:
		return fmt.Sprintf("the calendar %q excludes %d candidates in a row", p.calendarName, candidateLimit)
	case givenUp:
		return fmt.Sprintf("the calendar %q excludes so many candidates that the search was given up", p.calendarName)
	}
	return "the expression fires no more before the end of 2099"
}
