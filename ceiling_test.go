package taskmanager_test

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
)

func TestTheBackoffCeilingDoublesUpToItsBounds(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		base, limit     time.Duration
		power, maxPower int
		want            time.Duration
	}{
		{time.Second, time.Hour, 0, 5, time.Second},
		{time.Second, time.Hour, 1, 5, 2 * time.Second},
		{time.Second, time.Hour, 5, 5, 32 * time.Second},
		{time.Second, time.Hour, 6, 5, 32 * time.Second},
		{time.Second, 15 * time.Second, 3, 5, 8 * time.Second},
		{time.Second, 15 * time.Second, 4, 5, 15 * time.Second},
		{time.Second, 16 * time.Second, 4, 5, 16 * time.Second},
		{time.Second, time.Millisecond, 0, 5, time.Millisecond},
		{time.Second, time.Hour, 3, 0, time.Second},
		{time.Second, time.Hour, 3, -1, time.Second},
		{time.Second, time.Hour, -3, 5, time.Second},
		{time.Second, time.Hour, math.MinInt, math.MinInt, time.Second},
		{0, time.Hour, 3, 5, 0},
		{-1, time.Hour, 3, 5, 0},
		{time.Second, 0, 3, 5, 0},
		{time.Second, -1, 3, 5, 0},
		{math.MinInt64, math.MinInt64, 63, 63, 0},
		{1, most, 62, 62, 1 << 62},
		{1, most, 63, 63, most},
		{1, most, 64, 64, most},
		{1, most, math.MaxInt, math.MaxInt, most},
		{most, most, 0, 0, most},
		{most, most, 1, 1, most},
		{most, most, math.MaxInt, math.MaxInt, most},
		{2, most, 61, 99, 1 << 62},
		{2, most, 62, 99, most},
		{1, 1, math.MaxInt, math.MaxInt, 1},
		{3, 1 << 62, 61, 61, 1 << 62},
	} {
		if got := taskmanager.BackoffCeiling(c.base, c.limit, c.power, c.maxPower); got != c.want {
			t.Errorf("backoffCeiling(%d, %d, %d, %d) = %d, want %d", c.base, c.limit, c.power, c.maxPower, got, c.want)
		}
	}
}

func TestTheBackoffCeilingIsTheFormulaOfTheManual(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		base, limit := time.Duration(r.Uint64()>>(1+r.IntN(63))), time.Duration(r.Uint64()>>(1+r.IntN(63)))
		power, maxPower := r.IntN(70), r.IntN(70)
		want := new(big.Int).Lsh(big.NewInt(int64(base)), uint(min(power, maxPower)))
		if bound := big.NewInt(int64(limit)); want.Cmp(bound) > 0 {
			want = bound
		}
		if got := taskmanager.BackoffCeiling(base, limit, power, maxPower); int64(got) != want.Int64() {
			t.Fatalf("backoffCeiling(%d, %d, %d, %d) = %d, want %d", base, limit, power, maxPower, got, want)
		}
	}
}

func TestFullJitterServesBackoffRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := &taskmanager.FullJitter{Base: time.Second, Cap: 10 * time.Second, MaxPower: 5}
		policy.SetRandom(filled(0xff)) // every delay is its ceiling
		start := time.Now()
		var at []time.Duration
		try := func() error {
			if at = append(at, time.Since(start)); len(at) == 7 {
				return nil
			}
			return errBoom
		}
		if err := backoff.Retry(try, policy); err != nil {
			t.Errorf("Retry = %v, want nil", err)
		}
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 25 * time.Second, 35 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
		// It is reset by a second use, and never gives up by itself.
		at, start = nil, time.Now()
		try = func() error { at = append(at, time.Since(start)); return errBoom }
		if err := backoff.Retry(try, backoff.WithMaxRetries(policy, 3)); !errors.Is(err, errBoom) {
			t.Errorf("Retry = %v, want %v", err, errBoom)
		}
		if want = want[:4]; !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
	})
}

func TestFullJitterIsAsRandomAsItsReader(t *testing.T) {
	for failure := range 4 {
		p := &taskmanager.FullJitter{Base: time.Second, Cap: 5 * time.Second, MaxPower: 5}
		p.SetRandom(seeded())
		ceiling := min(5*time.Second, time.Second<<failure)
		var shares []float64
		for range 20_000 {
			p.Reset()
			for range failure {
				p.NextBackOff()
			}
			shares = append(shares, float64(p.NextBackOff())/float64(ceiling))
		}
		if got := chiSquare(shares, 50); got > 180 { // 49 degrees of freedom: 1 in 10^16
			t.Errorf("delay after failure %d is not uniform: chi-square %.1f", failure+1, got)
		}
		if most := slices.Max(shares); most > 1 || slices.Min(shares) < 0 {
			t.Errorf("delay after failure %d is beyond its bounds: %v of the ceiling", failure+1, most)
		}
	}
}
