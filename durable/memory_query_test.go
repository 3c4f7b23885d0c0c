package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// To ask for jobs by name costs what to ask for all of them does. The best of some times is
// compared, since others use the machine, too.
func TestJobsByNameAreLookedUpInMemory(t *testing.T) {
	const many = 5000
	m := durable.NewMemory()
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("job-%06d", i)
		err := m.Edit(t.Context(), names[i], durable.EditJob, func(e *durable.Edit) error {
			e.Job = &durable.JobRow{Name: names[i], Handler: "h"}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	best := func(q durable.JobQuery) time.Duration {
		q.Limit, q.WithoutTriggers, q.WithoutRuns = many, true, true
		best := time.Hour
		for range 5 {
			start := time.Now()
			if states, err := m.Jobs(t.Context(), q); err != nil || len(states) != many {
				t.Fatalf("Jobs = %d, %v, want %d", len(states), err, many)
			}
			best = min(best, time.Since(start))
		}
		return best
	}
	all, named := best(durable.JobQuery{}), best(durable.JobQuery{Names: names})
	if named > 8*all+time.Millisecond {
		t.Errorf("%d jobs by name take %v, all of them %v", many, named, all)
	}
	t.Logf("%d jobs by name take %v, all of them %v", many, named, all)
}
