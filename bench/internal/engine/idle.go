package engine

import (
	"runtime"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// idle measures the memory of jobs that wait, after each has run once: what a
// scheduler makes at a task's first run belongs to the task. The interval is
// an hour, the first runs come at 100,000 a second at most.
type idle struct{ jobs int }

const (
	idleInterval = time.Hour
	firstRuns    = 100_000 // a second
	// settle lets workers that are kept for a moment go away.
	settle = 1500 * time.Millisecond
	// patience is how long after the last first instant runs may still come.
	patience = 45 * time.Second
)

// spread is the time over which the first runs come, longer for a contender
// that starts them slowly: a backlog of a million goroutines is another figure.
func (d idle) spread(c contender.Contender) time.Duration {
	jobs := time.Duration(d.jobs)
	return max(time.Second/2, jobs*time.Second/firstRuns, jobs*c.RunCost)
}

func (d idle) takes(c contender.Contender, _ row.Mode) time.Duration {
	return lead(c, d.jobs) + d.spread(c) + settle + time.Second/2
}

func (d idle) measure(c contender.Contender, mode row.Mode) (row.Outcome, error) {
	j := newJobs(d.jobs, idleInterval, d.spread(c), time.Now().Add(lead(c, d.jobs)))
	sched, err := c.Open(contender.Setup{Jobs: d.jobs})
	if err != nil {
		return row.Outcome{}, err
	}
	goroutines, base := runtime.NumGoroutine(), liveBytes()
	if c.Named {
		j.name()
	}
	if err := addAll(sched, j); err != nil {
		return row.Outcome{}, err
	}
	sched.Start()
	ran := awaitFirstRuns(j, j.base.Add(d.spread(c)))
	time.Sleep(settle)

	var o row.Outcome
	bytes := float64(liveBytes()-base) - float64(nameSlots(j))
	o.Values = row.Values{
		row.BytesPer:   bytes / float64(d.jobs),
		row.Goroutines: float64(runtime.NumGoroutine() - goroutines),
		row.Ran:        float64(ran) / float64(d.jobs),
	}
	if ran < int64(d.jobs) {
		o.Notef("%d of %d tasks had run", ran, d.jobs)
	}
	runtime.KeepAlive(sched)
	if mode == row.Smoke {
		sched.Close()
	}
	return o, nil
}

// nameSlots is the benchmark's own list of names, which is not a part of the
// names themselves.
func nameSlots(j *jobs) int { return 16 * len(j.names) }

func awaitFirstRuns(j *jobs, last time.Time) (ran int64) {
	time.Sleep(time.Until(last))
	for ran = j.ran(); ran < int64(j.n) && time.Since(last) < patience; ran = j.ran() {
		time.Sleep(100 * time.Millisecond)
	}
	return ran
}
