package taskmanager

import (
	"fmt"
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

// backOff sets the floor before which no tick may start after a failure, which is
// counted together with the end of the run. The policy is user code and called with
// no lock of the engine's held.
func (e *engine) backOff(t *task, end int64, err error) {
	opts := &t.conf.opts
	t.mu.Lock()
	x := t.x()
	x.failing++
	streak := x.streak + x.failing
	t.mu.Unlock()
	floor := int64(0)
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		x.floor = max(x.floor, floor)
	}()
	if streak < opts.FailuresBeforeBackoff {
		return
	}
	var delay time.Duration
	if opts.Backoff == nil {
		power := streak - opts.FailuresBeforeBackoff
		delay = e.m.entropy.upTo(backoffCeiling(e.m.backoffBase, opts.BackoffCap, power, e.m.maxPower))
	} else {
		var giveUp error
		if delay, giveUp = t.askPolicy(opts.Backoff); giveUp != nil {
			e.m.end(t, stopped, fmt.Errorf("%w: %w", giveUp, err))
			return
		}
	}
	if delay > 0 {
		floor = later(end, delay)
	}
}

// askPolicy asks the user's policy for the next delay; an error means that it
// ends the task.
func (t *task) askPolicy(newPolicy func() backoff.BackOff) (delay time.Duration, giveUp error) {
	x := t.extra
	x.policyMu.Lock()
	defer x.policyMu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			giveUp = fmt.Errorf("%w: it panicked: %w", ErrBackoffStop, newPanicError(v))
		}
	}()
	if x.policy == nil {
		x.policy = newPolicy()
		x.policy.Reset() // as backoff.Retry does: some do not work before
	}
	switch delay = x.policy.NextBackOff(); {
	case delay == backoff.Stop:
		return 0, ErrBackoffStop
	case delay < 0:
		return 0, nil
	}
	return delay, nil
}

// forgetPolicy drops the user's policy at the end of a streak of failures.
func (t *task) forgetPolicy() {
	if t.conf.opts.Backoff == nil {
		return
	}
	t.mu.Lock()
	x := t.x()
	t.mu.Unlock()
	x.policyMu.Lock()
	x.policy = nil
	x.policyMu.Unlock()
}
