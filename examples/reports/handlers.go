package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// handlers have what the handlers need: whatever it is in your program, a database, a
// client, a mailer.
type handlers struct {
	scheduler *durable.Scheduler
	screen    *screen
	tenants   []string
	effort    time.Duration // how long it takes to do something, in place of real work
	cache     atomic.Pointer[string]
}

// register is called before the scheduler starts: a node must not take work before it
// knows what it can do.
func (h *handlers) register() error {
	s := h.scheduler
	return errors.Join(
		s.Use(h.tellErrors),
		durable.Handle(s, "hello", h.hello, durable.Describe("Says hello.")),
		durable.Handle(s, "report.nightly", h.nightlyReport, durable.Describe("Writes the report and has it sent."),
			durable.SampleSchedule("cron 0 0 2 * * *")),
		durable.Handle(s, "mail.send", h.sendMail, durable.Describe("Sends one mail.")),
		durable.Handle(s, "cache.refresh", h.refreshCache, durable.Describe("Has every node load its cache anew.")),
		durable.Handle(s, "tenants.usage", h.tenantUsage, durable.Describe("Adds up what each tenant has used.")),
		durable.Handle(s, "history.cleanup", h.cleanUpHistory, durable.Describe("Deletes old records of runs.")),
	)
}

// tellErrors is a middleware: it is around every run of every handler.
func (h *handlers) tellErrors(next durable.Handler) durable.Handler {
	return func(ctx context.Context, run durable.Run) error {
		err := next(ctx, run)
		if err != nil {
			h.screen.say(run, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return err
	}
}

// hello is all that a handler needs to be. It has no data: struct{}.
func (h *handlers) hello(ctx context.Context, run durable.Run, _ struct{}) error {
	h.screen.say(run, "hello, it is %s", run.ScheduledAt.Local().Format(time.TimeOnly))
	return nil
}

// ReportArgs is the data of report.nightly. What the job says, a trigger or a call by
// hand may say otherwise, key by key.
type ReportArgs struct {
	Title      string   `json:"title"`
	Period     string   `json:"period"`
	Recipients []string `json:"recipients"`
}

// nightlyReport takes its time, in steps. If the process dies in the midst of it,
// another node begins it anew, since the job requests recovery: so what it does must
// bear being done twice.
func (h *handlers) nightlyReport(ctx context.Context, run durable.Run, args ReportArgs) error {
	period, err := time.ParseDuration(args.Period)
	if err != nil {
		return durable.Permanent(fmt.Errorf("period: %w", err)) // it will not get better by trying again
	}
	sections := []string{"sales", "refunds", "visits", "errors", "outlook"}
	for i, name := range sections {
		if err := pretend(ctx, h.effort); err != nil {
			return err
		}
		h.screen.say(run, "%s of the last %v: section %d of %d, %s", args.Title, period, i+1, len(sections), name)
	}
	// Mails are jobs of their own: one that fails is tried again by itself, on
	// whatever node, and the report is not.
	for _, to := range args.Recipients {
		if _, err := h.scheduler.Trigger(ctx, "mail.send", Mail{To: to, Subject: args.Title}); err != nil {
			return err
		}
	}
	// Every node has cached figures of the last report.
	_, err = h.scheduler.Trigger(ctx, "cache.refresh", CacheArgs{Report: run.ID})
	return err
}

// Mail is the data of mail.send, which is passed to it by who triggers it.
type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

// sendMail fails now and then; how often and when it is tried again is up to the job.
func (h *handlers) sendMail(ctx context.Context, run durable.Run, mail Mail) error {
	if strings.HasPrefix(mail.To, "board@") && run.Attempt < 3 {
		return fmt.Errorf("mail to %s: 450 mailbox is busy", mail.To)
	}
	// A real one would give run.IdempotencyKey to the mail server: it is the same on
	// every attempt.
	h.screen.say(run, "%q sent to %s, attempt %d", mail.Subject, mail.To, run.Attempt)
	return nil
}

// CacheArgs is the data of cache.refresh.
type CacheArgs struct {
	Report string `json:"report"`
}

// refreshCache runs on every node, each for its own memory.
func (h *handlers) refreshCache(ctx context.Context, run durable.Run, args CacheArgs) error {
	h.cache.Store(&args.Report)
	h.screen.say(run, "cache of this node loaded anew")
	return nil
}

// tenantUsage goes on with the other tenants if one fails, and fails at the end. Its
// retry does all of them again.
func (h *handlers) tenantUsage(ctx context.Context, run durable.Run, _ struct{}) error {
	var errs []error
	var done []string
	for _, tenant := range h.tenants {
		used, err := h.usageOf(withTenant(ctx, tenant), run)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", tenant, err))
		default:
			done = append(done, fmt.Sprintf("%s %d MB", tenant, used))
		}
	}
	h.screen.say(run, "usage: %s; %d of %d tenants failed", strings.Join(done, ", "), len(errs), len(h.tenants))
	return errors.Join(errs...)
}

// usageOf finds out its tenant where a real one would choose the tenant's database.
func (h *handlers) usageOf(ctx context.Context, run durable.Run) (int, error) {
	tenant := tenantOf(ctx)
	if err := pretend(ctx, h.effort/10); err != nil {
		return 0, err
	}
	if tenant == "initech" && run.Attempt == 1 {
		return 0, errors.New("database does not answer")
	}
	return len(tenant) * 7, nil
}

type tenantKey struct{}

func withTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// CleanupArgs is the data of history.cleanup.
type CleanupArgs struct {
	Keep string `json:"keep"`
}

// cleanUpHistory is what the built-in job durable.housekeeping does, for those who
// want to do it their way: that one goes by Config.Retention and needs no code.
func (h *handlers) cleanUpHistory(ctx context.Context, run durable.Run, args CleanupArgs) error {
	keep, err := time.ParseDuration(args.Keep)
	if err != nil || keep <= 0 {
		return durable.Permanent(fmt.Errorf("keep %q is no positive duration", args.Keep))
	}
	n, err := h.scheduler.Purge(ctx, run.ScheduledAt.Add(-keep))
	if err != nil {
		return err
	}
	h.screen.say(run, "%d records older than %v deleted", n, keep)
	return nil
}

// pretend stands for work. Like all work it ends when its context does.
func pretend(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
