package taskmanager

import (
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const maxDuration = time.Duration(math.MaxInt64)

// A FullJitter is the engine's backoff policy as a [backoff.BackOff], to use
// wherever that interface is asked for. The delay after failure n = 1, 2, … is
// uniform, from crypto/rand, in [0, min(Cap, Base·2^min(n-1, MaxPower))]: the
// "full jitter" of Marc Brooker's "Exponential Backoff And Jitter" (AWS
// Architecture Blog, 2015), which spreads a crowd of failing clients best.
//
// The zero value never delays. Not safe for concurrent use, like the policies of
// package backoff.
type FullJitter struct {
	Base     time.Duration // the first ceiling; 0 or less: no delay
	Cap      time.Duration // no ceiling is above it; 0 or less: no delay
	MaxPower int           // doublings at most; less than 0 is 0

	failures int
	random   *entropy
}

var _ backoff.BackOff = (*FullJitter)(nil)

// NextBackOff returns the delay after one more failure. It never returns
// backoff.Stop.
func (p *FullJitter) NextBackOff() time.Duration {
	if p.random == nil {
		p.random = newEntropy(func(error) {})
	}
	ceiling := backoffCeiling(p.Base, p.Cap, p.failures, p.MaxPower)
	if p.failures < math.MaxInt {
		p.failures++
	}
	return p.random.upTo(ceiling)
}

// Reset forgets the failures so far.
func (p *FullJitter) Reset() { p.failures = 0 }

// backoffCeiling is min(limit, base·2^min(power, maxPower)), without overflow at
// any value; 0 if base or limit is not positive.
func backoffCeiling(base, limit time.Duration, power, maxPower int) time.Duration {
	if base <= 0 || limit <= 0 {
		return 0
	}
	power = max(0, min(power, maxPower))
	if power >= 63 || base > limit>>power {
		return limit
	}
	return base << power
}
