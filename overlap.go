package taskmanager

import (
	"strconv"
	"strings"
)

// An OverlapPolicy says what a tick becomes that comes while the previous run of
// its task goes on. The zero value is Skip. It has a text form: "skip",
// "coalesce", "catch-up 3".
type OverlapPolicy struct {
	kind  overlapKind
	bound int // ticks held at most: 1 for Coalesce, n for CatchUp
}

type overlapKind uint8

const (
	overlapSkip overlapKind = iota
	overlapCoalesce
	overlapCatchUp
)

var (
	// Skip counts such a tick as skipped.
	Skip = OverlapPolicy{}
	// Coalesce makes all such ticks exactly one run, right as the current one
	// ends; then the grid goes on.
	Coalesce = OverlapPolicy{overlapCoalesce, 1}
)

// CatchUp replays the ticks missed, one after the other: at most n, which must
// be at least 1, wait at any time; the oldest beyond that are dropped and
// counted. It is the policy of a game loop with a fixed timestep.
func CatchUp(n int) OverlapPolicy { return OverlapPolicy{overlapCatchUp, n} }

func (p OverlapPolicy) String() string {
	switch p.kind {
	case overlapCoalesce:
		return "coalesce"
	case overlapCatchUp:
		return "catch-up " + strconv.Itoa(p.bound)
	}
	return "skip"
}

// MarshalText implements encoding.TextMarshaler.
func (p OverlapPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Its error is an *OptionError.
func (p *OverlapPolicy) UnmarshalText(text []byte) error {
	s := string(text)
	switch s {
	case "skip", "":
		*p = Skip
		return nil
	case "coalesce":
		*p = Coalesce
		return nil
	}
	if digits, ok := strings.CutPrefix(s, "catch-up "); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 1 {
			*p = CatchUp(n)
			return nil
		}
	}
	return &OptionError{"Overlap", s, `want "skip", "coalesce" or "catch-up N" with N at least 1`}
}
