package durable

import (
	"strings"
	"unicode/utf8"
)

// The lengths that error records are cut to, in characters.
const (
	maxMessage = 480
	maxDetail  = 4000
)

// storable tells whether s is a text that every database takes.
func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// cut gives the first n characters of s, and makes it valid UTF-8 without NUL,
// which PostgreSQL does not take.
func cut(s string, n int) string {
	clean := make([]byte, 0, min(len(s), 4*n))
	for i := 0; i < len(s) && n > 0; n-- {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == 0 {
			r = utf8.RuneError
		}
		clean = utf8.AppendRune(clean, r)
		i += size
	}
	return string(clean)
}
