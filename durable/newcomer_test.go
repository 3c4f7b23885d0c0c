package durable_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// What somebody writes who has read no more than the README: no store, and a manager
// on fake time. The node and its store agree on what time it is.
func TestWithoutStoreTheManagersClockIsTheStores(t *testing.T) {
	m, clk := tasktest.New(t)
	var log logs
	s, err := durable.New(nil, durable.Config{Manager: m, Logger: slog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	var ran []time.Time
	hourly(t, s, func(run durable.Run) { ran = append(ran, run.ScheduledAt) })
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := clk.Now()
	clk.Advance(3 * time.Hour)
	if len(ran) != 3 || !ran[0].Equal(begin.Add(30*time.Minute)) {
		t.Errorf("ran for %v, want half past of three hours from %v on", ran, begin)
	}
	if skew := s.Stats().Skew; skew != 0 {
		t.Errorf("Skew = %v, want 0", skew)
	}
}

// In a bubble of synctest nothing at all is needed, and Shutdown can be waited for.
func TestWithoutStoreInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := durable.New(nil, durable.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		hourly(t, s, func(durable.Run) { ran++ })
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if ran != 3 {
			t.Errorf("ran %d times in three hours, want 3", ran)
		}
	})
}

// hourly adds a job that is due at half past each hour.
func hourly(t *testing.T, s *durable.Scheduler, f func(durable.Run)) {
	t.Helper()
	err := durable.Handle(s, "report", func(_ context.Context, run durable.Run, _ noArgs) error { f(run); return nil })
	if err != nil {
		t.Fatal(err)
	}
	err = s.AddJob(t.Context(), durable.Job{
		Name: "report.hourly", Handler: "report",
		Triggers: []durable.Trigger{{Schedule: cronsched.MustParse("cron 0 30 * * * * tz=UTC")}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A caller's transaction may have the only connection of the pool, so nothing that is
// done within it asks the store for another.
func TestWithinDoesNotAskTheStore(t *testing.T) {
	m, clk := tasktest.New(t)
	store := &hooked{Store: durable.NewMemory(durable.MemoryNow(clk.Now)), calls: map[string]int{}}
	s, err := durable.New(store, durable.Config{Manager: m, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = durable.Handle(s, "wait", func(ctx context.Context, _ durable.Run, _ noArgs) error { return clk.Sleep(ctx, time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	job := durable.Job{Name: "wait", Handler: "wait"}
	if err := errors.Join(s.AddJob(t.Context(), job), s.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	id, err := s.Trigger(t.Context(), "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Second)
	w, err := s.Within(onlyConnection{store.Store})
	if err != nil {
		t.Fatal(err)
	}
	store.set(func(context.Context, string, func() error) error { return errAway })
	other := durable.Job{Name: "other", Handler: "wait"}
	_, triggered := w.Trigger(t.Context(), "other", nil)
	if !errors.Is(triggered, durable.ErrNotFound) {
		t.Errorf("Trigger of a job that is not there = %v, want ErrNotFound", triggered)
	}
	byID, err1 := w.Cancel(t.Context(), id)
	byJob, err2 := w.Cancel(t.Context(), "wait")
	if byID != 1 || byJob != 1 {
		t.Errorf("Cancel = %d by ID, %d by job, want 1 each", byID, byJob)
	}
	err = errors.Join(err1, err2, w.AddJob(t.Context(), other), w.PauseJob(t.Context(), "other"), w.RemoveJob(t.Context(), "other"))
	if err != nil {
		t.Error(err)
	}
	store.set(nil)
	s.Wake() // after the commit
	clk.Advance(0)
	runs, err := s.Runs(t.Context(), durable.RunQuery{IDs: []string{id}})
	if err != nil || len(runs) != 1 || runs[0].State != durable.RunCancelled {
		t.Errorf("after Wake the run is %v, %v, want it cancelled", runs, err)
	}
}

// An onlyConnection is a transaction in whose place a whole store stands.
type onlyConnection struct{ durable.Store }

func (c onlyConnection) Join(durable.Store) (durable.Editor, error) { return c.Store, nil }

// A stop ends loops in the midst of a call. That is no outage of the store, which
// somebody might be woken for.
func TestAStopIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: durable.NewMemory(), calls: map[string]int{}}
		var log logs
		var seen events
		s, err := durable.New(store, durable.Config{NodeTimeout: time.Minute, Logger: slog.New(&log), Observer: &seen})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		asked := make(chan struct{})
		store.set(func(ctx context.Context, call string, do func() error) error {
			if call != "expire" {
				return do()
			}
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		})
		<-asked
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		synctest.Wait()
		if lines := log.with("ERROR"); len(lines) > 0 {
			t.Errorf("log: %q, want no error", lines)
		}
		if outages := seen.of(durable.EventOutage); len(outages) > 0 {
			t.Errorf("events: %v, want no outage", outages)
		}
	})
}

// docs/durable-operations.md has every line of the log, with its level.
func TestTheOperatorsPageHasEveryLineOfTheLog(t *testing.T) {
	page, err := os.ReadFile("../docs/durable-operations.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\.log(?:Seldom)?\((?:"[^"]*"[^,]*, )?(?:slog\.Level(\w+)|level), "([^"]+)"`)
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			found++
			level, line := strings.ToLower(m[1]), regexp.QuoteMeta(m[2])
			if !regexp.MustCompile(`(?m)^\| (?:[^|]*[;,] )?` + line + `(?: ⏱)?(?:[;,] [^|]*)? \| [^|]*` + level).Match(page) {
				t.Errorf("%s logs %q at level %s, which the page does not say", name, m[2], level)
			}
		}
	}
	if found < 25 {
		t.Errorf("found %d lines, want 25 or more: does the code log otherwise now?", found)
	}
}

func TestErrorsSayWhatIsToBeDoneFirst(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	n := c.node("a", durable.Config{}).handle("h", (&tally{}).quick)
	says := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	says(n.AddJob(ctx, durable.Job{Name: "report", Handler: "report"}), "call durable.Handle with this name before AddJob")
	says(n.AddJob(ctx, durable.Job{Name: "j", Handler: "h", Triggers: []durable.Trigger{{Schedule: cron("0 0 * * * * calendar=holidays")}}}),
		"call AddCalendar with this name before AddJob")
	n.add(durable.Job{Name: "j", Handler: "h"})
	_, err := n.Trigger(ctx, "j", nil)
	says(err, "until Start writes it to the store")
	says(n.PauseJob(ctx, "j"), "until Start writes it to the store")
	if err := n.PauseJob(ctx, "other"); !errors.Is(err, durable.ErrNotFound) || strings.Contains(err.Error(), "Start") {
		t.Errorf("PauseJob of what there is not = %v, want ErrNotFound alone", err)
	}
	n.start()
	says(durable.Handle(n.Scheduler, "late", func(context.Context, durable.Run, noArgs) error { return nil }), "before Start")
}
