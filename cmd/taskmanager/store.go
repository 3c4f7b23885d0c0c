package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

// A storeFlags is where the jobs are.
type storeFlags struct {
	url    string
	prefix string
	schema string
}

func (f *storeFlags) flags(fs *flag.FlagSet) {
	fs.StringVar(&f.url, "db", "", "the database's `URL`: a file of SQLite, postgres://… or mysql://… (default $TASKMANAGER_DB)")
	fs.StringVar(&f.prefix, "prefix", "", "the tables' `prefix` (default taskmanager_)")
	fs.StringVar(&f.schema, "schema", "", "the tables' `schema`, if it is not the connection's")
}

// where gives the URL and what goes with it.
func (f *storeFlags) where() (url string, opts []sqlstore.Option, err error) {
	if url = f.url; url == "" {
		url = os.Getenv("TASKMANAGER_DB")
	}
	if url == "" {
		return "", nil, errors.New("want -db URL or $TASKMANAGER_DB")
	}
	if f.prefix != "" {
		opts = append(opts, sqlstore.WithPrefix(f.prefix))
	}
	if f.schema != "" {
		opts = append(opts, sqlstore.WithSchema(f.schema))
	}
	dialect, err := storeurl.Dialect(url)
	if err == nil {
		_, err = sqlstore.MigrationSQL(dialect, opts...) // says what is wrong with the options
	}
	return url, opts, err
}

// A desk is a scheduler that is never started: it reads and changes jobs, and runs
// none.
type desk struct {
	*durable.Scheduler
	store *storeurl.Opened
}

// with calls f with the store's desk, until it is interrupted. The tables must be
// there: nothing but migrate makes them.
func (f *storeFlags) with(do func(ctx context.Context, d *desk) error) error {
	url, opts, err := f.where()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, err := storeurl.OpenExisting(ctx, url, opts...)
	if err != nil {
		return explainStore(err)
	}
	s, err := durable.New(store.Store, durable.Config{Retention: -1, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = do(ctx, &desk{s, store})
		err = errors.Join(err, s.Shutdown(context.WithoutCancel(ctx)))
	}
	return explainStore(errors.Join(err, store.Close()))
}

// tell sends a note to the nodes, if the database can. It only saves time.
func (d *desk) tell(ctx context.Context, notes ...durable.Note) {
	if d.store.Waker == nil {
		return
	}
	for _, n := range notes {
		_ = d.store.Waker.Notify(ctx, n)
	}
}

// alive counts the nodes that are.
func (d *desk) alive(ctx context.Context) (nodes []durable.NodeRow, err error) {
	all, now, err := d.store.Store.Nodes(ctx)
	for _, n := range all {
		if !n.Dead && n.LeaseUntil.After(now) {
			nodes = append(nodes, n)
		}
	}
	return nodes, err
}

// A failure is an error that is the answer: the question was understood.
type failure struct{ err error }

func (e *failure) Error() string { return e.err.Error() }
func (e *failure) Unwrap() error { return e.err }

func failed(format string, args ...any) error { return &failure{fmt.Errorf(format, args...)} }

// explainStore tells an error that is the answer from one of the question: what is
// wrong with a name or with data is the latter.
func explainStore(err error) error {
	var schema *sqlstore.SchemaError
	switch {
	case err == nil || errors.Is(err, errBad) || errors.Is(err, durable.ErrInvalid) || errors.As(err, new(*failure)):
		return err
	case errors.As(err, &schema) && !schema.Changed && schema.Have < schema.Want:
		have := fmt.Sprintf("has tables of version %d, and %d is needed", schema.Have, schema.Want)
		if schema.Have == 0 {
			have = "has no tables"
		}
		return failed("the database %s: run taskmanager migrate", have)
	case errors.Is(err, fs.ErrNotExist):
		return failed("%w (taskmanager migrate makes it)", err)
	}
	return &failure{err}
}

// oneName reads the only argument.
func oneName(words []string, what string) (string, error) {
	switch {
	case len(words) == 0:
		return "", fmt.Errorf("no %s is given", what)
	case len(words) > 1:
		return "", fmt.Errorf("want one %s, not %q", what, words)
	}
	return words[0], nil
}

// validName rejects what cannot be a name.
func validName(what, name string) error {
	if !durable.ValidName(name) {
		return fmt.Errorf("%q is no name of a %s", name, what)
	}
	return nil
}

// splitTrigger reads JOB or JOB/TRIGGER.
func splitTrigger(text string) (job, trigger string, err error) {
	job, trigger, both := strings.Cut(text, "/")
	if err := validName("job", job); err != nil {
		return "", "", err
	}
	if both {
		err = validName("trigger", trigger)
	}
	return job, trigger, err
}

// timeText is an instant for people, "-" for none.
func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
