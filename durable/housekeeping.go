package durable

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// HousekeepingJob is the name of the built-in job that deletes old history, and of its
// handler. Its data may have another retention than the Config:
// {"retention": "720h"}.
const HousekeepingJob = "durable.housekeeping"

type housekeepingArgs struct {
	Retention string `json:"retention"`
}

// addHousekeeping adds the built-in job.
func (s *Scheduler) addHousekeeping() error {
	if err := Handle(s, HousekeepingJob, s.housekeep, Describe("Deletes the records of runs that ended long ago."),
		SampleSchedule("cron 0 17 3 * * *")); err != nil {
		return err
	}
	if s.config.Retention < 0 {
		return nil
	}
	return s.AddJob(context.Background(), Job{
		Name: HousekeepingJob, Handler: HousekeepingJob, Group: "durable",
		Description: "Deletes the records of runs that ended long ago.",
		Data:        housekeepingArgs{s.config.Retention.String()},
		Triggers:    []Trigger{{Name: "nightly", Schedule: cronsched.MustParse("cron 0 17 3 * * * tz=UTC"), Priority: LowestPriority}},
	})
}

// dropHousekeeping takes the built-in job of an earlier Config away if there is to be
// none: it would go on deleting.
func (s *Scheduler) dropHousekeeping(ctx context.Context) error {
	if s.config.Retention >= 0 || slices.ContainsFunc(s.code, func(c codeJob) bool { return c.job.Name == HousekeepingJob }) {
		return nil
	}
	err := s.store.Edit(ctx, HousekeepingJob, EditJob, func(e *Edit) error {
		if e.Job != nil && e.Job.Source == SourceCode {
			e.Job, e.Triggers = nil, nil
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("durable: remove job %q: %w", HousekeepingJob, err)
	}
	return nil
}

func (s *Scheduler) housekeep(ctx context.Context, run Run, args housekeepingArgs) error {
	retention, err := time.ParseDuration(args.Retention)
	if err != nil || retention <= 0 {
		return Permanent(fmt.Errorf("durable: retention %q must be a positive duration such as 720h", args.Retention))
	}
	_, err = purge(ctx, s.store, PurgeRequest{OlderThan: retention, Limit: purgeBatch})
	return err
}
