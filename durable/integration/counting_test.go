package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
)

// countingDB gives a pool on the connections of db's driver that counts what is asked:
// queries, statements and transactions.
func countingDB(t *testing.T, db *sql.DB) (*sql.DB, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	c := sql.OpenDB(counter{db, &n})
	t.Cleanup(func() { _ = c.Close() })
	return c, &n
}

// A counter is a connector whose connections are borrowed from another pool.
type counter struct {
	db *sql.DB
	n  *atomic.Int64
}

func (c counter) Connect(ctx context.Context) (driver.Conn, error) {
	lent, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConn{lent, c.n}, nil
}

func (c counter) Driver() driver.Driver { return nil }

type countedConn struct {
	lent *sql.Conn
	n    *atomic.Int64
}

func (c *countedConn) Close() error { return c.lent.Close() }

func (c *countedConn) Begin() (driver.Tx, error) {
	c.n.Add(1)
	return nil, driver.ErrSkip
}

func (c *countedConn) Prepare(string) (driver.Stmt, error) {
	c.n.Add(1)
	return nil, driver.ErrSkip
}

func (c *countedConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.n.Add(1)
	return nil, driver.ErrBadConn
}

func (c *countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.n.Add(1)
	var rows driver.Rows
	err := c.lent.Raw(func(conn any) (err error) {
		rows, err = conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}
