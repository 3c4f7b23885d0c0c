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
