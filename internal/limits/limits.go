// Package limits has the numbers that all stores of package durable have in common.
package limits

import "time"

// Of answers; see durable.JobQuery, JobState, RunQuery and PurgeRequest.
const (
	DefaultJobs  = 1000
	MostOneShots = 100
	DefaultRuns  = 100
	MostRuns     = 1000
	DefaultPurge = 5000
)

// Priorities is how many there are, from 0.
const Priorities = 11

// How many blocked triggers of a job are woken: by the end of its run, two, since one may be
// gone before it is claimed; behind triggers that did not run, more, since they may not run
// either.
const (
	Wakes       = 2
	WakesBehind = 100
)

// DeadNodeKept is how long after its lease a dead node's row stays, so that it hears of its
// death when it comes back.
const DeadNodeKept = 24 * time.Hour
