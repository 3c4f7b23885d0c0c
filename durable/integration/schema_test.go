package integration

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

func open1(t *testing.T, d database, pool int, opts ...sqlstore.Option) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db := d.open(t)
	db.SetMaxOpenConns(pool)
	s, err := sqlstore.Open(db, d.dialect, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s, db
}

func TestNodesMigrateAtTheSameTime(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := open1(t, d, pool)
		var g errgroup.Group
		for range 4 {
			other, err := sqlstore.Open(db, d.dialect)
			if err != nil {
				t.Fatal(err)
			}
			g.Go(func() error { return other.Migrate(t.Context()) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		oneShots(t, s, 10)
		if err := s.Migrate(t.Context()); err != nil { // deletes nothing
			t.Fatal(err)
		}
		states, err := s.Jobs(t.Context(), durable.JobQuery{})
		if err != nil || len(states) != 10 || len(states[0].Triggers) != 1 {
			t.Errorf("Jobs = %d, %v, want 10", len(states), err)
		}
	})
}

// Whoever waited for the lock is to see what was made meanwhile.
func TestNodesMigrateAtTheSameTimeWhateverTheIsolation(t *testing.T) {
	for _, level := range []string{"repeatable%20read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Setenv("TASKMANAGER_TEST_POSTGRES", withParameters(postgresDSN(), "default_transaction_isolation="+level))
			for range 3 {
				_, db := open1(t, databases[1], 4)
				var g errgroup.Group
				for range 4 {
					s, err := sqlstore.Open(db, databases[1].dialect)
					if err != nil {
						t.Fatal(err)
					}
					g.Go(func() error { return s.Migrate(t.Context()) })
				}
				if err := g.Wait(); err != nil {
					t.Errorf("Migrate = %v, want nil", err)
				}
			}
		})
	}
}

// calls are all that asks the database for something.
func calls(s durable.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, durable.ClaimRequest{Node: "n", Limit: 1, Handlers: []string{"h"}, Plan: runIt})
			return err
		},
		"Finish": func(ctx context.Context) error {
			_, err := s.Finish(ctx, durable.FinishRequest{Ends: make([]durable.End, 1)})
			return err
		},
		"Beat": func(ctx context.Context) error {
			_, err := s.Beat(ctx, durable.NodeRow{ID: "n"}, time.Minute)
			return err
		},
		"Expire": func(ctx context.Context) error { _, err := s.Expire(ctx, durable.ExpireRequest{Limit: 1}); return err },
		"Edit": func(ctx context.Context) error {
			return s.Edit(ctx, "a", durable.EditJob, func(*durable.Edit) error { return nil })
		},
		"Jobs":  func(ctx context.Context) error { _, err := s.Jobs(ctx, durable.JobQuery{}); return err },
		"Runs":  func(ctx context.Context) error { _, err := s.Runs(ctx, durable.RunQuery{}); return err },
		"Purge": func(ctx context.Context) error { _, err := s.Purge(ctx, durable.PurgeRequest{}); return err },
		"Nodes": func(ctx context.Context) error { _, _, err := s.Nodes(ctx); return err },
		"Lease": func(ctx context.Context) error { _, err := s.Lease(ctx, "l", "n", time.Minute); return err },
	}
}

func wantSchemaError(t *testing.T, what string, err error, have int) {
	t.Helper()
	var e *sqlstore.SchemaError
	if !errors.As(err, &e) || e.Have != have {
		t.Errorf("%s = %v, want a SchemaError with version %d", what, err, have)
	}
}

func TestWithoutTablesAllSayToMigrate(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := open1(t, d, pool)
		for name, call := range calls(s) {
			err := call(t.Context())
			wantSchemaError(t, name, err, 0)
			if err != nil && !strings.Contains(err.Error(), "Migrate") {
				t.Errorf("%s: %v, want Migrate mentioned", name, err)
			}
		}
	})
}

func TestTablesOfANewerProgramAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		_, db := d.store(t, pool)
		do(t, db, "INSERT INTO taskmanager_schema (version, checksum, applied_at) VALUES (99, 'x', 0)")
		s, err := sqlstore.Open(db, d.dialect)
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range calls(s) {
			wantSchemaError(t, name, call(t.Context()), 99)
		}
		wantSchemaError(t, "Migrate", s.Migrate(t.Context()), 99)
	})
}

func TestTablesOfOtherStatementsAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		_, db := d.store(t, pool)
		do(t, db, "UPDATE taskmanager_schema SET checksum = 'x'")
		s, err := sqlstore.Open(db, d.dialect)
		if err != nil {
			t.Fatal(err)
		}
		wantSchemaError(t, "Migrate", s.Migrate(t.Context()), 1)
	})
}

// Some error text could not be written in any other encoding, and its run would never end.
func TestOtherEncodingsAreRefused(t *testing.T) {
	latin1 := map[string]func(t *testing.T) *sql.DB{
		"postgres": func(t *testing.T) *sql.DB {
			admin := open(t, "pgx", postgresDSN())
			reach(t, admin)
			name := fresh()
			do(t, admin, "CREATE DATABASE "+name+" ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
			t.Cleanup(func() { do(t, admin, "DROP DATABASE "+name) })
			config, err := pgx.ParseConfig(postgresDSN())
			if err != nil {
				t.Fatal(err)
			}
			config.Database = name
			db := stdlib.OpenDB(*config)
			t.Cleanup(func() { _ = db.Close() })
			return db
		},
		"mysql": func(t *testing.T) *sql.DB {
			var name string
			if err := openMySQL(t).QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			config, err := mysql.ParseDSN(mysqlDSN())
			if err != nil {
				t.Fatal(err)
			}
			config.DBName, config.Params = name, map[string]string{"charset": "latin1"}
			return open(t, "mysql", config.FormatDSN())
		},
	}
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			db := latin1[d.name](t)
			s, err := sqlstore.Open(db, d.dialect)
			if err != nil {
				t.Fatal(err)
			}
			wantEncoding := func(what string, err error) {
				t.Helper()
				var e *sqlstore.SchemaError
				if !errors.As(err, &e) || !strings.EqualFold(e.Encoding, "latin1") {
					t.Errorf("%s = %v, want a SchemaError with the encoding latin1", what, err)
				}
			}
			wantEncoding("Migrate", s.Migrate(t.Context()))
			for _, statement := range strings.Split(s.MigrationSQL(), ";\n") { // somebody else does it
				if strings.TrimSpace(statement) != "" {
					do(t, db, statement)
				}
			}
			wantEncoding("Migrate", s.Migrate(t.Context()))
			for name, call := range calls(s) {
				wantEncoding(name, call(t.Context()))
			}
		})
	}
}

// What is printed for people does what Migrate does.
func TestMigrationSQLIsEnough(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := open1(t, d, pool, sqlstore.WithPrefix("other_"))
		for _, statement := range strings.Split(s.MigrationSQL(), ";\n") {
			if strings.TrimSpace(statement) != "" {
				do(t, db, statement)
			}
		}
		for name, call := range calls(s) {
			if err := call(t.Context()); err != nil && name != "Claim" {
				t.Errorf("%s = %v", name, err)
			}
		}
	})
}

func TestTablesCanBeInASchemaOfTheirOwn(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t)
			name := fresh()
			do(t, db, "CREATE SCHEMA "+name)
			t.Cleanup(func() { do(t, db, "DROP SCHEMA "+name+map[string]string{"postgres": " CASCADE"}[d.name]) })
			s, err := sqlstore.Open(db, d.dialect, sqlstore.WithSchema(name), sqlstore.WithPrefix("p_"))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			oneShots(t, s, 20)
			for _, name := range []string{"Beat", "Claim", "Finish", "Expire", "Edit", "Jobs", "Runs", "Purge", "Nodes", "Lease"} {
				if err := calls(s)[name](t.Context()); err != nil {
					t.Errorf("%s = %v", name, err)
				}
			}
		})
	}
}

func TestOpenRefusesWhatCannotBe(t *testing.T) {
	db := openSQLite(t)
	for _, c := range []struct {
		db      *sql.DB
		dialect sqlstore.Dialect
		opts    []sqlstore.Option
	}{
		{nil, sqlstore.SQLite(), nil},
		{db, sqlstore.Dialect{}, nil},
		{db, sqlstore.SQLite(), []sqlstore.Option{sqlstore.WithSchema("s")}},
		{db, sqlstore.PostgreSQL(), []sqlstore.Option{sqlstore.WithSchema("s.t")}},
		{db, sqlstore.SQLite(), []sqlstore.Option{sqlstore.WithPrefix("")}},
		{db, sqlstore.SQLite(), []sqlstore.Option{sqlstore.WithPrefix("a;b")}},
	} {
		if _, err := sqlstore.Open(c.db, c.dialect, c.opts...); err == nil {
			t.Errorf("Open(%v, %v) = nil, want an error", c.dialect, c.opts)
		}
	}
}
