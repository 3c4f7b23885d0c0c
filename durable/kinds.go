package durable

import (
	"fmt"
	"slices"
	"strings"
)

var kindNames = [...]string{"schedule", "manual", "retry", "recovery", "broadcast"}

func (k Kind) String() string { return nameOf("kind", kindNames[:], uint8(k)) }

// MarshalText is String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText gives.
func (k *Kind) UnmarshalText(text []byte) error {
	return unname((*uint8)(k), "Kind", kindNames[:], text)
}

var misfireNames = [...]string{"default", "run-once", "skip", "run-all"}

func (m Misfire) String() string { return nameOf("misfire", misfireNames[:], uint8(m)) }

// MarshalText is String.
func (m Misfire) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText gives.
func (m *Misfire) UnmarshalText(text []byte) error {
	return unname((*uint8)(m), "Misfire", misfireNames[:], text)
}

var triggerStateNames = [...]string{"waiting", "running", "blocked", "paused", "complete", "error", "broadcast", "local"}

func (s TriggerState) String() string { return nameOf("state", triggerStateNames[:], uint8(s)) }

// MarshalText is String.
func (s TriggerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText gives.
func (s *TriggerState) UnmarshalText(text []byte) error {
	return unname((*uint8)(s), "TriggerState", triggerStateNames[:], text)
}

var runStateNames = [...]string{"running", "succeeded", "failed", "cancelled", "lost", "interrupted", "skipped", "snoozed"}

func (s RunState) String() string { return nameOf("state", runStateNames[:], uint8(s)) }

// MarshalText is String.
func (s RunState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText gives.
func (s *RunState) UnmarshalText(text []byte) error {
	return unname((*uint8)(s), "RunState", runStateNames[:], text)
}

// ParseRunState reads what String gives.
func ParseRunState(text string) (RunState, error) {
	var s RunState
	err := s.UnmarshalText([]byte(text))
	return s, err
}

// unname is the way back from a name.
func unname(n *uint8, what string, names []string, text []byte) error {
	at := slices.Index(names, string(text))
	if at < 0 {
		return &FieldError{Field: what, Value: string(text), Reason: "is none of " + strings.Join(names, ", ")}
	}
	*n = uint8(at)
	return nil
}

// nameOf names a stored number, which may come from a newer version.
func nameOf(what string, names []string, n uint8) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s %d", what, n)
}
