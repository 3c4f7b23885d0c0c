package taskmanager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// An explainStage is a manager on fake time with what the scenes of Explain need.
type explainStage struct {
	t   *testing.T
	m   *taskmanager.TaskManager
	clk *tasktest.Clock
}

func (s explainStage) every(d time.Duration, fn taskmanager.Func, opts ...taskmanager.TaskOption) *taskmanager.Handle {
	s.t.Helper()
	return s.must(s.m.ScheduleRecurring("task", d, fn, append(opts, taskmanager.WithJitter(0))...))
}

func (s explainStage) must(h *taskmanager.Handle, err error) *taskmanager.Handle {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// takes is a body that takes d, whatever becomes of its context.
func (s explainStage) takes(d time.Duration) taskmanager.Func {
	return func(ctx context.Context) error { return s.clk.Sleep(context.WithoutCancel(ctx), d) }
}

func succeeds(context.Context) error { return nil }
func fails(context.Context) error    { return errors.New("disk full") }

// backingOffFor is a backoff policy that always waits for d.
func backingOffFor(d time.Duration) taskmanager.TaskOption {
	return taskmanager.WithBackoff(func() backoff.BackOff { return backoff.NewConstantBackOff(d) })
}

// explainGolden has what Explain says in each scene, under "== " and its name.
const explainGolden = "testdata/explain.txt"

var explainScenes = []struct {
	name string
	opts []taskmanager.Option
	play func(s explainStage) *taskmanager.Handle
}{
	{"scheduled", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds)
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"jitter and start", nil, func(s explainStage) *taskmanager.Handle {
		return s.every(10*time.Second, succeeds, taskmanager.WithStartAt(s.clk.Now().Add(time.Hour)), taskmanager.WithImmediately())
	}},
	{"few runs left", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds, taskmanager.WithMaxRuns(3))
		s.clk.Advance(10 * time.Second)
		return h
	}},
	{"an end in sight", nil, func(s explainStage) *taskmanager.Handle {
		return s.every(10*time.Second, succeeds, taskmanager.WithEndAt(s.clk.Now().Add(25*time.Second)))
	}},
	{"running", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(time.Minute))
		s.clk.Advance(12 * time.Second)
		return h
	}},
	{"running with ticks held", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(time.Minute), taskmanager.WithOverlap(taskmanager.CatchUp(3)))
		s.clk.Advance(32 * time.Second)
		return h
	}},
	{"overlapping runs", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(25*time.Second), taskmanager.WithNonReentrant(false))
		s.clk.Advance(22 * time.Second)
		return h
	}},
	{"running by hand", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(time.Minute), taskmanager.WithOverlap(taskmanager.Coalesce))
		s.must(h, h.RunNow())
		s.clk.Advance(time.Second)
		return h
	}},
	{"over its time limit", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(time.Minute), taskmanager.WithExecutionTimeout(2*time.Second))
		s.clk.Advance(15 * time.Second)
		return h
	}},
	{"paused", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds)
		s.must(h, h.Pause())
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"paused while running", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(5*time.Second), taskmanager.WithMaxRuns(2))
		s.clk.Advance(12 * time.Second)
		s.must(h, h.Pause())
		return h
	}},
	{"backing off", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, fails, backingOffFor(25*time.Second))
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"running with the last runs held", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(time.Minute), taskmanager.WithOverlap(taskmanager.CatchUp(3)), taskmanager.WithMaxRuns(4), taskmanager.WithEndAt(s.clk.Now().Add(time.Hour)))
		s.clk.Advance(42 * time.Second)
		return h
	}},
	{"running with the last run but one held", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(25*time.Second), taskmanager.WithOverlap(taskmanager.Coalesce), taskmanager.WithMaxRuns(3))
		s.clk.Advance(32 * time.Second)
		return h
	}},
	{"backing off with a tick held", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, fails, backingOffFor(25*time.Second), taskmanager.WithMaxRuns(3))
		s.clk.Advance(31 * time.Second)
		return h
	}},
	{"failed without backoff yet", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, fails, backingOffFor(25*time.Second), taskmanager.WithFailuresBeforeBackoff(3))
		s.clk.Advance(21 * time.Second)
		return h
	}},
	{"first in the manager's queue", []taskmanager.Option{taskmanager.WithMaxConcurrentRuns(1)}, func(s explainStage) *taskmanager.Handle {
		s.must(s.m.ScheduleRecurring("hog", 5*time.Second, s.takes(time.Minute), taskmanager.WithJitter(0)))
		h := s.every(10*time.Second, succeeds)
		s.clk.Advance(12 * time.Second)
		return h
	}},
	{"behind others of its tag", []taskmanager.Option{taskmanager.WithTagLimit("db", 1)}, func(s explainStage) *taskmanager.Handle {
		for i := range 3 {
			s.must(s.m.ScheduleRecurring(fmt.Sprint("hog", i), 5*time.Second, s.takes(time.Minute), taskmanager.WithJitter(0), taskmanager.WithTag("db")))
		}
		h := s.every(10*time.Second, succeeds, taskmanager.WithTag("db"))
		s.must(h, h.RunNow())
		s.clk.Advance(7 * time.Second)
		_ = h.RunNow()
		s.clk.Advance(7 * time.Second)
		return h
	}},
	{"by hand at a limit", []taskmanager.Option{taskmanager.WithMaxConcurrentRuns(1)}, func(s explainStage) *taskmanager.Handle {
		s.must(s.m.ScheduleRecurring("hog", 5*time.Second, s.takes(time.Minute), taskmanager.WithJitter(0)))
		h := s.every(time.Hour, succeeds)
		s.clk.Advance(6 * time.Second)
		s.must(h, h.RunNow())
		return h
	}},
	{"fixed delay", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds, taskmanager.WithFixedDelay())
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"fixed delay, running", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(5*time.Second), taskmanager.WithFixedDelay())
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"fixed delay, paused", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds, taskmanager.WithFixedDelay())
		s.must(h, h.Pause())
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"fixed delay, backing off", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, fails, taskmanager.WithFixedDelay(), backingOffFor(25*time.Second))
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"schedule with a fixed delay", nil, func(s explainStage) *taskmanager.Handle {
		h := s.must(s.m.Schedule("task", cronsched.MustParse("every 30s x3"), succeeds))
		s.clk.Advance(31 * time.Second)
		return h
	}},
	{"cron", nil, func(s explainStage) *taskmanager.Handle {
		h := s.must(s.m.Schedule("task", cronsched.MustParse("0 3 * * *"), succeeds))
		s.clk.Advance(24 * time.Hour)
		return h
	}},
	{"cron, paused, an end in sight", nil, func(s explainStage) *taskmanager.Handle {
		h := s.must(s.m.Schedule("task", cronsched.MustParse("0 3 * * *"), succeeds, taskmanager.WithPaused(),
			taskmanager.WithEndAt(s.clk.Now().Add(100*time.Hour))))
		s.clk.Advance(30 * time.Hour)
		return h
	}},
	{"cron, backing off", nil, func(s explainStage) *taskmanager.Handle {
		h := s.must(s.m.Schedule("task", cronsched.MustParse("* * * * *"), fails, backingOffFor(150*time.Second)))
		s.clk.Advance(61 * time.Second)
		return h
	}},
	{"manual", nil, func(s explainStage) *taskmanager.Handle {
		return s.must(s.m.Schedule("task", cronsched.Manual(), succeeds))
	}},
	{"schedule that is over, last run going on", nil, func(s explainStage) *taskmanager.Handle {
		once, err := cronsched.Once(s.clk.Now().Add(time.Minute))
		h := s.must(s.m.Schedule("task", once, s.takes(time.Minute)))
		s.must(h, err)
		s.clk.Advance(61 * time.Second)
		return h
	}},
	{"complete by its schedule", nil, func(s explainStage) *taskmanager.Handle {
		once, err := cronsched.Once(s.clk.Now().Add(time.Minute))
		h := s.must(s.m.Schedule("task", once, succeeds))
		s.must(h, err)
		s.clk.Advance(61 * time.Second)
		return h
	}},
	{"complete by its runs", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds, taskmanager.WithMaxRuns(1))
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"complete by its end", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds, taskmanager.WithEndAt(s.clk.Now().Add(15*time.Second)))
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"stopped", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds)
		h.Stop()
		return h
	}},
	{"stopped and still running", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, s.takes(time.Minute))
		s.clk.Advance(13 * time.Second)
		h.Stop()
		return h
	}},
	{"stopped by the manager's end", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, succeeds)
		s.clk.Close(s.m)
		return h
	}},
	{"stopped by its backoff policy", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, fails, backingOffFor(backoff.Stop))
		s.clk.Advance(13 * time.Second)
		return h
	}},
	{"stopped by its schedule's panic", nil, func(s explainStage) *taskmanager.Handle {
		h := s.must(s.m.Schedule("task", &fragile{good: 1}, succeeds))
		s.clk.Advance(90 * time.Second)
		return h
	}},
	{"schedule whose every method panics", nil, func(s explainStage) *taskmanager.Handle {
		return s.must(s.m.Schedule("task\x1b[31m\n", &fragile{good: 1}, succeeds))
	}},
	{"a hostile error", nil, func(s explainStage) *taskmanager.Handle {
		h := s.every(10*time.Second, func(context.Context) error { return hostileError{} }, backingOffFor(time.Minute))
		s.clk.Advance(10 * time.Second)
		return h
	}},
}

// fragile is due every minute, as often as good says, and then panics; so do its
// other methods.
type fragile struct{ good int }

func (f *fragile) Next(t time.Time) (time.Time, bool) {
	if f.good--; f.good < 0 {
		panic("fragile")
	}
	return t.Add(time.Minute), true
}
func (f *fragile) String() string          { panic("fragile") }
func (f *fragile) Reason(time.Time) string { panic("fragile") }

type hostileError struct{}

func (hostileError) Error() string { panic("hostile") }

func TestExplainSaysWhyATaskDoesNotRunAndWhenItWill(t *testing.T) {
	golden := map[string]string{}
	text, err := os.ReadFile(explainGolden)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(text), "\n== ") {
		name, want, _ := strings.Cut(section, "\n")
		golden[name] = want
	}
	for _, scene := range explainScenes {
		t.Run(scene.name, func(t *testing.T) {
			m, clk := tasktest.New(t, append(scene.opts, taskmanager.WithLogger(silent))...)
			h := scene.play(explainStage{t, m, clk})
			before := h.Snapshot()
			if got, want := h.Explain(), golden[scene.name]; got != want {
				t.Errorf("Explain() =\n%s\nwant, as in %s,\n%s", got, explainGolden, want)
			}
			if after := h.Snapshot(); after.Ticks != before.Ticks || after.NextRun != before.NextRun || after.State != before.State {
				t.Errorf("Explain changed the task: %+v, before %+v", after, before)
			}
		})
	}
}

func TestExplainDoesNotWaitForASchedulesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := taskmanager.New(taskmanager.WithLogger(silent))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s := &stuck{release: make(chan struct{})}
		h, err := m.Schedule("task", s, succeeds)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		got := h.Explain()
		close(s.release)
		if want := "its schedule is being asked for its next instant"; !strings.Contains(got, want) {
			t.Errorf("Explain() =\n%s\nwant %q in it", got, want)
		}
	})
}

// stuck is a schedule that answers the first question, and the next when released.
type stuck struct {
	asked   bool
	release chan struct{}
}

func (s *stuck) Next(t time.Time) (time.Time, bool) {
	if s.asked {
		<-s.release
	}
	s.asked = true
	return t.Add(time.Minute), true
}

func TestExplainForetellsWhatThenHappens(t *testing.T) {
	for name, opts := range map[string][]taskmanager.TaskOption{
		"skip":       nil,
		"coalesce":   {taskmanager.WithOverlap(taskmanager.Coalesce)},
		"catch up":   {taskmanager.WithOverlap(taskmanager.CatchUp(3))},
		"few runs":   {taskmanager.WithMaxRuns(4)},
		"two to go":  {taskmanager.WithOverlap(taskmanager.CatchUp(3)), taskmanager.WithMaxRuns(3)},
		"the last":   {taskmanager.WithMaxRuns(2)},
		"reentrant":  {taskmanager.WithNonReentrant(false)},
		"short time": {taskmanager.WithEndAt(time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC))},
	} {
		for _, at := range []time.Duration{7, 9, 15, 26, 27, 28} { // from the failure to beyond the backoff
			t.Run(fmt.Sprint(name, " at ", int(at)), func(t *testing.T) {
				m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
				var starts []string
				h, err := m.ScheduleRecurring("task", 7*time.Second, func(context.Context) error {
					starts = append(starts, clk.Now().Format("2006-01-02 15:04:05 MST"))
					if len(starts) == 1 {
						return errBoom
					}
					return nil
				}, append(opts, taskmanager.WithJitter(0), backingOffFor(20*time.Second))...)
				if err != nil {
					t.Fatal(err)
				}
				clk.Advance(at * time.Second)
				past := len(starts)
				text := h.Explain()
				clk.Advance(time.Minute)
				_, list, _ := strings.Cut(text, "next instants:\n")
				var foretold []string
				for _, line := range strings.Split(list, "\n") {
					if start, _, some := strings.Cut(strings.TrimSpace(line), ", in "); some {
						foretold = append(foretold, start)
					}
				}
				if came := starts[past:]; !slices.Equal(foretold, came[:min(5, len(came))]) {
					t.Errorf("started at %v, Explain() had said\n%s", came, text)
				}
			})
		}
	}
}

func TestExplainFromInsideARunSaysThatItRuns(t *testing.T) {
	m, clk := tasktest.New(t, taskmanager.WithLogger(silent))
	var h *taskmanager.Handle
	var text string
	h, err := m.ScheduleRecurring("task", time.Second, func(context.Context) error {
		text = h.Explain()
		return nil
	}, taskmanager.WithJitter(0))
	if err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Second)
	if want := `task "task", every 1s: running` + "\nit is running for tick 1, since 2026-01-01 00:00:01 UTC (now)\n"; !strings.HasPrefix(text, want) {
		t.Errorf("Explain() =\n%s\nwant it to begin with\n%s", text, want)
	}
}
