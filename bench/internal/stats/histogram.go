// Package stats holds the arithmetic of the benchmark: the lateness histogram,
// medians and ratios. It knows nothing of schedulers.
package stats

import (
	"math"
	"math/bits"
	"sync/atomic"
)

const (
	subBits    = 7 // 128 buckets to an octave: a quantile is right to 0.8 %
	subCount   = 1 << subBits
	numBuckets = (64 - subBits + 1) * subCount
)

// A Histogram counts durations in nanoseconds. Observe may be called from any
// number of goroutines; it does not allocate, so that it adds nothing to the
// allocations it is there to help measure.
type Histogram struct {
	counts [numBuckets]atomic.Int64
	max    atomic.Int64
}

// Observe counts one value; a negative one counts as zero.
func (h *Histogram) Observe(ns int64) {
	ns = max(ns, 0)
	h.counts[bucket(ns)].Add(1)
	for {
		old := h.max.Load()
		if ns <= old || h.max.CompareAndSwap(old, ns) {
			return
		}
	}
}

// A Snapshot is what a Histogram held at one moment.
type Snapshot struct {
	counts []int64
	N      int64
	Max    int64
}

// Begin returns the counts so far and starts a new maximum, so that
// h.Since(h.Begin()) describes only what came in between.
func (h *Histogram) Begin() Snapshot {
	s := h.read()
	h.max.Store(0)
	return s
}

// Since returns what has been observed since begin.
func (h *Histogram) Since(begin Snapshot) Snapshot {
	s := h.read()
	for i, c := range begin.counts {
		s.counts[i] -= c
		s.N -= c
	}
	return s
}

func (h *Histogram) read() Snapshot {
	s := Snapshot{counts: make([]int64, numBuckets), Max: h.max.Load()}
	for i := range h.counts {
		s.counts[i] = h.counts[i].Load()
		s.N += s.counts[i]
	}
	return s
}

// Quantile returns the value below which a share q of the values lies, taken
// linearly within its bucket. It is NaN when there is no value.
func (s Snapshot) Quantile(q float64) float64 {
	if s.N == 0 {
		return math.NaN()
	}
	rank := q * float64(s.N)
	var seen float64
	for i, c := range s.counts {
		if c == 0 || seen+float64(c) < rank {
			seen += float64(c)
			continue
		}
		lo, width := bounds(i)
		v := lo + width*(rank-seen)/float64(c)
		return min(v, float64(s.Max))
	}
	return float64(s.Max)
}

// bucket is the index of the bucket that holds ns: exact below 128, then 128
// equal steps to each power of two.
func bucket(ns int64) int {
	if ns < subCount {
		return int(ns)
	}
	shift := bits.Len64(uint64(ns)) - 1 - subBits
	return (shift+1)<<subBits + int(ns>>shift) - subCount
}

// bounds is the inverse of bucket: the lowest value of bucket i and its width.
func bounds(i int) (lo, width float64) {
	if i < subCount {
		return float64(i), 1
	}
	shift := i>>subBits - 1
	width = math.Ldexp(1, shift)
	return float64(i&(subCount-1)+subCount) * width, width
}
