package durable

import (
	"fmt"
	"unicode/utf8"
)

const maxName = 128

// ValidName tells whether s may name a job, a trigger, a handler, a calendar or a
// lease: 1 to 128 of a-z, 0-9, '.', '_' and '-', the first a letter or digit.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		switch b := s[i]; {
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9':
		case i > 0 && (b == '.' || b == '_' || b == '-'):
		default:
			return false
		}
	}
	return true
}

// notFound is the error of what is looked for by s, if that can neither be a name nor an
// ID: no store has it, and some databases take no such text.
func notFound(how, s string) error {
	if ValidName(s) {
		return nil
	}
	return fmt.Errorf("durable: %s %q: %w", how, cut(s, maxName), ErrNotFound)
}

func (c *check) name(field, s string) {
	if !ValidName(s) {
		c.fail(field, s, "must match ^[a-z0-9][a-z0-9._-]{0,127}$")
	}
}

// label checks free text that is stored: what every database takes.
func (c *check) label(field, s string, limit int) {
	switch {
	case !utf8.ValidString(s):
		c.fail(field, s, "must be valid UTF-8")
	case utf8.RuneCountInString(s) > limit:
		c.fail(field, s, fmt.Sprintf("must be at most %d characters", limit))
	default:
		for _, r := range s {
			if r == 0 {
				c.fail(field, s, "must not contain NUL")
				return
			}
		}
	}
}
