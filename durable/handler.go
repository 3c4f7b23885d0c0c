package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// A Run is one execution attempt as its handler sees it.
type Run struct {
	ID      string // also the correlation ID in logs
	Job     string
	Trigger string // empty by hand
	Kind    Kind
	// ScheduledAt is the instant that the run is for: the same on every retry and
	// recovery of one firing.
	ScheduledAt time.Time
	Attempt     int    // from 1
	RetryOf     string // ID of the first run, if this one is a retry or recovery
	Node        string
	Data        json.RawMessage // merged of job, trigger and call; nil for none
	// IdempotencyKey is the same on every retry and recovery of one firing, and on
	// every node for the cron, once and broadcast firings of a job that runs on
	// every node, taken on time. At most 512 bytes.
	IdempotencyKey string
	// Fence is the run's fencing token: it rises strictly with each run of the job,
	// so that what the run writes to can refuse a writer whose time is over. Numbers
	// are left out, and two runs that two nodes claim at the same moment, of a job
	// that allows concurrency, may have theirs either way round. 0 for jobs that run
	// on every node.
	Fence int64
}

type runKey struct{}

// A runContext is the context of a run.
type runContext struct {
	context.Context // of the manager's, for a run of its own
	flight          *flight
}

func (c *runContext) Value(key any) any {
	if _, own := key.(runKey); own {
		return c.flight.run()
	}
	return c.Context.Value(key)
}

// RunFrom gives the run whose handler ctx comes from.
func RunFrom(ctx context.Context) (Run, bool) {
	r, ok := ctx.Value(runKey{}).(Run)
	return r, ok
}

// A Handler does a run. Its context ends, with ErrTimeout, ErrCancelled, ErrStopping
// or ErrLeaseLost as its cause, when it should come to an end. It may panic.
type Handler func(ctx context.Context, run Run) error

// A Middleware wraps the handler of every run: for tracing, tenants, transactions.
type Middleware func(next Handler) Handler

// A HandlerOption describes a handler.
type HandlerOption interface{ applyHandler(*HandlerInfo) }

type handlerOption func(*HandlerInfo)

func (f handlerOption) applyHandler(h *HandlerInfo) { f(h) }

// Describe says what the handler does, for people.
func Describe(text string) HandlerOption {
	return handlerOption(func(h *HandlerInfo) { h.Description = text })
}

// SampleSchedule is a schedule that suits the handler, in the grammar of package
// cronsched.
func SampleSchedule(text string) HandlerOption {
	return handlerOption(func(h *HandlerInfo) { h.SampleSchedule = text })
}

// A HandlerInfo is an entry of the registry.
type HandlerInfo struct {
	Name           string
	Description    string
	SampleSchedule string
}

// Handle registers fn as the handler of that name. The run's data is decoded into
// args; data that does not fit fails the run with CodeValidation. It is an error if
// the name is not in the grammar of ValidName or taken, fn is nil, a sample schedule
// is none, or the scheduler has started: a node must not claim before it knows what
// it can run.
func Handle[T any](s *Scheduler, name string, fn func(ctx context.Context, run Run, args T) error, opts ...HandlerOption) error {
	if fn == nil {
		return s.registry.add(name, nil, opts)
	}
	return s.registry.add(name, func(ctx context.Context, run Run) error {
		var args T
		if len(run.Data) > 0 {
			if err := json.Unmarshal(run.Data, &args); err != nil {
				return &dataError{fmt.Errorf("durable: data does not fit handler %q: %w", name, err)}
			}
		}
		return fn(ctx, run, args)
	}, opts)
}

// A dataError is of data that a handler cannot take.
type dataError struct{ err error }

func (e *dataError) Error() string { return e.err.Error() }
func (e *dataError) Unwrap() error { return e.err }

// A registry has what a node knows: handlers, calendars and middleware.
type registry struct {
	mu        sync.RWMutex
	sealed    bool // by Start: nothing can be added any more
	handlers  map[string]Handler
	infos     []HandlerInfo
	wraps     []Middleware
	calendars map[string]cronsched.Calendar
	schedules map[string]cronsched.Schedule // parsed and resolved, by text
	wrapped   map[string]Handler            // with middleware, made by seal
}

var errSealed = fmt.Errorf("%w: register handlers, calendars and middleware before Start", ErrStarted)

func newRegistry() *registry {
	return &registry{handlers: map[string]Handler{}, calendars: map[string]cronsched.Calendar{}, schedules: map[string]cronsched.Schedule{}}
}

func (r *registry) add(name string, h Handler, opts []HandlerOption) error {
	info := HandlerInfo{Name: name}
	for _, o := range opts {
		if o != nil {
			o.applyHandler(&info)
		}
	}
	var c check
	c.name("Handler", name)
	if h == nil {
		c.fail("Handler", name, "must not be nil")
	}
	if info.SampleSchedule != "" {
		if _, err := cronsched.Parse(info.SampleSchedule); err != nil {
			c.failFor("SampleSchedule", info.SampleSchedule, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.handlers[name]; twice {
		c.failFor("Handler", name, ErrExists)
	}
	if r.sealed {
		c.failFor("Handler", name, errSealed)
	}
	if err := c.err(); err != nil {
		return err
	}
	r.handlers[name] = h
	r.infos = append(r.infos, info)
	return nil
}

func (r *registry) addCalendar(name string, cal cronsched.Calendar) error {
	var c check
	c.name("Calendar", name)
	if cal == nil {
		c.fail("Calendar", name, "must not be nil")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.calendars[name]; twice {
		c.failFor("Calendar", name, ErrExists)
	}
	if r.sealed {
		c.failFor("Calendar", name, errSealed)
	}
	if err := c.err(); err != nil {
		return err
	}
	r.calendars[name] = cal
	return nil
}

func (r *registry) use(m Middleware) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m == nil:
		return &FieldError{Field: "Middleware", Value: nil, Reason: "must not be nil"}
	case r.sealed:
		return &FieldError{Field: "Middleware", Value: "", Reason: errSealed.Error(), Err: errSealed}
	}
	r.wraps = append(r.wraps, m)
	return nil
}

// seal ends registration. A Middleware may panic or return nil: that is an error.
func (r *registry) seal() (err error) {
	r.mu.Lock()
	r.sealed = true // nothing is added while the middleware, which is user code, is called
	handlers, wraps := r.handlers, r.wraps
	r.mu.Unlock()
	wrapped := make(map[string]Handler, len(handlers))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("durable: a middleware panicked: %v", p)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.wrapped = wrapped; err != nil {
			r.wrapped, r.sealed = nil, false
		}
	}()
	for name, h := range handlers {
		for _, m := range slices.Backward(wraps) {
			if h = m(h); h == nil {
				return errors.New("durable: a middleware made a nil handler")
			}
		}
		wrapped[name] = h
	}
	return nil
}

// unseal has registration go on.
func (r *registry) unseal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrapped, r.sealed = nil, false
}

func (r *registry) knows(handler string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.handlers[handler]
	return ok
}

// handler gives the handler with its middleware. Only after seal.
func (r *registry) handler(name string) Handler { return r.wrapped[name] }

// list gives the registry's entries in order of name.
func (r *registry) list() []HandlerInfo {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := slices.Clone(r.infos)
	slices.SortFunc(l, func(a, b HandlerInfo) int { return strings.Compare(a.Name, b.Name) })
	return l
}

func (r *registry) names() []string {
	var names []string
	for _, h := range r.list() {
		names = append(names, h.Name)
	}
	return names
}

// maxSchedules bounds the cache of parsed schedules.
const maxSchedules = 10_000

// schedule gives the schedule of a text, bound to its calendar.
func (r *registry) schedule(text string) (cronsched.Schedule, error) {
	r.mu.RLock()
	s, ok := r.schedules[text]
	r.mu.RUnlock()
	if ok {
		return s, nil
	}
	s, err := cronsched.Parse(text)
	if err != nil {
		return s, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err = s.Resolve(func(name string) (cronsched.Calendar, bool) {
		c, ok := r.calendars[name]
		return c, ok
	})
	if err != nil {
		return s, err
	}
	if len(r.schedules) >= maxSchedules {
		clear(r.schedules)
	}
	r.schedules[text] = s
	return s, nil
}
