package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

var lintCommand = command{
	name:    "lint",
	args:    "[SCHEDULE]",
	summary: "look for errors and doubtful schedules in a crontab or a list of schedules",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		file := fs.String("f", "", "the `file`, - for standard input: a schedule a line, or a crontab's lines with commands")
		return func(c *call, words []string) error { return lint(c, *file, words) }
	},
}

// A finding is one schedule of the input.
type finding struct {
	Line     int        `json:"line"`
	Schedule string     `json:"schedule"`
	Error    *jsonError `json:"error,omitempty"`
	Warnings []warning  `json:"warnings"`
}

// lint gives exitBad if there are warnings, and exitUsage if a line is no
// schedule.
func lint(c *call, file string, words []string) error {
	var findings []finding
	switch {
	case (file == "") == (len(words) == 0):
		return errors.New("want either -f FILE or a schedule")
	case file == "":
		file = "schedule"
		findings = []finding{check(strings.Join(words, " "), 1, c.now())}
	default:
		in := c.stdin
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		var err error
		if findings, err = lintLines(in, c.now()); err != nil {
			return err
		}
	}
	return report(c, file, findings)
}

// report writes the findings and counts them into the exit code.
func report(c *call, file string, findings []finding) error {
	var text strings.Builder
	invalid, doubtful := 0, 0
	for _, f := range findings {
		if f.Error != nil {
			invalid++
			fmt.Fprintf(&text, "%s:%d: error: %s\n", file, f.Line, f.Error.Message)
		}
		for _, w := range f.Warnings {
			doubtful++
			fmt.Fprintf(&text, "%s:%d: warning: %s (%s)\n", file, f.Line, w.Text, w.Code)
		}
	}
	if findings == nil {
		findings = []finding{}
	}
	if err := c.print(findings, text.String()); err != nil {
		return err
	}
	switch {
	case invalid > 0:
		return errInvalid
	case doubtful > 0:
		return errBad
	}
	return nil
}

// errInvalid ends lint with exitUsage; the findings are written already.
var errInvalid = errors.New("a line is no schedule")

// lintLines reads a crontab or a list: blank lines and # comments are skipped,
// and settings, of which CRON_TZ or, without it, TZ holds for the lines that
// follow.
func lintLines(in io.Reader, now time.Time) ([]finding, error) {
	var findings []finding
	zones := map[string]string{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if name, value, ok := setting(line); ok {
			zones[name] = value
			continue
		}
		text, ok := scheduleOf(line)
		if !ok {
			continue
		}
		zone := zones["CRON_TZ"]
		if zone == "" {
			zone = zones["TZ"]
		}
		if zone != "" && takesZone(text) {
			text += " tz=" + zone
		}
		findings = append(findings, check(text, n, now))
	}
	return findings, lines.Err()
}

// setting reads a crontab's NAME=VALUE line, the value with or without quotes.
// "TZ=UTC 0 3 * * *" is none.
func setting(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, "=")
	name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"'`)
	if !ok || name == "" || strings.ContainsAny(name, " \t*") {
		return "", "", false
	}
	return name, value, (name != "TZ" && name != "CRON_TZ") || !strings.ContainsAny(value, " \t")
}

// takesZone reports whether a text is a bare expression or macro without a zone
// of its own.
func takesZone(text string) bool {
	switch strings.Fields(text)[0] {
	case "manual", "every", "once", "cron", "@every":
		return false
	}
	return !strings.Contains(text, "tz=") && !strings.Contains(text, "TZ=")
}

// scheduleOf gives the schedule of a line without a crontab's command. It is
// false for @reboot, which is none.
func scheduleOf(line string) (string, bool) {
	if _, err := cronsched.Parse(line); err == nil {
		return line, true
	}
	words := strings.Fields(line)
	if words[0] == "@reboot" {
		return "", false
	}
	if words[0][0] == '@' && words[0] != "@every" {
		if areOptions(words[1:]) {
			return line, true
		}
		return words[0], true
	}
	// The expression goes as far as words look like fields of one.
	n := 0
	for n < len(words) && n < 7 && looksLikeField(words[n]) {
		n++
	}
	if n < 5 || n == len(words) || areOptions(words[n:]) {
		return line, true
	}
	return strings.Join(words[:n], " "), true
}

// areOptions reports whether the words after an expression are a schedule's
// options, be they wrong, and not a command: the first is one of those that
// there are, or all of them look like one.
func areOptions(words []string) bool {
	for i, word := range words {
		key, _, ok := strings.Cut(word, "=")
		switch key {
		case "tz", "gap", "overlap", "start", "end", "calendar", "roll":
			if ok && i == 0 {
				return true
			}
		}
		if !ok || key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz") != "" {
			return false
		}
	}
	return len(words) > 0
}

func looksLikeField(word string) bool {
	if strings.IndexByte("0123456789*?", word[0]) >= 0 {
		// 7z is a command; 15W, 5L and 1-5x are fields, the last a wrong one.
		after := strings.ToUpper(strings.TrimLeft(word, "0123456789"))
		return after == "" || after == "W" || after == "L" || after[0] < 'A' || after[0] > 'Z'
	}
	const names = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC SUN MON TUE WED THU FRI SAT L LW"
	first := strings.ToUpper(word)
	if end := strings.IndexAny(first, ",-/#"); end >= 0 {
		first = first[:end]
	}
	for name := range strings.SplitSeq(names, " ") {
		if first == name || len(name) == 3 && first == name+"L" {
			return true
		}
	}
	return false
}

// check parses and lints one schedule.
func check(text string, line int, now time.Time) finding {
	f := finding{Line: line, Schedule: text, Warnings: []warning{}}
	s, err := cronsched.Parse(text)
	if err != nil {
		f.Error = describeError(err)
		return f
	}
	for _, w := range s.Lint(now) {
		f.Warnings = append(f.Warnings, warning(w))
	}
	return f
}
