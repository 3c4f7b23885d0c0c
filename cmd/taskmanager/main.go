// Command taskmanager answers questions about schedules, and looks after durable jobs.
//
//	taskmanager next [-n 5] [-tz ZONE] [-from TIME] SCHEDULE   the next instants
//	taskmanager explain [-tz ZONE] [-from TIME] SCHEDULE       what a schedule will do
//	taskmanager lint -f FILE                                   what is doubtful in a crontab or a list
//	taskmanager convert -from quartz|standard EXPRESSION       an expression of another system
//
//	taskmanager migrate [-print] -db URL          make the tables, or print their SQL
//	taskmanager jobs [-db URL] [JOB]              the jobs, or how one stands and why it does not run
//	taskmanager runs [-db URL] [-job JOB] …       what has run, newest first
//	taskmanager trigger [-data JSON] [-wait] JOB  have a job run now
//	taskmanager pause JOB[/TRIGGER]               keep it from running
//	taskmanager resume JOB[/TRIGGER]              end that
//	taskmanager cancel RUN|JOB                    ask what runs to end
//
// A SCHEDULE is in the grammar of the package cronsched; it may be one argument
// or several. The calendar that it names is read from an iCalendar file given
// by -calendar NAME=FILE.
//
// The URL of a database is that of package storeurl: a file of SQLite, postgres://… or
// mysql://…; $TASKMANAGER_DB is there for those who do not want to have it in each
// command, or a password in the list of processes. Only migrate makes or changes tables.
//
// With -json the answer is one JSON value. The exit code is 0 if all is well, 1 if the
// answer is a bad one (nothing is due any more, there are warnings, there is no such
// job, it is running already, a run that was waited for did not succeed, the database
// has no tables or does not answer), and 2 if the question cannot be understood.
//
// The IANA time zones are built in.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/taskmanager-go/taskmanager/cronsched"
)

// The exit codes.
const (
	exitOK    = 0
	exitBad   = 1 // the answer is a bad one
	exitUsage = 2 // the question cannot be understood
)

// A command is one subcommand. Each has a file of its own.
type command struct {
	name    string
	args    string // after the flags, for the usage
	summary string
	// setup declares the command's flags and gives the function that runs once
	// they are parsed.
	setup func(fs *flag.FlagSet) func(c *call, args []string) error
}

var commands = []command{
	nextCommand, explainCommand, lintCommand, convertCommand,
	migrateCommand, jobsCommand, runsCommand, triggerCommand, pauseCommand, resumeCommand, cancelCommand,
}

// A call is what one run of a command has to work with.
type call struct {
	stdin  io.Reader
	stdout io.Writer
	now    func() time.Time
	json   bool
}

// print writes the answer: v as JSON if asked for, else the text.
func (c *call) print(v any, text string) error {
	if !c.json {
		_, err := io.WriteString(c.stdout, text)
		return err
	}
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// errBad ends a command with exitBad; the answer is written already.
var errBad = errors.New("the answer is a bad one")

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, time.Now))
}

// run is the whole program, apart from the process it runs in.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, now func() time.Time) int {
	if len(args) == 0 || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" || args[0] == "help" {
		usage(stderr)
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	for _, cmd := range commands {
		if cmd.name == args[0] {
			return cmd.call(args[1:], &call{stdin: stdin, stdout: stdout, now: now}, stderr)
		}
	}
	fmt.Fprintf(stderr, "taskmanager: unknown command %q\n", args[0])
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprintf(w, "usage: taskmanager COMMAND [flags] [arguments]\n\n")
	for _, cmd := range commands {
		fmt.Fprintf(w, "  %-8s %s\n", cmd.name, cmd.summary)
	}
	fmt.Fprintf(w, "\nThe exit code is 0 if all is well, 1 if the answer is a bad one, 2 if the question cannot be understood.\n")
}

// call parses the flags, runs the command and gives the exit code.
func (cmd command) call(args []string, c *call, stderr io.Writer) int {
	fs := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(stderr, "usage: taskmanager %s [flags] %s\n\n%s\n\n", cmd.name, cmd.args, cmd.summary)
		fs.PrintDefaults()
	}
	fs.BoolVar(&c.json, "json", false, "write the answer as JSON")
	do := cmd.setup(fs)
	words, err := parseFlags(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage // the flag set has said why
	}
	err = do(c, words)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errBad):
		return exitBad
	case errors.Is(err, errInvalid):
		return exitUsage
	}
	code := exitUsage
	if errors.As(err, new(*failure)) {
		code = exitBad
	}
	if c.json {
		if err := c.print(map[string]any{"error": describeError(err)}, ""); err == nil {
			return code
		}
	}
	fmt.Fprintf(stderr, "taskmanager %s: %v\n", cmd.name, err)
	return code
}

// parseFlags takes flags before, between and after the arguments.
func parseFlags(fs *flag.FlagSet, args []string) (words []string, err error) {
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if args = fs.Args(); len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	return words, nil
}

// jsonError is an error in JSON.
type jsonError struct {
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
	Text    string `json:"text,omitempty"`
	Offset  *int   `json:"offset,omitempty"`
	Want    string `json:"want,omitempty"`
}

func describeError(err error) *jsonError {
	e := &jsonError{Message: err.Error()}
	var p *cronsched.ParseError
	if errors.As(err, &p) {
		e.Field, e.Text, e.Offset, e.Want = p.Field, p.Text, &p.Offset, p.Want
	}
	return e
}

// A question is the schedule and the instant that a command is asked about.
type question struct {
	zone      string
	from      string
	calendars calendarFiles
}

func (q *question) flags(fs *flag.FlagSet) {
	fs.StringVar(&q.zone, "tz", "", "the IANA `zone` of a cron expression, which is to name none itself (default UTC)")
	q.calendars = calendarFiles{}
	fs.Var(q.calendars, "calendar", "`NAME=FILE`: the iCalendar file of calendar=NAME; may be given several times")
	fs.StringVar(&q.from, "from", "", "the instant to look from, an RFC 3339 `time` (default now)")
}

// read gives the schedule of the words and the instant to look from.
func (q *question) read(c *call, words []string) (s cronsched.Schedule, from time.Time, err error) {
	text := strings.Join(words, " ")
	if text == "" {
		return s, from, errors.New("no schedule is given")
	}
	if q.zone != "" {
		text += " tz=" + q.zone
	}
	if s, err = cronsched.Parse(text); err != nil {
		return s, from, err
	}
	if s, err = q.calendars.resolve(s); err != nil {
		return s, from, err
	}
	from = c.now()
	if q.from != "" {
		if err := from.UnmarshalText([]byte(q.from)); err != nil {
			return s, from, fmt.Errorf("-from is %q, want an RFC 3339 time like 2026-03-28T00:00:00+01:00", q.from)
		}
	}
	return s, from, nil
}
