package sqlstore

import (
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
		now:      "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		encoding: "SELECT @@character_set_client", // the tables say theirs
		utf8:     "utf8mb4",
		schemas:  true,
		lock:     " FOR UPDATE",
		skip:     " FOR UPDATE SKIP LOCKED",
		// Without it the optimizer scans a small table, and locks what is others':
		// hundreds of deadlocks a minute.
		primary:   " FORCE INDEX (PRIMARY)",
		place:     column{"id", short},
		readPlace: "t.id",
		due:       " FORCE INDEX ({prefix}trigger_due)",
		// Without it one job with a million triggers has it scan the table for any job.
		ofJob:   " FORCE INDEX ({prefix}trigger_job)",
		blocked: " FORCE INDEX ({prefix}trigger_blocked)",
		// Without it a job that most of the history is of has it read all from the newest on,
		// wherever the page begins.
		pastOf: " FORCE INDEX ({prefix}history_job)",
		first: func(columns, from string, _ int) string {
			return "SELECT " + columns + ", 1" + from + " LIMIT ?{skip}"
		},
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
		batch:     mysqlBatch,
		then:      " STRAIGHT_JOIN ",
		listJoins: true,
		// Not INSERT IGNORE, which makes errors warnings.
		ignore: func(key string) string { return " ON DUPLICATE KEY UPDATE " + key + " = VALUES(" + key + ")" },
		update: mysqlUpdate,
		remove: func(table, batch, on string) string {
			return "DELETE t FROM " + batch + " STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON " + on
		},
		share:   shareSkip,
		current: " LOCK IN SHARE MODE",
		number:  "0",
		numbers: []string{
			"INSERT INTO {fence} () VALUES ()",
			"DELETE FROM {fence} WHERE number = LAST_INSERT_ID()",
			"SELECT LAST_INSERT_ID()",
		},
		lockMigration:   "SELECT GET_LOCK('%s', 60)",
		unlockMigration: "SELECT RELEASE_LOCK('%s')",
	}
}

// shareSkip shares rows and passes over those that somebody has alone: the words that
// MariaDB has for it and MySQL takes for a comment, and the other way round. A proxy must
// not take them away.
const shareSkip = " /*M! LOCK IN SHARE MODE SKIP LOCKED */ /*!80001 FOR SHARE SKIP LOCKED */"

// mysqlBatch gives what differs in a batch's rows as JSON. The columns have types, so that
// a join goes by the key; blobs are in hexadecimal digits.
func mysqlBatch(columns []column, rows [][]any) (string, []any) {
	types := [...]string{
		short: "VARCHAR(512) CHARACTER SET utf8mb4", long: "LONGTEXT CHARACTER SET utf8mb4",
		number: "BIGINT", blob: "LONGTEXT CHARACTER SET utf8mb4",
	}
	places, constants := varying(columns, rows)
	var list, paths []string
	var args []any
	plain := len(constants) == 0
	for _, c := range constants {
		list = append(list, "? AS "+columns[c].name)
		args = append(args, rows[0][c])
	}
	for i, c := range places {
		name := columns[c].name
		paths = append(paths, name+" "+types[columns[c].kind]+" PATH '$["+strconv.Itoa(i)+"]'")
		if columns[c].kind == blob {
			name, plain = "UNHEX(j."+name+") AS "+name, false
		} else {
			name = "j." + name
		}
		list = append(list, name)
	}
	from := "JSON_TABLE(?, '$[*]' COLUMNS (" + strings.Join(paths, ", ") + ")) AS "
	args = append(args, jsonOf(places, rows))
	if plain {
		return from + "v", args
	}
	return "(SELECT " + strings.Join(list, ", ") + " FROM " + from + "j) AS v", args
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
