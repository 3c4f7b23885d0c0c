package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// PostgreSQL keeps the plans of prepared statements. Those that are made when there are
// next to no rows yet must not read whole tables, which have a million soon after.
func TestEarlyPlansGoByKeys(t *testing.T) {
	s, db := databases[1].store(t, 1)
	jobOf(t, s, "a", true)
	for n := range 8 { // the sixth one decides
		enqueueMany(t, s, "a", 10*n+1, 10*n+9)
		finishAll(t, s, endsOf(claimAs(t, s, "n", 10, runIt)))
	}
	moves := plansOf(t, db, "%DELETE FROM%INSERT INTO%")
	for _, plan := range moves {
		if strings.Contains(plan, "Seq Scan on taskmanager_") {
			t.Errorf("a statement is carried out by reading all of a table:\n%s", plan)
		}
	}
	if len(moves) != 2 {
		t.Errorf("there are %d statements that move rows, want that of claims and that of ends", len(moves))
	}
}

// The end of a run looks at those behind it that it wakes, and not at the whole queue. On
// the other databases the statement names the index.
func TestAnEndReadsNoQueueToItsEnd(t *testing.T) {
	s, db := databases[1].store(t, 1)
	blocked(t, s, db, 5000)
	do(t, db, "ANALYZE taskmanager_trigger")
	finishAll(t, s, endsOf(claimAs(t, s, "n", 10, planOrBlock)))
	wakes := plansOf(t, db, "%CROSS JOIN LATERAL%")
	for _, plan := range wakes {
		if !strings.Contains(plan, "taskmanager_trigger_blocked") || strings.Contains(plan, "Sort") {
			t.Errorf("the end of a run reads more than the first of its queue:\n%s", plan)
		}
	}
	if len(wakes) != 1 {
		t.Errorf("there are %d statements that wake, want 1", len(wakes))
	}
}

// plansOf are the plans, whatever their parameters, of statements that the connection has
// prepared.
func plansOf(t *testing.T, db *sql.DB, like string) (plans []string) {
	t.Helper()
	do(t, db, "SET plan_cache_mode = force_generic_plan")
	for _, explain := range texts(t, db, `SELECT 'EXPLAIN EXECUTE ' || quote_ident(name) || '(' || array_to_string(array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ', ') || ')'
		FROM pg_prepared_statements WHERE cardinality(parameter_types) > 0 AND statement LIKE '`+like+`'`) {
		plans = append(plans, strings.Join(texts(t, db, explain), "\n"))
	}
	return plans
}

// texts reads a query's texts, in order.
func texts(t testing.TB, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

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
