package durable

import "iter"

// An ordered is a sorted set: a list of short sorted slices, so that a change
// moves little. Rows that come in order are appended. less must be a strict order
// in which no two rows of the set are equal.
type ordered[T any] struct {
	less  func(a, b T) bool
	parts [][]T // none empty
}

// orderedPart is when a part is split. A change moves half of one at most, which
// costs less than the search for it.
const orderedPart = 128

// seek finds the first row that is not before the place; before must be true for a
// first stretch of the rows, and false for the rest.
func (o *ordered[T]) seek(before func(T) bool) (part, i int) {
	lo, hi := 0, len(o.parts) // parts whose last row is before, and those whose is not
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if p := o.parts[mid]; before(p[len(p)-1]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(o.parts) {
		return lo, 0
	}
	p := o.parts[lo]
	a, b := 0, len(p)
	for a < b {
		mid := int(uint(a+b) / 2)
		if before(p[mid]) {
			a = mid + 1
		} else {
			b = mid
		}
	}
	return lo, a
}

func (o *ordered[T]) insert(x T) {
	n := len(o.parts)
	if n == 0 {
		o.parts = append(o.parts, []T{x})
		return
	}
	if last := o.parts[n-1]; o.less(last[len(last)-1], x) {
		if len(last) < orderedPart {
			o.parts[n-1] = append(last, x)
		} else {
			o.parts = append(o.parts, append(make([]T, 0, orderedPart), x))
		}
		return
	}
	k, i := o.seek(func(y T) bool { return o.less(y, x) })
	if len(o.parts[k]) >= orderedPart {
		half := len(o.parts[k]) / 2
		right := append(make([]T, 0, orderedPart), o.parts[k][half:]...)
		clear(o.parts[k][half:])
		o.parts[k] = o.parts[k][:half]
		o.parts = append(o.parts, nil)
		copy(o.parts[k+2:], o.parts[k+1:])
		o.parts[k+1] = right
		if i > half {
			k, i = k+1, i-half
		}
	}
	p := append(o.parts[k], x)
	copy(p[i+1:], p[i:])
	p[i] = x
	o.parts[k] = p
}

// remove takes x out, which must be in.
func (o *ordered[T]) remove(x T) {
	k, i := o.seek(func(y T) bool { return o.less(y, x) })
	p := o.parts[k]
	copy(p[i:], p[i+1:])
	clear(p[len(p)-1:])
	o.parts[k] = p[:len(p)-1]
	if len(p) == 1 {
		copy(o.parts[k:], o.parts[k+1:])
		clear(o.parts[len(o.parts)-1:])
		o.parts = o.parts[:len(o.parts)-1]
	}
}

// rising gives the rows from the first that is not before, in order.
func (o *ordered[T]) rising(before func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		k, i := o.seek(before)
		for ; k < len(o.parts); k, i = k+1, 0 {
			for _, x := range o.parts[k][i:] {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// falling gives the rows that are before, in reverse order.
func (o *ordered[T]) falling(before func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		k, i := o.seek(before)
		for {
			for i--; i >= 0; i-- {
				if !yield(o.parts[k][i]) {
					return
				}
			}
			if k--; k < 0 {
				return
			}
			i = len(o.parts[k])
		}
	}
}

// all is true of every row, for rising and falling.
func all[T any](T) bool { return true }

// none is true of no row, for rising.
func none[T any](T) bool { return false }

// A dueHeap has waiting triggers with the next due one at index 0. Four children a
// node, and the instant beside the pointer: half the cache misses of a binary heap
// of pointers.
type dueHeap []dueSlot

type dueSlot struct {
	due int64 // microseconds of the Unix epoch
	t   *memoryTrigger
}

func (a dueSlot) before(b dueSlot) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.t.row.ID < b.t.row.ID
}

func (h *dueHeap) push(t *memoryTrigger) {
	*h = append(*h, dueSlot{t.row.DueAt.UnixMicro(), t})
	h.up(len(*h) - 1)
}

// remove takes out t, which must be in.
func (h *dueHeap) remove(t *memoryTrigger) {
	s, i, last := *h, t.place, len(*h)-1
	moved := s[last]
	s[last] = dueSlot{}
	*h = s[:last]
	if i == last {
		return
	}
	s[i] = moved
	moved.t.place = i
	h.down(i)
	h.up(moved.t.place)
}

func (h *dueHeap) up(i int) {
	s := *h
	x := s[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !x.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		s[i].t.place = i
		i = parent
	}
	s[i] = x
	x.t.place = i
}

func (h *dueHeap) down(i int) {
	s := *h
	x := s[i]
	for {
		first := 4*i + 1
		if first >= len(s) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(s)); c++ {
			if s[c].before(s[least]) {
				least = c
			}
		}
		if !s[least].before(x) {
			break
		}
		s[i] = s[least]
		s[i].t.place = i
		i = least
	}
	s[i] = x
	x.t.place = i
}
