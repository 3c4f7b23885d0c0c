package taskmanager

import (
	"crypto/rand"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"time"
)

// What the tests of the engine's parts need of them.

const (
	Never       = never
	SlotLength  = int64(1) << slotBits
	Crowded     = int64(crowded)
	BucketCount = bucketCount
)

type (
	Wheel   = wheel
	Node    = node
	Names   = names
	Profile = profile
	Entropy = entropy
)

func NewWheel(exact bool) *Wheel { return &wheel{exact: exact} }

func (w *wheel) Add(n *Node, when, now int64) { w.add(n, when, now) }
func (w *wheel) Remove(n *Node)               { w.remove(n) }
func (w *wheel) Wake() int64                  { return w.wake() }
func (w *wheel) Count() int                   { return w.count }
func (n *node) When() int64                   { return n.when }
func (n *node) Filed() bool                   { return n.filed() }

func (w *wheel) PopDue(now int64, limit int, out []*Node) ([]*Node, bool) {
	return w.popDue(now, limit, out)
}

// Check looks at every slot: whether each node knows where it is and is where its
// instant belongs, and whether the bitmap, the count and the spare arrays are right.
func (w *wheel) Check() error {
	count := 0
	for s, slot := range w.slots {
		level, place := s>>levelBits, int64(s&(perLevel-1))
		if used := w.used[s>>6]>>(s&63)&1 == 1; used != (len(slot) > 0) {
			return fmt.Errorf("level %d slot %d: used %v with %d nodes", level, place, used, len(slot))
		}
		count += len(slot)
		// The stretch of ticks that the slot stands for, seen from cur.
		at := w.cur >> shift(level)
		turn := at + (place-at)&(perLevel-1)
		if level > 0 && turn == at && len(slot) > 0 {
			return fmt.Errorf("level %d slot %d was entered at %d, and has %d nodes still", level, place, w.cur, len(slot))
		}
		from, to := turn<<shift(level), (turn+1)<<shift(level)
		for i, n := range slot {
			if int(n.slot) != s+1 || int(n.idx) != i {
				return fmt.Errorf("node in slot %d, place %d says slot %d, place %d", s, i, n.slot-1, n.idx)
			}
			tick := max(n.when>>slotBits, w.cur)
			if last := level == levels-1; tick < from || tick >= to && !last {
				return fmt.Errorf("node of tick %d, at %d, is in level %d slot %d, for ticks %d to %d", tick, w.cur, level, place, from, to-1)
			}
		}
		for _, n := range slot[len(slot):cap(slot)] {
			if n != nil {
				return fmt.Errorf("slot %d holds on to a node that left it", s)
			}
		}
	}
	if count != w.count {
		return fmt.Errorf("count = %d, want %d", w.count, count)
	}
	for class, arrays := range w.spare {
		for _, a := range arrays {
			if len(a) != 0 || bits.Len(uint(cap(a)))-1 != class {
				return fmt.Errorf("spare array of length %d, capacity %d in class %d", len(a), cap(a), class)
			}
			if slices.ContainsFunc(a[:cap(a)], func(n *node) bool { return n != nil }) {
				return fmt.Errorf("spare array of class %d holds on to a node", class)
			}
		}
	}
	return nil
}

func NewNames() *Names { n := newNames(); return &n }

// NewNamed is a task that has a name and nothing else.
func NewNamed(name string) *Handle { return &task{name: name} }

func (s *names) Add(t *Handle) bool {
	t.hash = s.hash(t.name)
	s.fit()
	at, taken := s.slot(t.name, t.hash)
	if !taken {
		s.put(at, t)
	}
	return !taken
}

func (s *names) Remove(t *Handle) {
	s.remove(t)
	s.fit()
}

func (s *names) Find(name string) *Handle { return s.find(name) }
func (s *names) Hash(name string) uint32  { return s.hash(name) }
func (s *names) All() []*Handle           { return s.all() }
func (s *names) Size() (count, slots int) { return s.count, len(s.table) }

// Check looks at every slot: whether the counts are right, each task can be found,
// and no more than three quarters are used, so that every search ends.
func (s *names) Check() error {
	count, used := 0, 0
	for i, t := range s.table {
		if s.tags[i] != empty {
			used++
		}
		if (t != nil) != (s.tags[i] >= firstTag) || t != nil && s.tags[i] != tagOf(t.hash) {
			return fmt.Errorf("slot %d has task %p and tag %d", i, t, s.tags[i])
		}
		if t != nil && int(t.place) != i+1 {
			return fmt.Errorf("%q is in slot %d and says %d", t.name, i, int(t.place)-1)
		}
		if t == nil {
			continue
		}
		count++
		if found := s.find(t.name); found != t {
			return fmt.Errorf("%q is there and find returns %p, want %p", t.name, found, t)
		}
	}
	if count != s.count || used != s.used {
		return fmt.Errorf("count, used = %d, %d, want %d, %d", s.count, s.used, count, used)
	}
	if bits.OnesCount(uint(len(s.table))) != 1 || used > len(s.table)/4*3 {
		return fmt.Errorf("%d of %d slots are used", used, len(s.table))
	}
	return nil
}

func BucketOf(d time.Duration) int  { return bucketOf(d) }
func BucketEnd(i int) time.Duration { return bucketEnd[i] }

// Counts are those of each bucket.
func (d *Distribution) Counts() [BucketCount]uint32 { return d.counts }

func (p *profile) Record(lateness, duration time.Duration) { p.record(lateness, duration) }
func (p *profile) Words() int                              { return len(p.counts) }

func (p *profile) Distributions(count uint64) (lateness, duration Distribution) {
	return p.distributions(count)
}

// SetLateness sets the count of one bucket that is in use, as if there had been so
// many.
func (p *profile) SetLateness(bucket int, n uint32) { p.set(bucket-int(p.late.from), n) }

func NewEntropy(reader io.Reader, failed func(error)) *Entropy {
	return &entropy{reader: reader, failed: failed}
}

func (e *entropy) Uint64() uint64                      { return e.uint64() }
func (e *entropy) Below(n time.Duration) time.Duration { return e.below(n) }
func (e *entropy) UpTo(n time.Duration) time.Duration  { return e.upTo(n) }

// SystemRandom is the reader that the engine has.
func SystemRandom() io.Reader { return rand.Reader }

func BackoffCeiling(base, limit time.Duration, power, maxPower int) time.Duration {
	return backoffCeiling(base, limit, power, maxPower)
}

// SetRandom makes the policy take its random bytes from the reader.
func (p *FullJitter) SetRandom(reader io.Reader) { p.random = NewEntropy(reader, func(error) {}) }

func GoroutineID() uint64                          { return goroutineID() }
func StackID(stack []byte) uint64                  { return stackID(stack) }
func Stacks(ids map[uint64]bool) map[uint64]string { return stacks(ids) }

// SetFault has f called in each of the engine's loops, with its name. To be called
// before anything is scheduled: the engine reads it without a lock.
func SetFault(m *TaskManager, f func(loop string)) { m.engine.fault = f }

// SetRandomOf makes the manager take its random bytes from the reader.
func SetRandomOf(m *TaskManager, reader io.Reader) {
	m.entropy = newEntropy(m.events.randomFailed)
	m.entropy.reader = reader
}

// Dangling counts the deadlines that are filed, the batches that are open and the
// tasks that are over and kept: nothing, in a manager whose tasks have all ended.
func Dangling(m *TaskManager) (deadlines, batches, ending int) {
	m.mu.Lock()
	ending = len(m.ending)
	m.mu.Unlock()
	e := m.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wheel.count, len(e.batches.opened), ending
}

// HasKernelTimer tells whether a timer of the kernel's drives the task.
func HasKernelTimer(t *Handle) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.extra != nil && t.extra.precise != nil
}

// FirePrecise does what the goroutine of a precise task does when it has waited, and
// tells whether the tick was due and nobody had served it.
func FirePrecise(t *Handle) bool {
	e := t.conf.m.engine
	r := e.firePrecise(t)
	if r == nil {
		return false
	}
	e.runHere(r, goroutineID())
	return true
}

// Spin is a precise task's wait for the target.
func Spin(t *Handle, target int64, over bool) (moved bool) {
	p := &preciseTimer{engine: t.conf.m.engine, task: t}
	p.over.Store(over)
	return p.spin(target)
}

// FaultOfSchedule is the end of a task because of the schedule it has now, to be carried out.
func (t *Handle) FaultOfSchedule() (carryOut func()) {
	d := t.extra.seat.fault(t, ErrSchedule)
	return func() { t.conf.m.carryOut(d) }
}
