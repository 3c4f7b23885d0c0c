// Package storetest tells whether a [durable.Store] does what the interface says.
//
// A store's own test is one line: storetest.Run(t, open). All time is injected: no
// test sleeps, and the store under test has to take its time from the function that
// open is given.
package storetest

import (
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// An Open gives a fresh store: empty, migrated, and with now for its clock. What it
// needs to close it leaves to t.Cleanup.
type Open = func(t *testing.T, now func() time.Time) durable.Store

// A promise is one test.
type promise struct {
	name string
	test func(w *world)
}

// Run holds the store against all that the interface promises.
func Run(t *testing.T, open Open) {
	for _, topic := range []struct {
		name     string
		promises []promise
	}{
		{"Claim", claims},
		{"Order", orders},
		{"Busy", busies},
		{"Finish", finishes},
		{"Ends", ends},
		{"Fence", fences},
		{"Nodes", nodes},
		{"Expire", expiries},
		{"Edit", edits},
		{"EditTriggers", triggerEdits},
		{"Enqueue", enqueues},
		{"Jobs", jobQueries},
		{"Runs", runQueries},
		{"Purge", purges},
		{"Lease", leases},
		{"Values", values},
		{"Faults", faults},
	} {
		t.Run(topic.name, func(t *testing.T) {
			for _, p := range topic.promises {
				t.Run(p.name, func(t *testing.T) { p.test(newWorld(t, open)) })
			}
		})
	}
	t.Run("Race", func(t *testing.T) { raceTest(t, open) })
	t.Run("Model", func(t *testing.T) { modelTest(t, open) })
}
