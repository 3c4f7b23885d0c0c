// Command reports is a program whose work must not be lost: a nightly report and its
// friends, kept in a database. Start it, and then once more in another terminal: the
// copies share the work, and if one is killed the other goes on with what it did.
//
//	go run . -for 30s
//
// Start reading at handlers.go: that is what there is to copy. jobs.go says when each
// handler runs, node.go puts it all together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// A config is what the command line says.
type config struct {
	db       string
	node     string
	demo     time.Duration // how often everything runs, so that there is something to see; 0: as in earnest
	duration time.Duration // 0: until interrupted
}

func main() {
	cfg, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2) // parseFlags has said why
	}
	if err := work(cfg, newScreen(os.Stdout, cfg.node)); err != nil {
		fmt.Fprintln(os.Stderr, "reports:", err)
		os.Exit(1)
	}
}

// parseFlags says on w what is wrong.
func parseFlags(args []string, w io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("reports", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&cfg.db, "db", "sqlite:reports.db", "`URL` of the database: sqlite:FILE, postgres://… or mysql://…")
	flags.StringVar(&cfg.node, "node", fmt.Sprintf("reports-%d", os.Getpid()), "`name` of this copy")
	flags.DurationVar(&cfg.demo, "demo", 10*time.Second, "run everything about that `often`, and notice a dead node within seconds; 0: by the real schedules only")
	flags.DurationVar(&cfg.duration, "for", 0, "`time` to run; 0: until interrupted")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	err := cfg.check(flags.Args())
	if err != nil {
		fmt.Fprintln(w, "reports:", err)
	}
	return cfg, err
}

func (c config) check(rest []string) error {
	var errs []error
	if c.demo != 0 && (c.demo < time.Second || c.demo > time.Hour) {
		errs = append(errs, fmt.Errorf("-demo %v: must be 0 or in [1s, 1h]", c.demo))
	}
	if c.duration < 0 {
		errs = append(errs, fmt.Errorf("-for %v: must not be negative", c.duration))
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected %q", rest))
	}
	return errors.Join(errs...)
}

// work runs the node until it is interrupted or its time is up.
func work(cfg config, screen *screen) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if cfg.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.duration, errors.New("time is up"))
		defer cancel()
	}
	n, err := newNode(ctx, cfg, screen)
	if err != nil {
		return err
	}
	return n.run(ctx)
}
