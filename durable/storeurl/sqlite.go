package storeurl

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// sqliteConns lets a few read while one writes.
const sqliteConns = 4

func sqliteTarget(file, query string) (target, error) {
	if file == "" {
		return target{}, errors.New("storeurl: no file: want sqlite:FILE")
	}
	settings, _ := url.ParseQuery(query) // what else is wrong with it the driver says
	if strings.HasPrefix(file, ":memory:") || slices.Contains(settings["mode"], "memory") {
		return target{}, errors.New("storeurl: jobs in SQLite's :memory: would be gone with a connection: use durable.NewMemory")
	}
	t := target{name: "sqlite:" + file, dialect: sqlstore.SQLite()}
	t.connect = func() (*sql.DB, *pgnotify.Waker, error) {
		db, err := sql.Open("sqlite", sqliteDSN(file, query))
		if err != nil {
			return nil, nil, err
		}
		db.SetMaxOpenConns(sqliteConns)
		db.SetMaxIdleConns(sqliteConns)
		return db, nil, nil
	}
	// The first connection to a file gives it its write-ahead log, for which it must be
	// alone; SQLite does not wait for that.
	t.busy = func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
	}
	t.exists = func() error {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("storeurl: %w", err)
		}
		return nil
	}
	return t, nil
}

// sqliteDSN escapes what would not be the file's name in a URI. A setting in the query
// takes the place of the store's: the driver runs pragmas in order of their text, and
// of other parameters takes the first.
func sqliteDSN(file, query string) string {
	path := filepath.ToSlash(file)
	if filepath.VolumeName(file) != "" {
		path = "/" + path
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query
	for setting := range strings.SplitSeq(sqlstore.SQLitePragmas(), "&") {
		name, _, _ := strings.Cut(setting, "(")
		if !strings.Contains(query, name) {
			dsn += "&" + setting
		}
	}
	return dsn
}
