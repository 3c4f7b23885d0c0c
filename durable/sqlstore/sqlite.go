package sqlstore

import (
	"encoding/json"
	"strconv"
	"strings"
)

// SQLite is the dialect of SQLite from 3.38. Its clock is that of the process: a file
// is for the processes of one machine.
//
// Open the file with the settings of SQLitePragmas.
func SQLite() Dialect {
	d := Dialect{
		name:          "sqlite",
		immediate:     true,
		then:          " CROSS JOIN ",
		whereTrue:     " WHERE 1 = 1", // else ON CONFLICT would be taken for a join's
		transactional: true,
		first:         func(query string, _ int) string { return query + " LIMIT ?" },
		literal:       func(s string) string { return "CAST(" + hexOf(s) + " AS TEXT)" },
		batch:         sqliteBatch,
		among: func(column string, list []string) (string, []any) {
			text, _ := json.Marshal(list)
			return column + " IN (SELECT value FROM json_each(?))", []any{string(text)}
		},
		ignore: func(string) string { return " ON CONFLICT DO NOTHING" },
		remove: func(table, batch, on string) string {
			// The batch comes first, as CROSS JOIN says, and the primary key second.
			return "DELETE FROM " + table + " WHERE id IN (SELECT t.id FROM " + batch + " CROSS JOIN " + table + " AS t WHERE " + on + ")"
		},
		number: []string{"UPDATE {fence} SET number = number + 1 RETURNING number"},
	}
	d.source, d.update = sourceOf(d.batch), updateFrom(d.batch)
	return d
}

// SQLitePragmas are the parameters of a modernc.org/sqlite data source name, to be
// set after the "?" in "file:jobs.db?": a write-ahead log, so that readers and the
// writer do not wait for each other; no fsync at each commit (after a loss of power
// the last commits may be gone, the file is whole; with synchronous(FULL) they are
// kept); and patience with other processes. One connection is as fast as many:
// db.SetMaxOpenConns(1) does no harm.
//
// With _txlock, transactions of your own that you pass to Tx do not fail when they
// begin to write.
func SQLitePragmas() string {
	return "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
}

func sqliteBatch(columns []column, rows [][]any) (string, []any) {
	places, constants := varying(columns, rows)
	var as []string
	args := make([]any, 0, len(constants)+len(places)*len(rows))
	for _, c := range constants {
		as = append(as, "? AS "+columns[c].name)
		args = append(args, rows[0][c])
	}
	for i, c := range places {
		as = append(as, "column"+strconv.Itoa(i+1)+" AS "+columns[c].name)
	}
	values, args := placeholders(args, places, rows)
	return "(SELECT " + strings.Join(as, ", ") + " FROM (VALUES " + values + ")) AS v", args
}

// What follows serves PostgreSQL too.

// sourceOf selects an INSERT's rows from a batch. WHERE keeps SQLite from taking ON
// CONFLICT for a join's.
func sourceOf(batch func([]column, [][]any) (string, []any)) func([]column, [][]any) (string, []any) {
	return func(columns []column, rows [][]any) (string, []any) {
		from, args := batch(columns, rows)
		return "SELECT " + names(columns, "v.") + " FROM " + from + " WHERE 1 = 1", args
	}
}

func updateFrom(batch func([]column, [][]any) (string, []any)) func(string, []column, [][]any, bool) (string, []any) {
	return func(table string, columns []column, rows [][]any, versioned bool) (string, []any) {
		from, args := batch(columns, rows)
		on := "t." + columns[0].name + " = v." + columns[0].name
		set := columns[1:]
		if versioned {
			set = set[:len(set)-1]
			on += " AND t.version = v.was"
		}
		list := make([]string, len(set))
		for i, c := range set {
			list[i] = c.name + " = v." + c.name
		}
		return "UPDATE " + table + " AS t SET " + strings.Join(list, ", ") + " FROM " + from + " WHERE " + on, args
	}
}
