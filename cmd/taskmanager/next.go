package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

var nextCommand = command{
	name:    "next",
	args:    "SCHEDULE",
	summary: "give the next instants of a schedule",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var q question
		q.flags(fs)
		n := fs.Int("n", 5, "how `many` instants, 1 to 100000")
		return func(c *call, words []string) error {
			if *n < 1 || *n > 100_000 {
				return fmt.Errorf("-n is %d, want 1 to 100000", *n)
			}
			return next(c, &q, *n, words)
		}
	},
}

type nextAnswer struct {
	Schedule string      `json:"schedule"`
	From     time.Time   `json:"from"`
	Next     []time.Time `json:"next"`
	// Reason says why there are fewer instants than were asked for.
	Reason string `json:"reason,omitempty"`
}

// next gives exitBad if there is no instant at all.
func next(c *call, q *question, n int, words []string) error {
	s, from, err := q.read(c, words)
	if err != nil {
		return err
	}
	a := nextAnswer{Schedule: s.String(), From: from, Next: s.Upcoming(from, n)}
	var text strings.Builder
	for _, at := range a.Next {
		fmt.Fprintln(&text, at.Format(time.RFC3339Nano))
	}
	if len(a.Next) < n {
		last := from
		if len(a.Next) > 0 {
			last = a.Next[len(a.Next)-1]
		}
		if a.Reason = s.Reason(last); a.Reason == "" {
			a.Reason = "the schedule has no more runs"
		}
		fmt.Fprintln(&text, "no more: "+a.Reason)
	}
	if a.Next == nil {
		a.Next = []time.Time{}
	}
	if err := c.print(a, text.String()); err != nil {
		return err
	}
	if len(a.Next) == 0 {
		return errBad
	}
	return nil
}
