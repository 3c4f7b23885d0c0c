package sqlstore

import (
	"errors"
	"reflect"
	"strings"
)

// Drivers are not imported, so their errors are known by what they have: an SQLSTATE
// (PostgreSQL), a field Number (MySQL), a method Code (SQLite: modernc.org/sqlite) or a
// field ExtendedCode (mattn/go-sqlite3).

// stateOf is the SQLSTATE of a PostgreSQL driver's error, "" without one.
func stateOf(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// numberOf is the number of a MySQL driver's error, 0 without one.
func numberOf(err error) int64 { return fieldOf(err, "Number") }

// codeOf is the code of an SQLite driver's error, 0 without one. Its low byte is
// the kind of failure.
func codeOf(err error) int64 {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return int64(e.Code())
	}
	return fieldOf(err, "ExtendedCode")
}

// fieldOf is the integer in a field of that name in err, or in one that it wraps; 0
// without one.
func fieldOf(err error, name string) int64 {
	for ; err != nil; err = errors.Unwrap(err) {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range several.Unwrap() {
				if n := fieldOf(err, name); n != 0 {
					return n
				}
			}
		}
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			continue
		}
		switch f := v.FieldByName(name); {
		case !f.IsValid():
		case f.CanInt():
			return f.Int()
		case f.CanUint():
			return int64(f.Uint())
		}
	}
	return 0
}

// passes tells whether the transaction was undone for a reason that passes.
func passes(err error) bool {
	if errors.Is(err, errChanged) {
		return true
	}
	switch stateOf(err) {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock timeout
		return true
	}
	switch numberOf(err) {
	case 1213, 1205, 1020: // deadlock, lock timeout, record changed (MariaDB snapshots)
		return true
	}
	switch codeOf(err) & 0xff {
	case 5, 6: // busy, locked
		return true
	}
	return false
}

// isDuplicate tells whether a key was there already.
func isDuplicate(err error) bool {
	code := codeOf(err)
	return stateOf(err) == "23505" || numberOf(err) == 1062 || code == 1555 || code == 2067
}

// isNoTable tells whether a table is missing.
func isNoTable(err error) bool {
	return stateOf(err) == "42P01" || stateOf(err) == "3F000" || numberOf(err) == 1146 || numberOf(err) == 1049 ||
		codeOf(err) == 1 && strings.Contains(err.Error(), "no such table")
}
