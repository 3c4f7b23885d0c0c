package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/taskmanager-go/taskmanager/durable"
)

var cancelCommand = command{
	name:    "cancel",
	args:    "RUN|JOB",
	summary: "ask a run, or all runs of a durable job, to end",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var f storeFlags
		f.flags(fs)
		return func(c *call, words []string) error {
			what, err := oneName(words, "run or job")
			if err == nil {
				err = validName("run or job", what) // an ID is of letters and digits, too
			}
			if err != nil {
				return err
			}
			return f.with(func(ctx context.Context, d *desk) error {
				n, err := d.Cancel(ctx, what)
				if err != nil {
					return err
				}
				if n == 0 {
					if err := d.mayCancel(ctx, what); err != nil {
						return err
					}
				}
				d.tell(ctx, durable.NoteCancel)
				text := fmt.Sprintf("%d asked to end\n", n)
				if n == 0 {
					text = "nothing is running\n"
				}
				return c.print(map[string]int{"asked": n}, text)
			})
		}
	},
}

// mayCancel says why a job of which no run is known may run all the same.
func (d *desk) mayCancel(ctx context.Context, job string) error {
	everyNode, err := d.runsOnEveryNode(ctx, job)
	if everyNode {
		err = failed("job %q runs on every node: its runs are not known here, and only the node that has one can end it", job)
	}
	return err
}

func (d *desk) runsOnEveryNode(ctx context.Context, job string) (bool, error) {
	states, err := d.Jobs(ctx, durable.JobQuery{Names: []string{job}, WithoutTriggers: true, WithoutRuns: true})
	return len(states) > 0 && states[0].Job.RunOnEveryNode, err
}
