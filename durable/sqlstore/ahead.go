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

// believed is for how long claims go on from where others have stopped.
const believed = 100 * time.Millisecond

// An ahead remembers where the next claim goes on, as long as there is more than claims can
// take: behind the last row of the one before. To look for the first one leads over what
// the index still has of all rows that were claimed since the last VACUUM, and past those
// that others are claiming at this moment.
//
// Whatever else this store writes has the next claim look again. What others write, or
// callers in their transactions, is seen when belief ends.
type ahead struct {
	mu    sync.Mutex
	sight sight
	of    string // which triggers it is about: see eligible
	known bool
	asked time.Time // when somebody last had to look
	edits uint64    // counts what may have changed which triggers are due
}

// get gives what is known. If that is nothing, only the number of edits is right, and the
// caller looks; when belief ends others go on meanwhile.
func (a *ahead) get(of string) (seen sight, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.known && a.of == of && now.Sub(a.asked) < believed {
		return a.sight, true
	}
	a.asked = now
	return sight{edits: a.edits}, false
}

// set notes what a claim leaves, if that is known: as soon as it has locked its rows, so
// that those of this store that come next need not find that out.
func (a *ahead) set(of string, seen sight, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case seen.edits != a.edits:
	case known && a.known && a.of == of && a.sight.beyond(&seen): // others were quicker
	default:
		a.sight, a.of, a.known = seen, of, known
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

// edited is called when something else has been written, perhaps.
func (a *ahead) edited() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = false
	a.edits++
}
