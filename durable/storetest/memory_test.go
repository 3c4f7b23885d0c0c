package storetest_test

import (
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/storetest"
)

func TestMemoryPassesTheSuite(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, now func() time.Time) durable.Store {
		return durable.NewMemory(durable.MemoryNow(now))
	})
}

func BenchmarkMemory(b *testing.B) {
	storetest.Bench(b, func(_ *testing.B, now func() time.Time) durable.Store {
		return durable.NewMemory(durable.MemoryNow(now))
	})
}
