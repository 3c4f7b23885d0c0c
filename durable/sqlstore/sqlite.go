package sqlstore

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// SQLite is the dialect of SQLite from 3.38. Its clock is that of the process: a file
// is for the processes of one machine.
//
// Open the file with the settings of SQLitePragmas. It is tested with modernc.org/sqlite;
// the suite of storetest passes with mattn/go-sqlite3 v1.14, too, which calls the same
// settings _journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=5000&_txlock=immediate.
func SQLite() Dialect {
	d := Dialect{
		name:          "sqlite",
		immediate:     true,
		then:          " CROSS JOIN ",
		place:         column{"rowid", address},
		blocked:       " INDEXED BY {prefix}trigger_blocked",
		readPlace:     "CAST(t.rowid AS TEXT)",
		transactional: true,
		first:         func(columns, from string, _ int) string { return "SELECT " + columns + ", 1" + from + " LIMIT ?" },
		literal:       func(s string) string { return "CAST(" + hexOf(s) + " AS TEXT)" },
		batch:         sqliteBatch,
		among: func(column string, list []string) (string, []any) {
			text, _ := json.Marshal(list)
			return column + " IN (SELECT value FROM json_each(?))", []any{string(text)}
		},
		ignore: func(string) string { return " ON CONFLICT DO NOTHING" },
		remove: func(table, batch, on string) string {
			// The batch comes first, as CROSS JOIN says, and the primary key second.
			return "DELETE FROM " + table + " WHERE rowid IN (SELECT t.rowid FROM " + batch + " CROSS JOIN " + table + " AS t WHERE " + on + ")"
		},
		number:  "0",
		numbers: []string{"UPDATE {fence} SET number = number + 1 RETURNING number"},
	}
	d.update = updateFrom(d.batch)
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

// sqliteBatch gives what differs in a batch's rows as JSON: a statement with a thousand
// parameters takes longer to parse than to run. Only blobs cannot be had from JSON.
func sqliteBatch(columns []column, rows [][]any) (string, []any) {
	places, constants := varying(columns, rows)
	var as []string
	var args []any
	for _, c := range constants {
		as = append(as, "? AS "+columns[c].name)
		args = append(args, rows[0][c])
	}
	from, value := "json_each(?)", func(i int) string { return "json_extract(value, '$[" + strconv.Itoa(i) + "]')" }
	if slices.ContainsFunc(places, func(c int) bool { return columns[c].kind == blob }) {
		var values string
		values, args = placeholders(args, places, rows)
		from, value = "(VALUES "+values+")", func(i int) string { return "column" + strconv.Itoa(i+1) }
	} else {
		args = append(args, jsonOf(places, rows))
	}
	for i, c := range places {
		as = append(as, value(i)+" AS "+columns[c].name)
	}
	return "(SELECT " + strings.Join(as, ", ") + " FROM " + from + ") AS v", args
}

// updateFrom serves PostgreSQL too.
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
