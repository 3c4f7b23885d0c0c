package durable

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A flight is a run on this node, from its claim until its end is in the store.
type flight struct {
	row     *RunRow // never changed
	job     *JobRow // so too, and may be that of other flights
	local   bool    // of a job that runs on every node: never claimed
	once    seam.Once
	ctx     runContext // the handler's
	refused bool       // by the manager, which was closed; only for the run's goroutine

	// Guarded by flights.mu.
	cause  error // with which the scheduler ended the context
	over   bool  // the handler has returned
	gaveUp bool  // a stop recorded it as interrupted while it goes on
	since  int64 // monotonic: its start
}

const mostDoomed = 1000

// flights are the runs on this node.
type flights struct {
	s       *Scheduler
	workers workers

	mu       sync.Mutex // held before those of workers and the manager's
	byID     map[string]*flight
	claimed  int  // of them those that were claimed, and slots reserved by a claim
	landed   int  // of these, those whose handler has returned
	handlers int  // handlers that have not returned
	closed   bool // by a stop: nothing begins any more
	// doomed are runs that are to be cancelled and are not here, yet perhaps: a claim's
	// answer may be on its way. Not more than mostDoomed.
	doomed map[string]bool
	empty  chan struct{}
}

func (f *flights) init(s *Scheduler) {
	f.s, f.byID = s, map[string]*flight{}
	f.workers.host, f.workers.run = s.host, f.run
}

// freeLocked is how many slots there are for further runs. A slot is free when its handler
// has returned; but ends that wait to be recorded take slots, too, once they are as
// many as there are slots: a store that is slow must not be swamped.
func (f *flights) freeLocked() int {
	slots := f.s.config.MaxConcurrentRuns
	return max(0, slots-f.claimed+min(f.landed, slots))
}

// free is how many slots are free, and how many handlers have not returned.
func (f *flights) free() (slots, handlers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.freeLocked(), f.handlers
}

// reserve takes the free slots for a claim; release gives back what it did not use.
func (f *flights) reserve() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.freeLocked()
	f.claimed += n
	return n
}

func (f *flights) release(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claimed -= n
}

// close has no run begin from now on.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

func (f *flights) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// running is how many handlers have not returned.
func (f *flights) running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handlers
}

// start runs a claimed run, whose slot is reserved, or a local one. It returns false
// if the run is here already.
func (f *flights) start(row *RunRow, job *JobRow, local bool) bool {
	fl := &flight{row: row, job: job, local: local, refused: true}
	fl.once = f.s.host.Once("durable/"+row.Job, func(context.Context) error { return f.s.handle(fl) })
	fl.ctx = runContext{fl.once.Context(), fl}
	f.mu.Lock()
	if _, here := f.byID[row.ID]; here || f.closed {
		f.mu.Unlock()
		return false
	}
	_, fl.since = f.s.host.Now()
	f.byID[row.ID] = fl
	f.handlers++
	doomed := row.Cancel || f.doomed[row.ID]
	delete(f.doomed, row.ID)
	f.mu.Unlock()
	if doomed {
		f.end(fl, ErrCancelled)
	}
	f.workers.do(fl)
	return true
}

// run is a run from its start to its end, on the goroutine of that identity.
func (f *flights) run(fl *flight, goid uint64) {
	stop := f.limit(fl)
	err := taskmanager.ErrGoexit // if the handler calls it, this goroutine ends, too
	defer func() {
		if stop != nil {
			stop()
		}
		f.returned(fl, err)
	}()
	err = fl.once.Run(goid)
}

// limit has the run's context end at its time limit; nil if there is nothing to stop.
func (f *flights) limit(fl *flight) (stop func()) {
	if fl.job.Timeout <= 0 {
		return nil
	}
	stop, err := f.s.after("durable/timeout/"+fl.row.ID, fl.job.Timeout, func() { f.timeout(fl) })
	if err != nil {
		return nil
	}
	return stop
}

// handle calls the run's handler.
func (s *Scheduler) handle(fl *flight) error {
	fl.refused = false
	h := s.registry.handler(fl.job.Handler)
	if h == nil {
		return &dataError{&FieldError{Field: "Handler", Value: fl.job.Handler, Reason: "is not registered on this node"}}
	}
	err := h(&fl.ctx, fl.run())
	// The error alone may be an ErrClosed of another manager's.
	fl.refused = err != nil && errors.Is(context.Cause(&fl.ctx), taskmanager.ErrClosed)
	return err
}

// run is the flight as its handler sees it.
func (fl *flight) run() Run {
	r := fl.row
	return Run{
		ID: r.ID, Job: r.Job, Trigger: r.Trigger, Kind: r.Kind, ScheduledAt: r.ScheduledAt, Attempt: r.Attempt,
		RetryOf: r.RetryOf, Node: r.Node, Data: bytes.Clone(r.Data), IdempotencyKey: r.IdempotencyKey, Fence: r.Fence,
	}
}

// timeout ends a run's context at its time limit, and says so if that does not end it.
func (f *flights) timeout(fl *flight) {
	if !f.end(fl, ErrTimeout) {
		return
	}
	f.s.emit(fl.event(EventOverdue))
	f.s.log(slog.LevelWarn, "run timed out", slog.String("job", fl.row.Job), slog.String("run", fl.row.ID),
		slog.Duration("timeout", fl.job.Timeout))
}

// end ends a run's context; the first cause counts.
func (f *flights) end(fl *flight, cause error) bool {
	f.mu.Lock()
	if fl.over || fl.cause != nil {
		f.mu.Unlock()
		return false
	}
	fl.cause = cause
	f.mu.Unlock()
	fl.once.End(cause)
	return true
}

// cancel ends the context of the run of that ID, if it is here; as ErrCancelled, also as
// soon as it is.
func (f *flights) cancel(id string, cause error) bool {
	f.mu.Lock()
	fl := f.byID[id]
	if fl == nil && cause == ErrCancelled {
		if f.doomed == nil || len(f.doomed) >= mostDoomed {
			f.doomed = map[string]bool{}
		}
		f.doomed[id] = true
	}
	f.mu.Unlock()
	return fl != nil && f.end(fl, cause)
}

// cancelAll ends the contexts of all runs that match, and returns how many.
func (f *flights) cancelAll(cause error, match func(*flight) bool) (n int) {
	for _, fl := range f.all() {
		if match(fl) && f.end(fl, cause) {
			n++
		}
	}
	return n
}

func (f *flights) all() []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*flight, 0, len(f.byID))
	for _, fl := range f.byID {
		all = append(all, fl)
	}
	sortBy(all, func(fl *flight) string { return fl.row.ID })
	return all
}

// ids are the IDs of the flights, those included whose end is not recorded yet.
func (f *flights) ids() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make(map[string]bool, len(f.byID))
	for id, fl := range f.byID {
		if !fl.local {
			ids[id] = true
		}
	}
	return ids
}

func (f *flights) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byID[id] != nil
}

// hasReturned tells whether the run's handler has returned, so that its row may be gone
// because its end was recorded.
func (f *flights) hasReturned(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.byID[id]
	return fl == nil || fl.over
}

// returned takes over when a handler has returned.
func (f *flights) returned(fl *flight, err error) {
	s := f.s
	now, mono := s.host.Now()
	f.mu.Lock()
	fl.over = true
	if !fl.local {
		f.landed++
	}
	cause, gaveUp := fl.cause, fl.gaveUp
	f.mu.Unlock()
	defer f.handlerGone() // a stop that waits for it records what has been added until then
	if cause == nil && fl.refused {
		cause = ErrStopping
	}
	fl.once.End(nil)
	if gaveUp {
		f.remove(fl) // its row is the store's business until the lease ends
		return
	}
	e := ending{err: err, cause: cause, lasted: time.Duration(mono - fl.since)}
	end := s.concludeGuarded(fl, e, now)
	if fl.local {
		s.locals.ended(fl, end)
		return
	}
	s.finisher.land(fl, end)
}

func (f *flights) handlerGone() {
	f.mu.Lock()
	f.handlers--
	last := f.handlers == 0
	if last && f.empty != nil {
		close(f.empty)
		f.empty = nil
	}
	f.mu.Unlock()
	if last { // nobody is left to wait for
		f.s.finisher.gatherOver()
	}
	f.s.claimer.slotsFreed()
}

// concludeGuarded is conclude for errors whose methods panic.
func (s *Scheduler) concludeGuarded(fl *flight, e ending, now time.Time) (end End) {
	defer func() {
		if recover() != nil {
			e.err = errPanicked
			end = s.planner.conclude(*fl.row, *fl.job, e, now)
		}
	}()
	return s.planner.conclude(*fl.row, *fl.job, e, now)
}

// remove forgets a flight and frees its slot.
func (f *flights) remove(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[fl.row.ID] != fl {
		return
	}
	delete(f.byID, fl.row.ID)
	if fl.local {
		return
	}
	f.claimed--
	if fl.over {
		f.landed--
	}
}

// quiet is closed once no handler runs.
func (f *flights) quiet() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handlers == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if f.empty == nil {
		f.empty = make(chan struct{})
	}
	return f.empty
}

// event is an event about the flight.
func (fl *flight) event(kind EventKind) Event { return runEvent(kind, *fl.row) }

func runEvent(kind EventKind, r RunRow) Event {
	return Event{
		Kind: kind, Job: r.Job, Trigger: r.Trigger, Run: r.ID, RunKind: r.Kind, State: r.State, Code: r.Code,
		Attempt: r.Attempt, Duration: r.Duration, Count: r.Passed, Detail: r.Message,
	}
}
