// Command bench compares the task manager with what people would use instead,
// on the same work, in the same run. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/cronrows"
	"github.com/taskmanager-go/taskmanager/bench/internal/durablerows"
	"github.com/taskmanager-go/taskmanager/bench/internal/engine"
	"github.com/taskmanager-go/taskmanager/bench/internal/harness"
	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/report"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// workloads are all families of rows. A new family is a package and a line.
func workloads() []row.Workload {
	return slices.Concat(engine.Workloads(), cronrows.Workloads(), durablerows.Workloads())
}

func checks() []check.Row {
	return slices.Concat(engine.Checks(), cronrows.Checks(), durablerows.Checks())
}

// modules are those whose versions the results name.
func modules() []string {
	paths := append(cronrows.Modules(), durablerows.Modules()...)
	for _, c := range contender.All() {
		paths = append(paths, c.Module)
	}
	return paths
}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	quick, smoke, check, json, list bool
	only, out, from                 string
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "a first impression in under 4 minutes")
	f.BoolVar(&o.smoke, "smoke", false, "run every contender for a second; fails if one cannot run, judges no figure")
	f.BoolVar(&o.check, "check", false, "measure what the checks need, and print each with its figure and bound")
	f.StringVar(&o.only, "only", "", "measure only what matches this `regexp` of workload/contender, see -list")
	f.BoolVar(&o.list, "list", false, "print what would be measured, and how long it would take")
	f.BoolVar(&o.json, "json", false, "print the results as JSON instead of tables")
	f.StringVar(&o.out, "out", "", "write to this `folder` (default results/, or a folder in it if not everything is measured)")
	f.StringVar(&o.from, "from", "", "measure nothing, report the results.json in this `folder` again")
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("bench: unexpected %q", f.Arg(0))
	}
	return o, err
}

func run(args []string) error {
	all := workloads()
	if len(args) > 0 && args[0] == harness.ChildFlag {
		out := os.Stdout
		os.Stdout = os.Stderr // so that no library writes into the result
		return harness.Child(all, args[1:], out)
	}
	if len(args) > 0 && args[0] == durablerows.NodeFlag {
		return durablerows.Node(args[1:], os.Stdin, os.Stdout)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.from != "" {
		set, err := result.Read(filepath.Join(o.from, report.JSONFile))
		if err != nil {
			return err
		}
		return o.publish(all, set, o.from)
	}
	sel, err := o.selection()
	if err != nil {
		return err
	}
	steps := sel.Plan(all)
	if o.list {
		return list(os.Stdout, steps, sel.Mode)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	set, err := harness.Run(ctx, steps, sel.Mode, os.Stderr)
	if err != nil {
		return err
	}
	set.Machine = host.Describe(modules())
	if o.smoke {
		return failures(set)
	}
	return o.publish(all, set, o.folder())
}

// selection turns the flags into what is to be run.
func (o options) selection() (harness.Selection, error) {
	s := harness.Selection{Mode: row.Full}
	switch {
	case o.smoke:
		s.Mode = row.Smoke
	case o.quick:
		s.Mode = row.Quick
	}
	if o.check {
		s.Need = check.Cells(checks())
	}
	if o.only == "" {
		return s, nil
	}
	re, err := regexp.Compile(o.only)
	if err != nil {
		return s, fmt.Errorf("bench: -only: %w", err)
	}
	s.Only = re
	return s, nil
}

// folder keeps results of a part from taking the place of those of the whole.
func (o options) folder() string {
	switch {
	case o.out != "":
		return o.out
	case o.only != "" || o.check:
		return filepath.Join("results", "partial")
	case o.quick:
		return filepath.Join("results", "quick")
	default:
		return "results"
	}
}

// publish writes the results and prints what was asked for.
func (o options) publish(all []row.Workload, set *result.Set, folder string) error {
	verdicts := check.Judge(checks(), set)
	if err := report.Write(folder, all, set, verdicts); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "\nwritten to %s\n\n", folder)
	switch {
	case o.json:
		return report.JSON(os.Stdout, set)
	case o.check:
		return report.Checks(os.Stdout, verdicts)
	default:
		return report.Markdown(os.Stdout, all, set, verdicts)
	}
}

func list(w io.Writer, steps []harness.Step, mode row.Mode) error {
	seen := map[string]int{}
	var order []string
	for _, s := range steps {
		id := s.Workload.ID(s.Entry)
		if seen[id]++; seen[id] == 1 {
			order = append(order, id)
		}
	}
	for _, id := range order {
		fmt.Fprintf(w, "%-32s x %d\n", id, seen[id])
	}
	_, err := fmt.Fprintf(w, "%d measurements, about %v\n", len(steps), harness.Estimate(steps, mode).Round(1e9))
	return err
}

// failures is an error if anything could not be run.
func failures(set *result.Set) error {
	var errs []error
	for _, r := range set.Runs {
		if r.Error != "" {
			errs = append(errs, fmt.Errorf("bench: %s/%s: %s", r.Workload, r.Contender, r.Error))
		}
	}
	if set.Interrupted {
		errs = append(errs, errors.New("bench: interrupted"))
	}
	return errors.Join(errs...)
}
