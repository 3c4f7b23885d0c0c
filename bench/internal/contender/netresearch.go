package contender

import (
	"time"

	cron "github.com/netresearch/go-cron"
)

// netresearch is github.com/netresearch/go-cron, the maintained descendant of
// robfig/cron with a heap in place of the sort. Same custom Schedule.
var netresearch = Contender{
	Name: "netresearch", Title: "netresearch/go-cron", Module: "github.com/netresearch/go-cron", AddCost: 5 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) {
		if err := refuseTimeout("netresearch/go-cron", s); err != nil {
			return nil, err
		}
		c := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger))
		return &netresearchCron{c: c, ids: make([]cron.EntryID, s.Jobs)}, nil
	},
}

type netresearchCron struct {
	c   *cron.Cron
	ids []cron.EntryID
}

func (n *netresearchCron) Add(j Job) error {
	id, err := n.c.ScheduleJob(grid{j.First, j.Interval}.wall(), cron.FuncJob(j.Run))
	n.ids[j.Index] = id
	return err
}

func (n *netresearchCron) Start() { n.c.Start() }

func (n *netresearchCron) Stop(i int) error { n.c.Remove(n.ids[i]); return nil }

func (n *netresearchCron) Close() { n.c.StopAndWait() }
