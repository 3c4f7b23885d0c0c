// Package contender puts every scheduler under test behind one small
// interface. Each is used as its own documentation says, in the way that is
// best for it where there is a choice; its file says what was chosen and why.
package contender

import (
	"context"
	"fmt"
	"time"
)

// A Job is one recurring task. Its instants are First, First+Interval, and so
// on; First carries a monotonic reading.
type Job struct {
	Index    int
	Name     string // set for contenders that are Named
	First    time.Time
	Interval time.Duration
	Run      func()
	// RunContext does the same as Run, ready made for contenders whose tasks
	// take a context, so that none pays for a closure the others do not need.
	RunContext func(context.Context) error
	// Rebase, when not nil, tells the benchmark that the contender's grid is
	// really at, at+Interval, ... Only for grids that cannot be placed.
	Rebase func(at time.Time)
}

// Setup is what a contender may know before the first job.
type Setup struct {
	Jobs int // how many will be added at most; indexes are below it
	// Timeout, when positive, is to be put on every run. Contenders without
	// such a thing refuse it.
	Timeout time.Duration
	// Aligned says that all jobs are due at the same instants.
	Aligned bool
}

// A Scheduler is one contender at work. Jobs are added before or after Start.
type Scheduler interface {
	Add(Job) error
	Start()
	Stop(index int) error // the job with that index
	Close()
}

// A Contender describes a scheduler before it is opened.
type Contender struct {
	Name   string
	Title  string
	Module string // whose version the results show
	Named  bool   // its jobs need a name; the name then counts as its memory
	// What one Add, one Add while running, and one run roughly take, to plan
	// the time of a measurement by. Zero is too little to matter.
	AddCost, LateAddCost, RunCost time.Duration
	Open                          func(Setup) (Scheduler, error)
}

// All returns the contenders in the order of the tables.
func All() []Contender {
	return []Contender{
		ours, oursPrecise, afterFunc, ticker, robfig, netresearch, gocronV2, quartzStd, goZero,
	}
}

// Get returns the contender of that name.
func Get(name string) (Contender, error) {
	for _, c := range All() {
		if c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("bench: no contender %q", name)
}

func refuseTimeout(name string, s Setup) error {
	if s.Timeout > 0 {
		return fmt.Errorf("bench: %s has no time limit for runs", name)
	}
	return nil
}
