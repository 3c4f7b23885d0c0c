package durablerows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// The databases' names, in workload names and on the command line of a node.
const (
	postgres = "postgres"
	sqlite   = "sqlite"
	mariadb  = "mariadb"
	memory   = "memory"
)

// Where the servers are, and what says otherwise.
const (
	postgresEnv = "TASKMANAGER_BENCH_POSTGRES"
	mysqlEnv    = "TASKMANAGER_BENCH_MYSQL"
	redisEnv    = "TASKMANAGER_BENCH_REDIS"
)

func postgresDSN() string {
	return env(postgresEnv, "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// An unreachable error is why a row cannot be measured on this machine.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

// A place is a schema, database or file of one measurement's own.
type place struct {
	database string
	driver   string
	dsn      string // of the place, for this process and others
	dialect  sqlstore.Dialect
	server   string // how the server's processes are called, "" without one
	drop     func() error
}

// newPlace makes a place. What earlier measurements left, since they were killed, is
// removed.
func newPlace(ctx context.Context, database string) (*place, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	switch database {
	case postgres:
		return newSchema(ctx)
	case mariadb:
		return newDatabase(ctx)
	default:
		dir, err := os.MkdirTemp("", placePrefix)
		if err != nil {
			return nil, err
		}
		dsn := "file:" + filepath.ToSlash(filepath.Join(dir, "jobs.db")) + "?" + sqlstore.SQLitePragmas()
		return &place{sqlite, "sqlite", dsn, sqlstore.SQLite(), "", func() error { return os.RemoveAll(dir) }}, nil
	}
}

// Names of places say when they were made, so that one that was left can be told from
// one that is used.
const (
	placePrefix = "tmbench_"
	placeLife   = time.Hour
)

var placeName = regexp.MustCompile(`^` + placePrefix + `(\d+)_\d+$`)

func freshName() string {
	return fmt.Sprintf("%s%d_%d", placePrefix, time.Now().Unix(), rand.Uint32())
}

func left(name string) bool {
	m := placeName.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	at, err := strconv.ParseInt(m[1], 10, 64)
	return err == nil && time.Since(time.Unix(at, 0)) > placeLife
}

func newSchema(ctx context.Context) (*place, error) {
	admin, err := reach(ctx, "pgx", postgresDSN())
	if err != nil {
		return nil, err
	}
	name := freshName()
	sweep(ctx, admin, "SELECT nspname FROM pg_namespace", "DROP SCHEMA %s CASCADE")
	if _, err := admin.ExecContext(ctx, "CREATE SCHEMA "+name); err != nil {
		return nil, errors.Join(err, admin.Close())
	}
	return &place{postgres, "pgx", withParameter(postgresDSN(), "search_path", name), sqlstore.PostgreSQL(), "postgres",
		dropper(admin, "DROP SCHEMA "+name+" CASCADE")}, nil
}

// withParameter adds a parameter to a URL, or to a list of words.
func withParameter(dsn, name, value string) string {
	switch {
	case !strings.Contains(dsn, "://"):
		return dsn + " " + name + "=" + value
	case strings.Contains(dsn, "?"):
		return dsn + "&" + name + "=" + value
	default:
		return dsn + "?" + name + "=" + value
	}
}

func newDatabase(ctx context.Context) (*place, error) {
	config, err := mysql.ParseDSN(env(mysqlEnv, "root@tcp(127.0.0.1:3306)/test"))
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true // as package storeurl has it
	admin, err := reach(ctx, "mysql", config.FormatDSN())
	if err != nil {
		return nil, err
	}
	sweep(ctx, admin, "SELECT schema_name FROM information_schema.schemata", "DROP DATABASE %s")
	config.DBName = freshName()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+config.DBName); err != nil {
		return nil, errors.Join(err, admin.Close())
	}
	return &place{mariadb, "mysql", config.FormatDSN(), sqlstore.MySQL(), "mariadbd",
		dropper(admin, "DROP DATABASE "+config.DBName)}, nil
}

func reach(ctx context.Context, driver, dsn string) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, unreachable{oneLine(err)}
	}
	return db, nil
}

// oneLine is an error for a table's footnote.
func oneLine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }

// dropper drops a place even if the measurement was interrupted.
func dropper(admin *sql.DB, statement string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var err error
		for range 5 { // a server process that has lost its client may still be at work there
			if _, err = admin.ExecContext(ctx, statement); err == nil {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		return errors.Join(err, admin.Close())
	}
}

// sweep drops places that were left. It is nobody's business if it cannot.
func sweep(ctx context.Context, admin *sql.DB, names, drop string) {
	rows, err := admin.QueryContext(ctx, names)
	if err != nil {
		return
	}
	defer rows.Close()
	var old []string
	for rows.Next() {
		var name string
		if rows.Scan(&name) == nil && left(name) {
			old = append(old, name)
		}
	}
	for _, name := range old {
		_, _ = admin.ExecContext(ctx, fmt.Sprintf(drop, name))
	}
}

// open opens the place with a pool of that size; of SQLite with one connection, as its
// drivers and River's advise.
func (p *place) open(conns int) (*sql.DB, error) {
	db, err := sql.Open(p.driver, p.dsn)
	if err != nil {
		return nil, err
	}
	if p.database == sqlite {
		conns = 1
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// store opens the place as a store with its tables.
func (p *place) store(ctx context.Context, conns int) (*sqlstore.Store, *sql.DB, error) {
	db, err := p.open(conns)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlstore.Open(db, p.dialect)
	if err == nil {
		err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return s, db, nil
}

// analyze has the server know what its tables hold, as it would after a while. It is
// done for every contender.
func (p *place) analyze(ctx context.Context, db *sql.DB) error {
	statement := map[string]string{postgres: "VACUUM ANALYZE", sqlite: "ANALYZE"}[p.database]
	if p.database == postgres {
		return vacuumOwn(ctx, db)
	}
	if statement == "" { // MariaDB keeps its statistics itself
		return nil
	}
	_, err := db.ExecContext(ctx, statement)
	return err
}

// vacuumOwn is VACUUM ANALYZE of the schema's tables, and a checkpoint, so that no
// measurement pays for writing what the one before it left.
func vacuumOwn(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace")
	if err != nil {
		return err
	}
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return errors.Join(err, rows.Close())
		}
		names = append(names, name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if len(names) > 0 {
		if _, err := db.ExecContext(ctx, "VACUUM ANALYZE "+strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	_, _ = db.ExecContext(ctx, "CHECKPOINT") // for superusers
	return nil
}
