package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/taskmanager-go/taskmanager/durable"
)

var pauseCommand = pausing("pause", "keep a durable job's triggers, or one of them, from firing until it is resumed", "paused",
	(*durable.Scheduler).PauseJob, (*durable.Scheduler).PauseTrigger)

var resumeCommand = pausing("resume", "end the pause of a durable job or trigger", "resumed",
	(*durable.Scheduler).ResumeJob, (*durable.Scheduler).ResumeTrigger)

// pausing is the command that changes a pause.
func pausing(name, summary, done string,
	job func(s *durable.Scheduler, ctx context.Context, job string) error,
	trigger func(s *durable.Scheduler, ctx context.Context, job, trigger string) error,
) command {
	return command{
		name: name, args: "JOB[/TRIGGER]", summary: summary,
		setup: func(fs *flag.FlagSet) func(*call, []string) error {
			var f storeFlags
			f.flags(fs)
			return func(c *call, words []string) error {
				what, err := oneName(words, "job or trigger")
				if err != nil {
					return err
				}
				jobName, triggerName, err := splitTrigger(what)
				if err != nil {
					return err
				}
				return f.with(func(ctx context.Context, d *desk) error {
					if triggerName == "" {
						err = job(d.Scheduler, ctx, jobName)
					} else {
						err = trigger(d.Scheduler, ctx, jobName, triggerName)
					}
					if err != nil {
						return err
					}
					d.tell(ctx, durable.NoteDue, durable.NoteJobs)
					return c.print(map[string]string{done: what}, fmt.Sprintf("%s %s\n", what, done))
				})
			}
		},
	}
}
