package integration

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// The look for what dead nodes left behind.

// A caller's transaction has what the look would see to, and what it has to read past.
func TestALookForDeadNodesWaitsForNoOther(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 4)
			jobOf(t, s, "a", false)
			enqueueMany(t, s, "a", 1, 4)
			for n, set := range []string{
				fmt.Sprintf("state = %d", durable.StateBlocked),
				"due_at = NULL",
				fmt.Sprintf("state = %d", durable.StateRunning),
				fmt.Sprintf("state = %d, due_at = 1", durable.StateBroadcast),
			} {
				do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET %s WHERE id = '%s'", set, idOf(n+1)))
			}
			jobOf(t, s, "b", true)
			if _, err := s.Beat(t.Context(), durable.NodeRow{ID: "gone"}, time.Microsecond); err != nil {
				t.Fatal(err)
			}
			look := func() durable.ExpireResult {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				res, err := s.Expire(ctx, durable.ExpireRequest{Limit: 10})
				if err != nil {
					t.Fatalf("Expire = %v, want nil", err)
				}
				return res
			}

			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("UPDATE taskmanager_trigger SET description = 'new' WHERE job = 'a'"); err != nil {
				t.Fatal(err)
			}
			editor, err := sqlstore.Tx(tx).Join(s)
			if err != nil {
				t.Fatal(err)
			}
			err = editor.Edit(t.Context(), "b", durable.EnqueueOnly, func(e *durable.Edit) error {
				row := oneShot("b", 5)
				row.Kind, row.State, row.DueAt = durable.KindBroadcast, durable.StateBroadcast, time.Now().Add(time.Hour)
				e.Add = append(e.Add, row)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if res := look(); len(res.Dead) != 1 || res.Released != 0 {
				t.Errorf("Expire = %+v, want a dead node and nothing released", res)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if res := look(); res.Released != 3 {
				t.Errorf("Expire = %+v, want three triggers released, now that nobody has them", res)
			}
			if got := states(t, s, "a"); got[durable.StateWaiting] != 3 || len(got) != 1 {
				t.Errorf("states of triggers are %v, want three waiting and no broadcast", got)
			}
		})
	}
}

// Triggers that nothing blocks are found wherever they are among long queues and short ones.
func TestIdleJobsAreFoundBehindLongQueues(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := d.store(t, pool)
		for n, job := range []string{"a", "b", "c", "d"} {
			jobOf(t, s, job, false)
			enqueueMany(t, s, job, 1000*n+1, 1000*n+[]int{500, 1, 3, 450}[n])
		}
		wantClaimed(t, claimAs(t, s, "n", 1, planOrBlock), idOf(1))
		do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET state = %d", durable.StateBlocked))
		res, err := s.Expire(t.Context(), durable.ExpireRequest{})
		if err != nil || res.Released != 5 {
			t.Errorf("Expire = %+v, %v, want 5 released", res, err)
		}
		for job, want := range map[string]int{"a": 0, "b": 1, "c": 2, "d": 2} {
			if got := states(t, s, job)[durable.StateWaiting]; got != want {
				t.Errorf("%d triggers of job %s wait, want %d", got, job, want)
			}
		}
	})
}

// A look must not read queues to their end, nor all that is complete.
func TestALookForDeadNodesReadsLittle(t *testing.T) {
	t.Run("mysql", func(t *testing.T) {
		s, db := databases[2].store(t, 1)
		blocked(t, s, db, 5000)
		wantClaimed(t, claimAs(t, s, "n", 1, planOrBlock), idOf(1))
		wantRowsRead(t, db, 1000, func() error { _, err := s.Expire(t.Context(), durable.ExpireRequest{Limit: 100}); return err })
	})
	t.Run("postgres", func(t *testing.T) {
		s, db := databases[1].store(t, 1)
		blocked(t, s, db, 10000)
		do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET state = %d, due_at = NULL WHERE id < '%s'", durable.StateComplete, idOf(5000)))
		do(t, db, fmt.Sprintf("UPDATE taskmanager_trigger SET state = %d, due_at = 1e16 WHERE id > '%s'", durable.StateWaiting, idOf(6000)))
		do(t, db, "ANALYZE taskmanager_trigger")
		if _, err := s.Expire(t.Context(), durable.ExpireRequest{Limit: 100}); err != nil {
			t.Fatal(err)
		}
		for like, index := range map[string]string{
			"%due_at IS NULL AND id >%": "taskmanager_trigger_undue",
			"%SELECT DISTINCT%":         "taskmanager_trigger_blocked",
		} {
			plans := plansOf(t, db, like)
			if len(plans) != 1 || !strings.Contains(plans[0], index) {
				t.Errorf("plans are %q, want one that goes by %s", plans, index)
			}
		}
	})
}

// MariaDB would read from the newest run on if most of the history is of the job.
func TestAPageOfAJobsHistoryReadsThatPage(t *testing.T) {
	s, db := databases[2].store(t, 1)
	var rows []string
	for n := range 5000 {
		rows = append(rows, fmt.Sprintf("('%s', 'a', 't', 0, 1, %d, 1, 'n', 1, '', '', 5, 1, 0, '', '', '')", idOf(n), n))
	}
	do(t, db, `INSERT INTO taskmanager_history (id, job, trigger_name, kind, state, started_at, duration, node, attempt, retry_of, idempotency_key,
		priority, fence, passed, code, message, detail) VALUES `+strings.Join(rows, ", "))
	do(t, db, "ANALYZE TABLE taskmanager_history")
	wantRowsRead(t, db, 100, func() error {
		at := time.UnixMicro(1000)
		page, err := s.Runs(t.Context(), durable.RunQuery{Job: "a", Before: durable.RunKey{StartedAt: at, ID: idOf(1000)}, Limit: 20})
		if len(page) != 20 || page[0].ID != idOf(999) {
			t.Errorf("the page has %d runs, want 20 from %s on", len(page), idOf(999))
		}
		return err
	})
}

// wantRowsRead checks how many rows a call on MySQL has the server read, at most.
func wantRowsRead(t *testing.T, db *sql.DB, most int, call func() error) {
	t.Helper()
	do(t, db, "FLUSH STATUS")
	if err := call(); err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, n := range texts(t, db, "SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER_READ%'") {
		one, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		read += one
	}
	if read > most {
		t.Errorf("%d rows were read, want %d at most", read, most)
	}
}
