package cronsched

import (
	"fmt"
	"strings"
)

// ParseCron parses a cron expression of five to seven fields: [second] minute
// hour day-of-month month day-of-week [year]. The package comment has the
// grammar. The expression is in UTC, with GapSkip and OverlapFirst; In,
// WithGap and WithOverlap change that. A text that cannot be understood gives
// a *ParseError.
func ParseCron(text string) (*Expression, error) {
	return parser{src: text}.expression()
}

// A field is what one position of an expression may hold.
type field struct {
	name     string
	min, max int
	names    string // three letters each, from min on
	want     string
}

// The fields in the order of the seven-field form.
const (
	secondField = iota
	minuteField
	hourField
	domField
	monthField
	dowField
	yearField
	fieldCount
)

const (
	monthNames   = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"
	weekdayNames = "SUNMONTUEWEDTHUFRISAT"
)

var fields = [fieldCount]field{
	{"second", 0, 59, "", "want *, a value 0-59, a range a-b, a step */n, a/n or a-b/n, or a list of these"},
	{"minute", 0, 59, "", "want *, a value 0-59, a range a-b, a step */n, a/n or a-b/n, or a list of these"},
	{"hour", 0, 23, "", "want *, a value 0-23, a range a-b, a step */n, a/n or a-b/n, or a list of these"},
	{"day-of-month", 1, 31, "", "want *, ?, a day 1-31, a range, a step, L, L-n, nW, LW, or a list of these"},
	{"month", 1, 12, monthNames, "want *, a month 1-12 or JAN-DEC (three letters), a range, a step, or a list of these"},
	{"day-of-week", 0, 7, weekdayNames, "want *, ?, a weekday 0-7 or SUN-SAT (three letters), a range, a step, nL, n#k, or a list of these"},
	{"year", firstYear, lastYear, "", "want *, a year 1970-2099, a range a-b, a step */n, a/n or a-b/n, or a list of these"},
}

// A parser reads one expression and writes its canonical text as it goes. As
// long as that is how src begins, only its length is kept: most texts are
// canonical already and need no copy. Errors carry offsets into src plus base.
type parser struct {
	src     string
	base    int
	dialect dialect
	end     int // of the field being read
	pos     int
	same    int    // while out is nil, the canonical text is src[:same]
	out     []byte // the canonical text, once it differs from src
	e       Expression
}

// A bound is one field's place in the source.
type bound struct{ from, to int }

// expression parses the whole source into an expression of its own.
func (p parser) expression() (*Expression, error) {
	if err := p.parse(); err != nil {
		return nil, err
	}
	e := p.e
	return &e, nil
}

// parse parses the whole source into p.e.
func (p *parser) parse() error {
	bounds, n, err := p.split()
	if err != nil {
		return err
	}
	p.e.second, p.e.anyYear, p.e.zone = 1, true, utcZone
	first := secondField
	if n == 5 {
		first = minuteField
	}
	for k := range n {
		if k > 0 {
			p.write(' ')
		}
		if err := p.field(first+k, bounds[k]); err != nil {
			return err
		}
	}
	if err := p.checkDialect(bounds[:n]); err != nil {
		return err
	}
	if p.e.text = p.src[:p.same]; p.out != nil {
		p.e.text = string(p.out)
	}
	p.e.finish()
	return nil
}

// write adds a character to the canonical text.
func (p *parser) write(c byte) {
	if p.out == nil {
		if p.same < len(p.src) && p.src[p.same] == c {
			p.same++
			return
		}
		p.out = append(make([]byte, 0, len(p.src)+8), p.src[:p.same]...)
	}
	p.out = append(p.out, c)
}

func (p *parser) writeString(s string) {
	for i := range len(s) {
		p.write(s[i])
	}
}

// split finds the fields: at least as many as the dialect has, at most seven.
func (p *parser) split() (bounds [fieldCount]bound, n int, err error) {
	least, most, want := p.dialect.fieldCounts()
	i := 0
	for {
		for i < len(p.src) && isBlank(p.src[i]) {
			i++
		}
		if i == len(p.src) {
			break
		}
		from := i
		for i < len(p.src) && !isBlank(p.src[i]) {
			i++
		}
		if n == most {
			return bounds, n, p.fail("expression", from, i, "too many fields: "+want)
		}
		bounds[n] = bound{from, i}
		n++
	}
	if n < least {
		return bounds, n, p.fail("expression", len(p.src), len(p.src), "too few fields: "+want)
	}
	return bounds, n, nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func (p *parser) fail(name string, from, to int, want string) error {
	return &ParseError{Field: name, Text: p.src[from:to], Offset: p.base + from, Want: want}
}

// field reads the k-th field of the seven-field form.
func (p *parser) field(k int, b bound) error {
	p.pos, p.end = b.from, b.to
	if b.to-b.from == 1 {
		c := p.src[b.from]
		if c == '*' || c == '?' && (k == domField || k == dowField) {
			if c == '?' && p.dialect == standard {
				return p.fail(fields[k].name, b.from, b.to, "? is not known here; write *")
			}
			p.write(c)
			p.setAny(k)
			return nil
		}
	}
	if k == yearField {
		p.e.anyYear = false
	}
	if k == secondField {
		p.e.second = 0
	}
	for {
		if err := p.item(k); err != nil {
			return err
		}
		if p.pos == p.end {
			return nil
		}
		p.pos++ // the comma
		p.write(',')
	}
}

func (p *parser) setAny(k int) {
	switch k {
	case domField:
		p.e.days.domAny = true
	case dowField:
		p.e.days.dowAny = true
	case yearField:
		p.e.anyYear = true
	default:
		p.set(k, fields[k].min, fields[k].max, 1)
	}
}

// A stretch is the values that an item spans before its step is applied.
type stretch struct {
	low, high int
	alone     bool // a value alone, for which high counts only if a step follows
}

// item reads one item of a list, up to the comma or the field's end.
func (p *parser) item(k int) error {
	f := &fields[k]
	from := p.pos
	to := from
	for to < p.end && p.src[to] != ',' {
		to++
	}
	switch {
	case from == to:
		return p.fail(f.name, from, to, "empty list item; "+p.want(k))
	case (k == domField || k == dowField) && upper(p.src[from]) == 'L':
		return p.last(k, to)
	}
	s, err := p.stretch(k, to)
	if err != nil {
		return err
	}
	if own, err := p.suffix(k, s, from, to); own || err != nil {
		return err
	}
	step := 1
	if p.pos < to && p.src[p.pos] == '/' {
		if s.alone && p.dialect == standard {
			return p.fail(f.name, from, to, fmt.Sprintf("Vixie cron takes a step after * or a range only; write %s-%d%s", p.src[from:p.pos], s.high, p.src[p.pos:to]))
		}
		p.pos++
		p.write('/')
		stepFrom := p.pos
		n, digits, ok := p.number(to)
		p.writeString(digits)
		if !ok || p.pos != to {
			return p.fail(f.name, from, to, "want a whole number after the /")
		}
		if n == 0 {
			return p.fail(f.name, stepFrom, to, "a step is at least 1")
		}
		step = n
	} else if s.alone {
		s.high = s.low
	}
	if p.pos != to {
		return p.fail(f.name, from, to, p.want(k))
	}
	p.set(k, s.low, s.high, step)
	return nil
}

// stretch reads *, a value or a range.
func (p *parser) stretch(k, to int) (s stretch, err error) {
	s.low, s.high = fields[k].min, fields[k].max
	if k == dowField {
		s.high = 6 // 7 is 0 again
	}
	from := p.pos
	if p.src[from] == '*' {
		p.pos++
		p.write('*')
		return s, nil
	}
	if s.low, err = p.value(k, to); err != nil {
		return s, err
	}
	if p.pos == to || p.src[p.pos] != '-' {
		s.alone = true
		s.high = max(s.high, s.low)
		return s, nil
	}
	p.pos++
	p.write('-')
	endFrom := p.pos
	if s.high, err = p.value(k, to); err != nil {
		return s, err
	}
	if k == dowField && s.high == 0 && s.low >= 1 && s.low <= 6 && isLetter(p.src[endFrom]) {
		s.high = 7 // SUN ends the week that MON begins
	}
	if s.low > s.high {
		return s, p.reversed(k, from, endFrom)
	}
	return s, nil
}

// suffix reads what makes a day field's value an item of its own: nW, nL, n#k.
func (p *parser) suffix(k int, s stretch, from, to int) (own bool, err error) {
	if !s.alone || p.pos == to || p.dialect == standard {
		return false, nil
	}
	d := &p.e.days
	ends := p.pos+1 == to
	switch c := upper(p.src[p.pos]); {
	case k == domField && c == 'W' && ends:
		d.nearest |= 1 << s.low
		p.write(c)
	case k == dowField && c == 'L' && ends:
		d.lastOf |= 1 << (s.low % 7)
		p.write(c)
	case k == dowField && c == '#':
		if err := p.nth(s.low%7, from, to); err != nil {
			return true, err
		}
	default:
		return false, nil
	}
	d.special = true
	p.pos = to
	return true, nil
}

// nth reads the rest of n#k.
func (p *parser) nth(weekday, from, to int) error {
	p.pos++
	p.write('#')
	n, digits, ok := p.number(to)
	p.writeString(digits)
	if !ok || p.pos != to || n < 1 || n > 5 {
		return p.fail(fields[dowField].name, from, to, "want 1 to 5 after the #, as in FRI#2 for the second Friday")
	}
	p.e.days.nth[n-1] |= 1 << weekday
	return nil
}

// last reads an item that begins with L.
func (p *parser) last(k, to int) error {
	from := p.pos
	name := fields[k].name
	rest := p.src[from+1 : to]
	d := &p.e.days
	switch {
	case p.dialect == standard:
		return p.fail(name, from, to, "L is not known here; "+p.want(k))
	case k == dowField && p.dialect == quartz && rest == "":
		d.weekdays |= 1 << 6
		p.writeString("SAT")
		p.pos = to
		return nil
	case k == dowField:
		return p.fail(name, from, to, "L needs a weekday before it, as in FRIL for the last Friday")
	case rest == "":
		d.fromLast |= 1
		p.write('L')
	case len(rest) == 1 && upper(rest[0]) == 'W':
		d.lastWorkday, d.special = true, true
		p.writeString("LW")
	case rest[0] == '-':
		p.pos += 2
		p.writeString("L-")
		n, digits, ok := p.number(to)
		p.writeString(digits)
		if !ok || p.pos != to || n < 1 || n > 30 {
			return p.fail(name, from, to, "want L-1 to L-30, days before the last of the month")
		}
		d.fromLast |= 1 << n
	default:
		return p.fail(name, from, to, "want L, L-n or LW")
	}
	p.pos = to
	return nil
}

// value reads a number or a name in range and writes it as this grammar
// counts.
func (p *parser) value(k, to int) (int, error) {
	f := &fields[k]
	from := p.pos
	if from < to && isLetter(p.src[from]) {
		for p.pos < to && isLetter(p.src[p.pos]) {
			p.pos++
		}
		if k == dowField && p.pos == from+4 && upper(p.src[from+3]) == 'L' {
			p.pos-- // FRIL
		}
		if v := nameIndex(f.names, p.src[from:p.pos]); v >= 0 {
			p.writeString(f.names[3*v : 3*v+3])
			return f.min + v, nil
		}
		return 0, p.fail(f.name, from, p.pos, p.want(k))
	}
	v, digits, ok := p.number(to)
	if !ok {
		return 0, p.fail(f.name, from, to, p.want(k))
	}
	if k == dowField && p.dialect == quartz {
		if v--; v >= 0 && v <= 6 {
			p.write('0' + byte(v))
			return v, nil
		}
		return 0, p.fail(f.name, from, p.pos, "out of range; "+p.want(k))
	}
	if v < f.min || v > f.max {
		return 0, p.fail(f.name, from, p.pos, "out of range; "+p.want(k))
	}
	p.writeString(digits)
	return v, nil
}

// tooLarge stands for all numbers beyond those that mean anything.
const tooLarge = 1 << 20

// number reads digits and gives them without leading zeros too.
func (p *parser) number(to int) (n int, digits string, ok bool) {
	from := p.pos
	for p.pos < to && p.src[p.pos]-'0' <= 9 {
		n = min(10*n+int(p.src[p.pos]-'0'), tooLarge)
		p.pos++
	}
	if p.pos == from {
		return 0, "", false
	}
	for from < p.pos-1 && p.src[from] == '0' {
		from++
	}
	return n, p.src[from:p.pos], true
}

// set adds the values low, low+step, … up to high.
func (p *parser) set(k, low, high, step int) {
	if k == yearField {
		for v := low - firstYear; v <= high-firstYear; v += step {
			p.e.years[v>>6] |= 1 << (v & 63)
		}
		return
	}
	var bits uint64
	if step == 1 {
		bits = (2<<(high-low) - 1) << low
	} else {
		for v := low; v <= high; v += step {
			bits |= 1 << v
		}
	}
	switch k {
	case secondField:
		p.e.second |= bits
	case minuteField:
		p.e.minute |= bits
	case hourField:
		p.e.hour |= uint32(bits)
	case domField:
		p.e.days.dom |= uint32(bits)
	case monthField:
		p.e.month |= uint16(bits)
	case dowField:
		p.e.days.weekdays |= uint8(bits&0x7f | bits>>7)
	}
}

// reversed words the error for a range that runs downwards, with the two
// ranges that say what was probably meant.
func (p *parser) reversed(k, from, endFrom int) error {
	a, b := p.src[from:endFrom-1], p.src[endFrom:p.pos]
	top, bottom := p.dialect.ends(k)
	want := "a range runs upwards; write "
	if k == dowField && p.dialect != quartz && strings.TrimLeft(a, "0") == "7" {
		want += bottom + "-" + b // 7 is Sunday: the range begins the week
	} else {
		want += a + "-" + top + "," + bottom + "-" + b
	}
	return p.fail(fields[k].name, from, p.pos, want)
}

// want says what the field takes in the parser's dialect.
func (p *parser) want(k int) string { return p.dialect.want(k) }

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

func isLetter(c byte) bool { c = upper(c); return 'A' <= c && c <= 'Z' }

// nameIndex finds a three-letter name in any case, or gives -1.
func nameIndex(names, s string) int {
	if len(s) != 3 {
		return -1
	}
	for i := 0; i < len(names); i += 3 {
		if upper(s[0]) == names[i] && upper(s[1]) == names[i+1] && upper(s[2]) == names[i+2] {
			return i / 3
		}
	}
	return -1
}
