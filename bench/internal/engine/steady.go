package engine

import (
	"errors"
	"math"
	"runtime"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
)

// A steady load is n jobs at an interval, left alone for a while.
type steady struct {
	jobs     int
	interval time.Duration
	aligned  bool          // all due at the same instants
	slow     bool          // 1 % of the bodies block
	timeout  time.Duration // a time limit for every run
	warmUp   time.Duration
	window   time.Duration // in full mode; a third in quick
}

func (s steady) times(mode row.Mode) (warmUp, window time.Duration) {
	switch mode {
	case row.Smoke:
		return 300 * time.Millisecond, time.Second
	case row.Quick:
		return min(s.warmUp, 1200*time.Millisecond), max(s.window/3, s.interval).Round(s.interval)
	default:
		return s.warmUp, s.window
	}
}

func (s steady) takes(c contender.Contender, mode row.Mode) time.Duration {
	warmUp, window := s.times(mode)
	return lead(c, s.jobs) + warmUp + window + 300*time.Millisecond
}

// lead is the time set aside for registration before the first instant.
func lead(c contender.Contender, jobs int) time.Duration {
	return 100*time.Millisecond + time.Duration(jobs)*c.AddCost*4/3
}

func (s steady) measure(c contender.Contender, mode row.Mode) (row.Outcome, error) {
	warmUp, window := s.times(mode)
	spread := s.interval
	if s.aligned {
		spread = 0
	}
	j := newJobs(s.jobs, s.interval, spread, time.Now().Add(lead(c, s.jobs)))
	j.slow = s.slow
	if c.Named {
		j.name()
	}
	own := baseline{runtime.NumGoroutine(), liveBytes()}
	sched, err := c.Open(contender.Setup{Jobs: s.jobs, Timeout: s.timeout, Aligned: s.aligned})
	if err != nil {
		return row.Outcome{}, err
	}
	if err := addAll(sched, j); err != nil {
		return row.Outcome{}, err
	}
	sched.Start()
	late := time.Since(j.base)
	from := windowStart(j, warmUp)
	time.Sleep(time.Until(from))
	o := watch(j, window, own)
	if late > 0 {
		o.Notef("registration went on %v past the first instant", late.Round(time.Millisecond))
	}
	if mode == row.Smoke {
		sched.Close()
		if o.Values[row.Runs] == 0 {
			return o, errors.New("bench: nothing has run")
		}
	}
	return o, nil
}

func addAll(sched contender.Scheduler, j *jobs) error {
	for i := range j.n {
		if err := sched.Add(j.at(i)); err != nil {
			return err
		}
	}
	return nil
}

// windowStart is the end of the warm-up. With aligned jobs it lies in the
// middle between two instants, so that no burst is cut in two.
func windowStart(j *jobs, warmUp time.Duration) time.Time {
	start := j.base
	if now := time.Now(); now.After(start) {
		start = now
	}
	start = start.Add(warmUp)
	if j.spread == 0 {
		past := start.Sub(j.base) % j.interval
		start = start.Add(j.interval/2 - past)
		if past > j.interval/2 {
			start = start.Add(j.interval)
		}
	}
	return start
}

// A baseline is what the benchmark itself has, before there is a contender.
type baseline struct {
	goroutines int
	bytes      uint64
}

// watch measures the window. Nothing of the benchmark's own runs meanwhile.
func watch(j *jobs, window time.Duration, own baseline) row.Outcome {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, early, ran := j.late.Begin(), j.early.Load(), j.ran()
	from, cpu := time.Now(), host.CPU()

	time.Sleep(window)

	to, used := time.Now(), host.CPU()-cpu
	runs := j.ran() - ran
	running := runtime.NumGoroutine() - own.goroutines
	late := j.late.Since(begin)
	runtime.ReadMemStats(&after)

	o := row.Outcome{Values: row.Values{
		row.Runs:       float64(runs),
		row.CPUSeconds: used.Seconds(),
		row.Cores:      used.Seconds() / to.Sub(from).Seconds(),
		row.Goroutines: float64(running),
		row.HeapMB:     (float64(liveBytes()) - float64(own.bytes)) / 1e6,
	}}
	achieved := float64(runs) / float64(j.expected(from, to))
	o.Values[row.Achieved] = achieved
	if runs == 0 {
		return o
	}
	o.Values[row.CPUPerTick] = used.Seconds() * 1e6 / float64(runs)
	o.Values[row.Allocs] = float64(after.Mallocs-before.Mallocs) / float64(runs)
	o.Values[row.Bytes] = float64(after.TotalAlloc-before.TotalAlloc) / float64(runs)
	putLateness(&o, late, achieved, j.early.Load()-early)
	return o
}

// putLateness leaves lateness out where it would be read wrongly: taken modulo
// the interval, it says nothing of a contender that misses instants.
func putLateness(o *row.Outcome, late stats.Snapshot, achieved float64, early int64) {
	if late.N == 0 {
		return
	}
	if math.Abs(achieved-1) > 0.05 {
		o.Notef("achieved is not 1, so lateness is not shown")
		return
	}
	const ms = 1e6
	o.Values[row.P50] = late.Quantile(0.5) / ms
	o.Values[row.P99] = late.Quantile(0.99) / ms
	o.Values[row.MaxLate] = float64(late.Max) / ms
	if late.N >= 1000 {
		o.Values[row.P999] = late.Quantile(0.999) / ms
	}
	o.Values[row.Early] = float64(early) / float64(late.N)
}

// liveBytes is the live heap and the stacks, after collection. The second
// collection empties what sync.Pools kept over the first.
func liveBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
