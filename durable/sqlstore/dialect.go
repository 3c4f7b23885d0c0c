package sqlstore

import (
	"encoding/hex"
	"strings"
)

// A Dialect is what the store knows of a database. There are SQLite, PostgreSQL and
// MySQL.
//
// It answers questions; nothing asks it for its name but the migrations' folder.
type Dialect struct {
	name string

	now      string // the server's time in microseconds, "" to go by this process's clock
	numbered bool   // parameters are $1, $2 instead of ?

	// immediate has transactions begun by hand with BEGIN IMMEDIATE. A transaction
	// that turns from reading to writing fails on SQLite when others write.
	immediate bool
	// encoding is a query for the encoding of texts, and utf8 what it is to be. Any other one
	// lacks characters, and an end that has one in its error would never be written.
	encoding, utf8 string

	schemas  bool   // tables may be in a schema of their own
	lateral  bool   // a table in FROM may be a query of the ones before it
	moves    bool   // a DELETE's RETURNING can be the source of an INSERT
	then     string // joins a batch, which comes first, with a table
	timeouts string // a condition that is true, and bounds what others wait for the transaction

	lock, skip string // after a SELECT: waits for the rows, passes over locked ones
	current    string // likewise: rows as they are now, whatever the isolation; lock if ""
	primary    string // after a table's name: go by the primary key and nothing else
	due        string // after the trigger table's name: go by its index for due rows
	ofJob      string // likewise: by that of a job's rows
	blocked    string // likewise: by that of a job's blocked rows
	pastOf     string // after the history's name: go by the index of a job's rows
	nullsFirst string // after a column in ORDER BY: NULL comes first; "" where it does anyway
	place      column // by which a locked row is found soonest
	readPlace  string // likewise: as a text that is read

	// first are the first rows of a query for triggers, at most as many as one more
	// parameter at the end says; n is what that is going to be. Rows are locked, as by
	// skip. One more column tells whether the job is shared from then on with other claims,
	// or 1 if share does that.
	first func(columns, from string, n int) string
	// literal writes s into a statement, without "?", "{" and the like.
	literal func(s string) string
	// among is the condition that column is one of list.
	among func(column string, list []string) (string, []any)
	// batch is a table v of these rows, for FROM.
	batch func(columns []column, rows [][]any) (string, []any)
	// ignore ends an INSERT so that known keys are passed over.
	ignore func(key string) string
	// update changes rows of a table. The first column of rows is the key; if versioned
	// the last one is the version that the row must have; the others are set.
	update func(table string, columns []column, rows [][]any, versioned bool) (string, []any)
	// remove deletes rows of table t that match the batch v.
	remove func(table, batch, on string) string
	// listJoins has rows that are to be deleted by a list of IDs be found by a join with
	// it: a list that is a good part of a small table has MariaDB read all of it, and wait
	// for what others have locked.
	listJoins bool
	// share, after a SELECT of jobs, shares them with other claims, and passes over those
	// that an edit has to itself; unshare waits for those who share a job.
	share, unshare string
	// number is an expression, and numbers are statements of which the last is a query, for
	// a number larger than all before. The expression may be 0 instead.
	number  string
	numbers []string

	// The migrations' lock, on one connection. lockMigration may be "" if the
	// transaction is lock enough; %s is its name. transactional tells that
	// statements that change the schema can be part of a transaction.
	lockMigration, unlockMigration string
	transactional                  bool
}

// removeBy deletes rows by a column.
func (d *Dialect) removeBy(key column, table string, values []string) (string, []any) {
	if !d.listJoins {
		where, args := d.among(key.name, values)
		return "DELETE FROM " + table + " WHERE " + where, args
	}
	batch, args := d.batch([]column{{"listed", key.kind}}, listed(values))
	return d.remove(table, batch, "t."+key.name+" = v.listed"), args
}

// listed makes rows of one column of values.
func listed(values []string) [][]any {
	rows := make([][]any, len(values))
	for i, v := range values {
		rows[i] = []any{v}
	}
	return rows
}

// source selects an INSERT's rows from a batch. WHERE keeps SQLite from taking ON CONFLICT
// for a join's.
func (d *Dialect) source(columns []column, rows [][]any) (string, []any) {
	from, args := d.batch(columns, rows)
	return "SELECT " + names(columns, "v.") + " FROM " + from + " WHERE 1 = 1", args
}

func hexOf(s string) string { return "x'" + hex.EncodeToString([]byte(s)) + "'" }

// literals is the condition that column is one of list, without parameters.
func (d *Dialect) literals(column string, list []string) string {
	if len(list) == 0 {
		return "1 = 0"
	}
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = d.literal(s)
	}
	return column + " IN (" + strings.Join(quoted, ", ") + ")"
}

// varying are the columns in which the rows differ, the first one always, and the
// others with their only value: most columns of a batch are the same in all rows, and
// there is no need to say that a hundred times.
func varying(columns []column, rows [][]any) (places []int, constants []int) {
	for c := range columns {
		if c > 0 && !differ(rows, c) {
			constants = append(constants, c)
			continue
		}
		places = append(places, c)
	}
	return places, constants
}

func differ(rows [][]any, c int) bool {
	for _, r := range rows[1:] {
		if !same(r[c], rows[0][c]) {
			return true
		}
	}
	return false
}

// placeholders is rows times "(?, ?)", and what goes there appended to args.
func placeholders(args []any, places []int, rows [][]any) (string, []any) {
	row := "(?" + strings.Repeat(", ?", len(places)-1) + ")"
	for _, r := range rows {
		for _, c := range places {
			args = append(args, r[c])
		}
	}
	return row + strings.Repeat(", "+row, len(rows)-1), args
}
