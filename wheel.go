package taskmanager

import (
	"math"
	"math/bits"
)

// never is an instant that is not reached.
const never = int64(math.MaxInt64)

// A node is one deadline in the wheel. It is part of what it is the deadline of,
// so that filing it allocates nothing. All its fields are guarded by engine.mu.
type node struct {
	when int64 // monotonic nanoseconds
	task *task // whose deadline it is; nil for the engine's own
	idx  int32 // place in its slot
	slot int16 // 1 + the slot it is filed in, 0 if in none
	kind nodeKind
}

type nodeKind uint8

const (
	nodeTick  nodeKind = iota // a tick is due, or a backed-off start
	nodeLimit                 // a run's time is over
	nodeWatch                 // look at the wall clock
)

func (n *node) filed() bool { return n.slot != 0 }

// The wheel is hierarchical (Varghese and Lauck, "Hashed and Hierarchical Timing
// Wheels", 1987): level 0 has 256 slots of 2^18 ns, 262 µs, and each slot of the
// four levels above is as long as the whole level below, which makes 67 ms, 17 s,
// 73 min and 13 days a slot, 9 years in all. What lies further waits in the last
// slot and is filed again when that comes round.
//
// A slot is an array of node pointers and not a list: emptying it streams through
// memory, and the cache misses on the nodes overlap instead of depending on each
// other. That is worth a factor of 3 to 4 at a million nodes against lists and heaps,
// measured in a prototype that had all three; BenchmarkWheel has this one. Slots of 256
// and not more, because one slot of an upper level is filed anew in one go, and that is
// somebody's lateness.
const (
	slotBits  = 18
	levelBits = 8
	perLevel  = 1 << levelBits
	levels    = 5
	slotCount = perLevel * levels
)

// sparse is the largest number of nodes that a slot is searched through for the
// exact next deadline. A fuller slot is served at its end (denseAt), all at once: at that
// density somebody is due every few dozen microseconds, and a wake-up costs more
// than all of them.
const sparse = 8

// crowded is how long one wake-up serves where slots are dense, 393 µs, which is less than
// half of what timers are late by themselves. Shorter costs wake-ups, longer shows in the
// lateness of the last percent.
const crowded = 3 << (slotBits - 1)

type wheel struct {
	cur   int64 // the tick (when >> slotBits) up to which every slot is empty
	count int
	exact bool // search every slot of level 0: time is a test's
	// crowd is when to serve what falls due from the last wake-up on, if the slot in
	// progress was dense then.
	crowd int64
	used  [slotCount / 64]uint64
	slots [slotCount][]*node
	spare [32][][]*node // emptied slots' arrays by log2 of their capacity
}

// shift is the number of bits that turn a tick into a slot number of the level.
func shift(level int) uint { return uint(level * levelBits) }

// slotFor gives the slot for a tick, seen from now.
func (w *wheel) slotFor(tick int64) int {
	tick = max(tick, w.cur)
	for l := range levels {
		s := shift(l)
		if (tick>>s)-(w.cur>>s) < perLevel {
			return l<<levelBits | int((tick>>s)&(perLevel-1))
		}
	}
	s := shift(levels - 1)
	return (levels-1)<<levelBits | int(((w.cur>>s)+perLevel-1)&(perLevel-1))
}

// add files n, which must not be filed, at when; never is nowhere. now tells an
// empty wheel where to stand.
func (w *wheel) add(n *node, when, now int64) {
	n.when = when
	if when == never {
		return
	}
	if w.count == 0 {
		w.cur = max(w.cur, now>>slotBits)
	}
	w.count++
	w.file(n)
}

func (w *wheel) file(n *node) {
	s := w.slotFor(n.when >> slotBits)
	slot := w.slots[s]
	if len(slot) == cap(slot) {
		slot = w.grow(slot)
	}
	if len(slot) == 0 {
		w.used[s>>6] |= 1 << (s & 63)
	}
	n.slot, n.idx = int16(s+1), int32(len(slot))
	w.slots[s] = append(slot, n)
}

// grow returns an array of twice the capacity with the slot's nodes.
func (w *wheel) grow(old []*node) []*node {
	class := max(1, bits.Len(uint(cap(old))))
	var bigger []*node
	if free := w.spare[class]; len(free) > 0 {
		bigger = free[len(free)-1]
		free[len(free)-1] = nil
		w.spare[class] = free[:len(free)-1]
	} else {
		bigger = make([]*node, 0, 1<<class)
	}
	bigger = append(bigger, old...)
	w.recycle(old)
	return bigger
}

// recycle keeps an array that is not needed for the time being, unless there are
// enough of its size: a handful of large ones, thousands of small ones.
func (w *wheel) recycle(a []*node) {
	if cap(a) == 0 {
		return
	}
	class := bits.Len(uint(cap(a))) - 1
	if len(w.spare[class]) > max(4, 1<<14>>class) {
		return
	}
	clear(a)
	w.spare[class] = append(w.spare[class], a[:0])
}

// remove takes n out, if it is filed.
func (w *wheel) remove(n *node) {
	if !n.filed() {
		return
	}
	s, i := int(n.slot-1), int(n.idx)
	n.slot = 0
	w.unfile(s, i)
}

// unfile removes the i-th node of a slot by putting the last one in its place.
func (w *wheel) unfile(s, i int) {
	slot := w.slots[s]
	last := len(slot) - 1
	if i != last {
		slot[i] = slot[last]
		slot[i].idx = int32(i)
	}
	slot[last] = nil
	w.slots[s] = slot[:last]
	w.count--
	if last == 0 {
		w.emptied(s)
	}
}

// clear takes all out.
func (w *wheel) clear() {
	for _, slot := range w.slots {
		for _, n := range slot {
			n.slot = 0
		}
	}
	*w = wheel{}
}

func (w *wheel) emptied(s int) {
	w.used[s>>6] &^= 1 << (s & 63)
	w.recycle(w.slots[s])
	w.slots[s] = nil
}

// nextUsed is the first tick at which a used slot of the level begins, at or
// after the current one on level 0, after it above; never if there is none.
func (w *wheel) nextUsed(level int) int64 {
	s := shift(level)
	at := w.cur >> s
	from := int64(0)
	if level > 0 {
		from = 1 // the current slot of an upper level was emptied on entering it
	}
	base := level << levelBits
	for d := from; d < perLevel; {
		p := int((at + d) & (perLevel - 1))
		if word := w.used[(base+p)>>6] >> (p & 63); word != 0 {
			if d += int64(bits.TrailingZeros64(word)); d < perLevel {
				return (at + d) << s
			}
			return never
		}
		d += int64(64 - p&63)
	}
	return never
}

// nextCascade is the earliest tick at which a used slot of an upper level begins.
func (w *wheel) nextCascade() int64 {
	first := never
	for l := 1; l < levels; l++ {
		first = min(first, w.nextUsed(l))
	}
	return first
}

// cascade moves to tick and files anew every upper slot that begins there.
func (w *wheel) cascade(tick int64) {
	w.cur = tick
	for l := levels - 1; l > 0; l-- {
		if tick&(1<<shift(l)-1) != 0 {
			continue
		}
		s := l<<levelBits | int((tick>>shift(l))&(perLevel-1))
		moved := w.slots[s]
		if len(moved) == 0 {
			continue
		}
		w.slots[s] = nil
		w.used[s>>6] &^= 1 << (s & 63)
		for _, n := range moved {
			w.file(n)
		}
		w.recycle(moved)
	}
}

// popDue takes out nodes that are due at now and appends them to out, until none
// is left (done) or out holds limit of them. No node is taken before its instant.
// The order is that of the slots, and none inside a slot.
func (w *wheel) popDue(now int64, limit int, out []*node) (due []*node, done bool) {
	end := now >> slotBits
	for w.count > 0 {
		if len(out) >= limit {
			return out, false
		}
		first := w.nextUsed(0)
		if c := w.nextCascade(); c <= first && c <= end {
			w.cascade(c)
			continue
		}
		if first > end {
			break
		}
		w.cur = first
		s := int(first & (perLevel - 1))
		if first < end {
			out = w.popTail(s, limit, out)
			continue
		}
		return w.popPart(s, now, limit, out)
	}
	w.cur = max(w.cur, end)
	return out, true
}

// popTail takes nodes off the end of a slot that is due as a whole.
func (w *wheel) popTail(s, limit int, out []*node) []*node {
	slot := w.slots[s]
	keep := max(0, len(slot)-(limit-len(out)))
	for _, n := range slot[keep:] {
		n.slot = 0
		out = append(out, n)
	}
	w.count -= len(slot) - keep
	if keep == 0 {
		w.emptied(s)
		return out
	}
	clear(slot[keep:])
	w.slots[s] = slot[:keep]
	return out
}

// popPart takes what is due out of the slot in progress.
func (w *wheel) popPart(s int, now int64, limit int, out []*node) (due []*node, done bool) {
	if end, dense := w.denseAt(now); dense {
		w.crowd = end
	}
	for i := 0; i < len(w.slots[s]); {
		n := w.slots[s][i]
		if n.when > now {
			i++
			continue
		}
		if len(out) >= limit {
			return out, false
		}
		n.slot = 0
		w.unfile(s, i)
		out = append(out, n)
	}
	return out, true
}

// denseAt tells whether the slot that now is in is dense, or was at the last wake-up,
// and when to serve what falls due meanwhile.
func (w *wheel) denseAt(now int64) (end int64, dense bool) {
	if w.crowd > now {
		return w.crowd, true
	}
	tick := now >> slotBits
	if w.exact || len(w.slots[tick&(perLevel-1)]) <= sparse {
		return 0, false
	}
	return now + crowded, true
}

// wake is the instant to be woken at: the next deadline, or the end of a dense
// slot, or the moment to cascade a dense upper slot; never for an empty wheel.
func (w *wheel) wake() int64 {
	if w.count == 0 {
		return never
	}
	next := never
	if w.crowd>>slotBits > w.cur {
		next = w.crowd
	}
	for l := range levels {
		tick := w.nextUsed(l)
		if tick == never || next != never && tick == w.cur {
			continue
		}
		slot := w.slots[l<<levelBits|int((tick>>shift(l))&(perLevel-1))]
		switch {
		case len(slot) <= sparse || l == 0 && w.exact:
			for _, n := range slot {
				next = min(next, n.when)
			}
			if l == levels-1 { // it may be beyond the slot, and hide earlier ones behind that
				next = min(next, (tick+1<<shift(l))<<slotBits)
			}
		case l == 0:
			next = min(next, max(w.crowd, (tick+1)<<slotBits))
		default:
			next = min(next, max(w.crowd, tick<<slotBits))
		}
	}
	return next
}
