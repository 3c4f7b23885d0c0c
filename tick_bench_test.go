package taskmanager

import (
	"context"
	"fmt"
	"log/slog"
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
