// Package row is the seam between the harness and what it measures. A family
// of measurements (the engine's loads, the cron expressions, others to come)
// is a package that returns []Workload; the harness runs every entry in a
// process of its own, repeats, summarizes and prints, and knows no more.
package row

import (
	"fmt"
	"strings"
	"time"
)

// A Mode says how much of the benchmark is run.
type Mode int

const (
	Smoke Mode = iota // everything starts and works; figures mean nothing
	Quick             // a first impression in minutes
	Full              // what is published
)

// ParseMode is the inverse of String.
func ParseMode(s string) (Mode, error) {
	for m := Smoke; m <= Full; m++ {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("bench: mode %q is none of smoke, quick, full", s)
}

func (m Mode) String() string { return [...]string{"smoke", "quick", "full"}[m] }

// Values are the figures of one run, by metric.
type Values map[Metric]float64

// An Outcome is what one child process found out.
type Outcome struct {
	Values Values   `json:"values,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Notef adds a remark that the report shows under the table.
func (o *Outcome) Notef(format string, args ...any) {
	o.Notes = append(o.Notes, fmt.Sprintf(format, args...))
}

// A Workload is one piece of work that several contenders are given.
type Workload struct {
	Name    string // in -only and in results: "steady-100k@1s"
	Title   string // heading of its table
	Group   string // workloads of one group stand together
	About   string // what is done and how to read it
	Columns []Metric
	Key     Metric // the metric that the column "x ours" compares
	Ours    string // the contender that the others are compared with
	Modes   []Mode // where it is run
	Entries []Entry
	// Reps is how often a core entry and another one are run in full mode;
	// zero means the usual. Figures that do not vary need fewer.
	Reps, OtherReps int
	// QuickAll runs every entry in quick mode, not only the core.
	QuickAll bool
	// Pivot puts all workloads of the group into one table: a line for each
	// workload, a column for each contender, showing Key.
	Pivot bool
}

// An Entry is one contender at one workload.
type Entry struct {
	Contender string
	Title     string
	// Skip, when not empty, says why this contender is not given this work.
	Skip string
	// Core entries are in the ratios that decide, so they are repeated more
	// often, and run in quick mode too.
	Core bool
	// Measure does the work. It runs in a process of its own.
	Measure func(Mode) (Outcome, error)
	// Takes estimates the wall clock time of Measure.
	Takes func(Mode) time.Duration
}

// In reports whether the workload is part of mode.
func (w *Workload) In(mode Mode) bool {
	for _, m := range w.Modes {
		if m == mode {
			return true
		}
	}
	return false
}

// ID is how -only and the results name the entry.
func (w *Workload) ID(e *Entry) string { return w.Name + "/" + e.Contender }

// Find returns the entry with that ID.
func Find(all []Workload, id string) (*Workload, *Entry, error) {
	name, contender, _ := strings.Cut(id, "/")
	for i := range all {
		w := &all[i]
		if w.Name != name {
			continue
		}
		for j := range w.Entries {
			if w.Entries[j].Contender == contender {
				return w, &w.Entries[j], nil
			}
		}
	}
	return nil, nil, fmt.Errorf("bench: there is no %q", id)
}
