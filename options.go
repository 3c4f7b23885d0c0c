package taskmanager

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// Defaults of RecurringOptions.
const (
	DefaultJitter     = 250 * time.Millisecond
	DefaultBackoffCap = 15 * time.Second
)

// RecurringOptions are all the options of a task as one value. It is itself a
// TaskOption that sets them all, so options can come from a configuration file
// (its JSON form has durations as text, "1m30s"); and it is what Handle.Options
// returns. Each field is what the With function of its name sets, with the same unit
// and zero value. Start from DefaultRecurringOptions: the zero value lets runs overlap
// and is refused for its FailuresBeforeBackoff of 0.
type RecurringOptions struct {
	Tag                   string                 `json:"tag,omitempty"`
	NonReentrant          bool                   `json:"nonReentrant"`
	Overlap               OverlapPolicy          `json:"overlap"`
	Jitter                time.Duration          `json:"jitter"`
	ExecutionTimeout      time.Duration          `json:"executionTimeout"`
	FailuresBeforeBackoff int                    `json:"failuresBeforeBackoff"`
	BackoffCap            time.Duration          `json:"backoffCap"`
	Backoff               func() backoff.BackOff `json:"-"`
	MaxRuns               uint64                 `json:"maxRuns"`
	StartAt               time.Time              `json:"startAt,omitzero"`
	EndAt                 time.Time              `json:"endAt,omitzero"`
	Immediately           bool                   `json:"immediately"`
	FixedDelay            bool                   `json:"fixedDelay"`
	Paused                bool                   `json:"paused"`
	Precise               bool                   `json:"precise"`
	SkipOverLimit         bool                   `json:"skipOverLimit"`
}

// DefaultRecurringOptions returns what a task has when no option is given.
func DefaultRecurringOptions() RecurringOptions {
	return RecurringOptions{
		NonReentrant:          true,
		Jitter:                DefaultJitter,
		FailuresBeforeBackoff: 1,
		BackoffCap:            DefaultBackoffCap,
	}
}

// A TaskOption configures one task. The set is closed: the With functions that
// return one, and RecurringOptions.
type TaskOption interface{ applyTask(*taskSettings) }

// taskSettings are the options of a task while they are being put together.
type taskSettings struct {
	RecurringOptions
	// What the call itself asked for, as opposed to defaults: some options may
	// not stand beside others, and a default must not count as a wish.
	jitterGiven, capGiven bool
	exempt                bool // from the manager's limits: see seam.Exempt
}

type taskOptionFunc func(*taskSettings)

func (f taskOptionFunc) applyTask(s *taskSettings) { f(s) }

func (o RecurringOptions) applyTask(s *taskSettings) {
	s.RecurringOptions = o
	s.jitterGiven = o.Jitter != DefaultJitter
	s.capGiven = o.BackoffCap != DefaultBackoffCap && (o.Backoff == nil || o.BackoffCap != 0)
}

// WithTag labels the task for grouping in reports, logs, metrics and limits.
// Default "": none.
func WithTag(tag string) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Tag = tag })
}

// WithNonReentrant says whether a tick that comes while the previous run goes on
// is kept from starting a second one. Default true: then each run happens before
// the next, in the sense of the memory model, whatever goroutines they are on, so
// that what only the task touches needs no lock. With false, runs may overlap, each
// on a goroutine of its own.
func WithNonReentrant(on bool) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.NonReentrant = on })
}

// WithOverlap says what a tick becomes that comes while the previous run of a
// non-reentrant task goes on: Skip, Coalesce or CatchUp(n). Default Skip.
func WithOverlap(p OverlapPolicy) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Overlap = p })
}

// WithJitter delays the first tick of an interval task, and with it the whole
// grid, by a duration uniform in [0, d) from crypto/rand, so that processes
// started together do not act together. 0 or less: none. Default 250 ms. On a
// wall-clock schedule there is none unless this option is given; then every
// start is late by one fixed offset, drawn once. (A RecurringOptions whose
// Jitter is the default does not count as given.)
func WithJitter(d time.Duration) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Jitter, s.jitterGiven = d, true })
}

// WithExecutionTimeout limits every run: when d has passed, the run's context
// ends with context.DeadlineExceeded and cause ErrExecutionTimeout, and the run
// counts as a failure even if its function returns nil later. Default 0: none.
func WithExecutionTimeout(d time.Duration) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.ExecutionTimeout = d })
}

// WithFailuresBeforeBackoff sets from which consecutive failure on backoff
// delays the next run. Default 1: from the first.
func WithFailuresBeforeBackoff(n int) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.FailuresBeforeBackoff = n })
}

// WithBackoffCap bounds the backoff delay. Default 15 s; 0: no delay.
func WithBackoffCap(d time.Duration) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.BackoffCap, s.capGiven = d, true })
}

// WithBackoff replaces the engine's backoff by a policy of your own. newPolicy
// is called at the first backed-off failure of each streak of failures, its
// policy Reset, and dropped at the next success, so that a policy with a limit on elapsed
// time does not die of old age. When the policy returns backoff.Stop, the task
// stops with ErrBackoffStop. Default nil: the engine's own. Together with
// WithBackoffCap it is an error.
func WithBackoff(newPolicy func() backoff.BackOff) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Backoff = newPolicy })
}

// WithMaxRuns completes the task after n runs, failures and RunNow included.
// A schedule with a number of runs of its own ends with the smaller. Default 0:
// without end.
func WithMaxRuns(n uint64) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.MaxRuns = n })
}

// WithStartAt starts the task's grid at t instead of now, if t is later: an
// interval task's first tick is at t + jitter + interval (at t + jitter with
// WithImmediately), and a schedule gives nothing before t. A monotonic clock
// reading in t is honoured. Default: the zero Time, now.
func WithStartAt(t time.Time) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.StartAt = t })
}

// WithEndAt completes the task after the last tick that is not after t. (Its run may
// be, if it is late.)
// Default: the zero Time, without end.
func WithEndAt(t time.Time) TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.EndAt = t })
}

// WithImmediately gives an interval task a tick at the start of its grid
// (start + jitter) instead of one interval later. Default false.
func WithImmediately() TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Immediately = true })
}

// WithFixedDelay counts the interval from the end of each run to the start of
// the next, instead of keeping a fixed rate. Default false.
func WithFixedDelay() TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.FixedDelay = true })
}

// WithPaused schedules the task without starting it: Handle.Resume does. The grid begins
// at the call all the same: what is due before Resume is skipped, the tick of
// WithImmediately too (Handle.RunNow gives a run at once). Default false.
func WithPaused() TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Paused = true })
}

// WithPrecise makes starts far less late than Go's timers do, for game loops: a
// goroutine of the task's own sleeps most of the way on a kernel timer and ends
// with a short, bounded spin. For few tasks. It needs Linux and the real clock;
// elsewhere, or if the clock does not move across the spin, the task has normal
// timing. Default false.
func WithPrecise() TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.Precise = true })
}

// WithSkipOverLimit makes a tick that finds a concurrency limit reached be
// skipped, instead of waiting for its turn. Default false.
func WithSkipOverLimit() TaskOption {
	return taskOptionFunc(func(s *taskSettings) { s.SkipOverLimit = true })
}

// An Option configures a TaskManager. The set is closed.
type Option interface{ applyManager(*settings) }

// settings are the options of a manager while they are being put together.
type settings struct {
	clock         clock.Clock
	source        seam.Source // from a test package, in place of clock
	logger        *slog.Logger
	observer      Observer
	backoffBase   time.Duration
	maxPower      int
	maxConcurrent int
	tagLimits     map[string]int
	defaults      []TaskOption
	task          taskSettings // the defaults put together
	grace         time.Duration
	slack         time.Duration
	errs          []error
}

func defaultSettings() settings {
	return settings{
		clock:       clock.New(),
		logger:      slog.Default(),
		backoffBase: time.Second,
		maxPower:    5,
		grace:       time.Second,
	}
}

type optionFunc func(*settings)

func (f optionFunc) applyManager(s *settings) { f(s) }

// WithClock sets the clock that everything goes by. Default: the real one. With
// a clock.Mock, package tasktest has the moves that are exact.
func WithClock(c clock.Clock) Option {
	return optionFunc(func(s *settings) { s.clock = c })
}

// WithLogger sets where changes of health are logged, one line each, among them the
// first panic of each streak of failures. Default slog.Default(). For silence: slog.New(slog.DiscardHandler).
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(s *settings) { s.logger = l })
}

// WithObserver has o told of every Event. Default nil: none.
func WithObserver(o Observer) Option {
	return optionFunc(func(s *settings) { s.observer = o })
}

// WithBackoffBase sets the ceiling of the first backoff delay. Default 1 s; 0:
// no delay.
func WithBackoffBase(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.backoffBase = d })
}

// WithBackoffMaxPower sets how often that ceiling doubles at most; 0: never. A negative
// one is refused. Default 5.
func WithBackoffMaxPower(n int) Option {
	return optionFunc(func(s *settings) { s.maxPower = n })
}

// WithMaxConcurrentRuns lets at most n runs of the manager's tasks go on at
// once; ticks over it wait in order of due time. Default 0: no limit.
func WithMaxConcurrentRuns(n int) Option {
	return optionFunc(func(s *settings) { s.maxConcurrent = n })
}

// WithTagLimit lets at most n runs of the tasks with this tag go on at once; of the
// tag "", those of tasks without one. Given again for the same tag, the last one counts.
// Default: no limit.
func WithTagLimit(tag string, n int) Option {
	return optionFunc(func(s *settings) {
		if n < 1 {
			s.refuse("TagLimit", n, fmt.Sprintf("the limit of tag %q must be at least 1", tag))
			return
		}
		if s.tagLimits == nil {
			s.tagLimits = map[string]int{}
		}
		s.tagLimits[tag] = n
	})
}

// WithDefaultTaskOptions applies opts to every task before the task's own; those that are
// for intervals (WithJitter, WithImmediately, WithFixedDelay) not to tasks with a Schedule,
// and those on runs that overlap (WithOverlap, WithNonReentrant) not to ones whose Schedule
// is a fixed delay.
// Default none.
func WithDefaultTaskOptions(opts ...TaskOption) Option {
	return optionFunc(func(s *settings) { s.defaults = append(s.defaults, opts...) })
}

// WithShutdownGrace sets how long Shutdown waits for runs after it has
// cancelled their contexts; 0: not at all, and a negative one is refused. Default 1 s.
func WithShutdownGrace(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.grace = d })
}

// WithTimerSlack sets the minimum spacing of the engine's wake-ups. A few
// milliseconds trade that much lateness for a good part of the CPU when many
// thousand ticks fall due each second. It is for the real clock. Default 0: none.
func WithTimerSlack(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.slack = d })
}
