package engine

import (
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// skips say who is not given a work, and why.
type skips map[string]string

// A load is a workload before it is multiplied by the contenders. Exactly one
// of steady, idle and churn is set.
type load struct {
	name, title, group, about string

	modes   []row.Mode
	columns []row.Metric // none: those of a steady load
	key     row.Metric
	skips   skips
	core    []string
	others  int      // repetitions of those not in core, 0 for the usual
	brief   []string // contenders watched for a third of the time, see below
	all     bool     // in quick mode too every contender is run, not only core

	steady steady
	idle   idle
	churn  churn
}

func (l load) workload() row.Workload {
	w := row.Workload{
		Name: l.name, Title: l.title, Group: l.group, About: l.about, Modes: l.modes,
		Columns: l.columns, Key: l.key, Ours: "ours", QuickAll: l.all, OtherReps: l.others,
	}
	if l.idle.jobs > 0 { // memory hardly varies
		w.Reps, w.OtherReps = 2, 1
	}
	if w.Columns == nil {
		w.Columns, w.Key = lateness, row.CPUPerTick
	}
	for _, c := range contender.All() {
		w.Entries = append(w.Entries, row.Entry{
			Contender: c.Name, Title: c.Title, Skip: l.skips[c.Name],
			Core:    slices.Contains(l.core, c.Name),
			Measure: func(mode row.Mode) (row.Outcome, error) { return l.measure(c, l.shorter(c, mode)) },
			Takes:   func(mode row.Mode) time.Duration { return l.takes(c, l.shorter(c, mode)) },
		})
	}
	return w
}

// shorter is the mode in which c is watched. Where a contender starts a
// goroutine for each run and cannot keep up, the goroutines pile up for as
// long as it is watched, gigabytes in a full window.
func (l load) shorter(c contender.Contender, mode row.Mode) row.Mode {
	if mode == row.Full && slices.Contains(l.brief, c.Name) {
		return row.Quick
	}
	return mode
}

func (l load) measure(c contender.Contender, mode row.Mode) (row.Outcome, error) {
	switch {
	case l.idle.jobs > 0:
		return l.idle.measure(c, mode)
	case l.churn.jobs > 0:
		return l.churn.measure(c, mode)
	default:
		return l.steady.measure(c, mode)
	}
}

func (l load) takes(c contender.Contender, mode row.Mode) time.Duration {
	switch {
	case l.idle.jobs > 0:
		return l.idle.takes(c, mode)
	case l.churn.jobs > 0:
		return l.churn.takes(c, mode)
	default:
		return l.steady.takes(c, mode)
	}
}
