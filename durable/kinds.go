package durable

import "fmt"

var kindNames = [...]string{"schedule", "manual", "retry", "recovery", "broadcast"}

func (k Kind) String() string { return nameOf("kind", kindNames[:], uint8(k)) }

// MarshalText is String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

var misfireNames = [...]string{"default", "run-once", "skip", "run-all"}

func (m Misfire) String() string { return nameOf("misfire", misfireNames[:], uint8(m)) }

// MarshalText is String.
func (m Misfire) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

var triggerStateNames = [...]string{"waiting", "running", "blocked", "paused", "complete", "error", "broadcast", "local"}

func (s TriggerState) String() string { return nameOf("state", triggerStateNames[:], uint8(s)) }

// MarshalText is String.
func (s TriggerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var runStateNames = [...]string{"running", "succeeded", "failed", "cancelled", "lost", "interrupted", "skipped", "snoozed"}

func (s RunState) String() string { return nameOf("state", runStateNames[:], uint8(s)) }

// MarshalText is String.
func (s RunState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseRunState reads what String gives.
func ParseRunState(text string) (RunState, error) {
	for i, name := range runStateNames {
		if name == text {
			return RunState(i), nil
		}
	}
	return 0, &FieldError{Field: "State", Value: text, Reason: "is no state of a run"}
}

// nameOf names a stored number, which may come from a newer version.
func nameOf(what string, names []string, n uint8) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s %d", what, n)
}
