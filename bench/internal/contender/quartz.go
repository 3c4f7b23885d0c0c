package contender

import (
	"context"
	"time"

	"github.com/reugn/go-quartz/quartz"
)

// quartzStd is github.com/reugn/go-quartz with its defaults. Two of its traits
// decide its rows: the queue is searched for the key at every registration
// and re-registration, and a job more than 100 ms late is dropped, not run.
var quartzStd = Contender{
	Name: "quartz", Title: "go-quartz", Module: "github.com/reugn/go-quartz", Named: true, AddCost: 200 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) {
		if err := refuseTimeout("go-quartz", s); err != nil {
			return nil, err
		}
		q, err := quartz.NewStdScheduler()
		return &quartzScheduler{s: q, keys: make([]*quartz.JobKey, s.Jobs)}, err
	},
}

type quartzScheduler struct {
	s    quartz.Scheduler
	keys []*quartz.JobKey
}

// quartzJob is its Job and its Trigger in one.
type quartzJob struct {
	run             func(context.Context) error
	first, interval int64 // Unix nanoseconds
}

func (q *quartzJob) Execute(ctx context.Context) error { return q.run(ctx) }
func (q *quartzJob) Description() string               { return "" }

func (q *quartzJob) NextFireTime(prev int64) (int64, error) {
	if prev < q.first {
		return q.first, nil
	}
	return q.first + ((prev-q.first)/q.interval+1)*q.interval, nil
}

func (q *quartzScheduler) Add(j Job) error {
	job := &quartzJob{j.RunContext, j.First.UnixNano(), int64(j.Interval)}
	q.keys[j.Index] = quartz.NewJobKey(j.Name)
	return q.s.ScheduleJob(quartz.NewJobDetail(job, q.keys[j.Index]), job)
}

func (q *quartzScheduler) Start() { q.s.Start(context.Background()) }

func (q *quartzScheduler) Stop(i int) error { return q.s.DeleteJob(q.keys[i]) }

func (q *quartzScheduler) Close() { q.s.Stop() }
