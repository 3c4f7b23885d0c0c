package sqlstore

import (
	"bytes"
	"database/sql"
	"fmt"
	"strconv"
	"time"
)

// A field is a pointer to a row's field that can be read from a column and written to
// one. The types are what columns may be; database/sql would find its way by reflection,
// through texts.
type field interface {
	sql.Scanner
	// value is what is written: string, int64, []byte or nil.
	value() any
}

type (
	text    string
	octets  []byte // NULL if empty
	tiny    uint8
	count   int
	big     int64
	truth   bool      // 0 or 1
	instant time.Time // microseconds since 1970 UTC, the zero Time as NULL
	moment  time.Time // an instant that is never NULL, since rows are in its order
)

func (f *text) Scan(src any) error {
	switch s := src.(type) {
	case string:
		*f = text(s)
	case []byte:
		*f = text(s)
	default:
		return fmt.Errorf("sqlstore: %T where a text was expected", src)
	}
	return nil
}

func (f *octets) Scan(src any) error {
	switch s := src.(type) {
	case nil:
		*f = nil
	case []byte:
		*f = bytes.Clone(s)
	case string:
		*f = octets(s)
	default:
		return fmt.Errorf("sqlstore: %T where bytes were expected", src)
	}
	return nil
}

func (f *tiny) Scan(src any) error {
	n, err := integer(src)
	if err == nil && n != int64(uint8(n)) {
		err = fmt.Errorf("sqlstore: %d where 0 to 255 was expected", n)
	}
	*f = tiny(n)
	return err
}

func (f *count) Scan(src any) error {
	n, err := integer(src)
	if err == nil && n != int64(int(n)) {
		err = fmt.Errorf("sqlstore: %d is too much for this machine", n)
	}
	*f = count(n)
	return err
}

func (f *big) Scan(src any) error {
	n, err := integer(src)
	*f = big(n)
	return err
}

func (f *truth) Scan(src any) error {
	n, err := integer(src)
	*f = n != 0
	return err
}

func (f *instant) Scan(src any) error {
	if src == nil {
		*f = instant{}
		return nil
	}
	n, err := integer(src)
	*f = instant(fromMicros(n))
	return err
}

func (f *moment) Scan(src any) error {
	n, err := integer(src)
	*f = moment(fromMicros(n))
	return err
}

// integer reads what drivers make of an integer.
func integer(src any) (int64, error) {
	switch n := src.(type) {
	case int64:
		return n, nil
	case uint64:
		return int64(n), nil
	case []byte:
		return strconv.ParseInt(string(n), 10, 64)
	case string:
		return strconv.ParseInt(n, 10, 64)
	}
	return 0, fmt.Errorf("sqlstore: %T where an integer was expected", src)
}

func (f *text) value() any   { return string(*f) }
func (f *tiny) value() any   { return int64(*f) }
func (f *count) value() any  { return int64(*f) }
func (f *big) value() any    { return int64(*f) }
func (f *moment) value() any { return time.Time(*f).UnixMicro() }

func (f *octets) value() any {
	if len(*f) == 0 {
		return nil
	}
	return []byte(*f)
}

func (f *truth) value() any {
	if *f {
		return int64(1)
	}
	return int64(0)
}

func (f *instant) value() any {
	if time.Time(*f).IsZero() {
		return nil
	}
	return time.Time(*f).UnixMicro()
}

// fromMicros gives back the zero Time too.
func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
