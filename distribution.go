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
func (d *Distribution) Quantile(q float64) time.Duration {
	var total uint64
	for _, c := range d.counts {
		total += uint64(c)
	}
	if total == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(total)))
	rank = max(1, min(rank, total))
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

// A profile is a task's two distributions, packed: one array holds only the
// stretch of buckets that each has used so far, which for most tasks is a few of
// the 66. It grows when a duration falls outside, which cannot happen often, and
// a million tasks save half a gigabyte.
type profile struct {
	counts       []uint32 // latenesses, then durations
	lateMax      time.Duration
	durationMax  time.Duration
	late, lasted stretch
}

// A stretch is the range of buckets [from, from+n) that is in use.
type stretch struct{ from, n uint8 }

// record counts one run. It allocates only when a stretch has to grow.
func (p *profile) record(lateness, duration time.Duration) {
	l, d := bucketOf(lateness), bucketOf(duration)
	if !p.late.has(l) || !p.lasted.has(d) {
		p.widen(l, d)
	}
	p.count(l - int(p.late.from))
	p.count(int(p.late.n) + d - int(p.lasted.from))
	p.lateMax = max(p.lateMax, lateness)
	p.durationMax = max(p.durationMax, duration)
}

// count adds one. At 2^32 in one bucket all are halved, which keeps the shape.
func (p *profile) count(i int) {
	if p.counts[i] == math.MaxUint32 {
		for j := range p.counts {
			p.counts[j] /= 2
		}
	}
	p.counts[i]++
}

func (p *profile) widen(l, d int) {
	old, late, lasted := p.counts, p.late, p.lasted
	p.late, p.lasted = late.with(l), lasted.with(d)
	p.counts = make([]uint32, int(p.late.n)+int(p.lasted.n))
	if len(old) > 0 {
		copy(p.counts[late.from-p.late.from:], old[:late.n])
		copy(p.counts[p.late.n+lasted.from-p.lasted.from:], old[late.n:])
	}
}

func (s stretch) has(i int) bool { return uint(i)-uint(s.from) < uint(s.n) }

// with returns the stretch grown to have i, and to an even start and length, so
// that it need not grow again for the very next bucket.
func (s stretch) with(i int) stretch {
	from, to := uint8(i)&^1, uint8(i)|1
	if s.n > 0 {
		from, to = min(from, s.from), max(to, s.from+s.n-1)
	}
	return stretch{from, to - from + 1}
}

// distributions unpacks the profile.
func (p *profile) distributions(count uint64) (lateness, duration Distribution) {
	lateness = Distribution{Count: count, Max: p.lateMax}
	duration = Distribution{Count: count, Max: p.durationMax}
	copy(lateness.counts[p.late.from:], p.counts[:p.late.n])
	copy(duration.counts[p.lasted.from:], p.counts[p.late.n:])
	return lateness, duration
}
