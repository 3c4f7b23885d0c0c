package sqlstore

import (
	"errors"
	"fmt"
	"testing"
)

// The errors of drivers, as far as they are looked at.
type (
	postgresError string                       // jackc/pgx, lib/pq
	mysqlError    struct{ Number uint16 }      // go-sql-driver/mysql
	methodError   int                          // modernc.org/sqlite
	fieldError    struct{ ExtendedCode errNo } // mattn/go-sqlite3
	errNo         int
)

func (e postgresError) Error() string    { return string(e) }
func (e postgresError) SQLState() string { return string(e) }
func (e *mysqlError) Error() string      { return fmt.Sprint(e.Number) }
func (e methodError) Error() string      { return "no such table: x" }
func (e methodError) Code() int          { return int(e) }
func (e fieldError) Error() string       { return "no such table: x" }

func TestErrorsOfDriversAreKnownByWhatTheyHave(t *testing.T) {
	const passing, duplicate, noTable, other = "passes", "is a duplicate", "is no table", "is something else"
	for _, c := range []struct {
		err  error
		want string
	}{
		{postgresError("40P01"), passing}, {postgresError("23505"), duplicate}, {postgresError("42P01"), noTable}, {postgresError("22001"), other},
		{&mysqlError{1213}, passing}, {&mysqlError{1062}, duplicate}, {&mysqlError{1146}, noTable}, {&mysqlError{1048}, other},
		{methodError(5), passing}, {methodError(517), passing}, {methodError(2067), duplicate}, {methodError(1), noTable}, {methodError(13), other},
		{fieldError{5}, passing}, {fieldError{517}, passing}, {fieldError{1555}, duplicate}, {fieldError{1}, noTable}, {fieldError{13}, other},
		{errors.New("5"), other},
	} {
		for _, err := range []error{c.err, fmt.Errorf("outer: %w", c.err), errors.Join(errors.New("first"), fmt.Errorf("second: %w", c.err))} {
			got := other
			switch {
			case passes(err):
				got = passing
			case isDuplicate(err):
				got = duplicate
			case isNoTable(err):
				got = noTable
			}
			if got != c.want {
				t.Errorf("%#v %s, want that it %s", c.err, got, c.want)
			}
		}
	}
}
