package taskmanager_test

import (
	"testing"
	"time"
)

// BenchmarkLook is what it costs to look at a task: one thing, or all.
func BenchmarkLook(b *testing.B) {
	m := newManager()
	defer m.Close()
	h := must(m.ScheduleRecurring("a", time.Hour, nothing))
	for name, look := range map[string]func(){
		"State":     func() { _ = h.State() },
		"NextRun":   func() { _ = h.NextRun() },
		"Successes": func() { _ = h.Successes() },
		"Snapshot":  func() { _ = h.Snapshot() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				look()
			}
		})
	}
}
