package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/internal/limits"
)

var triggerCommand = command{
	name:    "trigger",
	args:    "JOB",
	summary: "have a durable job run once, now",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var f storeFlags
		f.flags(fs)
		data := fs.String("data", "", "a `JSON` object, merged into the job's data")
		wait := fs.Bool("wait", false, "wait until the run's first attempt has ended; an error if it is taken back before it begins")
		return func(c *call, words []string) error {
			job, err := oneName(words, "job")
			if err == nil {
				err = validName("job", job)
			}
			if err != nil {
				return err
			}
			var object any
			if *data != "" {
				if !json.Valid([]byte(*data)) {
					return fmt.Errorf("-data is no JSON: %s", *data)
				}
				object = json.RawMessage(*data)
			}
			return f.with(func(ctx context.Context, d *desk) error { return trigger(ctx, c, d, job, object, *wait) })
		}
	},
}

// poll is how often an end that is waited for is looked for.
const poll = 100 * time.Millisecond

func trigger(ctx context.Context, c *call, d *desk, job string, data any, wait bool) error {
	if wait {
		if err := d.mayWait(ctx, job); err != nil {
			return err
		}
	}
	id, err := d.Trigger(ctx, job, data)
	if err != nil {
		return err
	}
	d.tell(ctx, durable.NoteDue)
	if !wait {
		return c.print(map[string]string{"job": job, "run": id}, id+"\n")
	}
	r, err := d.ended(ctx, job, id)
	if err != nil {
		return err
	}
	line := runLineOf(r)
	text := fmt.Sprintf("%s %s after %s on %s\n", r.ID, r.State, line.Duration, r.Node)
	if r.Message != "" {
		text += r.Message + "\n"
	}
	if err := c.print(line, text); err != nil {
		return err
	}
	if r.State != durable.RunSucceeded {
		return errBad
	}
	return nil
}

// mayWait says why a wait would have no end.
func (d *desk) mayWait(ctx context.Context, job string) error {
	everyNode, err := d.runsOnEveryNode(ctx, job)
	if err != nil {
		return err
	}
	if everyNode {
		return failed("job %q runs on every node: there is no one end to wait for", job)
	}
	nodes, err := d.alive(ctx)
	if err == nil && len(nodes) == 0 {
		err = failed("no node is alive to run it; without -wait it is there for the next one")
	}
	return err
}

// ended waits for the end of a run, on whatever node.
func (d *desk) ended(ctx context.Context, job, id string) (durable.RunRow, error) {
	t := time.NewTicker(poll)
	defer t.Stop()
	gone := false
	for {
		r, err := d.run(ctx, id)
		switch {
		case err == nil && r.State != durable.RunRunning:
			return r, nil
		case err != nil && !errors.Is(err, durable.ErrNotFound):
			return r, err
		case err != nil && gone: // nor is it a run since, which a claim would have made it at once
			return r, failed("run %s was taken back: its job has been removed, or what waited of it", id)
		case err != nil: // not claimed yet
			if gone, err = d.takenBack(ctx, job, id); err != nil {
				return r, err
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return r, failed("interrupted; run %s goes on", id)
		}
	}
}

// takenBack tells whether there is no trigger of that ID any more. Where more wait than a
// job's answer has, nobody can say.
func (d *desk) takenBack(ctx context.Context, job, id string) (bool, error) {
	states, err := d.Jobs(ctx, durable.JobQuery{Names: []string{job}, WithoutRuns: true})
	if err != nil || len(states) == 0 {
		return err == nil, err
	}
	waiting := 0
	for _, row := range states[0].Triggers {
		if row.ID == id {
			return false, nil
		}
		if row.OneShot() {
			waiting++
		}
	}
	return waiting < limits.MostOneShots, nil
}
