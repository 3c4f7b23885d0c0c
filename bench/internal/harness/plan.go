// Package harness runs entries of workloads, each in a process of its own,
// several times over, and collects what they found.
package harness

import (
	"cmp"
	"regexp"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// A Step is one child process to run.
type Step struct {
	Workload *row.Workload
	Entry    *row.Entry
	Rep      int
}

// A Selection says which part of the benchmark to run.
type Selection struct {
	Mode row.Mode
	Only *regexp.Regexp       // nil, or matched with workload/contender
	Need map[result.Cell]bool // nil, or these alone
}

// startCost is a process from fork to measurement, and back.
const startCost = 60 * time.Millisecond

// The usual repetitions. Entries whose ratios decide are repeated more.
const (
	coreReps  = 4
	otherReps = 2
)

func repetitions(w *row.Workload, e *row.Entry, mode row.Mode) int {
	switch {
	case mode != row.Full:
		return 1
	case e.Core:
		return cmp.Or(w.Reps, coreReps)
	default:
		return cmp.Or(w.OtherReps, otherReps)
	}
}

// wanted reports whether the entry is to be run at all.
func (s Selection) wanted(w *row.Workload, e *row.Entry) bool {
	switch {
	case e.Skip != "" || !w.In(s.Mode):
		return false
	case s.Need != nil && !s.Need[result.Cell{Workload: w.Name, Contender: e.Contender}]:
		return false
	case s.Only != nil:
		return s.Only.MatchString(w.ID(e))
	default:
		return s.Need != nil || s.Mode != row.Quick || e.Core || w.QuickAll
	}
}

// Plan orders the steps: one repetition of everything, then the next, so that
// a bad spell of the machine spoils one repetition of each figure and not all
// of one figure. Within a repetition the contenders of a workload come right
// after each other, beginning with another one each time.
func (s Selection) Plan(all []row.Workload) []Step {
	var steps []Step
	for rep, more := 0, true; more; rep++ {
		more = false
		for i := range all {
			w := &all[i]
			n := len(w.Entries)
			for j := range n {
				e := &w.Entries[(j+rep)%n]
				if !s.wanted(w, e) {
					continue
				}
				if r := repetitions(w, e, s.Mode); rep < r {
					steps = append(steps, Step{w, e, rep})
					more = more || rep+1 < r
				}
			}
		}
	}
	return steps
}

// Estimate is how long the steps take.
func Estimate(steps []Step, mode row.Mode) time.Duration {
	var d time.Duration
	for _, s := range steps {
		d += startCost + s.Entry.Takes(mode)
	}
	return d
}
