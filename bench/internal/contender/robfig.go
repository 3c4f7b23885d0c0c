package contender

import (
	"time"

	"github.com/robfig/cron/v3"
)

// robfig is github.com/robfig/cron/v3. It gets a Schedule of our own that
// keeps each task's phase and takes any interval: its public interface, and
// kinder to it than its Every, which rounds to whole seconds.
//
// Its location is UTC: a zone costs it a look-up per run.
var robfig = Contender{
	Name: "robfig", Title: "robfig/cron v3", Module: "github.com/robfig/cron/v3", AddCost: time.Microsecond, LateAddCost: 2 * time.Millisecond,
	Open: func(s Setup) (Scheduler, error) {
		if err := refuseTimeout("robfig/cron", s); err != nil {
			return nil, err
		}
		c := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger))
		return &robfigCron{c: c, ids: make([]cron.EntryID, s.Jobs)}, nil
	},
}

type robfigCron struct {
	c   *cron.Cron
	ids []cron.EntryID
}

func (r *robfigCron) Add(j Job) error {
	r.ids[j.Index] = r.c.Schedule(grid{j.First, j.Interval}.wall(), cron.FuncJob(j.Run))
	return nil
}

func (r *robfigCron) Start() { r.c.Start() }

func (r *robfigCron) Stop(i int) error { r.c.Remove(r.ids[i]); return nil }

func (r *robfigCron) Close() { <-r.c.Stop().Done() }
