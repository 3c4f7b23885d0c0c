package durable

import (
	"encoding/base32"
	"encoding/binary"
	"time"
)

// idAlphabet is Crockford's base 32 in small letters: in order, and without letters
// that look like digits.
var idAlphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID makes an ID of 26 characters in the manner of a ULID: 48 bits of
// milliseconds, then 80 random ones, so that IDs come in order of time and those of
// two nodes never meet. (The bits sit at the front of the first character here, the
// spec of ULID has them at its end.)
func newID(at time.Time, random func() uint64) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16|random()&0xffff)
	binary.BigEndian.PutUint64(b[8:], random())
	return idAlphabet.EncodeToString(b[:])
}
