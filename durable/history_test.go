package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestHistoryIsPagedByKeyNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx := context.Background()
		n := c.node("a", durable.Config{MaxConcurrentRuns: 100}).handle("h", func(ctx context.Context, r durable.Run) error {
			if r.ScheduledAt.Second()%2 == 1 {
				return errors.New("odd")
			}
			return nil
		})
		for _, job := range []string{"j", "k"} {
			n.add(durable.Job{Name: job, Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}})
		}
		n.start()
		began := c.clk.Now()
		c.clk.Advance(60 * time.Second)
		var all []durable.RunRow
		for before := (durable.RunKey{}); ; {
			page, err := n.Runs(ctx, durable.RunQuery{Before: before, Limit: 7})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page...)
			if len(page) < 7 {
				break
			}
			before = page[6].Key()
		}
		seen := map[string]bool{}
		for i, r := range all {
			if seen[r.ID] {
				t.Errorf("%s is on two pages", r.ID)
			}
			seen[r.ID] = true
			if i > 0 && all[i-1].StartedAt.Before(r.StartedAt) {
				t.Errorf("run %d started at %v, after %v", i, r.StartedAt, all[i-1].StartedAt)
			}
		}
		if len(all) != 120 {
			t.Errorf("%d runs over all pages, want 120", len(all))
		}
		for _, tc := range []struct {
			q    durable.RunQuery
			want int
		}{
			{durable.RunQuery{Job: "j"}, 60},
			{durable.RunQuery{Job: "j", States: []durable.RunState{durable.RunFailed}}, 30},
			{durable.RunQuery{States: []durable.RunState{durable.RunFailed, durable.RunSucceeded}}, 120},
			{durable.RunQuery{Node: n.Node()}, 120},
			{durable.RunQuery{Node: "other"}, 0},
			{durable.RunQuery{Trigger: "default", Job: "k"}, 60},
			{durable.RunQuery{From: began.Add(10 * time.Second), To: began.Add(20 * time.Second)}, 20},
			{durable.RunQuery{IDs: []string{all[3].ID, all[5].ID, "none"}}, 2},
		} {
			tc.q.Limit = 1000
			got, err := n.Runs(ctx, tc.q)
			if err != nil || len(got) != tc.want {
				t.Errorf("Runs(%+v) = %d runs, %v, want %d", tc.q, len(got), err, tc.want)
			}
		}
	})
}

func TestDeleteRunAndPurgeDeleteWhatHasEndedAndCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx := context.Background()
		gate := c.clk.NewGate()
		var y tally
		n := c.node("a", durable.Config{}).handle("h", y.quick).handle("held", y.held(gate)).
			add(durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("* * * * * *")}}}).
			add(durable.Job{Name: "held", Handler: "held"}).start()
		active := n.trigger("held")
		began := c.clk.Now()
		c.clk.Advance(20 * time.Second)
		id := c.runs(durable.RunQuery{Job: "j"})[0].ID
		if err := n.DeleteRun(ctx, id); err != nil {
			t.Errorf("DeleteRun = %v", err)
		}
		for _, id := range []string{id, active, "none"} {
			if err := n.DeleteRun(ctx, id); !errors.Is(err, durable.ErrNotFound) {
				t.Errorf("DeleteRun(%s) = %v, want ErrNotFound", id, err)
			}
		}
		if got, err := n.Purge(ctx, began.Add(10500*time.Millisecond)); got != 9 || err != nil {
			t.Errorf("Purge = %d, %v, want 9", got, err)
		}
		if got := len(c.runs(durable.RunQuery{})); got != 11 {
			t.Errorf("%d runs left, want 10 and the active one", got)
		}
		gate.Open()
	})
}

func TestHousekeepingDeletesInBatchesByTheRetentionOfItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx := context.Background()
		var batches []int
		n := c.node("a", durable.Config{Retention: 48 * time.Hour}).handle("h", func(context.Context, durable.Run) error { return nil }).
			add(durable.Job{Name: "j", Handler: "h"})
		err := c.store.Edit(ctx, "old", durable.EditJob, func(e *durable.Edit) error {
			for i := range 12_000 {
				e.Records = append(e.Records, durable.RunRow{ID: fmt.Sprintf("%026d", i), Job: "old", State: durable.RunSucceeded})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		n.start()
		n.store.set(func(ctx context.Context, call string, do func() error) error {
			if call == "purge" {
				batches = append(batches, 1)
			}
			return do()
		})
		c.clk.Advance(28 * time.Hour) // the first night: nothing is old enough
		if got := len(batches); got != 2 {
			t.Errorf("%d calls of Purge in two nights, want 2", got)
		}
		// an operator changes the retention; a restart keeps that
		job := durable.Job{Name: durable.HousekeepingJob, Handler: durable.HousekeepingJob, Data: map[string]string{"retention": "24h"},
			Triggers: []durable.Trigger{{Name: "nightly", Schedule: cron("0 17 3 * * * tz=UTC")}}}
		if err := n.ReplaceJob(ctx, job); err != nil {
			t.Fatal(err)
		}
		n.shut()
		batches = nil
		n = c.node("a", durable.Config{Retention: 48 * time.Hour}).handle("h", func(context.Context, durable.Run) error { return nil }).
			add(durable.Job{Name: "j", Handler: "h"}).start()
		if _, err := n.Trigger(ctx, durable.HousekeepingJob, nil); err != nil {
			t.Fatal(err)
		}
		c.clk.Advance(time.Second)
		if got := n.store.count("purge"); got != 3 {
			t.Errorf("%d calls of Purge for 12,000 old records, want 3 of 5,000", got)
		}
		if got := len(c.runs(durable.RunQuery{Job: "old"})); got != 0 {
			t.Errorf("%d old runs left, want 0", got)
		}
		for _, bad := range []string{"", "no", "-1h"} {
			if _, err := n.Trigger(ctx, durable.HousekeepingJob, map[string]string{"retention": bad}); err != nil {
				t.Fatal(err)
			}
			c.clk.Advance(time.Second)
			if r, _ := n.Runs(ctx, durable.RunQuery{Job: durable.HousekeepingJob, Limit: 1}); r[0].State != durable.RunFailed {
				t.Errorf("housekeeping with retention %q %v, want failed", bad, r[0].State)
			}
		}
	})
}
