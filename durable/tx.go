package durable

import "context"

// An Editor makes the Edits of a Store; every Store is one.
type Editor interface {
	Edit(ctx context.Context, job string, scope Scope, change func(*Edit) error) error
}

// A Tx is a transaction of the caller's, as package sqlstore makes one of a *sql.Tx.
type Tx interface {
	// Join gives the Editor that works inside the transaction. If it has the Store's
	// Runs, too, Within reads with that: the transaction may have the only connection.
	Join(s Store) (Editor, error)
}
