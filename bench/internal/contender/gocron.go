package contender

import (
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// gocronV2 is github.com/go-co-op/gocron/v2 with its defaults. Its singleton
// mode, which is what would keep a task from overlapping itself, is left off:
// it costs a goroutine and a channel of a thousand slots for each task.
var gocronV2 = Contender{
	Name: "gocron", Title: "gocron v2", Module: "github.com/go-co-op/gocron/v2", AddCost: 12 * time.Microsecond, RunCost: 45 * time.Microsecond,
	Open: func(s Setup) (Scheduler, error) {
		if err := refuseTimeout("gocron", s); err != nil {
			return nil, err
		}
		g, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
		return &gocronScheduler{s: g, ids: make([]uuid.UUID, s.Jobs)}, err
	},
}

type gocronScheduler struct {
	s   gocron.Scheduler
	ids []uuid.UUID
}

func (g *gocronScheduler) Add(j Job) error {
	// A start in the past is refused, so that a slow registration would fail
	// half way; the next instant of the same grid is as good. The margin is
	// for the moment between this clock read and its own.
	start := grid{j.First, j.Interval}.wall().after(time.Now().Add(time.Millisecond))
	job, err := g.s.NewJob(gocron.DurationJob(j.Interval), gocron.NewTask(j.Run),
		gocron.WithStartAt(gocron.WithStartDateTime(start)))
	if err != nil {
		return err
	}
	g.ids[j.Index] = job.ID()
	return nil
}

func (g *gocronScheduler) Start() { g.s.Start() }

func (g *gocronScheduler) Stop(i int) error { return g.s.RemoveJob(g.ids[i]) }

func (g *gocronScheduler) Close() { _ = g.s.Shutdown() }
