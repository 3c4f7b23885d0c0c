package taskmanager

import (
	"context"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A taskContext is shared by all runs of a task without a time limit. It is
// never reset: it ends once, when the task stops or the manager gives up on it.
// It is the task itself under another name, and the standard library's context
// behind it is made when somebody first asks for more than Err: a task whose
// function ignores its context pays nothing for it.
type taskContext task

type cancelContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newCancelContext() *cancelContext {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &cancelContext{ctx, cancel}
}

// endedContext makes a context that has ended with the cause.
func endedContext(cause error) *cancelContext {
	c := newCancelContext()
	c.cancel(cause)
	return c
}

// std returns the standard context behind c, which has all of c's behaviour.
func (c *taskContext) std() *cancelContext {
	if in := c.shared.Load(); in != nil {
		return in
	}
	in := newCancelContext()
	if !c.shared.CompareAndSwap(nil, in) {
		in.cancel(nil)
		return c.shared.Load()
	}
	return in
}

// Deadline is that of the context given to RunOnce; no other task's has one.
func (c *taskContext) Deadline() (time.Time, bool) {
	if in := c.shared.Load(); in != nil {
		return in.Deadline()
	}
	return time.Time{}, false
}

func (c *taskContext) Done() <-chan struct{} { return c.std().Done() }

func (c *taskContext) Err() error {
	if in := c.shared.Load(); in != nil {
		return in.Err()
	}
	return nil
}

func (c *taskContext) Value(key any) any {
	if _, ok := key.(seam.RunKey); ok {
		return (*task)(c)
	}
	// The standard library finds the cancelCtx it can attach a child to, and the
	// cause, by a key of its own.
	return c.std().Value(key)
}

func (c *taskContext) String() string { return "taskmanager.Context(" + c.name + ")" }

// end ends the context with Err context.Canceled and the cause of ended, a
// context that has ended already: it takes the place of one nobody asked for.
func (c *taskContext) end(ended *cancelContext) {
	if !c.shared.CompareAndSwap(nil, ended) {
		c.shared.Load().cancel(context.Cause(ended))
	}
}

// A limitContext is the context of one run of a task with a time limit: one small
// object a run, the rest is made when it is asked for. There is no timer in it:
// the engine cancels it.
//
// It ends with DeadlineExceeded, which no cancel function of the standard library
// can do at a moment of ours. So it is a context of its own, and has what the
// standard library looks for in a parent: an AfterFunc method, by which children
// learn of the end without a goroutine each, and behind Value a standard context
// that carries the cause.
type limitContext struct {
	task     *task
	deadline time.Time

	mu      sync.Mutex // guards the fields below; leaf lock
	err     error
	cause   error
	done    chan struct{}
	carrier *cancelContext
	waiting map[*func()]struct{} // registered by AfterFunc
}

func (c *limitContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *limitContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

func (c *limitContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *limitContext) Value(key any) any {
	if _, ok := key.(seam.RunKey); ok {
		return c.task
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.carrierLocked().Value(key)
}

func (c *limitContext) carrierLocked() *cancelContext {
	if c.carrier == nil {
		c.carrier = newCancelContext()
		if c.err != nil {
			c.carrier.cancel(c.cause)
		}
	}
	return c.carrier
}

// AfterFunc calls f on a goroutine of its own once c has ended; stop keeps it from
// doing so, and tells whether it did. Package context looks for this method.
func (c *limitContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.waiting == nil {
		c.waiting = map[*func()]struct{}{}
	}
	key := &f
	c.waiting[key] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.waiting[key]
		delete(c.waiting, key)
		return ok
	}
}

// cancel ends the context, the first time it is called: when the time is over,
// when the task stops, or when the run has ended, as the standard library's users
// do by deferring their cancel function.
func (c *limitContext) cancel(err, cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err, c.cause = err, cause
	if c.carrier != nil { // before anybody can see the end
		c.carrier.cancel(cause)
	}
	if c.done != nil {
		close(c.done)
	}
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for f := range waiting {
		go (*f)()
	}
}

func (c *limitContext) String() string {
	return "taskmanager.Context(" + c.task.name + ", until " + c.deadline.String() + ")"
}
