package stats

import (
	"math"
	"testing"
)

func TestBucketsCoverEveryValueOnceInOrder(t *testing.T) {
	for i := range numBuckets - 1 {
		lo, width := bounds(i)
		next, _ := bounds(i + 1)
		if lo+width != next {
			t.Fatalf("bounds(%d) ends at %v, the next begins at %v", i, lo+width, next)
		}
		if lo < math.MaxInt64 && bucket(int64(lo)) != i {
			t.Fatalf("bucket(%v) = %d, want %d", lo, bucket(int64(lo)), i)
		}
	}
}

func TestQuantilesOfKnownValuesAreWithinOnePercent(t *testing.T) {
	var h Histogram
	h.Observe(5_000_000_000)
	begin := h.Begin()
	for i := range int64(100_000) {
		h.Observe((i + 1) * 100)
	}
	s := h.Since(begin)
	if s.N != 100_000 || s.Max != 10_000_000 {
		t.Fatalf("N, Max = %d, %d, want 100000, 10000000: what came before Begin must not count", s.N, s.Max)
	}
	for _, q := range []float64{0.5, 0.99, 0.999} {
		want := q * 10_000_000
		if got := s.Quantile(q); math.Abs(got/want-1) > 0.01 {
			t.Errorf("Quantile(%v) = %v, want %v within 1 %%", q, got, want)
		}
	}
}

func TestQuantileNeverExceedsTheMaximum(t *testing.T) {
	var h Histogram
	h.Observe(1_000_001)
	if got := h.Since(Snapshot{}).Quantile(0.999); got > 1_000_001 {
		t.Errorf("Quantile(0.999) = %v, want at most 1000001", got)
	}
	if got := (Snapshot{}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v, want NaN", got)
	}
}

func TestSummarize(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		in               []float64
		median, min, max float64
		n                int
	}{
		{[]float64{3, 1, 2}, 2, 1, 3, 3},
		{[]float64{4, 1, 2, 3}, 2.5, 1, 4, 4},
		{[]float64{nan, 7}, 7, 7, 7, 1},
	} {
		got := Summarize(c.in)
		if want := (Spread{c.median, c.min, c.max, c.n}); got != want {
			t.Errorf("Summarize(%v) = %v, want %v", c.in, got, want)
		}
	}
	if got := Summarize([]float64{nan}); got.N != 0 || !math.IsNaN(got.Median) {
		t.Errorf("Summarize(NaN) = %v, want no value", got)
	}
}

func TestRatiosPairRepetitions(t *testing.T) {
	// The machine was ten times slower in repetition 1; the ratio was not.
	a := map[int]float64{0: 1, 1: 10, 2: 1.2, 7: 99}
	b := map[int]float64{0: 2, 1: 20, 2: 2, 3: 5}
	if got, want := Ratios(a, b), (Spread{0.5, 0.5, 0.6, 3}); got != want {
		t.Errorf("Ratios = %v, want %v", got, want)
	}
	if got := Ratios(a, map[int]float64{0: 0}); got.N != 0 {
		t.Errorf("Ratios over zero = %v, want none", got)
	}
}
