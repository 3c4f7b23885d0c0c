package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// A database is one that the store is tested with.
type database struct {
	name    string
	dialect sqlstore.Dialect
	// open opens a place of its own, which is gone at the end of the test.
	open func(t testing.TB) *sql.DB
}

var databases = []database{
	{"sqlite", sqlstore.SQLite(), openSQLite},
	{"postgres", sqlstore.PostgreSQL(), openPostgres},
	{"mysql", sqlstore.MySQL(), openMySQL},
}

// onEach runs a test on each database, with a pool of one and of several connections.
func onEach(t *testing.T, f func(t *testing.T, d database, pool int)) {
	for _, d := range databases {
		for _, pool := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s/pool=%d", d.name, pool), func(t *testing.T) { f(t, d, pool) })
		}
	}
}

// store opens a store with its tables made.
func (d database) store(t testing.TB, pool int, opts ...sqlstore.Option) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db := d.open(t)
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	s, err := sqlstore.Open(db, d.dialect, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, db
}

func openSQLite(t testing.TB) *sql.DB {
	return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "jobs.db")+"?"+sqlstore.SQLitePragmas())
}

func postgresDSN() string {
	return env("TASKMANAGER_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
}

func openPostgres(t testing.TB) *sql.DB {
	admin := open(t, "pgx", postgresDSN())
	reach(t, admin)
	schema := fresh()
	do(t, admin, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { do(t, admin, "DROP SCHEMA "+schema+" CASCADE") })
	dsn := postgresDSN()
	if strings.Contains(dsn, "?") {
		dsn += "&"
	} else {
		dsn += "?"
	}
	return open(t, "pgx", dsn+"search_path="+schema)
}

func mysqlDSN() string { return env("TASKMANAGER_TEST_MYSQL", "root@tcp(127.0.0.1:3306)/test") }

func openMySQL(t testing.TB) *sql.DB {
	config, err := mysql.ParseDSN(mysqlDSN())
	if err != nil {
		t.Fatal(err)
	}
	admin := open(t, "mysql", config.FormatDSN())
	reach(t, admin)
	config.DBName = fresh()
	do(t, admin, "CREATE DATABASE "+config.DBName)
	t.Cleanup(func() { do(t, admin, "DROP DATABASE "+config.DBName) })
	return open(t, "mysql", config.FormatDSN())
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// fresh is a name for a place of the test's own.
func fresh() string { return fmt.Sprintf("tm_%d_%08x", os.Getpid(), rand.Uint32()) }

func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// reach skips the test if there is no server, which CI must have.
func reach(t testing.TB, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("no server: ", err)
	}
}

func do(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Error(err)
	}
}
