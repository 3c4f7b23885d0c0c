package taskmanager

import "hash/maphash"

// names is the set of live tasks by name: open addressing over the task pointers
// themselves, whose names and hashes stand in the tasks. That is for the memory of
// a million tasks: filling it takes 0.7 of the bytes that filling a Go map does at
// 100,000 and 0.3 at 1,000,000, and adding and removing half the time (BenchmarkNames).
// A byte of each task's hash stands beside its pointer, so that a search looks at no
// other task than the one it is for: each would be a cache miss. Guarded by
// TaskManager.mu.
type names struct {
	seed  maphash.Seed
	table []*task // a power of two long, at most three quarters used
	tags  []uint8 // of the tasks in table, or one of the next two
	count int     // tasks
	used  int     // slots that are not empty: tasks, and graves
}

const (
	empty uint8 = iota
	// grave stands where a task was removed from the middle of a row of used slots.
	// Closing the gap instead would have to look at the tasks behind it.
	grave
	firstTag
)

// tagOf is what stands for the hash in tags: of its upper bits, since those that lie
// near each other have the lower ones in common.
func tagOf(hash uint32) uint8 { return max(firstTag, uint8(hash>>24)) }

func newNames() names {
	s := names{seed: maphash.MakeSeed()}
	s.clear(8)
	return s
}

// clear gives s a table of that size, with nothing in it.
func (s *names) clear(size int) {
	s.table, s.tags = make([]*task, size), make([]uint8, size)
}

func (s *names) hash(name string) uint32 { return uint32(maphash.String(s.seed, name)) }

// find returns the task of that name, nil if there is none.
func (s *names) find(name string) *task {
	if i, ok := s.slot(name, s.hash(name)); ok {
		return s.table[i]
	}
	return nil
}

// slot is where the name is, if it is there, and else where it may be put.
func (s *names) slot(name string, hash uint32) (at int, there bool) {
	mask := len(s.table) - 1
	i, tag, free := int(hash)&mask, tagOf(hash), -1
	for ; s.tags[i] != empty; i = (i + 1) & mask {
		switch s.tags[i] {
		case tag:
			if s.table[i].name == name {
				return i, true
			}
		case grave:
			if free < 0 {
				free = i
			}
		}
	}
	if free < 0 {
		free = i
	}
	return free, false
}

// put puts t, whose hash is set, where slot has said that it may be.
func (s *names) put(i int, t *task) {
	if s.tags[i] == empty {
		s.used++
	}
	s.count++
	s.set(i, t)
}

func (s *names) set(i int, t *task) {
	s.table[i], s.tags[i] = t, tagOf(t.hash)
	t.place = uint32(i + 1)
}

// remove takes t out, if it is there.
func (s *names) remove(t *task) {
	if t.place == 0 {
		return
	}
	i, mask := int(t.place-1), len(s.table)-1
	t.place = 0
	s.count--
	s.table[i], s.tags[i] = nil, grave
	if s.tags[(i+1)&mask] == empty { // the end of a row needs no graves
		for ; s.tags[i] == grave; i = (i - 1) & mask {
			s.tags[i] = empty
			s.used--
		}
	}
}

// fit sees that there is room for another name and not much too much: if not, it makes the
// table one that is half full at most, and without graves. It has to be called before each
// put, and should be after a remove; it is apart from them because it may take milliseconds,
// which nobody has who holds engine.mu.
func (s *names) fit() {
	if s.used < len(s.table)/4*3 && (len(s.table) <= 1024 || s.count >= len(s.table)/8) {
		return
	}
	old := s.table
	size := 8
	for size < 2*s.count {
		size *= 2
	}
	s.clear(size)
	s.used = s.count
	mask := size - 1
	for _, t := range old {
		if t == nil {
			continue
		}
		i := int(t.hash) & mask
		for s.tags[i] != empty {
			i = (i + 1) & mask
		}
		s.set(i, t)
	}
}

// all returns the tasks in no order.
func (s *names) all() []*task {
	tasks := make([]*task, 0, s.count)
	for _, t := range s.table {
		if t != nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
