package taskmanager

import (
	"context"
	"time"
)

// A host is an engine as package durable sees it: see seam.Host.
type host struct{ engine *engine }

func (h host) Now() (time.Time, int64) { return h.engine.source.Now() }

func (h host) Settles() bool { return h.engine.settler != nil }

func (h host) Identity() uint64 { return goroutineID() }

func (h host) RunOnce(ctx context.Context, name string, f func(context.Context) error, goid uint64) error {
	return h.engine.m.runOnce(ctx, name, f, goid)
}

// Go goes through a timer under a settler: the clock settles what one timer has
// started before it comes to the next.
func (h host) Go(f func()) {
	if h.engine.settler == nil {
		go f()
		return
	}
	h.engine.source.NewTimer(func() {
		h.engine.begun()
		go func() {
			defer h.engine.ended()
			f()
		}()
	}).Reset(0)
}
