package tasktest

import (
	"container/heap"
	"context"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A waiter is one goroutine in a wait on the clock.
type waiter struct {
	ctx   context.Context
	run   bool // it is a run of the engine's, and so parked
	woken chan struct{}
	err   error // what the wait returns, written before woken is closed
}

// Sleep waits until the clock has been moved on by d, or returns the cause of ctx's
// end. Called by a run, on its own goroutine and with a context made from the run's,
// it parks the run: Advance does not wait for it. A run that ignores its context
// sleeps with context.WithoutCancel(ctx).
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	w := c.park(ctx)
	t := &timer{clock: c, f: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wake(w, nil)
	}}
	t.push(d)
	c.mu.Unlock()
	defer (*clockTimer)(t).Stop()
	return c.wait(w)
}

// A Gate holds runs until the test opens it.
type Gate struct {
	clock *Clock
	open  bool             // guarded by clock.mu
	held  map[*waiter]bool // guarded by clock.mu
}

// NewGate returns a closed gate.
func (c *Clock) NewGate() *Gate { return &Gate{clock: c, held: map[*waiter]bool{}} }

// Wait waits for Open, or returns the cause of ctx's end. It parks a run as Sleep
// does.
func (g *Gate) Wait(ctx context.Context) error {
	c := g.clock
	c.mu.Lock()
	if g.open {
		c.mu.Unlock()
		return context.Cause(ctx)
	}
	w := c.park(ctx)
	g.held[w] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(g.held, w)
	}()
	return c.wait(w)
}

// Open lets go of all that wait, and returns when they have ended or are parked
// again. Later waits return at once. It is a move of the clock, like Advance(0).
func (g *Gate) Open() {
	c := g.clock
	c.mu.Lock()
	g.open = true
	for w := range g.held {
		c.wake(w, nil)
	}
	c.mu.Unlock()
	c.Advance(0)
}

// park registers a wait. Called with c.mu held.
func (c *Clock) park(ctx context.Context) *waiter {
	w := &waiter{ctx: ctx, woken: make(chan struct{})}
	w.run = ctx.Value(seam.RunKey{}) != nil
	if c.closed {
		w.err = ErrClosed
		close(w.woken)
		return w
	}
	c.waiters[w] = true
	if w.run {
		c.busy--
	}
	c.progress++
	c.changed.Broadcast()
	return w
}

// wake ends a wait; a run is busy again from this moment on. Called with c.mu held.
func (c *Clock) wake(w *waiter, err error) {
	if !c.waiters[w] {
		return
	}
	delete(c.waiters, w)
	if w.run {
		c.busy++
	}
	w.err = err
	c.progress++
	close(w.woken)
	c.changed.Broadcast()
}

func (c *Clock) wait(w *waiter) error {
	select {
	case <-w.woken:
		return w.err
	case <-w.ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake(w, context.Cause(w.ctx))
	return w.err
}

// source is the clock as the engine sees it.
type source Clock

var (
	_ seam.Settler = (*source)(nil)
	_ seam.Stepper = (*source)(nil)
)

func (s *source) OnStep(f func()) {
	c := (*Clock)(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, f)
}

func (s *source) Now() (time.Time, int64) {
	c := (*Clock)(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(), c.mono
}

func (s *source) Mono() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mono
}

func (s *source) TwoHands() bool { return true }

func (s *source) Busy(delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += delta
	s.progress++
	s.changed.Broadcast()
}

func (s *source) Settle() { (*Clock)(s).settle() }

func (s *source) NewTimer(f func()) seam.Timer {
	return (*clockTimer)(&timer{clock: (*Clock)(s), f: f})
}

// A timer is in its clock's heap while it is armed. Guarded by the clock's mu.
type timer struct {
	clock *Clock
	when  int64
	seq   uint64 // among timers due at one instant, the one armed first fires first
	at    int    // 1 + index in the heap, 0 when not armed
	f     func()
}

func (t *timer) push(d time.Duration) {
	c := t.clock
	t.remove()
	t.when = c.mono + int64(max(0, d))
	if t.when < c.mono {
		t.when = int64(^uint64(0) >> 1)
	}
	c.seq++
	t.seq = c.seq
	heap.Push(&c.timers, t)
	c.changed.Broadcast()
}

func (t *timer) remove() {
	if t.at > 0 {
		heap.Remove(&t.clock.timers, t.at-1)
	}
}

// clockTimer is a timer as the engine sees it.
type clockTimer timer

func (t *clockTimer) Reset(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	(*timer)(t).push(d)
}

func (t *clockTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	(*timer)(t).remove()
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].when < h[j].when || h[i].when == h[j].when && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i+1, j+1
}
func (h *timerHeap) Push(v any) {
	t := v.(*timer)
	*h = append(*h, t)
	t.at = len(*h)
}
func (h *timerHeap) Pop() any {
	old := *h
	last := len(old) - 1
	t := old[last]
	old[last] = nil
	*h = old[:last]
	t.at = 0
	return t
}
