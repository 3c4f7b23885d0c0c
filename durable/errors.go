package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
)

// The causes with which the context of a run ends.
var (
	// ErrTimeout: the run took longer than its job's Timeout.
	ErrTimeout = errors.New("durable: run timed out")
	// ErrCancelled: somebody cancelled the run.
	ErrCancelled = errors.New("durable: run cancelled")
	// ErrStopping: the scheduler stops, and its ShutdownTimeout is over.
	ErrStopping = errors.New("durable: scheduler stopping")
	// ErrLeaseLost: the node is no longer the run's, or cannot be sure to be.
	ErrLeaseLost = errors.New("durable: lease lost")
)

// What calls return. Errors about a value are *FieldError.
var (
	// ErrInvalid matches every *FieldError.
	ErrInvalid = errors.New("durable: invalid")
	// ErrNotFound: there is no such job, trigger or run.
	ErrNotFound = errors.New("durable: not found")
	// ErrExists: there is a job or trigger of that name.
	ErrExists = errors.New("durable: exists already")
	// ErrConflict: the job runs, and does not allow concurrency.
	ErrConflict = errors.New("durable: the job is running")
	// ErrStarted: too late for what is done before Start.
	ErrStarted = errors.New("durable: the scheduler has started")
	// ErrStopped: the scheduler has stopped, or has not started. Of Wait, TriggerAndWait,
	// Start and Run.
	ErrStopped = errors.New("durable: the scheduler is not running")
	// ErrNodeDead: the store holds the node for dead. Stores return it from Claim.
	ErrNodeDead = errors.New("durable: node is dead or unknown to the store")
)

// A FieldError says which field of what was given is wrong, and why. Several are
// joined with errors.Join; errors.Is(err, ErrInvalid) holds for each.
type FieldError struct {
	Field  string // as in "Triggers[0].Schedule"
	Value  any
	Reason string
	Err    error // what is behind it, or nil
}

func (e *FieldError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("durable: %s %q: %s", e.Field, cut(s, 80), e.Reason)
	}
	return fmt.Sprintf("durable: %s %v: %s", e.Field, e.Value, e.Reason)
}

// Is tells that target is ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// Unwrap gives what is behind the error.
func (e *FieldError) Unwrap() error { return e.Err }

// A check collects what is wrong.
type check struct{ errs []error }

func (c *check) fail(field string, value any, reason string) {
	c.errs = append(c.errs, &FieldError{Field: field, Value: value, Reason: reason})
}

func (c *check) failFor(field string, value any, err error) {
	c.errs = append(c.errs, &FieldError{Field: field, Value: value, Reason: err.Error(), Err: err})
}

func (c *check) err() error { return errors.Join(c.errs...) }

// A Code classifies the error of a run.
type Code string

// The codes.
const (
	CodeNone        Code = ""
	CodeValidation  Code = "validation" // the data does not fit the handler
	CodeConflict    Code = "conflict"   // the job was running already
	CodeMisfire     Code = "misfire"    // passed over by a misfire policy
	CodeTimeout     Code = "timeout"
	CodePanic       Code = "panic"
	CodeError       Code = "error"
	CodeLost        Code = "lost"
	CodeCancelled   Code = "cancelled"
	CodeInterrupted Code = "interrupted"
)

// Permanent wraps err so that the run fails and is not retried, whatever the job's
// Retry says. backoff.Permanent of github.com/cenkalti/backoff/v4 does the same.
func Permanent(err error) error { return backoff.Permanent(err) }

func permanent(err error) bool {
	var p *backoff.PermanentError
	return errors.As(err, &p)
}

// RetryAfter is an error that fails the run and chooses when its retry is due, d after
// the end of the run, if the job's Retry grants one. Join it with what went wrong:
// errors.Join(err, durable.RetryAfter(d)). A d below 0 is 0.
func RetryAfter(d time.Duration) error { return &retryAfterError{max(0, d)} }

type retryAfterError struct{ delay time.Duration }

func (e *retryAfterError) Error() string { return fmt.Sprintf("durable: retry after %v", e.delay) }

// Snooze is an error that ends the run as snoozed, and has it run again d later with
// the same Attempt. A d below 0 is 0.
func Snooze(d time.Duration) error { return &snoozeError{max(0, d)} }

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("durable: snoozed for %v", e.delay) }

// panicOf is the panic of a handler whose error this is, with whatever value; nil if it
// did not panic.
func panicOf(err error) (p *taskmanager.PanicError) {
	errors.As(err, &p)
	return p
}
