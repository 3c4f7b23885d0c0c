package engine

import (
	"math/rand/v2"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// churn measures what it takes to add one job to a running scheduler that has
// many, and to stop one of them. No job is due meanwhile.
type churn struct{ jobs int }

const (
	// churnOps is how many are added and stopped, unless churnLimit comes
	// first, which it does where one takes milliseconds.
	churnOps   = 20_000
	churnLimit = 2 * time.Second
	// churnSettle is how long the work that an operation leaves behind (a
	// goroutine that starts or ends) is still counted to its processor time.
	churnSettle = 200 * time.Millisecond
	// churnLead keeps the first instants away from the measurement.
	churnLead = 5 * time.Minute
)

func (u churn) takes(c contender.Contender, _ row.Mode) time.Duration {
	ops := min(churnLimit, churnOps*max(c.AddCost, c.LateAddCost))
	return time.Duration(u.jobs)*c.AddCost + 2*ops + 3*churnSettle + 200*time.Millisecond
}

func (u churn) measure(c contender.Contender, mode row.Mode) (row.Outcome, error) {
	total := u.jobs + churnOps
	j := newJobs(total, idleInterval, idleInterval, time.Now().Add(churnLead))
	if c.Named {
		j.name()
	}
	sched, err := c.Open(contender.Setup{Jobs: total})
	if err != nil {
		return row.Outcome{}, err
	}
	for i := range u.jobs {
		if err := sched.Add(j.at(i)); err != nil {
			return row.Outcome{}, err
		}
	}
	sched.Start()
	time.Sleep(churnSettle)
	liveBytes() // so that no collection of the bulk's garbage is under way

	adds, err := timed(churnOps, func(i int) error { return sched.Add(j.at(u.jobs + i)) })
	if err != nil {
		return row.Outcome{}, err
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(u.jobs + adds.ops)
	stops, err := timed(min(churnOps, len(order)), func(i int) error { return sched.Stop(order[i]) })
	if err != nil {
		return row.Outcome{}, err
	}
	o := row.Outcome{Values: row.Values{
		row.AddNs: adds.wall, row.AddCPUNs: adds.cpu,
		row.StopNs: stops.wall, row.StopCPUNs: stops.cpu,
	}}
	if mode == row.Smoke {
		sched.Close()
	}
	return o, nil
}

type opTime struct {
	ops       int
	wall, cpu float64 // ns per operation
}

// timed calls op with 0, 1, ... at most n times, for at most churnLimit. It
// looks at the clock rarely enough not to measure that.
func timed(n int, op func(int) error) (opTime, error) {
	cpu, start := host.CPU(), time.Now()
	done, batch := 0, 1
	for done < n && time.Since(start) < churnLimit {
		for end := min(n, done+batch); done < end; done++ {
			if err := op(done); err != nil {
				return opTime{}, err
			}
		}
		if time.Since(start) < churnLimit/64 {
			batch = min(2*batch, 1024)
		}
	}
	wall := time.Since(start)
	time.Sleep(churnSettle)
	used := host.CPU() - cpu
	return opTime{done, float64(wall) / float64(done), float64(used) / float64(done)}, nil
}
