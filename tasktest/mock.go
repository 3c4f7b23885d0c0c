package tasktest

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// AdvanceMock moves a Mock that m lives on (taskmanager.WithClock) on by d, from
// due instant to due instant, and settles each: the runs that fell due have started
// at their exact instants, in order, and have ended. One that does not end by itself
// fails the test after ten seconds of real time. The Mock's own Add and Set move it,
// too, but not in step with what they start.
func AdvanceMock(t testing.TB, m *taskmanager.TaskManager, mock *clock.Mock, d time.Duration) {
	t.Helper()
	engine := seam.Inspect(m)
	if engine == nil {
		t.Fatal("tasktest: AdvanceMock: the manager does not run on a Mock")
	}
	engine.Drive(true)
	defer engine.Drive(false)
	settle := func() {
		t.Helper()
		stop := make(chan struct{})
		watchdog := time.AfterFunc(defaultPatience, func() { close(stop) })
		defer watchdog.Stop()
		if !engine.Settled(stop) {
			t.Fatalf("tasktest: a run has not ended for %v; on a Mock runs must end by themselves.\n%s", defaultPatience, allStacks())
		}
	}
	target := mock.Now().Add(d)
	settle() // what is going on at this instant
	for {
		next, ok := engine.NextWake()
		if !ok || next.After(target) {
			break
		}
		mock.Set(next)
		settle()
	}
	mock.Set(target)
	settle()
}
