package sqlstore

import (
	"slices"
)

// The bounds of one statement's batch: servers refuse larger packets, SQLite more
// parameters.
const (
	batchRows  = 500
	batchBytes = 4 << 20
)

// chunks calls f with some rows at a time.
func chunks(rows [][]any, f func([][]any) error) error {
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && n < batchRows && (n == 0 || size < batchBytes) {
			size += weight(rows[n])
			n++
		}
		if err := f(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// weight is what a row may take up in a statement, but for a little.
func weight(row []any) (size int) {
	for _, v := range row {
		switch v := v.(type) {
		case []byte:
			size += 2 * len(v)
		case string:
			size += 6 * len(v) // as JSON has what it must escape
		}
	}
	return size
}

// insert adds rows. With ignore, rows whose key is known are passed over.
func insert[T any](t *txn, into table[T], rows []T, ignore bool) error {
	end := ""
	if ignore {
		end = t.dialect.ignore(into.columns[0].name)
	}
	return chunks(valuesOf(into, rows), func(values [][]any) error {
		source, args := t.dialect.source(into.columns, values)
		_, err := t.exec("INSERT INTO {"+into.name+"} ("+into.list()+") "+source+end, args...)
		return err
	})
}

func valuesOf[T any](of table[T], rows []T) [][]any {
	values := grid(len(rows), len(of.columns))
	row, fields := of.scratch()
	for i := range rows {
		*row = rows[i]
		for _, f := range fields {
			values[i] = append(values[i], f.value())
		}
	}
	return values
}

// grid is room for rows of so many values, in one piece.
func grid(rows, width int) [][]any {
	all, room := make([][]any, rows), make([]any, rows*width)
	for i := range all {
		all[i], room = room[:0:width], room[width:]
	}
	return all
}

// removeByID deletes rows of a table, and gives the number of those that were there.
func (t *txn) removeByID(table string, ids []string) (int, error) {
	return t.removeBy(column{"id", short}, table, ids)
}

// removeBy is removeByID by another column.
func (t *txn) removeBy(key column, table string, values []string) (int, error) {
	sum := 0
	for part := range slices.Chunk(values, batchRows) {
		statement, args := t.dialect.removeBy(key, table, part)
		n, err := t.exec(statement, args...)
		if err != nil {
			return 0, err
		}
		sum += int(n)
	}
	return sum, nil
}

// columnsOf are columns by name.
func columnsOf[T any](of table[T], list ...string) []column {
	columns := make([]column, len(list))
	for i, name := range list {
		columns[i] = of.columns[of.index(name)]
	}
	return columns
}

func (t table[T]) index(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
}

// update changes rows by their first column, and only those columns in which some
// row differs. With versions, a row whose version is not the old one's has been
// changed by somebody: errChanged.
func update[T any](t *txn, of table[T], before, after []T, versioned bool) error {
	if len(after) == 0 {
		return nil
	}
	was, is := valuesOf(of, before), valuesOf(of, after)
	columns, places := []column{of.columns[0]}, []int{0}
	for c := 1; c < len(of.columns); c++ {
		for r := range is {
			if !same(was[r][c], is[r][c]) {
				columns, places = append(columns, of.columns[c]), append(places, c)
				break
			}
		}
	}
	if len(columns) == 1 {
		return nil
	}
	version := of.index("version")
	if versioned {
		columns = append(columns, column{"was", number})
	}
	values := grid(len(is), len(columns))
	for r := range is {
		for _, c := range places {
			values[r] = append(values[r], is[r][c])
		}
		if versioned {
			values[r] = append(values[r], was[r][version])
		}
	}
	return chunks(values, func(values [][]any) error {
		statement, args := t.dialect.update("{"+of.name+"}", columns, values, versioned)
		n, err := t.exec(statement, args...)
		if err == nil && versioned && n != int64(len(values)) {
			err = errChanged
		}
		return err
	})
}

func same(a, b any) bool {
	x, isBytes := a.([]byte)
	y, areBytes := b.([]byte)
	if isBytes && areBytes {
		return slices.Equal(x, y)
	}
	return !isBytes && !areBytes && a == b
}
