package durable

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// notify sends a note, at most one of a kind in notifyEvery: a note says that there is
// something to look at, not how much.
func (s *Scheduler) notify(n Note) {
	w := s.waker()
	if w == nil {
		return
	}
	s.notes.send(s, n, w)
}

// notifyEvery bounds the notes of a node to a hundred times a second for each kind.
const notifyEvery = 10 * time.Millisecond

// notes debounces: the first note goes out at once, those of the next notifyEvery as
// one at its end.
type notes struct {
	mu     sync.Mutex
	closed map[Note]bool // one has just gone out
	again  map[Note]bool // others wait for notifyEvery to be over
}

func (n *notes) send(s *Scheduler, note Note, w Waker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed == nil {
		n.closed, n.again = map[Note]bool{}, map[Note]bool{}
	}
	if n.closed[note] {
		n.again[note] = true
		return
	}
	n.closed[note] = true
	s.host.Go(func() { n.sendNow(s, note, w) })
}

func (n *notes) sendNow(s *Scheduler, note Note, w Waker) {
	// Nobody is there who could give up on it.
	ctx, cancel := context.WithTimeout(context.Background(), max(s.opTimeout, time.Second))
	defer cancel()
	defer n.rest(s, note, w) // a Goexit of the Waker's included
	err := guarded(func() error { return w.Notify(ctx, note) })
	if err != nil {
		s.logSeldom("notify", slog.LevelWarn, "note could not be sent, other nodes will find out at their next poll", errAttr(err))
	}
}

// rest holds back further notes of that kind for notifyEvery.
func (n *notes) rest(s *Scheduler, note Note, w Waker) {
	open := func() {
		n.mu.Lock()
		again := n.again[note]
		n.closed[note], n.again[note] = false, false
		n.mu.Unlock()
		if again {
			n.send(s, note, w)
		}
	}
	if _, err := s.after("durable/"+s.instance+"/note/"+string(note), notifyEvery, open); err != nil {
		open()
	}
}
