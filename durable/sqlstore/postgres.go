package sqlstore

import (
	"encoding/hex"
	"math/bits"
	"strconv"
	"strings"
)

// PostgreSQL is the dialect of PostgreSQL from 13, for any driver that takes strings
// for arrays: jackc/pgx and lib/pq do.
//
// A transaction of the store that hears nothing from its process for 5 s is ended by
// the server, so that a node that is cut off in the middle does not keep rows
// locked; one that waits 5 s for a lock is tried again.
func PostgreSQL() Dialect {
	d := Dialect{
		name: "postgres",
		// A scalar subquery is evaluated once, before the first row is looked at.
		now: "(SELECT CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS BIGINT))",
		timeouts: " AND (SELECT set_config('idle_in_transaction_session_timeout', '5s', true)" +
			" || set_config('lock_timeout', '5s', true)) <> ''",
		encoding:      "SELECT current_setting('server_encoding')",
		utf8:          "UTF8",
		numbered:      true,
		schemas:       true,
		lateral:       true,
		moves:         true,
		transactional: true,
		place:         column{"ctid", address},
		readPlace:     "CAST(t.ctid AS text)",
		nullsFirst:    " NULLS FIRST",
		lock:          " FOR UPDATE",
		skip:          " FOR UPDATE SKIP LOCKED",
		// The limit inside tells the planner that there are few, and is one of a few texts,
		// which stay prepared; the one outside keeps more from being locked.
		first: func(columns, from string, n int) string {
			return "SELECT t.*, CAST(pg_try_advisory_xact_lock_shared(" + jobKey("t.job") + ") AS int) FROM (SELECT " +
				columns + from + " LIMIT " + strconv.Itoa(1<<bits.Len(uint(n-1))) + "{skip}) AS t LIMIT ?"
		},
		literal: postgresLiteral,
		among: func(column string, list []string) (string, []any) {
			var b strings.Builder
			array(&b, len(list), func(i int) any { return list[i] })
			return column + " = ANY(CAST(? AS text[]))", []any{b.String()}
		},
		batch:  postgresBatch,
		ignore: func(string) string { return " ON CONFLICT DO NOTHING" },
		remove: func(table, batch, on string) string {
			return "DELETE FROM " + table + " AS t USING " + batch + " WHERE " + on
		},
		// Not locks of rows: those are written down, and who wants a row alone waits
		// for ever if there is always somebody who shares it.
		unshare:       "SELECT pg_advisory_xact_lock(" + jobKey("CAST(? AS text)") + ")",
		number:        "nextval('{fence}')",
		numbers:       []string{"SELECT nextval('{fence}')"},
		lockMigration: "SELECT pg_advisory_xact_lock(hashtext('%s'))",
	}
	d.update = updateFrom(d.batch)
	return d
}

// jobKey is an advisory lock's key for a job of these tables: that of some jobs, since a
// server has room for some thousand locks only. While an edit holds it, claims leave out
// the jobs that share the key, too.
func jobKey(name string) string {
	return "(CAST(CAST('{job}' AS regclass) AS bigint) << 10 | (hashtext(" + name + ") & 1023))"
}

func postgresLiteral(s string) string { return "E'" + literalEscapes.Replace(s) + "'" }

var literalEscapes = strings.NewReplacer(`\`, `\\`, `'`, `''`, `?`, `\x3F`, `{`, `\x7B`)

// postgresBatch gives a batch as one array for each column: the statement is the
// same for any number of rows, and need not be planned again. Its LIMIT, which limits
// nothing, has the planner count on a row or two in a plan that is to be kept, and go by
// keys: such a plan may be from when a table was new and almost empty, and must not be to
// read all of it. (Of one that a VACUUM found empty the planner thinks otherwise.)
func postgresBatch(columns []column, rows [][]any) (string, []any) {
	types := [...]string{short: "text[]", long: "text[]", number: "bigint[]", blob: "bytea[]", address: "tid[]"}
	places, constants := varying(columns, rows)
	args := make([]any, 0, len(columns))
	var single, arrays, named []string
	for _, c := range constants {
		single = append(single, ", CAST(? AS "+strings.TrimSuffix(types[columns[c].kind], "[]")+") AS "+columns[c].name)
		args = append(args, rows[0][c])
	}
	var b strings.Builder
	for _, c := range places {
		arrays = append(arrays, "CAST(? AS "+types[columns[c].kind]+")")
		named = append(named, columns[c].name)
		b.Reset()
		array(&b, len(rows), func(i int) any { return rows[i][c] })
		args = append(args, b.String())
	}
	return "(SELECT a.*" + strings.Join(single, "") + " FROM unnest(" + strings.Join(arrays, ", ") + ") AS a(" +
		strings.Join(named, ", ") + ") LIMIT ?) AS v", append(args, len(rows))
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array writes an array as PostgreSQL reads it.
func array(b *strings.Builder, n int, at func(int) any) {
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		switch v := at(i).(type) {
		case nil:
			b.WriteString("NULL")
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		case string:
			b.WriteByte('"')
			arrayEscapes.WriteString(b, v)
			b.WriteByte('"')
		case []byte:
			b.WriteString(`"\\x`)
			hex.NewEncoder(b).Write(v)
			b.WriteByte('"')
		}
	}
	b.WriteByte('}')
}
