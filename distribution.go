package taskmanager

import (
	"encoding/json"
	"math"
	"math/bits"
	"time"
)

// Buckets are logarithmic, two to the octave: bucket 0 ends at 1 µs and bucket i
// at 1 µs · 2^(i/2), inclusive; the last one takes all that is above 1 h.
const bucketCount = 66

// bucketEnd[i] is the largest duration of bucket i.
var bucketEnd = func() (end [bucketCount]time.Duration) {
	for i := range end {
		end[i] = time.Duration(float64(time.Microsecond) * math.Exp2(float64(i)/2))
	}
	for i := 0; i < bucketCount; i += 2 {
		end[i] = time.Microsecond << (i / 2) // not rounded
	}
	end[bucketCount-1] = maxDuration
	return end
}()

// bucketOf gives the bucket of d.
func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	// 1 µs · 2^(octave-1) < d <= 1 µs · 2^octave
	octave := bits.Len64(uint64(d-1) / uint64(time.Microsecond))
	if i := 2*octave - 1; i < bucketCount {
		if d > bucketEnd[i] {
			i++
		}
		return min(i, bucketCount-1)
	}
	return bucketCount - 1
}

// A Distribution counts durations in logarithmic buckets from 1 µs to 1 h, two to
// the octave. It is a value of constant size.
type Distribution struct {
	Count  uint64        // durations counted
	Max    time.Duration // the largest, exact
	counts [bucketCount]uint32
}

// Quantile returns a duration that the share q (0 to 1) of those counted do not
// exceed: never below the true quantile, at most √2 times it if that is between
// 1 µs and 1 h, and never above Max. 0 if nothing was counted.
func (d Distribution) Quantile(q float64) time.Duration {
	var total uint64
	for _, c := range d.counts {
		total += uint64(c)
	}
	if total == 0 {
		return 0
	}
	rank := uint64(1)
	if q >= 1 {
		rank = total
	} else if q > 0 { // and not NaN
		rank = max(1, uint64(math.Ceil(q*float64(total))))
	}
	for i, c := range d.counts {
		if rank <= uint64(c) {
			return min(bucketEnd[i], d.Max)
		}
		rank -= uint64(c)
	}
	return d.Max
}

// MarshalJSON writes the count, the usual quantiles and the maximum, in
// nanoseconds.
func (d Distribution) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count uint64        `json:"count"`
		P50   time.Duration `json:"p50"`
		P90   time.Duration `json:"p90"`
		P99   time.Duration `json:"p99"`
		Max   time.Duration `json:"max"`
	}{d.Count, d.Quantile(0.5), d.Quantile(0.9), d.Quantile(0.99), d.Max})
}

// A profile is a task's two distributions, packed. One array holds only the stretch
// of buckets that each has used so far, and 16 bits a count until one of them does
// not fit: 64 bytes serve most tasks for hours, where two Distributions would take
// a thousand. What does not fit any more is copied to a larger array, which cannot
// happen often. Not to be copied.
type profile struct {
	lateMax      time.Duration
	durationMax  time.Duration
	late, lasted stretch
	wide         bool       // a count takes two words of counts, the lower first
	counts       []uint16   // of latenesses, then of durations
	first        [32]uint16 // the array of counts, until it is too small
}

// A stretch is the range of buckets [from, from+n) that is in use.
type stretch struct{ from, n uint8 }

// The stretches that a task begins with: the lateness of timers and the duration of
// short functions, so that a task hardly ever allocates.
var (
	usualLateness = stretch{0, 26} // to 5.8 ms
	usualDuration = stretch{0, 6}  // to 5.7 µs
)

// record counts one run. It allocates only when a stretch or a count has to grow.
func (p *profile) record(lateness, duration time.Duration) {
	l, d := bucketOf(lateness), bucketOf(duration)
	if !p.late.has(l) || !p.lasted.has(d) {
		p.repack(p.late.with(l, usualLateness), p.lasted.with(d, usualDuration), p.wide)
	}
	p.count(l - int(p.late.from))
	p.count(int(p.late.n) + d - int(p.lasted.from))
	p.lateMax = max(p.lateMax, lateness)
	p.durationMax = max(p.durationMax, duration)
}

func (p *profile) count(i int) {
	if !p.wide {
		if p.counts[i]++; p.counts[i] > 0 {
			return
		}
		p.counts[i]-- // back from the overflow
		p.repack(p.late, p.lasted, true)
	}
	if n := p.get(i); n < math.MaxUint32 { // 2^32 in one bucket is as good as more
		p.set(i, n+1)
	}
}

func (p *profile) get(i int) uint32 {
	if !p.wide {
		return uint32(p.counts[i])
	}
	return uint32(p.counts[2*i]) | uint32(p.counts[2*i+1])<<16
}

func (p *profile) set(i int, n uint32) {
	if !p.wide {
		p.counts[i] = uint16(n)
		return
	}
	p.counts[2*i], p.counts[2*i+1] = uint16(n), uint16(n>>16)
}

// repack copies the counts to an array for other stretches, or wider counts.
func (p *profile) repack(late, lasted stretch, wide bool) {
	old := profile{late: p.late, lasted: p.lasted, wide: p.wide, counts: p.counts}
	words := int(late.n) + int(lasted.n)
	if wide {
		words *= 2
	}
	p.late, p.lasted, p.wide = late, lasted, wide
	if old.counts == nil && words <= len(p.first) {
		p.counts = p.first[:words]
	} else {
		p.counts = make([]uint16, words)
	}
	for i := range int(old.late.n) {
		p.set(i+int(old.late.from)-int(late.from), old.get(i))
	}
	for i := range int(old.lasted.n) {
		p.set(i+int(late.n)+int(old.lasted.from)-int(lasted.from), old.get(int(old.late.n)+i))
	}
}

func (s stretch) has(i int) bool { return uint(i)-uint(s.from) < uint(s.n) }

// with returns the stretch grown to have i, by four buckets or more, so that it
// need not grow again for the very next; the first stretch has the usual ones too.
func (s stretch) with(i int, usual stretch) stretch {
	if s.n == 0 {
		s = usual
	}
	from, to := int(s.from), int(s.from)+int(s.n)
	if i < from {
		from = max(0, min(i, from-4))
	}
	if i >= to {
		to = min(bucketCount, max(i+1, to+4))
	}
	return stretch{uint8(from), uint8(to - from)}
}

// distributions unpacks the profile.
func (p *profile) distributions(count uint64) (lateness, duration Distribution) {
	lateness = Distribution{Count: count, Max: p.lateMax}
	duration = Distribution{Count: count, Max: p.durationMax}
	for i := range int(p.late.n) {
		lateness.counts[int(p.late.from)+i] = p.get(i)
	}
	for i := range int(p.lasted.n) {
		duration.counts[int(p.lasted.from)+i] = p.get(int(p.late.n) + i)
	}
	return lateness, duration
}
