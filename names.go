package taskmanager

import "hash/maphash"

// names is the set of live tasks by name: open addressing over the task pointers
// themselves, whose names and hashes stand in the tasks. A Go map costs 55 to 70
// bytes a task more and is half of what scheduling one costs (BenchmarkNames).
// Guarded by TaskManager.mu.
type names struct {
	seed  maphash.Seed
	table []*task // a power of two long, at most three quarters full
	count int
}

func newNames() names {
	return names{seed: maphash.MakeSeed(), table: make([]*task, 8)}
}

func (s *names) hash(name string) uint32 { return uint32(maphash.String(s.seed, name)) }

// find returns the task of that name, nil if there is none.
func (s *names) find(name string) *task {
	return s.table[s.slot(name, s.hash(name))]
}

// slot is where the name is, or the free slot where it would go.
func (s *names) slot(name string, hash uint32) int {
	mask := len(s.table) - 1
	i := int(hash) & mask
	for t := s.table[i]; t != nil && (t.hash != hash || t.name != name); t = s.table[i] {
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
	if s.count > len(s.table)/4*3 {
		s.resize(len(s.table) * 2)
	}
	return true
}

// remove takes t out, if it is the task of its name, and closes the gap by moving
// up what had been pushed past it.
func (s *names) remove(t *task) {
	i := s.slot(t.name, t.hash)
	if s.table[i] != t {
		return
	}
	s.count--
	mask := len(s.table) - 1
	for j := (i + 1) & mask; s.table[j] != nil; j = (j + 1) & mask {
		home := int(s.table[j].hash) & mask
		if (j-home)&mask >= (j-i)&mask { // j may stand as far up as i
			s.table[i] = s.table[j]
			i = j
		}
	}
	s.table[i] = nil
	if len(s.table) > 1024 && s.count < len(s.table)/8 {
		s.resize(len(s.table) / 4)
	}
}

func (s *names) resize(n int) {
	old := s.table
	s.table = make([]*task, n)
	mask := n - 1
	for _, t := range old {
		if t == nil {
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
		if t != nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
