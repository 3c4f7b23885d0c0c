package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

var explainCommand = command{
	name:    "explain",
	args:    "SCHEDULE",
	summary: "say what a schedule will do: in words, its next instants, warnings, clock changes",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var q question
		q.flags(fs)
		return func(c *call, words []string) error { return explain(c, &q, words) }
	},
}

type explainAnswer struct {
	Schedule    string      `json:"schedule"`
	Description string      `json:"description"`
	From        time.Time   `json:"from"`
	Next        []time.Time `json:"next"`
	Reason      string      `json:"reason,omitempty"` // why Next is empty
	Warnings    []warning   `json:"warnings"`
	// ClockChanges are the warnings about changes of the zone's offset.
	ClockChanges []warning `json:"clockChanges"`
}

// A warning is a cronsched.Warning in JSON.
type warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// explain gives exitBad if the schedule is not due any more.
func explain(c *call, q *question, words []string) error {
	s, from, err := q.read(c, words)
	if err != nil {
		return err
	}
	const shown = 5
	a := explainAnswer{
		Schedule: s.String(), Description: s.Describe(), From: from,
		Next: s.Upcoming(from, shown), Reason: s.Reason(from),
	}
	if a.Next == nil {
		a.Next = []time.Time{}
	}
	a.Warnings, a.ClockChanges = sortWarnings(s.Lint(from))
	if err := c.print(a, a.text()); err != nil {
		return err
	}
	if a.Reason != "" {
		return errBad
	}
	return nil
}

// sortWarnings separates what clock changes do from the rest.
func sortWarnings(all []cronsched.Warning) (warnings, changes []warning) {
	warnings, changes = []warning{}, []warning{}
	for _, w := range all {
		if w.Code == "skipped-time" || w.Code == "repeated-time" {
			changes = append(changes, warning(w))
		} else {
			warnings = append(warnings, warning(w))
		}
	}
	return warnings, changes
}

func (a *explainAnswer) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s.\n", a.Schedule, a.Description)
	b.WriteString("\nNext:\n")
	for _, at := range a.Next {
		fmt.Fprintf(&b, "  %s\n", at.Format("Mon 2006-01-02 15:04:05.999999999 -07:00"))
	}
	if a.Reason != "" {
		fmt.Fprintf(&b, "  none: %s\n", a.Reason)
	}
	for _, section := range []struct {
		title    string
		warnings []warning
	}{{"Warnings", a.Warnings}, {"Clock changes this year and the next", a.ClockChanges}} {
		if len(section.warnings) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n", section.title)
		for _, w := range section.warnings {
			fmt.Fprintf(&b, "  %s (%s)\n", w.Text, w.Code)
		}
	}
	return b.String()
}
