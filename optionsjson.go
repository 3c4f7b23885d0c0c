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
	return json.Marshal(jsonOptions{
		(*plainOptions)(&o), durationText(o.Jitter), durationText(o.ExecutionTimeout), durationText(o.BackoffCap),
	})
}

// UnmarshalJSON takes durations as text ("250ms") and leaves alone what the
// JSON does not mention, so unmarshal into DefaultRecurringOptions(). A name it
// does not know is an error.
func (o *RecurringOptions) UnmarshalJSON(data []byte) error {
	next := *o
	j := jsonOptions{
		(*plainOptions)(&next), durationText(o.Jitter), durationText(o.ExecutionTimeout), durationText(o.BackoffCap),
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return err
	}
	next.Jitter = time.Duration(j.Jitter)
	next.ExecutionTimeout = time.Duration(j.ExecutionTimeout)
	next.BackoffCap = time.Duration(j.BackoffCap)
	*o = next
	return nil
}

// A durationText is a duration in time.ParseDuration's form.
type durationText time.Duration

func (d durationText) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

func (d *durationText) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = durationText(v)
	return err
}
