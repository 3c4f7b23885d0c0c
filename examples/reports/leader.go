package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A leader is a durable.Leader that remembers who was elected last. Who leads makes no
// difference to jobs; it is nice to see.
type leader struct {
	durable.Leader
	last atomic.Pointer[string]
}

func (l *leader) Elect(ctx context.Context, node string, ttl time.Duration) (string, error) {
	elected, err := l.Leader.Elect(ctx, node, ttl)
	if err == nil {
		l.last.Store(&elected)
	}
	return elected, err
}

// id is the leader's, "" if none is known.
func (l *leader) id() string {
	if id := l.last.Load(); id != nil {
		return *id
	}
	return ""
}
