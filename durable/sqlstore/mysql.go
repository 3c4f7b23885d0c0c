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
		batch: mysqlBatch,
		then:  " STRAIGHT_JOIN ",
		source: func(columns []column, rows [][]any) (string, []any) {
			from, args := mysqlBatch(columns, rows)
			list := make([]string, len(columns))
			for i, c := range columns {
				list[i] = "v." + c.name
				if c.kind == blob {
					list[i] = "UNHEX(v." + c.name + ")"
				}
			}
			return "SELECT " + strings.Join(list, ", ") + " FROM " + from, args
		},
		// Not INSERT IGNORE, which makes errors warnings.
		ignore: func(key string) string { return " ON DUPLICATE KEY UPDATE " + key + " = VALUES(" + key + ")" },
		update: func(table string, set []column, batch, on string) string {
			list := make([]string, len(set))
			for i, c := range set {
				list[i] = "t." + c.name + " = v." + c.name
				if c.kind == blob {
					list[i] = "t." + c.name + " = UNHEX(v." + c.name + ")"
				}
			}
			return "UPDATE " + batch + " STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON " + on +
				" SET " + strings.Join(list, ", ")
		},
		remove: func(table, batch, on string) string {
			return "DELETE t FROM " + batch + " STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON " + on
		},
		addFence:        " ON DUPLICATE KEY UPDATE fence = {fence}.fence + VALUES(fence)",
		lockMigration:   "SELECT GET_LOCK('%s', 60)",
		unlockMigration: "SELECT RELEASE_LOCK('%s')",
	}
}

// mysqlBatch gives a batch as JSON. The columns have types, so that the join goes by
// the key; blobs are in hexadecimal digits.
func mysqlBatch(columns []column, rows [][]any) (string, []any) {
	types := [...]string{
		short: "VARCHAR(512) CHARACTER SET utf8mb4", long: "LONGTEXT CHARACTER SET utf8mb4",
		number: "BIGINT", blob: "LONGTEXT CHARACTER SET utf8mb4",
	}
	places, constants := varying(columns, rows)
	var single, list []string
	args := make([]any, 0, len(constants)+1)
	for _, c := range constants {
		v := rows[0][c]
		if b, ok := v.([]byte); ok {
			v = hex.EncodeToString(b)
		}
		single = append(single, ", ? AS "+columns[c].name)
		args = append(args, v)
	}
	for i, c := range places {
		list = append(list, columns[c].name+" "+types[columns[c].kind]+" PATH '$["+strconv.Itoa(i)+"]'")
	}
	plain := make([][]any, len(rows))
	for i, r := range rows {
		plain[i] = make([]any, len(places))
		for j, c := range places {
			plain[i][j] = r[c]
			if b, ok := r[c].([]byte); ok {
				plain[i][j] = hex.EncodeToString(b)
			}
		}
	}
	text, err := json.Marshal(plain)
	if err != nil {
		panic(err) // strings and numbers
	}
	from := "JSON_TABLE(?, '$[*]' COLUMNS (" + strings.Join(list, ", ") + "))"
	if len(constants) == 0 {
		return from + " AS v", append(args, string(text))
	}
	return "(SELECT a.*" + strings.Join(single, "") + " FROM " + from + " AS a) AS v", append(args, string(text))
}
