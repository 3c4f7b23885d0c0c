package taskmanager

import (
	"bytes"
	"encoding/json"
	"time"
)

// jsonOptions is RecurringOptions as configuration files have it: the same
// fields, with the durations as text. A field that is shadowed here is not taken
// from the embedded struct.
type jsonOptions struct {
	*plainOptions
	Jitter           durationText `json:"jitter"`
	ExecutionTimeout durationText `json:"executionTimeout"`
	BackoffCap       durationText `json:"backoffCap"`
}

type plainOptions RecurringOptions // without the methods, which would recurse

// MarshalJSON writes durations as text ("250ms"). A Backoff policy has no JSON.
func (o RecurringOptions) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.asJSON())
}

func (o *RecurringOptions) asJSON() jsonOptions {
	return jsonOptions{
		(*plainOptions)(o), durationText{"Jitter", o.Jitter}, durationText{"ExecutionTimeout", o.ExecutionTimeout},
		durationText{"BackoffCap", o.BackoffCap},
	}
}

// UnmarshalJSON takes durations as text ("250ms"; anything else is an *OptionError)
// and leaves alone what the JSON does not mention, so unmarshal into
// DefaultRecurringOptions(). A name it does not know is an error.
func (o *RecurringOptions) UnmarshalJSON(data []byte) error {
	next := *o
	j := next.asJSON()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return err
	}
	next.Jitter, next.ExecutionTimeout, next.BackoffCap = j.Jitter.d, j.ExecutionTimeout.d, j.BackoffCap.d
	*o = next
	return nil
}

// A durationText is a duration in time.ParseDuration's form.
type durationText struct {
	option string // whose it is
	d      time.Duration
}

func (t durationText) MarshalText() ([]byte, error) { return []byte(t.d.String()), nil }

// UnmarshalJSON and not UnmarshalText, for which a number's error would be the JSON
// package's own, about this type, which nobody knows.
func (t *durationText) UnmarshalJSON(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil || v == nil {
		return err
	}
	if text, ok := v.(string); ok {
		if d, err := time.ParseDuration(text); err == nil {
			t.d = d
			return nil
		}
	}
	return &OptionError{t.option, v, `want text such as "250ms"`}
}
