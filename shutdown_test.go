package taskmanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
)

func TestARunThatIsAboutToBeginIsAbandonedAsSuch(t *testing.T) {
	mock := clock.NewMock()
	m, err := New(WithClock(mock), WithShutdownGrace(0))
	if err != nil {
		t.Fatal(err)
	}
	mock.Add(time.Hour)
	o := m.newOnce("a", func(context.Context) error { return nil })
	now := m.engine.source.Mono()
	o.task.run = run{task: &o.task, index: -1, due: now, stage: queued}
	if !m.enter(&o.task) { // as Run does, before the run begins
		t.Fatal("the manager is shut down")
	}
	var s *ShutdownError
	if err := m.Close(); !errors.As(err, &s) || len(s.Abandoned) != 1 || s.Abandoned[0] != (RunInfo{Name: "a"}) {
		t.Errorf("Close = %v, %+v, want the run of no age and no stack abandoned", err, s)
	}
	m.engine.execute(&o.task.run, goroutineID(), now)
	o.task.closeDone()
	if got := o.task.successes; got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
}
