package taskmanager

import (
	"context"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A host is an engine as package durable sees it: see seam.Host.
type host struct{ engine *engine }

func (h host) Now() (time.Time, int64) { return h.engine.source.Now() }

func (h host) Settles() bool { return h.engine.settler != nil }

func (h host) Identity() uint64 { return goroutineID() }

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

func (h host) Once(name string, f func(context.Context) error) seam.Once {
	return h.engine.m.newOnce(name, f)
}
