package durable

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A Leader elects one of several nodes. Nothing depends on there being only one: the
// leader is who usually goes first with what any node may do.
type Leader interface {
	// Elect makes node the leader for ttl from the call, or renews that, unless
	// another one is, and tells which is.
	Elect(ctx context.Context, node string, ttl time.Duration) (leader string, err error)
	// Resign gives leadership up, if node has it.
	Resign(ctx context.Context, node string) error
}

// leaderLease is the name of the lease that StoreLeader uses.
const leaderLease = "leader"

// StoreLeader elects by a lease in a store.
func StoreLeader(store Store) Leader { return storeLeader{store} }

type storeLeader struct{ store Store }

func (l storeLeader) Elect(ctx context.Context, node string, ttl time.Duration) (string, error) {
	row, err := l.store.Lease(ctx, leaderLease, node, ttl)
	return row.Holder, err
}

func (l storeLeader) Resign(ctx context.Context, node string) error {
	_, err := l.store.Lease(ctx, leaderLease, node, 0)
	return err
}

// MemoryLeader elects among the nodes of one process.
func MemoryLeader() Leader { return StoreLeader(NewMemory()) }

// A term is what the node knows of its leadership: as its lease, it is trusted from
// the sending of the request on.
type term struct {
	s      *Scheduler
	leader Leader

	mu    sync.Mutex // a leaf lock; guards the fields below
	until int64      // monotonic: until when this node leads
	said  bool       // the last event was EventLeading
}

func (t *term) init(s *Scheduler) {
	t.s = s
	if t.leader = s.config.Leader; t.leader == nil {
		t.leader = StoreLeader(s.store)
	}
}

func (t *term) leading() bool {
	_, now := t.s.host.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	return now < t.until
}

// elect is a loop's work.
func (t *term) elect(ctx context.Context) error {
	s := t.s
	if !s.running() {
		return nil
	}
	node, ttl := s.nodeID(), s.config.NodeTimeout
	_, sent := s.host.Now()
	var leader string
	err := guarded(func() (err error) { leader, err = t.leader.Elect(ctx, node, ttl); return err })
	t.mu.Lock()
	if err == nil {
		t.until = 0
		if leader == node {
			t.until = sent + int64(ttl-s.lease.margin())
		}
	}
	_, now := s.host.Now()
	leads := now < t.until
	changed := leads != t.said
	t.said = leads
	t.mu.Unlock()
	if changed {
		kind, text := EventFollowing, "leads no more"
		if leads {
			kind, text = EventLeading, "leads"
		}
		s.emit(Event{Kind: kind})
		s.log(slog.LevelInfo, text)
		s.loops.claim.wake()
	}
	if err != nil {
		s.logSeldom("elect", slog.LevelWarn, "leader election failed", errAttr(err))
	}
	return err
}

func (t *term) resign(ctx context.Context) {
	t.mu.Lock()
	led := t.until > 0
	t.until = 0
	t.mu.Unlock()
	if !led {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.s.opTimeout)
	defer cancel()
	if err := guarded(func() error { return t.leader.Resign(ctx, t.s.nodeID()) }); err != nil {
		t.s.log(slog.LevelWarn, "leadership could not be given up, it ends by itself", errAttr(err))
	}
}
