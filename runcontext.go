package taskmanager

import (
	"context"
	"sync"
	"sync/atomic"
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
// can do at a moment of ours. But a standard context that is the child of one of
// ours takes over its Err and cause (limitRoot): that one is behind Done and Value,
// so that children attach to it as to any other, without a goroutine each.
type limitContext struct {
	task     *task
	deadline time.Time

	why atomic.Pointer[cancelContext] // a context that has ended in the same way; nil before

	mu    sync.Mutex // guards the fields below, and the change of why; leaf lock
	ended bool       // why is set, and std has ended
	std   context.Context
	end   func() // ends std
}

func (c *limitContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *limitContext) Done() <-chan struct{} { return c.standard().Done() }

func (c *limitContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		return nil
	}
	return (*limitRoot)(c).Err()
}

func (c *limitContext) Value(key any) any {
	if _, ok := key.(seam.RunKey); ok {
		return c.task
	}
	return c.standard().Value(key)
}

// standard returns the standard context behind c.
func (c *limitContext) standard() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.std == nil {
		std, cancel := context.WithCancel((*limitRoot)(c))
		_ = cancel // it ends with its parent; this would say context.Canceled
		c.std = std
	}
	return c.std
}

// cancel ends the context in the way that why has ended, the first time it is
// called: when the time is over, when the task stops, or when the run has ended, as
// the standard library's users do by deferring their cancel function.
func (c *limitContext) cancel(why *cancelContext) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.why.Store(why)
	if c.end != nil {
		c.end()
	}
	c.ended = true
}

// A limitRoot is a limitContext as the parent of the standard context behind it.
type limitRoot limitContext

func (c *limitRoot) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is not nil, since such a parent never ends.
func (c *limitRoot) Done() <-chan struct{} {
	if why := c.why.Load(); why != nil {
		return why.Done()
	}
	return make(chan struct{})
}

func (c *limitRoot) Err() error {
	why := c.why.Load()
	switch {
	case why == nil:
		return nil
	case context.Cause(why) == ErrExecutionTimeout:
		return context.DeadlineExceeded
	}
	return why.Err()
}

// Value finds the cause, which package context asks for by a key of its own.
func (c *limitRoot) Value(key any) any {
	if why := c.why.Load(); why != nil {
		return why.Value(key)
	}
	return nil
}

// AfterFunc is how package context asks to be told of the end. It is called while
// the standard context is made, with limitContext.mu held.
func (c *limitRoot) AfterFunc(f func()) (stop func() bool) {
	c.end = f
	return func() bool { return false }
}

func (c *limitContext) String() string {
	return "taskmanager.Context(" + c.task.name + ", until " + c.deadline.String() + ")"
}
