package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// An idle claim must not cost more when more is waiting. What is compared are times
// of the same minute, since plans are told differently by each server: run it with
// -bench Idle.
func BenchmarkIdleClaim(b *testing.B) {
	for _, d := range databases {
		sizes := []int{100_000, 1_000_000}
		if testing.Short() {
			sizes = []int{1000}
		}
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/waiting=%d", d.name, n), func(b *testing.B) {
				s, db := d.store(b, 1)
				if _, err := s.Beat(b.Context(), durable.NodeRow{ID: "n"}, time.Hour); err != nil {
					b.Fatal(err)
				}
				waiting(b, db, n)
				claim := calls(s)["Claim"]
				for b.Loop() {
					if err := claim(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// waiting adds triggers that are due in a thousand years, of ten priorities and two
// handlers.
func waiting(b *testing.B, db *sql.DB, n int) {
	far := time.Now().AddDate(1000, 0, 0).UnixMicro()
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf("('%026d', 'job-%d', 't%d', '%s', 0, '', '', %d, 0, 0, 0, 0, '', %d, 0, 0, 1, '', 0, '', '')",
			i, i/10, i, []string{"h", "g"}[i%2], i%11, far+int64(i)))
		if len(rows) == 5000 || i == n-1 {
			do(b, db, `INSERT INTO taskmanager_trigger (id, job, name, handler, kind, description, schedule, priority, misfire, max_catch_up,
				state, paused, reason, due_at, fired, passed, version, origin, attempt, retry_of, idempotency_key) VALUES `+strings.Join(rows, ","))
			rows = rows[:0]
		}
	}
}
