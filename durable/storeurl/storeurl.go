// Package storeurl opens a store of durable jobs from a URL, with the database's
// driver and the settings that package sqlstore asks for:
//
//	reports.db                              a file of SQLite
//	sqlite:reports.db                       the same; ?_pragma=… are added to the settings
//	postgres://user:pass@host:5432/db       PostgreSQL, with LISTEN/NOTIFY
//	mysql://user:pass@host:3306/db          MySQL or MariaDB
//
// It is for programs: it brings all three drivers along. A program that has a *sql.DB
// already gives it to sqlstore.Open.
//
// Parameters after a "?" go to the driver, those of modernc.org/sqlite, jackc/pgx and
// go-sql-driver/mysql. No error tells the password; special characters in one are
// written as in URLs, "@" as %40.
package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// Channel is that of a Waker on PostgreSQL. A note that is meant for other tables in
// the same database does no harm.
const Channel = "taskmanager"

// An Opened is a store and what belongs to it.
type Opened struct {
	Store *sqlstore.Store
	DB    *sql.DB
	// Waker is for durable.Config; nil on databases that have none.
	Waker durable.Waker

	waker *pgnotify.Waker // is Waker, or nil
	name  string
}

// Pools are small: a node needs few connections, and several nodes share a server.
const (
	maxConns       = 8
	maxIdle        = 4
	connIdleTime   = 5 * time.Minute
	connLifetime   = time.Hour
	connectTimeout = 10 * time.Second
)

// Open opens the store, and makes sure that the database answers. A file of SQLite is
// made if there is none; tables are not, see sqlstore.Store.Migrate.
func Open(ctx context.Context, url string, opts ...sqlstore.Option) (*Opened, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, opts)
}

// OpenExisting is Open, but fails with fs.ErrNotExist if there is no such file.
func OpenExisting(ctx context.Context, url string, opts ...sqlstore.Option) (*Opened, error) {
	t, err := parse(url)
	if err == nil && t.exists != nil {
		err = t.exists()
	}
	if err != nil {
		return nil, err
	}
	return t.open(ctx, opts)
}

// Dialect tells which database the URL is of, without opening it.
func Dialect(url string) (sqlstore.Dialect, error) {
	t, err := parse(url)
	return t.dialect, err
}

// String is the URL without its password and parameters.
func (o *Opened) String() string { return o.name }

// Close closes the Waker and the database. The schedulers on it come first.
func (o *Opened) Close() error {
	var err error
	if o.waker != nil {
		err = o.waker.Close()
	}
	return errors.Join(err, o.DB.Close())
}

// A target is a URL that was understood.
type target struct {
	name    string // for people
	dialect sqlstore.Dialect
	secrets []string // not to be in errors
	connect func() (*sql.DB, *pgnotify.Waker, error)
	exists  func() error // nil if that is the server's business
	// busy tells whether what kept a connection from opening is over in a moment; nil if
	// there is no such thing.
	busy func(error) bool
}

func (t target) open(ctx context.Context, opts []sqlstore.Option) (*Opened, error) {
	db, waker, err := t.connect()
	if err != nil {
		return nil, t.explain(err)
	}
	o := &Opened{DB: db, waker: waker, name: t.name}
	if waker != nil {
		o.Waker = waker
	}
	if o.Store, err = sqlstore.Open(db, t.dialect, opts...); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := t.ping(ctx, db); err != nil {
		return nil, errors.Join(t.explain(err), o.Close())
	}
	return o, nil
}

// busyPause is how long a database that is busy is left alone.
const busyPause = 5 * time.Millisecond

// ping makes sure that the database answers.
func (t target) ping(ctx context.Context, db *sql.DB) error {
	for {
		err := db.PingContext(ctx)
		if err == nil || t.busy == nil || !t.busy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPause):
		}
	}
}

func (t target) explain(err error) error {
	return fmt.Errorf("storeurl: %s: %w", t.name, hide(err, t.secrets))
}
