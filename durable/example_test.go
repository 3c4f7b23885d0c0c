package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// A job without triggers, run by hand. In earnest the store is one of package sqlstore.
func ExampleNew() {
	ctx := context.Background()
	s, err := durable.New(nil, durable.Config{Logger: silent}) // nil: a store in memory
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		durable.Handle(s, "hello", func(_ context.Context, run durable.Run, _ struct{}) error {
			fmt.Printf("%s: a %v run, attempt %d\n", run.Job, run.Kind, run.Attempt)
			return nil
		}),
		s.AddJob(ctx, durable.Job{Name: "hello", Handler: "hello"}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	run, err := s.TriggerAndWait(ctx, "hello", nil)
	fmt.Println(run.State, err)
	fmt.Println(s.Shutdown(ctx))
	// Output:
	// hello: a manual run, attempt 1
	// succeeded <nil>
	// <nil>
}

// Data is typed in the handler and JSON everywhere else. A trigger's goes over its
// job's, and that of a call by hand goes over both, key by key.
func ExampleHandle() {
	type ReportArgs struct {
		Region string `json:"region"`
		Pages  int    `json:"pages"`
	}
	ctx := context.Background()
	s, err := durable.New(nil, durable.Config{Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		durable.Handle(s, "report", func(_ context.Context, _ durable.Run, args ReportArgs) error {
			fmt.Printf("%d pages for %s\n", args.Pages, args.Region)
			return nil
		}, durable.Describe("Writes a report.")),
		s.AddJob(ctx, durable.Job{Name: "report.eu", Handler: "report", Data: ReportArgs{Region: "eu", Pages: 5}}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	_, err1 := s.TriggerAndWait(ctx, "report.eu", nil)
	_, err2 := s.TriggerAndWait(ctx, "report.eu", map[string]any{"pages": 100})
	run, err3 := s.TriggerAndWait(ctx, "report.eu", map[string]any{"pages": "many"})
	fmt.Println(run.State, run.Code)
	if err := errors.Join(err1, err2, err3, s.Shutdown(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 5 pages for eu
	// 100 pages for eu
	// failed validation
}

// A test of one's own job: time goes as fast as it can, and when Advance returns, all
// runs have ended.
func Example_test() {
	m, clk := fakeTime() // in a test: tasktest.New(t)
	defer clk.Close(m)   // a test needs neither this nor Shutdown
	ctx := context.Background()

	s, err := durable.New(nil, durable.Config{Manager: m, Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		durable.Handle(s, "report", func(_ context.Context, run durable.Run, _ struct{}) error {
			fmt.Println("report of", run.ScheduledAt.Format(time.TimeOnly))
			return nil
		}),
		s.AddJob(ctx, durable.Job{
			Name: "report.hourly", Handler: "report",
			Triggers: []durable.Trigger{{Schedule: cronsched.MustParse("cron 0 30 * * * * tz=UTC")}},
		}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	clk.Advance(3 * time.Hour) // from midnight
	// Output:
	// report of 00:30:00
	// report of 01:30:00
	// report of 02:30:00
}

// A failed run is followed by another, which is a run of its own: here after a minute,
// and then after two.
func ExampleRetry() {
	m, clk := fakeTime()
	defer clk.Close(m)
	ctx := context.Background()

	s, err := durable.New(nil, durable.Config{Manager: m, Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	start := clk.Now()
	err = errors.Join(
		durable.Handle(s, "mail", func(_ context.Context, run durable.Run, _ struct{}) error {
			fmt.Printf("%v: attempt %d, a %v\n", clk.Now().Sub(start).Round(time.Second), run.Attempt, run.Kind)
			if run.Attempt < 3 {
				return errors.New("450 mailbox is busy")
			}
			return durable.Permanent(errors.New("550 no such mailbox")) // another attempt would be in vain
		}),
		s.AddJob(ctx, durable.Job{
			Name: "mail.send", Handler: "mail",
			Retry: durable.Retry{MaxRetries: 5, Delay: time.Minute, Exponential: true},
		}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Trigger(ctx, "mail.send", nil); err != nil {
		log.Fatal(err)
	}
	clk.Advance(time.Hour)

	runs, err := s.Runs(ctx, durable.RunQuery{Job: "mail.send"})
	for _, r := range runs { // newest first
		fmt.Println(r.Attempt, r.State, r.Message)
	}
	fmt.Println(err)
	// Output:
	// 0s: attempt 1, a manual
	// 1m0s: attempt 2, a retry
	// 3m0s: attempt 3, a retry
	// 3 failed 550 no such mailbox
	// 2 failed 450 mailbox is busy
	// 1 failed 450 mailbox is busy
	// <nil>
}

// A run for which it is too early comes again, and has used up no attempt.
func ExampleSnooze() {
	m, clk := fakeTime()
	defer clk.Close(m)
	ctx := context.Background()

	s, err := durable.New(nil, durable.Config{Manager: m, Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	ready := clk.Now().Add(25 * time.Minute)
	err = errors.Join(
		durable.Handle(s, "import", func(_ context.Context, run durable.Run, _ struct{}) error {
			if clk.Now().Before(ready) {
				return durable.Snooze(10 * time.Minute)
			}
			fmt.Println("imported, attempt", run.Attempt)
			return nil
		}),
		s.AddJob(ctx, durable.Job{Name: "import", Handler: "import"}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Trigger(ctx, "import", nil); err != nil {
		log.Fatal(err)
	}
	clk.Advance(time.Hour)
	fmt.Println(s.Stats().Snoozed, "times snoozed")
	// Output:
	// imported, attempt 1
	// 3 times snoozed
}

// Status says when a job runs, or why it does not.
func ExampleScheduler_Status() {
	m, clk := fakeTime()
	defer clk.Close(m)
	ctx := context.Background()

	s, err := durable.New(nil, durable.Config{Manager: m, Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		durable.Handle(s, "report", func(context.Context, durable.Run, struct{}) error { return nil }),
		s.AddJob(ctx, durable.Job{
			Name: "report.daily", Handler: "report",
			Triggers: []durable.Trigger{{Schedule: cronsched.MustParse("cron 0 0 6 * * * tz=UTC")}},
		}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	say := func() {
		st, err := s.Status(ctx, "report.daily")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(st.Why)
	}
	say()
	if err := s.PauseJob(ctx, "report.daily"); err != nil {
		log.Fatal(err)
	}
	say()
	// Output:
	// trigger default is due in 6h0m0s, at 2026-01-01T06:00:00Z
	// the job is paused; trigger default is waiting: the job is paused
}

// The history, newest first and a page at a time.
func ExampleScheduler_Runs() {
	m, clk := fakeTime()
	defer clk.Close(m)
	ctx := context.Background()

	s, err := durable.New(nil, durable.Config{Manager: m, Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		durable.Handle(s, "import", func(_ context.Context, run durable.Run, _ struct{}) error {
			if run.ScheduledAt.Hour() == 3 {
				return durable.Permanent(errors.New("no file"))
			}
			return nil
		}),
		s.AddJob(ctx, durable.Job{
			Name: "import", Handler: "import",
			Triggers: []durable.Trigger{{Schedule: cronsched.MustParse("cron 0 0 * * * * tz=UTC")}},
		}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	clk.Advance(5 * time.Hour)

	query := durable.RunQuery{Job: "import", Limit: 2}
	for page := 1; ; page++ {
		runs, err := s.Runs(ctx, query)
		if err != nil {
			log.Fatal(err)
		}
		for i := range runs {
			fmt.Println("page", page, runs[i].ScheduledAt.Format(time.TimeOnly), runs[i].State)
		}
		if len(runs) < query.Limit {
			break
		}
		query.Before = runs[len(runs)-1].Key()
	}
	// Output:
	// page 1 05:00:00 succeeded
	// page 1 04:00:00 succeeded
	// page 2 03:00:00 failed
	// page 2 02:00:00 succeeded
	// page 3 01:00:00 succeeded
}

// A run is cancelled from any node by its ID, or all of a job by its name. Its handler's
// context ends, and it is over when that returns.
func ExampleScheduler_Cancel() {
	ctx := context.Background()
	s, err := durable.New(nil, durable.Config{Logger: silent})
	if err != nil {
		log.Fatal(err)
	}
	running := make(chan struct{})
	err = errors.Join(
		durable.Handle(s, "export", func(ctx context.Context, _ durable.Run, _ struct{}) error {
			close(running)
			<-ctx.Done()
			return context.Cause(ctx)
		}),
		s.AddJob(ctx, durable.Job{Name: "export", Handler: "export"}),
		s.Start(ctx))
	if err != nil {
		log.Fatal(err)
	}
	id, err := s.Trigger(ctx, "export", nil)
	if err != nil {
		log.Fatal(err)
	}
	<-running
	n, err := s.Cancel(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	run, err := s.Wait(ctx, id)
	fmt.Println(n, "cancelled:", run.State, err)
	fmt.Println(s.Shutdown(ctx))
	// Output:
	// 1 cancelled: cancelled <nil>
	// <nil>
}

// silent keeps the log out of what the examples print.
var silent = slog.New(slog.DiscardHandler)

// fakeTime is what tasktest.New gives a test.
func fakeTime() (*taskmanager.TaskManager, *tasktest.Clock) {
	clk := tasktest.NewClock(exampleTB{})
	m, err := taskmanager.New(clk.Option(), taskmanager.WithLogger(silent))
	if err != nil {
		log.Fatal(err)
	}
	return m, clk
}

type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                           {}
func (exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
