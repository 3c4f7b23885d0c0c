package sqlstore

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// MySQL is the dialect of MySQL from 8.0 and MariaDB from 10.6. It was tested with
// MariaDB 10.11; MySQL's statements are written by its manual.
//
// All names and IDs are VARBINARY, since collations take trailing blanks, or case,
// for nothing. The store needs no parameter of the data source name;
// interpolateParams=true saves it round trips.
func MySQL() Dialect {
	return Dialect{
		name: "mysql",
		// UTC_TIMESTAMP, since NOW depends on the session's time zone.
		now:     "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		schemas: true,
		lock:    " FOR UPDATE",
		skip:    " FOR UPDATE SKIP LOCKED",
		// Without it the optimizer scans a small table, and locks what is others':
		// hundreds of deadlocks a minute.
		primary: " FORCE INDEX (PRIMARY)",
		due:     " FORCE INDEX ({prefix}trigger_due)",
		// Without it one job with a million triggers has it scan the table for any job.
		ofJob:   " FORCE INDEX ({prefix}trigger_job)",
		first:   func(query string, _ int) string { return query + " LIMIT ?{skip}" },
		literal: hexOf,
		among: func(column string, list []string) (string, []any) {
			if len(list) == 0 {
				return "1 = 0", nil
			}
			// MariaDB makes a list of 1,000 a table, and joins it by a scan of the
			// other (in_predicate_conversion_threshold).
			var parts []string
			for part := range slices.Chunk(list, 500) {
				quoted := make([]string, len(part))
				for i, s := range part {
					quoted[i] = hexOf(s)
				}
				parts = append(parts, column+" IN ("+strings.Join(quoted, ", ")+")")
			}
			return "(" + strings.Join(parts, " OR ") + ")", nil
		},
		batch:  mysqlBatch,
		then:   " STRAIGHT_JOIN ",
		source: mysqlSource,
		// Not INSERT IGNORE, which makes errors warnings.
		ignore: func(key string) string { return " ON DUPLICATE KEY UPDATE " + key + " = VALUES(" + key + ")" },
		update: mysqlUpdate,
		remove: func(table, batch, on string) string {
			return "DELETE t FROM " + batch + " STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON " + on
		},
		share: func(query string) string { return query + shareSkip },
		number: []string{
			"INSERT INTO {fence} () VALUES ()",
			"DELETE FROM {fence} WHERE number = LAST_INSERT_ID()",
			"SELECT LAST_INSERT_ID()",
		},
		lockMigration:   "SELECT GET_LOCK('%s', 60)",
		unlockMigration: "SELECT RELEASE_LOCK('%s')",
	}
}

// shareSkip shares rows and passes over those that somebody has alone: the words that
// MariaDB has for it and MySQL takes for a comment, and the other way round.
const shareSkip = " /*M! LOCK IN SHARE MODE SKIP LOCKED */ /*!80001 FOR SHARE SKIP LOCKED */"

// mysqlBatch gives a batch as JSON. The columns have types, so that the join goes by
// the key; blobs are in hexadecimal digits.
func mysqlBatch(columns []column, rows [][]any) (string, []any) {
	return jsonTable(columns, rows) + " AS v", []any{jsonOf(rows)}
}

func jsonTable(columns []column, rows [][]any) string {
	types := [...]string{
		short: "VARCHAR(512) CHARACTER SET utf8mb4", long: "LONGTEXT CHARACTER SET utf8mb4",
		number: "BIGINT", blob: "LONGTEXT CHARACTER SET utf8mb4",
	}
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.name + " " + types[c.kind] + " PATH '$[" + strconv.Itoa(i) + "]'"
	}
	return "JSON_TABLE(?, '$[*]' COLUMNS (" + strings.Join(list, ", ") + "))"
}

func jsonOf(rows [][]any) string {
	plain := make([][]any, len(rows))
	for i, r := range rows {
		plain[i] = make([]any, len(r))
		for j, v := range r {
			plain[i][j] = v
			if b, ok := v.([]byte); ok {
				plain[i][j] = hex.EncodeToString(b)
			}
		}
	}
	text, err := json.Marshal(plain)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

// mysqlSource has what is the same in all rows in the SELECT, not in the JSON.
func mysqlSource(columns []column, rows [][]any) (string, []any) {
	places, constants := varying(columns, rows)
	list := make([]string, len(columns))
	var args []any
	for _, c := range constants {
		list[c] = "?"
		args = append(args, rows[0][c])
	}
	some := make([]column, len(places))
	values := make([][]any, len(rows))
	for i, c := range places {
		some[i] = columns[c]
		if list[c] = "v." + columns[c].name; columns[c].kind == blob {
			list[c] = "UNHEX(v." + columns[c].name + ")"
		}
	}
	for r := range rows {
		for _, c := range places {
			values[r] = append(values[r], rows[r][c])
		}
	}
	from, batch := mysqlBatch(some, values)
	return "SELECT " + strings.Join(list, ", ") + " FROM " + from + " WHERE 1 = 1", append(args, batch...)
}

// mysqlUpdate is an UPDATE of one table, with a CASE for what differs. One that joins a
// batch makes a temporary table, and MariaDB 10.11 was seen to crash when that met the end
// of the connection.
func mysqlUpdate(table string, columns []column, rows [][]any, versioned bool) (string, []any) {
	key, last := columns[0].name, len(columns)
	if versioned {
		last--
	}
	var args []any
	choose := func(c int) string {
		if !differ(rows, c) {
			args = append(args, rows[0][c])
			return "?"
		}
		for _, r := range rows {
			args = append(args, r[0], r[c])
		}
		return "CASE " + key + strings.Repeat(" WHEN ? THEN ?", len(rows)) + " END"
	}
	set := make([]string, 0, last-1)
	for c := 1; c < last; c++ {
		set = append(set, columns[c].name+" = "+choose(c))
	}
	where := key + " IN (?" + strings.Repeat(", ?", len(rows)-1) + ")"
	for _, r := range rows {
		args = append(args, r[0])
	}
	if versioned {
		where += " AND version = " + choose(last)
	}
	return "UPDATE " + table + " SET " + strings.Join(set, ", ") + " WHERE " + where, args
}
