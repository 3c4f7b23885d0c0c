package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

//go:embed migrations
var migrations embed.FS

// A migration is one file: migrations/<dialect>/<version>_<name>.sql. Its statements
// may be repeated without harm, since MySQL cannot undo them when one fails.
type migration struct {
	version  int
	checksum string // of the file
	text     string // with the tables' names
}

// A SchemaError is that the tables are not those that this program works with.
type SchemaError struct {
	Have int // the version of the tables, 0 without tables
	Want int // the version that this program works with
	// Changed tells that version Have was made by other statements than this
	// program's.
	Changed bool
	// Encoding is that of texts, if it is none of all of Unicode: the database's on
	// PostgreSQL, the connection's on MySQL. "" if it is right.
	Encoding string
}

func (e *SchemaError) Error() string {
	switch {
	case e.Encoding != "":
		return fmt.Sprintf("sqlstore: texts are in %s, which does not have all characters: a PostgreSQL database must be in UTF8, a connection to MySQL in utf8mb4", e.Encoding)
	case e.Changed:
		return fmt.Sprintf("sqlstore: version %d of the tables was made by other statements than this program has", e.Have)
	case e.Have > e.Want:
		return fmt.Sprintf("sqlstore: the tables have version %d, made by a newer program; this one knows version %d", e.Have, e.Want)
	case e.Have == 0:
		return "sqlstore: there are no tables: call Migrate"
	}
	return fmt.Sprintf("sqlstore: the tables have version %d, and %d is needed: call Migrate", e.Have, e.Want)
}

const schemaTable = "CREATE TABLE IF NOT EXISTS {schema} (version INTEGER NOT NULL PRIMARY KEY, checksum VARCHAR(64) NOT NULL, applied_at BIGINT NOT NULL)"

// MigrationSQL is what Migrate does in a database without tables, for those who want
// to do it themselves.
func MigrationSQL(dialect Dialect, opts ...Option) (string, error) {
	s, err := newStore(dialect, opts)
	if err != nil {
		return "", err
	}
	return s.MigrationSQL(), nil
}

// MigrationSQL is what Migrate does in a database without tables.
func (s *Store) MigrationSQL() string {
	var b strings.Builder
	b.WriteString(s.names.Replace(schemaTable) + ";\n\n")
	for _, m := range s.migrations() {
		b.WriteString(m.text)
		fmt.Fprintf(&b, "\n%s;\n", s.recordOf(m))
	}
	return b.String()
}

func (s *Store) recordOf(m migration) string {
	now := s.dialect.now
	if now == "" {
		now = "CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
	}
	return s.names.Replace(fmt.Sprintf("INSERT INTO {schema} (version, checksum, applied_at) VALUES (%d, '%s', ", m.version, m.checksum)) + now + ")"
}

func (s *Store) migrations() []migration {
	var list []migration
	files, _ := fs.Glob(migrations, "migrations/"+s.dialect.name+"/*.sql") // in order
	for i, name := range files {
		text, _ := migrations.ReadFile(name)
		sum := sha256.Sum256(text)
		list = append(list, migration{i + 1, hex.EncodeToString(sum[:]), s.names.Replace(string(text))})
	}
	return list
}

// Migrate makes the tables, or brings them up to date. Nodes may do it at the same
// time. It deletes nothing, and does nothing, with no rights needed, if the tables
// are as they should be. Tables that a newer program made are a *SchemaError, and so is a
// database, or on MySQL a connection, whose texts cannot have all characters.
func (s *Store) Migrate(ctx context.Context) error {
	err := s.again(ctx, func() error { return s.migrate(ctx) })
	if err != nil {
		return err
	}
	return s.check(ctx, s.db)
}

func (s *Store) migrate(ctx context.Context) (err error) {
	if have, err := s.version(ctx, s.db); err != nil || have == len(s.migrations()) {
		return err
	}
	if err := s.checkEncoding(ctx, s.db); err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	begin := "BEGIN ISOLATION LEVEL READ COMMITTED" // so that others' work is seen after the lock
	if s.dialect.immediate {
		begin = "BEGIN IMMEDIATE"
	}
	if s.dialect.transactional {
		if err := beginOn(ctx, conn, begin); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				abandon(ctx, conn)
			}
		}()
	}
	if err := s.lockMigration(ctx, conn); err != nil {
		return err
	}
	defer s.unlockMigration(ctx, conn)
	if err := s.apply(ctx, conn); err != nil {
		return err
	}
	if s.dialect.transactional {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	return err
}

// apply does what is to be done, under the lock.
func (s *Store) apply(ctx context.Context, conn querier) error {
	if _, err := conn.ExecContext(ctx, s.names.Replace(schemaTable)); err != nil {
		return err
	}
	have, err := s.version(ctx, conn)
	if err != nil {
		return err
	}
	for _, m := range s.migrations()[have:] {
		for _, statement := range strings.Split(m.text, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("sqlstore: migration %d: %w", m.version, err)
			}
		}
		if _, err := conn.ExecContext(ctx, s.recordOf(m)); err != nil {
			return err
		}
	}
	return nil
}

// lockName is one for each set of tables. GET_LOCK takes 64 characters, and is for
// the whole server.
func (s *Store) lockName() string {
	sum := sha256.Sum256([]byte(s.names.Replace("{schema}")))
	return "taskmanager-" + hex.EncodeToString(sum[:12])
}

func (s *Store) lockMigration(ctx context.Context, conn querier) error {
	if s.dialect.lockMigration == "" {
		return nil
	}
	var got sql.NullString // PostgreSQL gives nothing, MySQL 1
	err := s.one(ctx, conn, []any{&got}, fmt.Sprintf(s.dialect.lockMigration, s.lockName()))
	if err == nil && s.dialect.unlockMigration != "" && got.String != "1" {
		err = fmt.Errorf("sqlstore: no lock for the migration: somebody else has held it for a minute")
	}
	return err
}

func (s *Store) unlockMigration(ctx context.Context, conn *sql.Conn) {
	if s.dialect.unlockMigration == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var ignored sql.NullString
	_ = s.one(ctx, conn, []any{&ignored}, fmt.Sprintf(s.dialect.unlockMigration, s.lockName()))
}

// version is that of the tables, 0 without any. Newer or other ones are an error.
func (s *Store) version(ctx context.Context, q querier) (int, error) {
	known := s.migrations()
	e := &SchemaError{Want: len(known)}
	err := each(ctx, s, q, `SELECT version, checksum FROM {schema} ORDER BY version`, nil, func(rows *sql.Rows) error {
		var checksum string
		if err := rows.Scan(&e.Have, &checksum); err != nil {
			return err
		}
		if e.Have <= len(known) && known[e.Have-1].checksum != checksum {
			e.Changed = true
			return e
		}
		return nil
	})
	switch {
	case err != nil && isNoTable(err):
		return 0, nil
	case err != nil:
		return 0, err
	case e.Have > e.Want:
		return 0, e
	}
	return e.Have, nil
}

// check tells, until it was so once, whether the tables are the right ones.
func (s *Store) check(ctx context.Context, q querier) error {
	if s.checked.Load() {
		return nil
	}
	var have int
	err := s.again(ctx, func() (err error) {
		have, err = s.version(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	if want := len(s.migrations()); have != want {
		return &SchemaError{Have: have, Want: want}
	}
	if err := s.again(ctx, func() error { return s.checkEncoding(ctx, q) }); err != nil {
		return err
	}
	s.checked.Store(true)
	return nil
}

func (s *Store) checkEncoding(ctx context.Context, q querier) error {
	if s.dialect.encoding == "" {
		return nil
	}
	var is string
	err := s.one(ctx, q, []any{&is}, s.dialect.encoding)
	if err == nil && is != s.dialect.utf8 {
		err = &SchemaError{Want: len(s.migrations()), Encoding: is}
	}
	return err
}
