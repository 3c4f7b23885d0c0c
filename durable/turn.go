package durable

import "sync"

// A turn is a lock whose holder a watchdog can give up on: from then on it is free for
// others, and the holder finds, when it comes back, that it has it no more.
type turn struct {
	mu     sync.Mutex // a leaf lock; guards the fields below
	last   int
	holder int           // 0 if it is free
	freed  chan struct{} // closed when it becomes free; nil if nobody waits
}

// take waits for the turn, and returns its number.
func (t *turn) take() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.holder != 0 {
		if t.freed == nil {
			t.freed = make(chan struct{})
		}
		freed := t.freed
		t.mu.Unlock()
		<-freed
		t.mu.Lock()
	}
	t.last++
	t.holder = t.last
	return t.holder
}

// end frees the turn, if it still is that one.
func (t *turn) end(no int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == no {
		t.freeLocked()
	}
}

// giveUp frees the turn, whoever has it.
func (t *turn) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freeLocked()
}

func (t *turn) freeLocked() {
	t.holder = 0
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// has tells whether the turn still is that one.
func (t *turn) has(no int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holder == no
}
