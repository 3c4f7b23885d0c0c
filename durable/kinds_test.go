package durable_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/taskmanager-go/taskmanager/durable"
)

func TestNamesOfKindsStatesAndPoliciesReadBack(t *testing.T) {
	type all struct {
		Kind    durable.Kind
		Misfire durable.Misfire
		Trigger durable.TriggerState
		Run     durable.RunState
	}
	for i := range uint8(4) { // as many as the shortest list has
		want := all{durable.Kind(i), durable.Misfire(i), durable.TriggerState(i), durable.RunState(i)}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got all
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("Unmarshal(%s) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, unknown := range []interface{ UnmarshalText([]byte) error }{
		new(durable.Kind), new(durable.Misfire), new(durable.TriggerState), new(durable.RunState),
	} {
		if err := unknown.UnmarshalText([]byte("Nope")); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("%T.UnmarshalText(Nope) = %v, want ErrInvalid", unknown, err)
		}
	}
}
