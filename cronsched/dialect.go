package cronsched

import (
	"strconv"
	"strings"
)

// A dialect is a way to write cron expressions that other systems have. All
// of them are read into the same Expression.
type dialect uint8

const (
	native dialect = iota
	quartz
	standard
)

// ParseQuartz parses an expression of the Quartz scheduler: six or seven
// fields, weekdays numbered from 1 for Sunday to 7 for Saturday, L alone in
// day-of-week for Saturday, and ? in exactly one of day-of-month and
// day-of-week. What Quartz accepts beyond this package's grammar (reversed
// ranges, L-nW) is an error. The String of the result is in this package's
// grammar, with weekdays numbered from 0.
func ParseQuartz(text string) (*Expression, error) {
	return parser{src: text, dialect: quartz}.expression()
}

// ParseStandard parses a crontab expression of POSIX and Vixie cron: five
// fields without ?, L, W and #, or one of @yearly, @annually, @monthly,
// @weekly, @daily, @midnight and @hourly.
//
// Vixie cron has a rule that this package's grammar cannot say: if
// day-of-month or day-of-week begins with * but is a step, as in
// "0 0 */2 * MON", a day must match both. Such an expression is an error
// rather than one that fires on other days; and so is a step after a number, as in
// "5/15 * * * *", which is minute 5 alone there.
func ParseStandard(text string) (*Expression, error) {
	if trimmed := strings.Trim(text, " \t"); strings.HasPrefix(trimmed, "@") {
		expr, ok := macros[trimmed]
		if !ok {
			return nil, &ParseError{Field: "expression", Text: trimmed, Offset: strings.IndexByte(text, '@'), Want: wantMacro}
		}
		text = expr
	}
	return parser{src: text, dialect: standard}.expression()
}

var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

const wantMacro = "want @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly"

func (d dialect) fieldCounts() (least, most int, want string) {
	switch d {
	case quartz:
		return 6, 7, "want second minute hour day-of-month month day-of-week [year]"
	case standard:
		return 5, 5, "want minute hour day-of-month month day-of-week"
	}
	return 5, 7, "want [second] minute hour day-of-month month day-of-week [year]"
}

func (d dialect) want(k int) string {
	switch {
	case d == quartz && k == dowField:
		return "want *, ?, a weekday 1-7 (1 is Sunday) or SUN-SAT, a range, a step, L, nL, n#k, or a list of these"
	case d == standard && k == domField:
		return "want *, a day 1-31, a range a-b, a step */n or a-b/n, or a list of these"
	case d == standard && k == dowField:
		return "want *, a weekday 0-7 or SUN-SAT (three letters), a range a-b, a step */n or a-b/n, or a list of these"
	}
	return fields[k].want
}

// ends gives the values where a range that wraps around would be cut in two.
func (d dialect) ends(k int) (top, bottom string) {
	if k == dowField {
		return "SAT", "SUN"
	}
	f := &fields[k]
	return strconv.Itoa(f.max), strconv.Itoa(f.min)
}

// checkDialect applies the rules of a dialect that concern several fields. bounds
// are the places of the fields in the source.
func (p *parser) checkDialect(bounds []bound) error {
	if p.dialect == native {
		return nil
	}
	first := secondField
	if p.dialect == standard {
		first = minuteField
	}
	dom, dow := bounds[domField-first], bounds[dowField-first]
	domText, dowText := p.src[dom.from:dom.to], p.src[dow.from:dow.to]
	if p.dialect == quartz {
		switch {
		case domText == "?" && dowText == "?":
			return p.fail("day-of-week", dow.from, dow.to, "Quartz takes ? in one of day-of-month and day-of-week, not in both; write * in one")
		case domText != "?" && dowText != "?":
			return p.fail("day-of-week", dow.from, dow.to, "Quartz wants ? in day-of-month or day-of-week: both cannot be given")
		}
		return nil
	}
	d := &p.e.days
	stepped := !d.domAny && domText[0] == '*' || !d.dowAny && dowText[0] == '*'
	if stepped && !d.domAny && !d.dowAny {
		return p.fail("day-of-month", dom.from, dom.to, "with */n in one of day-of-month and day-of-week, Vixie cron wants both to match, which has no equal here; write the days as a list or a range")
	}
	return nil
}
