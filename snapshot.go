package taskmanager

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A State is where a task stands.
type State uint8

const (
	Scheduled  State = iota // waits for its next tick
	Running                 // a run is in flight
	Paused                  // no tick runs until Resume
	BackingOff              // waits after failures
	Stopped                 // over: by Stop, Shutdown or a reason that Err gives
	Complete                // over: the last run has ended, or no instant is left
)

var stateNames = [...]string{"scheduled", "running", "paused", "backing off", "stopped", "complete"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", s)
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames[:], string(text))
	if i < 0 {
		return &OptionError{"State", string(text), "is none of " + strings.Join(stateNames[:], ", ")}
	}
	*s = State(i)
	return nil
}

// A Snapshot is all that can be known of a task at one moment, consistent with
// itself: Runs is Successes + Failures + Cancelled + InFlight, and the ledger adds
// up. Times are zero where there is nothing to tell.
type Snapshot struct {
	Name     string `json:"name"`
	Tag      string `json:"tag,omitempty"`
	Schedule string `json:"schedule"` // "every 30s", "30s after each run", or the Schedule's text
	State    State  `json:"state"`

	Runs                uint64 `json:"runs"` // started, by ticks and by RunNow
	Successes           uint64 `json:"successes"`
	Failures            uint64 `json:"failures"` // Timeouts and Panics included
	Cancelled           uint64 `json:"cancelled"`
	Timeouts            uint64 `json:"timeouts"`
	Panics              uint64 `json:"panics"`
	ConsecutiveFailures int    `json:"consecutiveFailures"`
	InFlight            int    `json:"inFlight"`
	// Overdue tells that a run goes on although its time limit has passed.
	Overdue bool `json:"overdue"`

	Ticks Ledger `json:"ticks"`
	// Gaps counts the stretches that the schedule was not asked about, after a
	// pause, a late wake-up or a step of the clock; GapFrom and GapTo are the last.
	Gaps    uint64    `json:"gaps"`
	GapFrom time.Time `json:"gapFrom,omitzero"`
	GapTo   time.Time `json:"gapTo,omitzero"`

	LastRun      time.Time     `json:"lastRun,omitzero"` // its start
	LastDuration time.Duration `json:"lastDuration"`     // of the last run that has ended
	LastError    error         `json:"-"`                // of the last run that failed
	LastErrorAt  time.Time     `json:"lastErrorAt,omitzero"`
	NextRun      time.Time     `json:"nextRun,omitzero"` // backoff included
	Lateness     Distribution  `json:"lateness"`         // of starts
	Duration     Distribution  `json:"duration"`         // of runs
	Err          error         `json:"-"`                // why it is over, as Handle.Err
}

// Snapshot returns the task as it stands.
func (t *Handle) Snapshot() Snapshot {
	s, r := t.look()
	s.Schedule = r.text() // user code
	return s
}

// look is a Snapshot but for the text of its schedule.
func (t *task) look() (Snapshot, rhythm) {
	now := t.conf.m.engine.hands()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshotLocked(now), t.rhythm()
}

// glance reads one thing of a task, which is cheap where a Snapshot, with its two
// distributions, is not.
func glance[T any](t *task, read func(t *task, now hands) T) T {
	now := t.conf.m.engine.hands()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account(now.mono)
	return read(t, now)
}

func (t *task) snapshotLocked(now hands) Snapshot {
	t.account(now.mono)
	c := t.counts()
	s := Snapshot{
		Name:         t.name,
		Tag:          t.conf.opts.Tag,
		State:        t.state(now.mono),
		Runs:         t.starts(),
		Successes:    t.successes,
		Failures:     c.failures,
		Cancelled:    c.cancelled,
		Timeouts:     c.timeouts,
		Panics:       c.panics,
		InFlight:     int(t.inFlight()),
		Overdue:      t.overdue(now.mono),
		Ticks:        t.ledger(),
		Gaps:         c.gaps,
		LastRun:      now.at(t.lastStart()),
		LastDuration: t.lastLasted,
		NextRun:      t.nextRun(now),
		Err:          t.err(),
	}
	s.Lateness, s.Duration = t.distributions()
	s.ConsecutiveFailures, s.LastError = t.troubles()
	if x := t.extra; x != nil {
		s.LastErrorAt = now.at(x.lastErrAt)
		if x.seat != nil {
			s.GapFrom, s.GapTo = x.seat.gapFrom, x.seat.gapTo
		}
	}
	return s
}

func (t *task) distributions() (lateness, duration Distribution) {
	c := t.counts()
	return t.profile.distributions(t.successes + c.failures + c.cancelled)
}

// troubles are the failures in a row, and the error of the last run that failed.
func (t *task) troubles() (streak int, last error) {
	if t.extra == nil {
		return 0, nil
	}
	return t.extra.streak, t.extra.lastErr
}

// lastStart is the instant at which the last run began, 0 before the first.
func (t *task) lastStart() int64 {
	if t.extra == nil {
		return t.run.started
	}
	return max(t.run.started, t.extra.othersStarted)
}

func (t *task) state(now int64) State {
	switch {
	case t.inFlight() > 0:
		return Running
	case t.life == stopped:
		return Stopped
	case t.life == complete:
		return Complete
	case t.paused:
		return Paused
	case t.floor() > now:
		return BackingOff
	}
	return Scheduled
}

// overdue tells whether a run goes on although its time is over.
func (t *task) overdue(now int64) (is bool) {
	limit := t.conf.limit
	t.eachRun(func(r *run) {
		is = is || limit > 0 && r.stage == running && r.started+limit <= now
	})
	return is
}

// nextRun is nextStart on the wall clock, which has instants that the other hand cannot
// count to. A schedule's own instant is what it has said, to the nanosecond.
func (t *task) nextRun(now hands) time.Time {
	next := t.nextStart(now.mono)
	s := t.seatOf()
	switch {
	case next == never:
		return time.Time{}
	case s != nil && (next == t.origin && !s.delay || next == never-1):
		return s.at.Add(s.shift)
	case next == never-1:
		return time.Time{}
	}
	return now.at(next)
}

// nextStart is the instant of the next start, as far as it is known; never if none
// is.
func (t *task) nextStart(now int64) int64 {
	if t.life != live || t.paused || t.spentRuns() {
		return never
	}
	due := t.nextDue()
	switch {
	case t.waits():
		return never // when its turn comes
	case (t.holding() || t.delayed() && now >= t.begins()) && t.blocked():
		return never // when the run ends
	case t.holding():
		return t.floor()
	case due == never:
		return never
	case t.floor() <= due:
		return due
	}
	return t.floor() // the ticks before it are held for it
}

// A rhythm is what says when a task is due, for its text.
type rhythm struct {
	seat     *seat // nil for an interval
	interval int64 // in nanoseconds
	delay    bool  // it counts from the end of a run
}

func (t *task) rhythm() rhythm { return rhythm{t.seatOf(), t.interval, t.single} }

func (r rhythm) text() string {
	switch interval := time.Duration(r.interval).String(); {
	case r.seat != nil:
		return guardedText(r.seat.schedule)
	case r.delay:
		return interval + " after each run"
	default:
		return "every " + interval
	}
}

func (t *task) err() error {
	if t.life != stopped {
		return nil
	}
	if t.extra == nil || t.extra.reason == nil {
		return ErrStopped
	}
	if t.extra.reason == ErrClosed {
		return ErrClosed
	}
	return &stopError{t.extra.reason}
}

// A stopError is the reason of a task that was stopped for one.
type stopError struct{ reason error }

func (e *stopError) Error() string   { return ErrStopped.Error() + ": " + guardedText(e.reason) }
func (e *stopError) Unwrap() []error { return []error{ErrStopped, e.reason} }

// State is where the task stands.
func (t *Handle) State() State {
	return glance(t, func(t *task, now hands) State { return t.state(now.mono) })
}

// IsRunning tells whether a run is in flight.
func (t *Handle) IsRunning() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inFlight() > 0
}

// NextRun is the instant of the next start, backoff included; the zero Time if
// none is known.
func (t *Handle) NextRun() time.Time {
	return glance(t, func(t *task, now hands) time.Time { return t.nextRun(now) })
}

// LastRun is the start of the last run, the zero Time before the first.
func (t *Handle) LastRun() time.Time {
	return glance(t, func(t *task, now hands) time.Time { return now.at(t.lastStart()) })
}

// LastDuration is how long the last run took that has ended.
func (t *Handle) LastDuration() time.Duration {
	return glance(t, func(t *task, _ hands) time.Duration { return t.lastLasted })
}

// LastError is the error of the last run that failed, nil if none has.
func (t *Handle) LastError() error {
	return glance(t, func(t *task, _ hands) error {
		_, last := t.troubles()
		return last
	})
}

// TotalRuns is the number of runs that have started.
func (t *Handle) TotalRuns() uint64 {
	return glance(t, func(t *task, _ hands) uint64 { return t.starts() })
}

// Successes is the number of runs that returned nil in time.
func (t *Handle) Successes() uint64 {
	return glance(t, func(t *task, _ hands) uint64 { return t.successes })
}

// Failures is the number of runs that failed; time-outs and panics are among them.
func (t *Handle) Failures() uint64 {
	return glance(t, func(t *task, _ hands) uint64 { return t.counts().failures })
}

// Timeouts is the number of runs that outlived their ExecutionTimeout.
func (t *Handle) Timeouts() uint64 {
	return glance(t, func(t *task, _ hands) uint64 { return t.counts().timeouts })
}

// Panics is the number of runs that panicked.
func (t *Handle) Panics() uint64 {
	return glance(t, func(t *task, _ hands) uint64 { return t.counts().panics })
}

// ConsecutiveFailures is the number of failures since the last success.
func (t *Handle) ConsecutiveFailures() int {
	return glance(t, func(t *task, _ hands) int {
		streak, _ := t.troubles()
		return streak
	})
}

// Ticks is what became of the task's ticks so far.
func (t *Handle) Ticks() Ledger {
	return glance(t, func(t *task, _ hands) Ledger { return t.ledger() })
}

// Lateness is the distribution of how late runs started.
func (t *Handle) Lateness() Distribution {
	return glance(t, func(t *task, _ hands) Distribution {
		lateness, _ := t.distributions()
		return lateness
	})
}

// Duration is the distribution of how long runs took.
func (t *Handle) Duration() Distribution {
	return glance(t, func(t *task, _ hands) Distribution {
		_, duration := t.distributions()
		return duration
	})
}
