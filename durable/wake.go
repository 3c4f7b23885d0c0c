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
	NoteDue       Note = "due"       // a trigger was added or changed
	NoteBroadcast Note = "broadcast" // there is a broadcast to be taken
	NoteCancel    Note = "cancel"    // a run is to be cancelled
	NoteJobs      Note = "jobs"      // a job that runs on every node has changed
)
