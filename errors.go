package taskmanager

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Returned by calls on the manager and on handles.
var (
	// ErrClosed is returned by every call that would start work after Shutdown
	// or Close began, and is the cause of the contexts that Shutdown cancels.
	ErrClosed = errors.New("taskmanager: closed")
	// ErrStopped is returned by calls on a handle whose task has stopped or is
	// complete, and is the cause of the contexts that Stop cancels.
	ErrStopped = errors.New("taskmanager: task stopped")
	// ErrDuplicateName is wrapped by the error of scheduling under a name that a live
	// task has; its text gives the name.
	ErrDuplicateName = errors.New("taskmanager: duplicate task name")
	// ErrInvalidOption matches every *OptionError.
	ErrInvalidOption = errors.New("taskmanager: invalid option")
	// ErrAlreadyRunning is returned by RunNow if a run of the task waits its turn at a
	// limit, or, unless the task is reentrant, is in flight.
	ErrAlreadyRunning = errors.New("taskmanager: already running")
	// ErrLimitReached is returned by RunNow when a concurrency limit is full and
	// the task skips rather than waits.
	ErrLimitReached = errors.New("taskmanager: concurrency limit reached")
	// ErrOwnRun is returned by Wait when it is called from inside a run of the
	// task it would wait for.
	ErrOwnRun = errors.New("taskmanager: called from inside the task's own run")
)

// How a run or a task can end other than by the function's own error.
var (
	// ErrExecutionTimeout is wrapped by the error of a run that outlived its
	// ExecutionTimeout, and is the cause of that run's context.
	ErrExecutionTimeout = errors.New("taskmanager: execution timeout")
	// ErrGoexit is the error of a run whose function called runtime.Goexit.
	ErrGoexit = errors.New("taskmanager: task called runtime.Goexit")
	// ErrBackoffStop is the reason of a task that its own backoff policy ended.
	ErrBackoffStop = errors.New("taskmanager: backoff policy gave up")
	// ErrSchedule is wrapped by the reason of a task whose Schedule panicked,
	// blocked, or returned an instant that is not after its argument.
	ErrSchedule = errors.New("taskmanager: bad schedule")
)

// An OptionError says which option, or argument, of a call was refused, its
// value and why. Several are joined by errors.Join; errors.As finds the first.
type OptionError struct {
	Option string // as in the name of the With function, or of the argument
	Value  any
	Reason string
}

func (e *OptionError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("taskmanager: %s %q: %s", e.Option, s, e.Reason)
	}
	return fmt.Sprintf("taskmanager: %s %v: %s", e.Option, e.Value, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidOption) true.
func (e *OptionError) Is(target error) bool { return target == ErrInvalidOption }

// A PanicError is a panic of user code, as an error: of a task's function, a Schedule or
// a backoff policy.
type PanicError struct {
	Value any    // what recover returned
	Stack []byte // of the panicking goroutine, as runtime/debug.Stack gives it
}

func newPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

func (e *PanicError) Error() string { return "taskmanager: panic: " + guardedText(e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A ShutdownError says which runs did not end by themselves in the time that
// Shutdown was given.
type ShutdownError struct {
	// Cancelled ended after their context was cancelled.
	Cancelled []RunInfo
	// Abandoned ignored that; their goroutines are still there.
	Abandoned []RunInfo
}

// A RunInfo describes one run that Shutdown had to cut short.
type RunInfo struct {
	Name  string        // of the task
	Age   time.Duration // since the run's start, when it ended or was given up
	Stack string        // where its goroutine stands; empty for a run that ended
}

func (e *ShutdownError) Error() string {
	var b strings.Builder
	b.WriteString("taskmanager: shutdown:")
	list := func(what string, runs []RunInfo) {
		if len(runs) == 0 {
			return
		}
		fmt.Fprintf(&b, " %d %s (", len(runs), what)
		for i, r := range runs {
			if i == 5 {
				fmt.Fprintf(&b, ", and %d more", len(runs)-i)
				break
			}
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s after %v", r.Name, r.Age.Round(time.Millisecond))
		}
		b.WriteString(")")
	}
	list("cancelled", e.Cancelled)
	list("abandoned", e.Abandoned)
	return b.String()
}

// guardedText prints a value of the user's: its Error or String method may panic.
func guardedText(v any) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("(%T whose text panicked)", v)
		}
	}()
	if err, ok := v.(error); ok {
		return err.Error()
	}
	return fmt.Sprint(v)
}

// guardedIs is errors.Is for an error of the user's, whose methods may panic.
func guardedIs(err, target error) (is bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, target)
}
