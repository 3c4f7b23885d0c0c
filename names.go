package taskmanager

import "hash/maphash"

// names is the set of live tasks by name: open addressing over the task pointers
// themselves, whose names and hashes stand in the tasks. That is for the memory of
// a million tasks: filling it takes 0.6 of the bytes that filling a Go map does at
// 100,000 and 0.3 at 1,000,000, and about the same time, while adding and
// removing in turn is slower (BenchmarkNames). Guarded by TaskManager.mu.
type names struct {
	seed  maphash.Seed
	table []*task // a power of two long, at most three quarters used
	count int     // tasks
	used  int     // slots that are not nil: tasks, and graves
}

// grave stands where a task was removed from the middle of a row of used slots.
// Closing the gap instead would have to look at the tasks behind it, each of them a
// cache miss.
var grave = &task{}

func newNames() names {
	return names{seed: maphash.MakeSeed(), table: make([]*task, 8)}
}

func (s *names) hash(name string) uint32 { return uint32(maphash.String(s.seed, name)) }

// find returns the task of that name, nil if there is none.
func (s *names) find(name string) *task {
	return s.table[s.slot(name, s.hash(name))]
}

// slot is where the name is, or the slot that ends the search for it.
func (s *names) slot(name string, hash uint32) int {
	mask := len(s.table) - 1
	i := int(hash) & mask
	for t := s.table[i]; t != nil; t = s.table[i] {
		if t != grave && t.hash == hash && t.name == name {
			break
		}
		i = (i + 1) & mask
	}
	return i
}

// add puts t in, unless its name is taken.
func (s *names) add(t *task) bool {
	t.hash = s.hash(t.name)
	i := s.slot(t.name, t.hash)
	if s.table[i] != nil {
		return false
	}
	s.table[i] = t
	s.count++
	s.used++
	if s.used > len(s.table)/4*3 {
		s.rebuild()
	}
	return true
}

// remove takes t out, if it is there.
func (s *names) remove(t *task) {
	mask := len(s.table) - 1
	i := int(t.hash) & mask
	for s.table[i] != t {
		if s.table[i] == nil {
			return
		}
		i = (i + 1) & mask
	}
	s.count--
	s.table[i] = grave
	if s.table[(i+1)&mask] == nil { // the end of a row needs no graves
		for ; s.table[i] == grave; i = (i - 1) & mask {
			s.table[i] = nil
			s.used--
		}
	}
	if len(s.table) > 1024 && s.count < len(s.table)/8 {
		s.rebuild()
	}
}

// rebuild makes the table one that is half full at most, and without graves.
func (s *names) rebuild() {
	old := s.table
	size := 8
	for size < 2*s.count {
		size *= 2
	}
	s.table = make([]*task, size)
	s.used = s.count
	mask := size - 1
	for _, t := range old {
		if t == nil || t == grave {
			continue
		}
		i := int(t.hash) & mask
		for s.table[i] != nil {
			i = (i + 1) & mask
		}
		s.table[i] = t
	}
}

// all returns the tasks in no order.
func (s *names) all() []*task {
	tasks := make([]*task, 0, s.count)
	for _, t := range s.table {
		if t != nil && t != grave {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
