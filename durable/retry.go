package durable

import (
	"math"
	"time"
)

// A Retry says how often and when a failed run is tried again. The zero value is
// never.
type Retry struct {
	// MaxRetries is how many runs may follow the first, 1 to 100. It may be 0 only if
	// all of the Retry is.
	MaxRetries int `json:"maxRetries,omitempty"`
	// Delay is from the end of a failed run to its retry, in (0, 30 days].
	Delay time.Duration `json:"delay,omitempty"`
	// Exponential doubles the delay with each retry: Delay·2^(n-1) for the n-th.
	Exponential bool `json:"exponential,omitempty"`
	// MaxDelay bounds the delay of an exponential Retry, at least Delay and at most
	// 30 days; 0 is 30 days.
	MaxDelay time.Duration `json:"maxDelay,omitempty"`
	// Jitter makes the delay uniform in [0, what it would be]: "full jitter", as in
	// M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
	Jitter bool `json:"jitter,omitempty"`
}

// The bounds of a Retry.
const (
	maxRetries  = 100
	maxDelay    = 30 * 24 * time.Hour
	minDelay    = time.Microsecond // the resolution of stores
	delayBounds = "in [1µs, 720h]"
)

// validate gives a *FieldError for each field that is out of range.
func (r Retry) validate(c *check) {
	if r == (Retry{}) {
		return
	}
	if r.MaxRetries < 1 || r.MaxRetries > maxRetries {
		c.fail("Retry.MaxRetries", r.MaxRetries, "must be in [1, 100]; for no retries, leave all of Retry zero")
	}
	if r.Delay < minDelay || r.Delay > maxDelay {
		c.fail("Retry.Delay", r.Delay, "must be "+delayBounds)
	}
	if r.MaxDelay != 0 && (r.MaxDelay < r.Delay || r.MaxDelay > maxDelay) {
		c.fail("Retry.MaxDelay", r.MaxDelay, "must be at least Delay and at most 720h")
	}
	if r.MaxDelay != 0 && !r.Exponential {
		c.fail("Retry.MaxDelay", r.MaxDelay, "has a meaning with Exponential only")
	}
}

// delay is how long to wait before the n-th retry, n from 1. uniform is from [0, 1).
func (r Retry) delay(n int, uniform float64) time.Duration {
	d := r.Delay
	if r.Exponential {
		limit := r.MaxDelay
		if limit == 0 {
			limit = maxDelay
		}
		d = time.Duration(min(float64(limit), float64(d)*math.Exp2(float64(n-1))))
	}
	if r.Jitter {
		d = time.Duration(uniform * float64(d))
	}
	return d
}
