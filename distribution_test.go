package taskmanager_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

func TestBucketsEndAtPowersOfTheSquareRootOfTwo(t *testing.T) {
	for i := range taskmanager.BucketCount - 1 {
		// 1 µs · √2^i, in nanoseconds: the root of 10^6 · 2^i.
		square := new(big.Int).Lsh(big.NewInt(1_000_000), uint(i))
		if got, want := taskmanager.BucketEnd(i), time.Duration(square.Sqrt(square).Int64()); got != want {
			t.Errorf("bucket %d ends at %d ns, want %d", i, got, want)
		}
	}
	if got := taskmanager.BucketEnd(taskmanager.BucketCount - 2); got < time.Hour {
		t.Errorf("the last bounded bucket ends at %v, before an hour", got)
	}
}

func TestEveryDurationIsInTheBucketWhoseEndIsTheFirstNotBelowIt(t *testing.T) {
	durations := []time.Duration{math.MinInt64, -time.Hour, -1, 0, 1, 999, time.Hour, 100 * time.Hour, math.MaxInt64 - 1, math.MaxInt64}
	for i := range taskmanager.BucketCount - 1 {
		end := taskmanager.BucketEnd(i)
		durations = append(durations, end-1, end, end+1)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		durations = append(durations, time.Duration(r.Uint64()>>r.IntN(64)))
	}
	for _, d := range durations {
		want := 0
		for d > taskmanager.BucketEnd(want) {
			want++
		}
		if got := taskmanager.BucketOf(d); got != want {
			t.Errorf("bucketOf(%d ns) = %d, want %d", d, got, want)
		}
	}
}

func TestAQuantileIsNeverBelowTheTrueOneAndAtMostRootTwoAbove(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var p taskmanager.Profile
		// Spread evenly over the orders of magnitude, of a narrow stretch or of all.
		least := math.Exp(r.Float64() * math.Log(3.6e9))
		span := r.Float64() * math.Log(3.6e9/least)
		sorted := make([]time.Duration, 1+r.IntN(400))
		for i := range sorted {
			sorted[i] = max(time.Microsecond, min(time.Hour, time.Duration(1000*least*math.Exp(r.Float64()*span))))
			p.Record(sorted[i], sorted[len(sorted)-1])
		}
		slices.Sort(sorted)
		d, _ := p.Distributions(uint64(len(sorted)))
		if most := sorted[len(sorted)-1]; d.Max != most {
			t.Fatalf("Max = %v, want %v", d.Max, most)
		}
		for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			want := sorted[max(1, int(math.Ceil(q*float64(len(sorted)))))-1]
			got := d.Quantile(q)
			if got < want || float64(got) > math.Sqrt2*float64(want) || got > d.Max {
				t.Fatalf("Quantile(%v) of %d durations = %v, want %v to √2 times that, and not above %v", q, len(sorted), got, want, d.Max)
			}
		}
	}
}

func TestAQuantileHasAValueAtEveryArgument(t *testing.T) {
	var none taskmanager.Distribution
	if got := none.Quantile(0.5); got != 0 {
		t.Errorf("Quantile of nothing = %v, want 0", got)
	}
	var p taskmanager.Profile
	p.Record(5*time.Millisecond, 200*time.Hour)
	late, lasted := p.Distributions(1)
	for _, q := range []float64{math.Inf(-1), -1, 0, 0.5, 1, 2, math.Inf(1), math.NaN()} {
		if got := late.Quantile(q); got != 5*time.Millisecond {
			t.Errorf("Quantile(%v) of one duration = %v, want it", q, got)
		}
		if got := lasted.Quantile(q); got != 200*time.Hour {
			t.Errorf("Quantile(%v) of one duration above an hour = %v, want it", q, got)
		}
	}
}

// A plainProfile is what a profile packs.
type plainProfile struct {
	late, lasted       [taskmanager.BucketCount]uint32
	lateMax, lastedMax time.Duration
	n                  uint64
}

func (p *plainProfile) record(late, lasted time.Duration) {
	p.late[taskmanager.BucketOf(late)]++
	p.lasted[taskmanager.BucketOf(lasted)]++
	p.lateMax, p.lastedMax = max(p.lateMax, late), max(p.lastedMax, lasted)
	p.n++
}

func (p *plainProfile) differs(from *taskmanager.Profile) string {
	late, lasted := from.Distributions(p.n)
	switch {
	case late.Counts() != p.late:
		return fmt.Sprintf("latenesses = %v,\nwant %v", late.Counts(), p.late)
	case lasted.Counts() != p.lasted:
		return fmt.Sprintf("durations = %v,\nwant %v", lasted.Counts(), p.lasted)
	case late.Max != p.lateMax || lasted.Max != p.lastedMax || late.Count != p.n || lasted.Count != p.n:
		return fmt.Sprintf("max, count = %v, %d and %v, %d, want %v and %v, %d", late.Max, late.Count, lasted.Max, lasted.Count, p.lateMax, p.lastedMax, p.n)
	}
	return ""
}

func TestAPackedProfileAgreesWithAPlainCount(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		var packed taskmanager.Profile
		var plain plainProfile
		usual, spread := r.IntN(64), 1+r.IntN(64)
		draw := func() time.Duration { return time.Duration(r.Uint64() >> min(63, 1+usual+r.IntN(spread))) }
		for range 300 {
			late, lasted := draw(), draw()
			packed.Record(late, lasted)
			plain.record(late, lasted)
			if diff := plain.differs(&packed); diff != "" {
				t.Fatalf("seed %d, after %v, %v: %s", seed, late, lasted, diff)
			}
		}
	}
}

func TestAProfileWidensItsCountsInTimeAndLosesNone(t *testing.T) {
	var packed taskmanager.Profile
	var plain plainProfile
	record := func(late, lasted time.Duration, n int) {
		for range n {
			packed.Record(late, lasted)
			plain.record(late, lasted)
		}
	}
	record(time.Millisecond, time.Minute, 10)
	record(time.Microsecond, time.Microsecond, math.MaxUint16)
	narrow := packed.Words()
	if diff := plain.differs(&packed); diff != "" {
		t.Fatalf("with the highest count that is narrow: %s", diff)
	}
	record(time.Second, time.Microsecond, 1) // durations overflow first
	if packed.Words() < 2*narrow {
		t.Errorf("%d words after the overflow, %d before: not widened", packed.Words(), narrow)
	}
	record(time.Microsecond, time.Hour, 70_000)
	record(3*time.Hour, 0, 3) // grows the stretch while wide
	if diff := plain.differs(&packed); diff != "" {
		t.Fatal(diff)
	}
}

func TestACountThatIsFullStaysFull(t *testing.T) {
	var p taskmanager.Profile
	for range math.MaxUint16 + 2 { // wide from here on
		p.Record(0, 0)
	}
	p.Record(time.Hour, 0)
	p.SetLateness(0, math.MaxUint32-1)
	for range 3 {
		p.Record(0, 0)
	}
	late, lasted := p.Distributions(1 << 33)
	if got := late.Counts()[0]; got != math.MaxUint32 {
		t.Errorf("count = %d, want %d", got, uint32(math.MaxUint32))
	}
	if got := lasted.Counts()[0]; got != math.MaxUint16+6 {
		t.Errorf("its neighbour's count = %d, want %d", got, math.MaxUint16+6)
	}
	if got := late.Quantile(0.5); got != time.Microsecond {
		t.Errorf("Quantile(0.5) = %v, want %v", got, time.Microsecond)
	}
	if got := late.Quantile(1); got != time.Hour {
		t.Errorf("Quantile(1) = %v, want %v", got, time.Hour)
	}
}

func TestRecordingAllocatesNothingInTheLongRun(t *testing.T) {
	var p taskmanager.Profile
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() time.Duration { return time.Duration(r.Int64N(int64(time.Second))) }
	for range 200_000 { // until no stretch and no count has to grow
		p.Record(draw(), draw())
	}
	if got := testing.AllocsPerRun(10, func() {
		for range 1000 {
			p.Record(draw(), draw())
		}
	}); got != 0 {
		t.Errorf("%v allocations in 1000 records, want 0", got)
	}
}

func TestAnOrdinaryTaskAllocatesNothingForItsProfile(t *testing.T) {
	profiles := make([]taskmanager.Profile, 101)
	next := 0
	if got := testing.AllocsPerRun(100, func() {
		p := &profiles[next]
		next++
		for d := time.Duration(1); d < 5*time.Millisecond; d *= 3 {
			p.Record(d, min(d, 5*time.Microsecond))
		}
	}); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
