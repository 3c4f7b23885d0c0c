package engine

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
)

const (
	// recordEvery tells which jobs record their lateness: one in 16. Their
	// clock read is in every contender's figures, about 2 ns a tick.
	recordEvery = 16
	// slowEvery and slowAt tell which jobs are slow where some are: 1 %, and
	// never one that records, since 7 + 100k is odd.
	slowEvery, slowAt = 100, 7

	slowFor = 50 * time.Millisecond
	stripes = 64
	// earlyBound is how long before its instant a start may be and still be
	// taken for an early start instead of one that is almost an interval late.
	earlyBound = 2 * time.Millisecond
)

// jobs makes the jobs of a load, and counts and times their runs. What it
// keeps for a job is made beforehand and small, so that the memory and the
// cache misses measured are the contender's: bodies are shared by a 64th of
// the jobs, and only jobs that record have something of their own.
type jobs struct {
	n        int
	interval time.Duration
	base     time.Time     // instants lie at base + phase + k*interval
	spread   time.Duration // phases lie in [0, spread)
	slow     bool          // 1 % of the bodies block
	names    []string

	bodies, slowBodies [stripes]body
	recorders          []recorder
	late               stats.Histogram
	early              atomic.Int64
}

// A body is the function of a job in the two forms contenders want it in.
type body struct {
	runs       *counter
	run        func()
	runContext func(context.Context) error
}

// A counter has a cache line of its own.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

// A recorder is the body of a job that records.
type recorder struct {
	body
	jobs *jobs
	grid time.Time // written by the goroutine that runs the job, if at all
}

func newJobs(n int, interval, spread time.Duration, base time.Time) *jobs {
	j := &jobs{n: n, interval: interval, spread: spread, base: base}
	j.recorders = make([]recorder, (n+recordEvery-1)/recordEvery)
	for i := range stripes {
		j.bodies[i] = newBody(func() {})
		j.slowBodies[i] = newBody(func() { time.Sleep(slowFor) })
	}
	for i := range j.recorders {
		r := &j.recorders[i]
		r.jobs, r.grid = j, base.Add(j.phase(i*recordEvery))
		runs := j.bodies[i%stripes].runs
		r.body = body{runs: runs}
		r.run = func() { runs.n.Add(1); r.record() }
		r.runContext = func(context.Context) error { runs.n.Add(1); r.record(); return nil }
	}
	return j
}

func newBody(work func()) body {
	c := &counter{}
	return body{
		runs:       c,
		run:        func() { c.n.Add(1); work() },
		runContext: func(context.Context) error { c.n.Add(1); work(); return nil },
	}
}

// phase places job i in the spread, the same way in every process.
func (j *jobs) phase(i int) time.Duration {
	x := uint64(i+1) * 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return time.Duration(float64(x>>11) / (1 << 53) * float64(j.spread))
}

// at is job i as a contender gets it.
func (j *jobs) at(i int) contender.Job {
	job := contender.Job{Index: i, First: j.base.Add(j.phase(i)), Interval: j.interval}
	if j.names != nil {
		job.Name = j.names[i]
	}
	b := &j.bodies[i%stripes]
	switch {
	case j.slow && i%slowEvery == slowAt:
		b = &j.slowBodies[i%stripes]
	case i%recordEvery == 0:
		r := &j.recorders[i/recordEvery]
		b = &r.body
		job.Rebase = func(at time.Time) { r.grid = at }
	}
	job.Run, job.RunContext = b.run, b.runContext
	return job
}

// name makes names for the jobs. Where memory is measured this happens after
// the base line has been taken, so that they count.
func (j *jobs) name() {
	j.names = make([]string, j.n)
	for i := range j.names {
		j.names[i] = "session.cleanup." + strconv.Itoa(i)
	}
}

func (r *recorder) record() { r.started(time.Since(r.grid)) }

// started takes the lateness of a start from how long it comes after an
// instant of the job's own grid, modulo the interval: a contender that skips
// instants is not to be charged for them twice, they show in achieved. Where
// achieved is well below 1 lateness means nothing.
func (r *recorder) started(after time.Duration) {
	late := after % r.jobs.interval
	if late < 0 {
		late += r.jobs.interval
	}
	if left := r.jobs.interval - late; left < min(earlyBound, r.jobs.interval/8) {
		r.jobs.early.Add(1)
		late = 0
	}
	r.jobs.late.Observe(int64(late))
}

// ran is the number of runs so far, those of slow bodies left out.
func (j *jobs) ran() int64 {
	var n int64
	for i := range j.bodies {
		n += j.bodies[i].runs.n.Load()
	}
	return n
}

// expected is the number of instants in (from, to], slow jobs left out.
func (j *jobs) expected(from, to time.Time) int64 {
	var n int64
	for i := range j.n {
		if j.slow && i%slowEvery == slowAt {
			continue
		}
		first := j.base.Add(j.phase(i))
		n += instants(to.Sub(first), j.interval) - instants(from.Sub(first), j.interval)
	}
	return n
}

// instants is how many of 0, interval, 2*interval, ... are at most d.
func instants(d, interval time.Duration) int64 {
	if d < 0 {
		return 0
	}
	return int64(d/interval) + 1
}
