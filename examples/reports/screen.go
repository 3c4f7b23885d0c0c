package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A screen is where everything is printed, line by line, with the time and the node.
type screen struct {
	node string

	mu  sync.Mutex // held while writing
	out io.Writer
}

func newScreen(out io.Writer, node string) *screen { return &screen{node: node, out: out} }

// Write is for the log.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(lines)
}

// line prints a line. Like fmt.Printf's, its error is nobody's.
func (s *screen) line(format string, args ...any) {
	_, _ = fmt.Fprintf(s, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), s.node, fmt.Sprintf(format, args...))
}

// say prints a line on behalf of a run.
func (s *screen) say(run durable.Run, format string, args ...any) {
	s.line("%-15s   %s", run.Job, fmt.Sprintf(format, args...))
}

// observe prints what happens on this node, but for errors: those are in the log, which
// is printed too.
func (s *screen) observe(e durable.Event) {
	switch e.Kind {
	case durable.EventStarted:
		s.line("%-15s > %s", e.Job, originOf(e))
	case durable.EventEnded:
		mark := "="
		if e.State != durable.RunSucceeded {
			mark = "!"
		}
		s.line("%-15s %s %v after %v", e.Job, mark, e.State, e.Duration.Round(time.Millisecond))
	case durable.EventFollowed:
		s.line("%-15s   will run again (%s)", e.Job, e.Detail)
	case durable.EventLost:
		s.line("%-15s ! taken off a dead node", e.Job)
	case durable.EventNodeDead:
		s.line("*** node %s is dead", e.Detail)
	case durable.EventLeading:
		s.line("*** this node leads")
	case durable.EventRestored:
		s.line("*** the database answers again, after %v", e.Duration.Round(time.Millisecond))
	}
}

// originOf says why a run began.
func originOf(e durable.Event) string {
	var parts []string
	if parts = append(parts, e.RunKind.String()); e.Trigger != "" {
		parts = append(parts, "trigger "+e.Trigger)
	}
	if e.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", e.Attempt))
	}
	return strings.Join(parts, ", ")
}
