// Package seam is the engine's one door to time. The root package walks
// through it with the real clock or a benbjohnson clock; the tasktest package
// puts its own fake clock behind it. Users never see it.
package seam

import (
	"context"
	"time"
)

// A Source is a clock with two hands: the wall clock, which people and
// administrators set, and a monotonic hand that only ever moves forward.
// All methods are safe for concurrent use.
type Source interface {
	// Now reads both hands at one moment. The monotonic hand counts
	// nanoseconds from an arbitrary start and is at least 1.
	Now() (wall time.Time, mono int64)
	// Mono reads the monotonic hand alone, at about half the price.
	Mono() int64
	// TwoHands tells whether the wall can move apart from the monotonic hand.
	TwoHands() bool
	// NewTimer returns a stopped timer that will call f on a goroutine of its own.
	NewTimer(f func()) Timer
}

// A Timer calls its function once, d from the last Reset.
type Timer interface {
	Reset(d time.Duration)
	Stop()
}

// A Settler is a Source whose time moves only when a test moves it. The engine
// tells it of every piece of work that goes on outside the timer's callback, so
// that moving time can wait until nothing is left to happen at this instant.
type Settler interface {
	Source
	// Busy counts pieces of work begun (+1) and ended (-1).
	Busy(delta int)
	// Settle returns when every piece of work begun has ended or is parked.
	Settle()
}

// A Stepper is a Source that tells when its wall clock is set, so that nobody needs to
// look for that each second.
type Stepper interface {
	Source
	// OnStep has f called after each time.
	OnStep(f func())
}

// An Inspector lets the tasktest package drive a manager that runs on a
// benbjohnson Mock, whose own moves are neither exact nor ordered.
type Inspector interface {
	// NextWake is the instant the engine wants to be woken at.
	NextWake() (time.Time, bool)
	// Drive makes the engine settle each run before it starts the next.
	Drive(on bool)
	// Settled waits for all that is due at this instant to have ended, or for
	// stop to close; it tells which.
	Settled(stop <-chan struct{}) bool
}

// A Host lets package durable work on a manager's time.
type Host interface {
	// Go calls f on a goroutine of its own. Under a Settler, one such f has ended
	// or is parked before the next is called.
	Go(f func())
	// Settles tells whether it is so: work that starts otherwise is not waited for.
	Settles() bool
	// Now reads both hands of the manager's clock.
	Now() (wall time.Time, mono int64)
	// Once prepares what the manager's RunOnce does.
	Once(name string, f func(context.Context) error) Once
	// Identity is that of the calling goroutine, which costs 3 µs to find out.
	Identity() uint64
}

// A Once is one call of a function by the manager's RunOnce.
type Once interface {
	// Context is the function's; the end of the manager ends it.
	Context() context.Context
	// End ends the context with that cause, or as that of a run that is over if it is
	// nil. The first cause counts.
	End(cause error)
	// Run makes the call, on the goroutine of that identity. Once only.
	Run(goid uint64) error
}

// RunKey is the key under which the context of a run holds the run's task.
type RunKey struct{}

// The root package fills these in when it is initialized.
var (
	// WithSource makes a taskmanager.Option of a Source.
	WithSource func(Source) any
	// Inspect gives the Inspector of a *taskmanager.TaskManager, nil if the
	// manager does not run on a Mock.
	Inspect func(manager any) Inspector
	// Exempt is the taskmanager.TaskOption of a task that the manager's limits and
	// default options are not for. It comes before the task's other options.
	Exempt any
	// HostOf gives the Host of a *taskmanager.TaskManager.
	HostOf func(manager any) Host
)
