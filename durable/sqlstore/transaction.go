package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"
)

// A querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A txn is a transaction, the store's or the caller's.
type txn struct {
	*Store
	q   querier
	ctx context.Context
	now time.Time // the store's, at the beginning
	own bool      // the store's: it may set what is for the transaction only
}

// bounds is a condition that is true, and bounds what others wait for the transaction.
// Its first statement has it.
func (t *txn) bounds() string {
	if t.own {
		return "{timeouts}"
	}
	return ""
}

// The bounds of trying again. They are far away: a deadlock's victim is another one
// the next time.
const (
	maxAttempts = 50
	firstPause  = 2 * time.Millisecond
	longestWait = 250 * time.Millisecond
)

// errChanged is that rows that were locked have changed: some database let go of a
// lock.
var errChanged = errors.New("sqlstore: rows changed under their lock")

// again calls f until it does not fail for a reason that passes.
func (s *Store) again(ctx context.Context, f func() error) error {
	for pause, n := firstPause, 1; ; n++ {
		err := f()
		if err == nil || n == maxAttempts || ctx.Err() != nil || !passes(err) {
			return err
		}
		t := time.NewTimer(time.Duration(rand.Int64N(int64(pause)) + 1))
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
		pause = min(2*pause, longestWait)
	}
}

// read calls f with the pool, for single queries.
func (s *Store) read(ctx context.Context, f func(querier) error) error {
	if err := s.check(ctx, s.db); err != nil {
		return err
	}
	return s.again(ctx, func() error { return f(s.db) })
}

// write is transact for what may change which triggers are due.
func (s *Store) write(ctx context.Context, f func(*txn) error) error {
	defer s.ahead.edited()
	return s.transact(ctx, f)
}

// transact calls f in a transaction, and commits it. f may be called again.
func (s *Store) transact(ctx context.Context, f func(*txn) error) error {
	if err := s.check(ctx, s.db); err != nil {
		return err
	}
	return s.again(ctx, func() error {
		if s.dialect.immediate {
			return s.immediately(ctx, f)
		}
		tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer tx.Rollback() // also if f panics
		if err := f(&txn{Store: s, q: tx, ctx: ctx, own: true}); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// immediately is transact with BEGIN IMMEDIATE, which database/sql cannot say.
func (s *Store) immediately(ctx context.Context, f func(*txn) error) (err error) {
	// SQLite has those who find the file locked look again from time to time: somebody
	// always comes too late. Here, at least, they take turns.
	select {
	case s.writer <- struct{}{}:
		defer func() { <-s.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := beginOn(ctx, conn, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			abandon(ctx, conn)
		}
	}()
	if err := f(&txn{Store: s, q: conn, ctx: ctx, own: true}); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	done = true
	return nil
}

func beginOn(ctx context.Context, conn *sql.Conn, statement string) error {
	_, err := conn.ExecContext(ctx, statement)
	if err != nil && ctx.Err() != nil { // it may have begun all the same
		abandon(ctx, conn)
	}
	return err
}

// abandon rolls back, even if ctx has ended. A connection that cannot must not get
// back to the pool.
func abandon(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// start reads the time.
func (t *txn) start() error {
	if t.clock != nil && t.dialect.timeouts == "" {
		t.now = fromMicros(t.clock().UnixMicro())
		return nil
	}
	var now int64
	err := t.one([]any{&now}, `SELECT {now} WHERE 1 = 1{timeouts}`)
	t.now = fromMicros(now)
	return err
}

// one reads the one row of a query into fields. Without a row it is sql.ErrNoRows.
func (t *txn) one(fields []any, text string, args ...any) error {
	return t.Store.one(t.ctx, t.q, fields, text, args...)
}

func (s *Store) one(ctx context.Context, q querier, fields []any, text string, args ...any) error {
	rows, err := q.QueryContext(ctx, s.sql(text), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(fields...); err != nil {
		return err
	}
	return rows.Close()
}

// exec runs a statement and gives the number of rows it changed.
func (t *txn) exec(text string, args ...any) (int64, error) {
	res, err := t.q.ExecContext(t.ctx, t.sql(text), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// texts reads a query's only column.
func (t *txn) texts(text string, args ...any) ([]string, error) {
	var list []string
	err := each(t.ctx, t.Store, t.q, text, args, func(rows *sql.Rows) error {
		var s string
		err := rows.Scan(&s)
		list = append(list, s)
		return err
	})
	return list, err
}

// each calls f for each row of a query.
func each(ctx context.Context, s *Store, q querier, text string, args []any, f func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, s.sql(text), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// find reads rows of a table; text is what follows its columns.
func find[T any](ctx context.Context, s *Store, q querier, t table[T], text string, args ...any) ([]T, error) {
	var list []T
	row, into := t.reader()
	err := each(ctx, s, q, "SELECT "+t.own()+t.from()+text, args, func(rows *sql.Rows) error {
		err := rows.Scan(into...)
		list = append(list, *row)
		return err
	})
	return list, err
}
