package stats

import (
	"math"
	"slices"
)

// A Spread is a median with the lowest and highest of the values behind it.
// Repetitions are few, so the whole range is the honest spread.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// Summarize returns the spread of values. NaN values are left out; with none
// left, N is 0 and the rest is NaN.
func Summarize(values []float64) Spread {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return Spread{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	slices.Sort(v)
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Spread{Median: median, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// Ratios divides repetition by repetition: a over b where both have a value
// under the same key. Two figures of one repetition were taken within minutes
// of each other, so that a change in the machine cancels out; the ratio of two
// medians would mix good minutes with bad ones.
func Ratios(a, b map[int]float64) Spread {
	var r []float64
	for rep, x := range a {
		if y, ok := b[rep]; ok && y != 0 {
			r = append(r, x/y)
		}
	}
	return Summarize(r)
}
