package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

var migrateCommand = command{
	name:    "migrate",
	summary: "make the tables of durable jobs, or bring them up to date",
	setup: func(fs *flag.FlagSet) func(*call, []string) error {
		var f storeFlags
		f.flags(fs)
		show := fs.Bool("print", false, "write the SQL for an empty database and change nothing; needs no connection")
		return func(c *call, words []string) error {
			switch {
			case len(words) > 0:
				return fmt.Errorf("unexpected %q", words)
			case *show:
				return printMigration(c, &f)
			}
			return migrate(c, &f)
		}
	},
}

func printMigration(c *call, f *storeFlags) error {
	url, opts, err := f.where()
	if err != nil {
		return err
	}
	dialect, err := storeurl.Dialect(url)
	if err != nil {
		return err
	}
	text, err := sqlstore.MigrationSQL(dialect, opts...)
	if err != nil {
		return err
	}
	return c.print(map[string]string{"sql": text}, text)
}

type migrateAnswer struct {
	Database string `json:"database"`
	Changed  bool   `json:"changed"`
	Before   int    `json:"before,omitempty"`  // version of tables that were changed, 0 for none
	Version  int    `json:"version,omitempty"` // that they have now
}

func migrate(c *call, f *storeFlags) error {
	url, opts, err := f.where()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, err := storeurl.Open(ctx, url, opts...)
	if err != nil {
		return explainStore(err)
	}
	defer store.Close()
	a := migrateAnswer{Database: store.String()}
	_, _, err = store.Store.Nodes(ctx) // any call says what is there
	var schema *sqlstore.SchemaError
	outdated := errors.As(err, &schema)
	if err != nil && !outdated {
		return explainStore(err)
	}
	if err := store.Store.Migrate(ctx); err != nil {
		return explainStore(err)
	}
	text := "the tables are up to date"
	if outdated {
		a.Changed, a.Before, a.Version = true, schema.Have, schema.Want
		text = fmt.Sprintf("tables made, version %d", a.Version)
		if a.Before > 0 {
			text = fmt.Sprintf("tables brought from version %d to %d", a.Before, a.Version)
		}
	}
	return c.print(a, a.Database+": "+text+"\n")
}
