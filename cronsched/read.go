package cronsched

import (
	"slices"
	"strings"
	"time"
)

const wantSchedule = "want manual, every DELAY [xN], cron EXPRESSION, once INSTANT, @daily and its like, @every DELAY, or a cron expression"

// A reader reads the words of a schedule's text into a plan, and for a cron
// schedule into an expression.
type reader struct {
	src  string
	pos  int
	p    plan
	e    Expression
	zone *zone                 // of a TZ= or CRON_TZ= before the expression, else nil
	seen [len(optionKeys)]bool // the options read so far
	end  int                   // where the value of end= stands
}

// schedule gives what was read. Plan and expression are one object: a program
// may have very many of them.
func (r *reader) schedule() Schedule {
	if r.p.kind != cron {
		p := r.p
		return Schedule{&p}
	}
	c := &struct {
		plan plan
		expr Expression
	}{r.p, r.e}
	c.plan.expr = &c.expr
	return Schedule{&c.plan}
}

// word gives the next word and where it begins. It is empty at the end.
func (r *reader) word() (word string, from int) {
	for r.pos < len(r.src) && isBlank(r.src[r.pos]) {
		r.pos++
	}
	from = r.pos
	for r.pos < len(r.src) && !isBlank(r.src[r.pos]) {
		r.pos++
	}
	return r.src[from:r.pos], from
}

func (r *reader) read() error {
	if err := r.zonePrefix(); err != nil {
		return err
	}
	if err := r.kind(); err != nil {
		return err
	}
	for {
		word, from := r.word()
		if word == "" {
			break
		}
		if err := r.option(word, from); err != nil {
			return err
		}
	}
	return r.finish()
}

// zonePrefix reads the TZ=ZONE or CRON_TZ=ZONE that other libraries put before
// an expression.
func (r *reader) zonePrefix() (err error) {
	word, from := r.word()
	for _, key := range []string{"TZ=", "CRON_TZ="} {
		if name, ok := strings.CutPrefix(word, key); ok {
			r.zone, err = r.readZone(name, from+len(key))
			return err
		}
	}
	r.pos = from
	return nil
}

// kind reads the schedule up to its options.
func (r *reader) kind() error {
	word, from := r.word()
	named := word == "manual" || word == "every" || word == "once" || word == "cron"
	switch {
	case named && r.zone != nil:
		return &ParseError{Field: "schedule", Text: word, Offset: from,
			Want: "TZ= and CRON_TZ= stand before a bare expression; here the zone is given by tz=ZONE after the expression"}
	case word == "manual":
		return nil
	case word == "every" || word == "@every":
		r.p.wasAtEvery = word == "@every"
		return r.every()
	case word == "once":
		r.p.kind = once
		return r.instant(&r.p.at, "once", r.word)
	case word == "cron":
		_, from = r.word()
		return r.expression(from)
	case word != "" && word[0] == '@':
		expr, ok := macros[word]
		if !ok {
			return &ParseError{Field: "schedule", Text: word, Offset: from, Want: wantMacro + ", or @every DELAY"}
		}
		return r.parseCron(expr, from)
	case word == "" || isLetter(word[0]):
		return &ParseError{Field: "schedule", Text: word, Offset: from, Want: wantSchedule}
	}
	return r.expression(from)
}

// every reads a delay and, if it is there, the number of runs.
func (r *reader) every() error {
	word, from := r.word()
	delay, ok, cause := parseDelay(word)
	if !ok {
		return &ParseError{Field: "every", Text: word, Offset: from, Want: wantDelay, Err: cause}
	}
	r.p.kind, r.p.delay = every, delay
	word, from = r.word()
	if word == "" || strings.IndexByte(word, '=') >= 0 {
		r.pos = from
		return nil
	}
	if r.p.runs, ok = parseRuns(word); !ok {
		return &ParseError{Field: "every", Text: word, Offset: from, Want: "want the total number of runs, x1 to x2147483647, or an option such as start="}
	}
	return nil
}

// parseRuns reads xN.
func parseRuns(s string) (int, bool) {
	if len(s) < 2 || s[0] != 'x' {
		return 0, false
	}
	n := int64(0)
	for i := 1; i < len(s); i++ {
		if s[i]-'0' > 9 {
			return 0, false
		}
		if n = 10*n + int64(s[i]-'0'); n > 1<<31-1 {
			return 0, false
		}
	}
	return int(n), n > 0
}

// expression reads the cron expression that begins at from and ends before the
// first option, the first word with a =.
func (r *reader) expression(from int) error {
	rest := r.src[from:]
	if equals := strings.IndexByte(rest, '='); equals >= 0 {
		rest = rest[:strings.LastIndexAny(rest[:equals], " \t")+1]
	}
	r.pos = from + len(rest)
	return r.parseCron(strings.TrimRight(rest, " \t"), from)
}

func (r *reader) parseCron(expr string, from int) error {
	p := parser{src: expr, base: from}
	if err := p.parse(); err != nil {
		return err
	}
	r.p.kind, r.e = cron, p.e
	if r.zone != nil {
		r.e.zone = r.zone
	}
	return nil
}

var optionKeys = [...]string{"tz", "gap", "overlap", "start", "end", "calendar", "roll"}

const wantOption = "want an option: tz=, gap=, overlap=, start=, end=, calendar= or roll="

// option reads one key=value.
func (r *reader) option(word string, from int) error {
	key, value, ok := strings.Cut(word, "=")
	k := slices.Index(optionKeys[:], key)
	if !ok || k < 0 {
		return &ParseError{Field: "schedule", Text: word, Offset: from, Want: wantOption}
	}
	if r.seen[k] {
		return &ParseError{Field: key, Text: word, Offset: from, Want: key + "= is given twice"}
	}
	r.seen[k] = true
	at := from + len(key) + 1
	fail := func(want string) error {
		return &ParseError{Field: key, Text: value, Offset: at, Want: want}
	}
	switch key {
	case "tz", "gap", "overlap":
		if r.p.kind != cron {
			return &ParseError{Field: key, Text: word, Offset: from, Want: key + "= belongs to a cron schedule"}
		}
		return r.clockOption(key, value, at)
	case "start", "end":
		t := &r.p.start
		if key == "end" {
			t, r.end = &r.p.end, at
		}
		if err := r.instant(t, key, func() (string, int) { return value, at }); err != nil {
			return err
		}
		if t.IsZero() { // it would leave the side open
			return fail("this is the zero instant, which stands for none; leave " + key + "= out for no limit")
		}
		return nil
	case "calendar":
		if err := checkCalendarName(value); err != nil || value == "" {
			return fail("want a calendar's name, of any characters but blanks and control characters")
		}
		r.p.calendarName = value
	case "roll":
		switch value {
		case "next":
			r.p.roll = RollNext
		case "previous":
			r.p.roll = RollPrevious
		default:
			return fail("want roll=next or roll=previous")
		}
	}
	return nil
}

// clockOption reads an option of the expression.
func (r *reader) clockOption(key, value string, at int) error {
	switch {
	case key == "tz" && r.zone != nil:
		return &ParseError{Field: key, Text: value, Offset: at, Want: "the zone is given already by TZ= or CRON_TZ= before the expression"}
	case key == "tz":
		z, err := r.readZone(value, at)
		if err != nil {
			return err
		}
		r.e.zone = z
	case key == "gap" && value == "after":
		r.e.gap = GapAfter
	case key == "gap" && value != "skip":
		return &ParseError{Field: key, Text: value, Offset: at, Want: "want gap=skip or gap=after"}
	case key == "overlap" && value == "both":
		r.e.overlap = OverlapBoth
	case key == "overlap" && value != "first":
		return &ParseError{Field: key, Text: value, Offset: at, Want: "want overlap=first or overlap=both"}
	}
	return nil
}

func (r *reader) readZone(name string, at int) (*zone, error) {
	z, err := zoneNamed(name)
	if err != nil {
		return nil, &ParseError{Field: "tz", Text: name, Offset: at, Want: wantZone(name), Err: err}
	}
	return z, nil
}

// instant reads an RFC 3339 instant.
func (r *reader) instant(into *time.Time, field string, word func() (string, int)) error {
	value, at := word()
	var t time.Time
	if len(value) <= 64 { // the time package quotes the whole text in its error
		err := t.UnmarshalText([]byte(value))
		_, offset := t.Zone() // the time package takes 24 hours, RFC 3339 does not
		if err == nil && -secondsPerDay < offset && offset < secondsPerDay {
			*into = plainInstant(t)
			return nil
		}
	}
	return &ParseError{Field: field, Text: value, Offset: at, Want: "want an RFC 3339 instant, as in 2026-10-01T08:00:00+08:00 or 2026-10-01T00:00:00Z"}
}

// finish checks what concerns several options.
func (r *reader) finish() error {
	p := &r.p
	if p.roll != RollNone && p.calendarName == "" {
		return &ParseError{Field: "roll", Text: "", Offset: len(r.src), Want: "roll= needs a calendar= whose excluded instants it moves"}
	}
	if !p.start.IsZero() && !p.end.IsZero() && p.end.Before(p.start) {
		text, _, _ := strings.Cut(r.src[r.end:], " ")
		text, _, _ = strings.Cut(text, "\t")
		return &ParseError{Field: "end", Text: text, Offset: r.end, Want: "the end is before the start"}
	}
	p.setWindow(p.start, p.end)
	return nil
}
