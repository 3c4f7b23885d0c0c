package main

import (
	"context"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// addJobs says what is done when. The jobs get into the database when the scheduler
// starts; what an operator has changed there since stays, until it is changed here.
func addJobs(ctx context.Context, s *durable.Scheduler, demo time.Duration) error {
	for _, job := range []durable.Job{
		{
			Name: "hello", Handler: "hello",
			Triggers: triggers("cron 0 0 9 * * MON-FRI", demo/2, nil),
		},
		{
			Name: "report.nightly", Handler: "report.nightly", Group: "reports",
			Data: ReportArgs{Title: "Nightly report", Period: "24h", Recipients: []string{"team@example.com", "board@example.com"}},
			// The demo's trigger has data of its own, which goes over the job's.
			Triggers:         triggers("cron 0 0 2 * * *", demo, map[string]string{"period": "1h"}),
			Timeout:          10 * time.Minute,
			RequestsRecovery: true, // if its node dies, another one does it
		},
		{
			// No triggers: it is the report that has it run.
			Name: "mail.send", Handler: "mail.send", Group: "reports",
			AllowConcurrent: true,
			Retry:           durable.Retry{MaxRetries: 5, Delay: time.Second, Exponential: true, MaxDelay: time.Minute},
		},
		{
			Name: "cache.refresh", Handler: "cache.refresh",
			RunOnEveryNode: true,
			Triggers:       triggers("cron 0 0 * * * *", 0, nil),
		},
		{
			Name: "tenants.usage", Handler: "tenants.usage",
			Triggers: triggers("cron 0 30 1 * * *", demo, nil),
			Retry:    durable.Retry{MaxRetries: 2, Delay: time.Second},
		},
		{
			Name: "history.cleanup", Handler: "history.cleanup",
			Data:     CleanupArgs{Keep: "720h"},
			Triggers: triggers("cron 0 30 3 * * *", demo*2, CleanupArgs{Keep: "10m"}),
		},
	} {
		if err := s.AddJob(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// triggers are the one that matters, and one that lets you see something today.
func triggers(schedule string, demo time.Duration, data any) []durable.Trigger {
	list := []durable.Trigger{{Name: "regular", Schedule: cronsched.MustParse(schedule)}}
	if demo > 0 {
		list = append(list, durable.Trigger{Name: "demo", Schedule: cronsched.MustParse("every " + demo.String()), Data: data})
	}
	return list
}
