package durable

import "context"

// A Waker carries hints between nodes, so that they need not wait for their next
// poll. It decides nothing: a note that is lost, late or doubled costs time only.
type Waker interface {
	// Notify sends a note to all nodes that listen, this one perhaps included. It
	// is called seldom: never once a run, at most about a hundred times a second.
	Notify(ctx context.Context, note Note) error
	// Listen has f called for each note, until stop is called, which waits for a
	// call of f that is under way. It returns at once, and keeps itself connected.
	// f does not block.
	Listen(f func(Note)) (stop func(), err error)
}

// A Note is a hint. Unknown ones are ignored.
type Note string

// The notes.
const (
	NoteDue    Note = "due"    // a trigger was added or changed
	NoteCancel Note = "cancel" // a run is to be cancelled
	NoteJobs   Note = "jobs"   // a job that runs on every node has changed, or is called by hand
)

// waker gives what carries notes between nodes, nil if nothing does.
func (s *Scheduler) waker() Waker {
	if s.config.Waker != nil {
		return s.config.Waker
	}
	w, _ := s.store.(Waker)
	return w
}

// Wake has this node look for due triggers and cancelled runs now, and tells the
// others: for after the commit of a transaction of Within.
func (s *Scheduler) Wake() {
	s.changed(true)
	s.loops.beat.wake()
	s.notify(NoteCancel)
}

// changed tells all nodes that triggers have changed.
func (s *Scheduler) changed(everyNode bool) {
	s.loops.claim.wake()
	if everyNode {
		s.loops.local.wake()
		s.notify(NoteJobs)
		return
	}
	s.notify(NoteDue)
}

// hear is called with the notes of other nodes, and of this one.
func (s *Scheduler) hear(n Note) {
	if !s.running() {
		return
	}
	switch n {
	case NoteDue:
		s.claimer.forgiveSeldom()
		s.loops.claim.wake()
	case NoteCancel:
		s.loops.beat.wake()
	case NoteJobs:
		s.loops.local.wake()
		s.loops.claim.wake()
	}
}
