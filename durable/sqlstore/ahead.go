package sqlstore

import (
	"sync"
	"time"
)

// A sight is what a look has seen of the triggers that are due.
type sight struct {
	now       time.Time // the store's time then
	looked    time.Time // this process's, not earlier
	due       due
	broadcast string // the largest ID of broadcast triggers
	edits     uint64 // of ahead, before
}

// timeAfter is the store's time now, or a little earlier: the server is not asked again.
func (s *Store) timeAfter(seen *sight) time.Time {
	if s.clock != nil {
		return fromMicros(s.clock().UnixMicro())
	}
	return stored(seen.now.Add(time.Since(seen.looked)))
}

// believed is for how long claims go on from where others have stopped. Then one of them
// looks, while others may go on for as long again.
const believed = 100 * time.Millisecond

// An ahead remembers where the next claim goes on, as long as there is more than claims can
// take: behind the last row of the one before. To look for the first one leads over what
// the index still has of all rows that were claimed since the last VACUUM, and past those
// that others are claiming at this moment.
//
// Whatever else this store writes has the next claim look again. What others write, or
// callers in their transactions, and rows that somebody else had locked, are seen when
// belief ends.
type ahead struct {
	mu      sync.Mutex
	sight   sight
	of      string // which triggers it is about: see eligible
	known   bool
	looking bool   // somebody was told to look again
	edits   uint64 // counts what may have changed which triggers are due
}

// get gives what is known to a claim, which may take some. If that is nothing, only the
// number of edits is right, and the claim looks.
func (a *ahead) get(of string, takes bool) (seen sight, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if takes && a.known && a.of == of {
		age := time.Since(a.sight.looked)
		if age < believed || a.looking && age < 2*believed {
			return a.sight, true
		}
		a.looking = true
	}
	return sight{edits: a.edits}, false
}

// set notes what a claim leaves, if there is more: as soon as it has locked its rows, so
// that those of this store that come next need not find that out.
func (a *ahead) set(of string, seen sight, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch same := a.known && a.of == of; {
	case seen.edits != a.edits:
	case same && !more:
		a.known = false
	case !more, same && a.sight.beyond(&seen): // others were quicker
	default:
		a.sight, a.of, a.known, a.looking = seen, of, true, false
	}
}

// beyond tells whether s is of a later look than t, or farther on after the same one.
func (s *sight) beyond(t *sight) bool {
	if !s.looked.Equal(t.looked) {
		return s.looked.After(t.looked)
	}
	for p := range s.due {
		if s.due[p].After(t.due[p]) {
			return true
		}
	}
	return false
}

// edited is called when something else has been written, perhaps, or rows that claims have
// gone past are due again.
func (a *ahead) edited() (edits uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = false
	a.edits++
	return a.edits
}
