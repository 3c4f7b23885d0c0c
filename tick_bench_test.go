package taskmanager

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// benchSource is a clock that stands still but for Pump, with no timers.
type benchSource struct{ mono int64 }

func (s *benchSource) Now() (time.Time, int64)    { return time.Unix(0, s.mono), s.mono }
func (s *benchSource) Mono() int64                { return s.mono }
func (s *benchSource) TwoHands() bool             { return false }
func (s *benchSource) NewTimer(func()) seam.Timer { return benchTimer{} }
func (s *benchSource) option() Option             { return seam.WithSource(s).(Option) }

type benchTimer struct{}

func (benchTimer) Reset(time.Duration) {}
func (benchTimer) Stop()               {}

// armings is a benchSource that counts how often its timer is set.
type armings struct {
	benchSource
	n int
}

func (s *armings) NewTimer(func()) seam.Timer { return s }
func (s *armings) Reset(time.Duration)        { s.n++ }
func (s *armings) Stop()                      {}

func TestADenseLoadSetsTheTimerOnceAWakeup(t *testing.T) {
	source := &armings{benchSource: benchSource{mono: 1}}
	m, err := New(seam.WithSource(source).(Option), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const tasks, interval = 10_000, 100 * time.Millisecond
	for i := range tasks {
		if _, err := m.ScheduleRecurring(fmt.Sprint(i), interval, func(context.Context) error { return nil }, WithJitter(0)); err != nil {
			t.Fatal(err)
		}
		source.mono += int64(interval) / tasks
	}
	for range 500 {
		source.mono += int64(time.Millisecond)
		before := source.n
		m.engine.pump()
		if n := source.n - before; n != 1 {
			t.Fatalf("the timer was set %d times, want once", n)
		}
	}
}

// BenchmarkTick is what one tick costs the engine, without the sleeping and waking
// of the process: ticks of N tasks at 1 s fall due a millisecond's worth at a time.
func BenchmarkTick(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		for name, opts := range map[string][]TaskOption{"plain": nil, "limit": {WithExecutionTimeout(time.Minute)}} {
			if n == 1_000_000 && name != "plain" {
				continue
			}
			b.Run(fmt.Sprintf("%s/N=%d", name, n), func(b *testing.B) {
				source := &benchSource{mono: 1}
				m, err := New(source.option(), WithLogger(slog.New(slog.DiscardHandler)))
				if err != nil {
					b.Fatal(err)
				}
				ran := 0
				body := func(context.Context) error { ran++; return nil }
				for i := range n {
					if _, err := m.ScheduleRecurring(fmt.Sprint(i), time.Second, body, append(opts, WithJitter(time.Second))...); err != nil {
						b.Fatal(err)
					}
				}
				step := func() {
					source.mono += int64(time.Millisecond)
					m.engine.pump()
				}
				for range 2000 {
					step()
				}
				ran = 0
				b.ReportAllocs()
				b.ResetTimer()
				for ran < b.N {
					step()
				}
				b.StopTimer()
				_ = m.Close()
			})
		}
	}
}

// BenchmarkScheduleAndStop is what it takes to add a task to N others that are far
// from due, and to stop any one of them.
func BenchmarkScheduleAndStop(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		m, err := New(WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			b.Fatal(err)
		}
		body := func(context.Context) error { return nil }
		opts := []TaskOption{WithJitter(0), WithImmediately(), nil}
		begin := time.Now().Add(time.Hour)
		r := rand.New(rand.NewPCG(1, 2))
		names := make([]string, n+20_000)
		for i := range names {
			names[i] = fmt.Sprint("session.cleanup.", i)
		}
		handles := make([]*Handle, n+20_000)
		schedule := func(i int) {
			opts[2] = WithStartAt(begin.Add(time.Duration(r.Int64N(int64(time.Hour)))))
			if handles[i], err = m.ScheduleRecurring(names[i], time.Hour, body, opts...); err != nil {
				b.Fatal(err)
			}
		}
		for i := range n {
			schedule(i)
		}
		free := make([]int, 20_000) // places without a task
		for i := range free {
			free[i] = n + i
		}
		for _, what := range []string{"schedule", "stop"} {
			b.Run(fmt.Sprintf("%s/N=%d", what, n), func(b *testing.B) {
				b.ReportAllocs()
				for done := 0; done < b.N; done += len(free) {
					ops := min(len(free), b.N-done)
					if what == "stop" {
						b.StopTimer()
					}
					for _, i := range free[:ops] {
						schedule(i)
					}
					if what == "stop" {
						for _, i := range free[:ops] { // any of the tasks, not the newest
							j := r.IntN(n)
							handles[i], handles[j] = handles[j], handles[i]
							names[i], names[j] = names[j], names[i]
						}
						b.StartTimer()
					} else {
						b.StopTimer()
					}
					for _, i := range free[:ops] {
						handles[i].Stop()
					}
					b.StartTimer()
				}
			})
		}
		_ = m.Close()
	}
}
