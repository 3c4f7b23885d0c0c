package taskmanager

import (
	"errors"
	"strings"
	"sync"
	"time"
)

func (s *settings) refuse(option string, value any, reason string) {
	s.errs = append(s.errs, &OptionError{option, value, reason})
}

// newSettings puts a manager's options together and reports all that is wrong
// with them at once.
func newSettings(opts []Option) (settings, error) {
	s := defaultSettings()
	for _, o := range opts {
		if o == nil {
			s.refuse("Option", nil, "must not be nil")
			continue
		}
		o.applyManager(&s)
	}
	if s.clock == nil {
		s.refuse("Clock", nil, "must not be nil")
	}
	if s.logger == nil {
		s.refuse("Logger", nil, "must not be nil; slog.New(slog.DiscardHandler) is silent")
	}
	if s.backoffBase < 0 {
		s.refuse("BackoffBase", s.backoffBase, "must not be negative")
	}
	if s.maxPower < 0 {
		s.refuse("BackoffMaxPower", s.maxPower, "must not be negative")
	}
	if s.maxConcurrent < 0 {
		s.refuse("MaxConcurrentRuns", s.maxConcurrent, "must not be negative")
	}
	if s.grace < 0 {
		s.refuse("ShutdownGrace", s.grace, "must not be negative")
	}
	if s.slack < 0 {
		s.refuse("TimerSlack", s.slack, "must not be negative")
	}
	s.task = taskSettings{RecurringOptions: DefaultRecurringOptions()}
	s.errs = s.task.apply(s.errs, s.defaults)
	s.task.jitterGiven = false // a default of the manager's is for intervals
	if s.task.Backoff == nil {
		s.task.capGiven = false // so too, and gives way to a task's own policy
	}
	if _, err := newTaskSettings(&s.task, nil); err != nil {
		s.errs = append(s.errs, err)
	}
	return s, errors.Join(s.errs...)
}

// settingsPool spares a task an allocation: options are methods behind an
// interface, so what they set would escape.
var settingsPool = sync.Pool{New: func() any { return new(taskSettings) }}

// newTaskSettings puts a task's options together: the manager's defaults, then
// the call's own. They go back to settingsPool.
func newTaskSettings(defaults *taskSettings, own []TaskOption) (*taskSettings, error) {
	s := settingsPool.Get().(*taskSettings)
	*s = *defaults
	errs := s.check(s.apply(nil, own))
	if s.Jitter < 0 {
		s.Jitter = 0
	}
	if s.Backoff != nil {
		s.BackoffCap = 0
	}
	return s, errors.Join(errs...)
}

func (s *taskSettings) apply(errs []error, opts []TaskOption) []error {
	for _, o := range opts {
		if o == nil {
			errs = append(errs, &OptionError{"TaskOption", nil, "must not be nil"})
			continue
		}
		o.applyTask(s)
	}
	return errs
}

// check adds what is wrong with a task's options, by themselves and together.
func (s *taskSettings) check(errs []error) []error {
	refuse := func(option string, value any, reason string) {
		errs = append(errs, &OptionError{option, value, reason})
	}
	if s.ExecutionTimeout < 0 {
		refuse("ExecutionTimeout", s.ExecutionTimeout, "must not be negative; 0 is none")
	}
	if s.FailuresBeforeBackoff < 1 {
		refuse("FailuresBeforeBackoff", s.FailuresBeforeBackoff, "must be at least 1; begin with DefaultRecurringOptions()")
	}
	if s.BackoffCap < 0 {
		refuse("BackoffCap", s.BackoffCap, "must not be negative; 0 is no delay")
	}
	if s.Backoff != nil && s.capGiven {
		refuse("BackoffCap", s.BackoffCap, "has no meaning beside a Backoff policy of your own")
	}
	if s.Overlap.kind == overlapCatchUp && s.Overlap.bound < 1 {
		refuse("Overlap", s.Overlap, "must catch up with at least 1")
	}
	if s.Overlap.kind != overlapSkip {
		if !s.NonReentrant {
			refuse("Overlap", s.Overlap, "is for tasks whose runs do not overlap, but NonReentrant is false")
		}
		if s.FixedDelay {
			refuse("Overlap", s.Overlap, "has no meaning with FixedDelay: no tick can come during a run")
		}
	}
	if s.FixedDelay && !s.NonReentrant {
		refuse("FixedDelay", true, "has no meaning when NonReentrant is false")
	}
	if !s.StartAt.IsZero() && !s.EndAt.IsZero() && s.EndAt.Before(s.StartAt) {
		refuse("EndAt", s.EndAt, "is before StartAt "+s.StartAt.Format(time.RFC3339Nano))
	}
	return errs
}

// checkTask refuses the arguments that every kind of task has.
func checkTask(name string, noFunc bool) error {
	var errs []error
	if strings.TrimSpace(name) == "" {
		errs = append(errs, &OptionError{"name", name, "must not be empty or blank"})
	}
	if noFunc {
		errs = append(errs, &OptionError{"fn", nil, "must not be nil"})
	}
	return errors.Join(errs...)
}
