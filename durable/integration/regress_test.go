package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// What once went wrong, or nearly. Where two transactions meet, one of them stands still
// in a callback, or before a row that the test has locked.

// jobOf adds a job of handler "h" and registers node "n".
func jobOf(t testing.TB, s durable.Store, name string, concurrent bool) {
	t.Helper()
	for _, node := range []string{"m", "n"} {
		if _, err := s.Beat(t.Context(), durable.NodeRow{ID: node, Name: node}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Edit(t.Context(), name, durable.EditJob, func(e *durable.Edit) error {
		e.Job = &durable.JobRow{Name: name, Handler: "h", AllowConcurrent: concurrent}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func idOf(n int) string { return fmt.Sprintf("%026d", n) }

// oneShot is a one-shot trigger that is due.
func oneShot(job string, n int) durable.TriggerRow {
	at := time.UnixMicro(1_700_000_000_000_000 + int64(n)).UTC()
	return durable.TriggerRow{ID: idOf(n), Job: job, Name: "manual-" + idOf(n), Handler: "h", Kind: durable.KindManual,
		Priority: 5, DueAt: at, ScheduledAt: at, Attempt: 1}
}

func enqueue(t testing.TB, s durable.Store, scope durable.Scope, job string, rows ...durable.TriggerRow) {
	t.Helper()
	err := s.Edit(t.Context(), job, scope, func(e *durable.Edit) error {
		e.Add = rows
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func claimAs(t testing.TB, s durable.Store, node string, limit int, plan func(durable.Due) durable.Verdict) []durable.Claimed {
	t.Helper()
	res, err := s.Claim(t.Context(), durable.ClaimRequest{Node: node, Limit: limit, Handlers: []string{"h"}, Plan: plan})
	if err != nil {
		t.Fatalf("Claim = %v, want nil", err)
	}
	return res.Claimed
}

func finishAll(t testing.TB, s durable.Store, ends []durable.End) {
	t.Helper()
	own, err := s.Finish(t.Context(), durable.FinishRequest{Ends: ends})
	if err != nil {
		t.Fatalf("Finish = %v, want nil", err)
	}
	for i, o := range own {
		if !o {
			t.Errorf("Finish: end %d was refused", i)
		}
	}
}

// wantClaimed wants these IDs, in any order.
func wantClaimed(t testing.TB, claimed []durable.Claimed, ids ...string) {
	t.Helper()
	got := map[string]int{}
	for _, c := range claimed {
		got[c.Run.ID]++
	}
	for _, id := range ids {
		if got[id] != 1 {
			t.Errorf("run %s was claimed %d times, want once", id, got[id])
		}
	}
	if len(claimed) != len(ids) {
		t.Errorf("%d runs were claimed, want %d", len(claimed), len(ids))
	}
}

func TestATriggerWithAnActiveRunsIDHoldsUpNobody(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := d.store(t, pool)
		jobOf(t, s, "a", true)
		enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1), oneShot("a", 2))
		active := claimAs(t, s, "n", 10, runIt)
		wantClaimed(t, active, idOf(1), idOf(2))

		enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1), oneShot("a", 3))
		enqueue(t, s, durable.EditJob, "a", oneShot("a", 1), oneShot("a", 4))
		follow := oneShot("a", 1)
		end := durable.End{Run: *active[1].Run, Follow: &follow, FollowIn: -time.Minute}
		end.Run.State = durable.RunFailed
		finishAll(t, s, []durable.End{end})
		wantClaimed(t, claimAs(t, s, "n", 10, runIt), idOf(3), idOf(4))
		wantClaimed(t, claimAs(t, s, "n", 10, runIt))
		states, err := s.Jobs(t.Context(), durable.JobQuery{})
		if err != nil || len(states[0].Triggers) != 0 {
			t.Errorf("triggers = %+v, %v, want none", states, err)
		}
	})
}

// The claim of a trigger is about to commit when the same is added again: the store sees
// neither the trigger nor the run.
func TestATriggerAddedAgainWhileItIsClaimedHoldsUpNobody(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 4)
			jobOf(t, s, "a", true)
			enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1))
			first := claimAs(t, s, "n", 1, runIt)
			enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 2))

			// A row of that ID, which will not be there in the end.
			undo := inTransaction(t, db, "UPDATE taskmanager_run SET id = '"+idOf(2)+"'")
			claimed := async(func() error {
				_, err := s.Claim(t.Context(), durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: runIt})
				return err
			})
			defer undo()
			waitForLocks(t, d, db, 1)
			added := async(func() error {
				return s.Edit(t.Context(), "a", durable.EnqueueOnly, func(e *durable.Edit) error {
					e.Add = []durable.TriggerRow{oneShot("a", 2), oneShot("a", 3)}
					return nil
				})
			})
			waitForLocks(t, d, db, 2)
			undo()
			if err := errors.Join(<-claimed, <-added); err != nil {
				t.Fatal(err)
			}
			finishAll(t, s, endsOf(first))
			wantClaimed(t, claimAs(t, s, "n", 10, runIt), idOf(3))
		})
	}
}

func async(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// inTransaction does something that is undone when the function is called.
func inTransaction(t testing.TB, db *sql.DB, statement string) (undo func()) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(statement); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// waitForLocks returns once so many transactions of the test's database wait for a lock.
func waitForLocks(t testing.TB, d database, db *sql.DB, want int) {
	t.Helper()
	query := map[string]string{
		"postgres": `SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_locks o ON o.pid = l.pid
			WHERE NOT l.granted AND o.relation IN ('taskmanager_run'::regclass, 'taskmanager_trigger'::regclass, 'taskmanager_job'::regclass, 'taskmanager_gate'::regclass)`,
		"mysql": `SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
			WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`,
	}[d.name]
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		var n int
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			t.Fatalf("%d transactions wait for a lock, want %d: %v", n, want, err)
		}
		if n >= want {
			return
		}
		time.Sleep(150 * time.Millisecond) // what InnoDB tells is renewed only if nobody has asked for 100 ms
	}
}

// The history has the ID already: a run of another node ended under it.
func TestARunWithAnEndedRunsIDCanEnd(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, _ := d.store(t, pool)
		jobOf(t, s, "a", true)
		enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 2))
		finishAll(t, s, endsOf(claimAs(t, s, "m", 1, runIt)))

		enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 2))
		claimed := claimAs(t, s, "n", 10, runIt)
		wantClaimed(t, claimed, idOf(2))
		ends := endsOf(append(claimed, claimed...))
		ends[0].Run.ID = idOf(1) // not there
		own, err := s.Finish(t.Context(), durable.FinishRequest{Ends: ends})
		if err != nil || own[0] || !own[1] {
			t.Errorf("Finish = %v, %v, want false and true", own, err)
		}
		rows, err := s.Runs(t.Context(), durable.RunQuery{})
		if err != nil || len(rows) != 1 || rows[0].State != durable.RunSucceeded {
			t.Errorf("Runs = %+v, %v, want one that has ended", rows, err)
		}
	})
}

// A job stops allowing concurrency while a claim is under way that does not know, of a
// trigger that the edit does not know.
func TestAJobThatBecomesExclusiveDoesNotRunTwice(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 6)
			jobOf(t, s, "a", true)
			enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1), oneShot("a", 2))
			planning, goOn := make(chan bool, 10), make(chan bool)
			first := async(func() error {
				_, err := s.Claim(t.Context(), durable.ClaimRequest{Node: "m", Limit: 1, Handlers: []string{"h"}, Plan: func(due durable.Due) durable.Verdict {
					planning <- true
					<-goOn
					return planOrBlock(due)
				}})
				return err
			})
			<-planning
			edited := async(func() error { return makeExclusive(t.Context(), s) })
			waitForLocks(t, d, db, 1)
			close(goOn)
			if err := errors.Join(<-first, <-edited); err != nil {
				t.Fatal(err)
			}
			wantClaimed(t, claimAs(t, s, "n", 1, planOrBlock))
			states, err := s.Jobs(t.Context(), durable.JobQuery{})
			if err != nil || len(states[0].Running) != 1 {
				t.Errorf("%d active runs of an exclusive job, %v, want 1", len(states[0].Running), err)
			}
		})
	}
}

// A job is about to become exclusive: claims cannot know yet, and leave it alone.
func TestAJobThatIsAboutToBecomeExclusiveIsLeftAlone(t *testing.T) {
	for _, d := range databases[1:] {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 6)
			jobOf(t, s, "a", true)
			jobOf(t, s, "b", true)
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			editor, err := sqlstore.Tx(tx).Join(s)
			if err == nil {
				err = makeExclusive(t.Context(), editor)
			}
			if err != nil {
				t.Fatal(err)
			}
			enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1), oneShot("a", 2))
			enqueue(t, s, durable.EnqueueOnly, "b", oneShot("b", 3))
			wantClaimed(t, claimAs(t, s, "m", 10, planOrBlock), idOf(3))
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			wantClaimed(t, claimAs(t, s, "m", 10, planOrBlock), idOf(1))
		})
	}
}

func makeExclusive(ctx context.Context, store durable.Editor) error {
	return store.Edit(ctx, "a", durable.EditJob, func(e *durable.Edit) error {
		e.Job.AllowConcurrent = false
		return nil
	})
}

// What somebody has written into a table by hand must not make whole batches unreadable.
func TestRowsThatCannotBeReadAreRefusedByTheTable(t *testing.T) {
	onEach(t, func(t *testing.T, d database, pool int) {
		s, db := d.store(t, pool)
		jobOf(t, s, "a", true)
		enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1), oneShot("a", 2))
		for _, set := range []string{"kind = 300", "kind = -1", "misfire = 300", "state = 300", "paused = 2", "priority = 11", "priority = -1"} {
			if _, err := db.ExecContext(t.Context(), "UPDATE taskmanager_trigger SET "+set+" WHERE id = '"+idOf(1)+"'"); err == nil {
				t.Errorf("UPDATE … SET %s was taken", set)
			}
		}
		for _, set := range []string{"data = 'x'", "schedule = 'x'", "reason = 'x'", "due_at = -9000000000000000000", "due_at = 0", "attempt = 0",
			"job = 'none'", "name = ''", "handler = 'none'"} {
			do(t, db, "UPDATE taskmanager_trigger SET "+set+" WHERE id = '"+idOf(1)+"'")
			if _, err := s.Claim(t.Context(), durable.ClaimRequest{Node: "n", Limit: 10, Handlers: []string{"h"}, Plan: func(durable.Due) durable.Verdict {
				return durable.Verdict{Leave: true}
			}}); err != nil {
				t.Errorf("after SET %s: Claim = %v", set, err)
			}
		}
		wantClaimed(t, claimAs(t, s, "n", 10, runIt), idOf(2))
	})
}

// The tables allow it, so somebody's hand can make it so.
func TestTwoTriggersOfOneNameHoldUpNoOtherChange(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s, db := d.store(t, 1)
			jobOf(t, s, "a", true)
			trigger := func(n int, name string) durable.TriggerRow {
				return durable.TriggerRow{ID: idOf(n), Job: "a", Name: name, Handler: "h", Schedule: "every 1m"}
			}
			edit := func(change func(e *durable.Edit)) error {
				return s.Edit(t.Context(), "a", durable.EditJob, func(e *durable.Edit) error { change(e); return nil })
			}
			add := func(rows ...durable.TriggerRow) func(*durable.Edit) {
				return func(e *durable.Edit) { e.Triggers = append(rows, e.Triggers...) }
			}
			if err := edit(add(trigger(1, "t"), trigger(2, "u"), trigger(3, "v"))); err != nil {
				t.Fatal(err)
			}
			do(t, db, "UPDATE taskmanager_trigger SET name = 't' WHERE name = 'u'")
			for _, c := range []struct {
				name   string
				change func(*durable.Edit)
				want   error
			}{
				{"of the job", func(e *durable.Edit) { e.Job.Paused = true }, nil},
				{"of both", func(e *durable.Edit) { e.Triggers[0].Priority, e.Triggers[1].Priority = 1, 2 }, nil},
				{"that adds one", add(trigger(4, "t")), durable.ErrExists},
				{"that adds two", add(trigger(4, "w"), trigger(5, "w")), durable.ErrExists},
				{"that renames another", func(e *durable.Edit) { e.Triggers[2].Name = "t" }, durable.ErrExists},
				{"that removes one", func(e *durable.Edit) { e.Triggers = e.Triggers[1:] }, nil},
			} {
				if err := edit(c.change); !errors.Is(err, c.want) {
					t.Errorf("an edit %s = %v, want %v", c.name, err, c.want)
				}
			}
		})
	}
}

// A transaction of the caller's may be of any isolation, and what is undone leaves
// nothing.
func TestAnEditInTheCallersTransactionWhateverItsIsolation(t *testing.T) {
	for _, d := range databases[1:] {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(d.name+"/"+level.String(), func(t *testing.T) {
				s, db := d.store(t, 4)
				jobOf(t, s, "a", false)
				for n, commit := range []bool{false, true} {
					tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
					if err != nil {
						t.Fatal(err)
					}
					editor, err := sqlstore.Tx(tx).Join(s)
					if err != nil {
						t.Fatal(err)
					}
					for _, job := range []string{"a", "b"} {
						err = errors.Join(editor.Edit(t.Context(), job, durable.EditJob, func(e *durable.Edit) error {
							e.Job = &durable.JobRow{Name: job, Handler: "h", Description: "new", AllowConcurrent: true}
							e.Release = true
							return nil
						}), editor.Edit(t.Context(), job, durable.EnqueueOnly, func(e *durable.Edit) error {
							e.Add = []durable.TriggerRow{oneShot(job, n*10+int(job[0]))}
							return nil
						}))
						if err != nil {
							t.Fatal(err)
						}
					}
					want := 0
					end := tx.Rollback
					if commit {
						want, end = 2, tx.Commit
					}
					if err := end(); err != nil {
						t.Fatal(err)
					}
					if got := claimAs(t, s, "n", 10, runIt); len(got) != want {
						t.Errorf("commit %v: %d runs, want %d", commit, len(got), want)
					}
				}
			})
		}
	}
}

// Names and texts are values, whatever the session makes of quotes and backslashes.
func TestTextsAreValuesWhateverTheSession(t *testing.T) {
	weird := []string{`it's`, `a"b`, `back\slash`, `\`, `\'`, `'; DROP TABLE taskmanager_trigger; --`, `?`, `$1`, `{job}`, `{now}`, "`", `%s`,
		"trailing ", "trailing", "😀", "\u00e9", "e\u0301", "NULL", "{}", ",", "line\nbreak"}
	sessions := map[string][]string{
		"sqlite":   {""},
		"postgres": {"", "standard_conforming_strings=off", "backslash_quote=off"},
		"mysql": {"", "sql_mode=''", "sql_mode='ANSI'&interpolateParams=true", "sql_mode='NO_BACKSLASH_ESCAPES,ANSI_QUOTES'&interpolateParams=true",
			"sql_mode='TRADITIONAL,NO_BACKSLASH_ESCAPES'", "time_zone='%2B05:45'"},
	}
	for _, d := range databases {
		for _, session := range sessions[d.name] {
			t.Run(d.name+"/"+session, func(t *testing.T) {
				s := d.sessionStore(t, session)
				jobOf(t, s, "x", true)
				var rows []durable.TriggerRow
				for i, text := range weird {
					r := oneShot("x", i)
					r.Name, r.Handler, r.Description, r.Origin, r.IdempotencyKey, r.Data = text, text, text, text, text, []byte(`"`+text+`"`)
					rows = append(rows, r)
				}
				enqueue(t, s, durable.EnqueueOnly, "x", rows...)
				if _, err := s.Beat(t.Context(), durable.NodeRow{ID: `n'\"?{job}`}, time.Hour); err != nil {
					t.Fatal(err)
				}
				for i := range rows { // of one handler each
					res, err := s.Claim(t.Context(), durable.ClaimRequest{Node: `n'\"?{job}`, Limit: 10, Handlers: []string{rows[i].Handler}, Plan: runIt})
					if err != nil || len(res.Claimed) != 1 || res.Claimed[0].Run.ID != rows[i].ID {
						t.Fatalf("Claim of handler %q = %+v, %v, want one run", rows[i].Handler, res.Claimed, err)
					}
					end := endsOf(res.Claimed)
					end[0].Run.Message, end[0].Run.Detail, end[0].Run.Code = weird[i], weird[i], durable.Code(weird[i])
					finishAll(t, s, end)
					got, err := s.Runs(t.Context(), durable.RunQuery{IDs: []string{rows[i].ID}})
					if err != nil || len(got) != 1 || got[0].Message != weird[i] || string(got[0].Code) != weird[i] ||
						got[0].Trigger != weird[i] || got[0].IdempotencyKey != weird[i] || string(got[0].Data) != `"`+weird[i]+`"` {
						t.Errorf("Runs = %+v, %v, want one with %q", got, err, weird[i])
					}
				}
			})
		}
	}
}

// sessionStore is a store whose connections have these parameters.
func (d database) sessionStore(t *testing.T, parameters string) *sqlstore.Store {
	switch {
	case parameters == "":
	case d.name == "mysql":
		t.Setenv("TASKMANAGER_TEST_MYSQL", withParameters(env("TASKMANAGER_TEST_MYSQL", "root@tcp(127.0.0.1:3306)/test"), parameters))
	default:
		t.Setenv("TASKMANAGER_TEST_POSTGRES", withParameters(postgresDSN(), parameters))
	}
	s, _ := d.store(t, 2)
	return s
}

func withParameters(dsn, parameters string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + parameters
	}
	return dsn + "?" + parameters
}

// Whoever waits for a transaction of the store does so for a bounded time: its first
// statement says so to the server.
func TestEachTransactionOnPostgresBoundsWhatOthersWait(t *testing.T) {
	d := databases[1]
	s, db := d.store(t, 2)
	jobOf(t, s, "a", false)
	trace := &statements{}
	s = tracedStore(t, db, trace)
	enqueue(t, s, durable.EnqueueOnly, "a", oneShot("a", 1))
	ends := endsOf(claimAs(t, s, "n", 1, runIt))
	ends[0].Keep = true
	finishAll(t, s, ends)
	ends[0].Keep = false
	finishAll(t, s, ends)
	for name, call := range calls(s) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s = %v", name, err)
		}
	}
	began := 0
	for i, text := range trace.list {
		if strings.HasPrefix(text, "begin") {
			began++
			if !strings.Contains(trace.list[i+1], "lock_timeout") {
				t.Errorf("a transaction begins with %s", trace.list[i+1])
			}
		}
	}
	if began < 8 {
		t.Errorf("%d transactions, want 8 at least", began)
	}
}

// tracedStore is a store of the same tables of PostgreSQL, on connections that are traced.
func tracedStore(t testing.TB, db *sql.DB, tracer pgx.QueryTracer) *sqlstore.Store {
	t.Helper()
	var schema string
	if err := db.QueryRow("SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(postgresDSN())
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["search_path"], config.Tracer = schema, tracer
	traced := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = traced.Close() })
	s, err := sqlstore.Open(traced, sqlstore.PostgreSQL())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type statements struct{ list []string }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.list = append(s.list, data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// MariaDB turns a list of 1,000 values into a join that scans the table.
func TestALongListIsNoScan(t *testing.T) {
	d := databases[2]
	s, db := d.store(t, 1)
	jobOf(t, s, "j", true)
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("none-", i))
	}
	var rows []durable.TriggerRow
	for i := range 3000 {
		rows = append(rows, oneShot("j", i))
	}
	enqueue(t, s, durable.EnqueueOnly, "j", rows...)
	do(t, db, `INSERT INTO taskmanager_job (name, job_group, description, handler, max_retries, retry_delay, retry_exponential, retry_max_delay,
		retry_jitter, timeout, allow_concurrent, every_node, recovery, paused, source, code_hash, version) VALUES ('`+
		strings.Join(names, "', '', '', 'h', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', 1), ('")+"', '', '', 'h', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', 1)")
	do(t, db, "FLUSH STATUS")
	states, err := s.Jobs(t.Context(), durable.JobQuery{Names: names})
	if err != nil || len(states) != 1000 {
		t.Fatalf("Jobs = %d, %v, want 1,000", len(states), err)
	}
	var name string
	var scanned int
	if err := db.QueryRow("SHOW STATUS LIKE 'Handler_read_rnd_next'").Scan(&name, &scanned); err != nil {
		t.Fatal(err)
	}
	if scanned > 2500 {
		t.Errorf("Jobs read %d rows by scans, and none of the triggers was of its jobs", scanned)
	}
	one, err := s.Jobs(t.Context(), durable.JobQuery{Names: []string{"j"}})
	if err != nil || len(one) != 1 || len(one[0].Triggers) != 100 || one[0].Triggers[0].ID != idOf(0) || one[0].Triggers[99].ID != idOf(99) {
		t.Errorf("Jobs = %+v, %v, want the first 100 one-shot triggers", one, err)
	}
}

// A stumbling is a connection that fails at a statement with its text, the n-th of them.
type stumbling struct {
	text string
	n    int
}

func (s *stumbling) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, s.text) {
		s.n--
	}
	if s.n != 0 {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (s *stumbling) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Ends that take two statements are one transaction: 70 runs at once fail with long texts of
// characters of three bytes.
func TestALargeFinishIsDoneWholeOrNotAtAll(t *testing.T) {
	const runs = 70
	s, db := databases[1].store(t, 4)
	jobOf(t, s, "a", true)
	enqueueMany(t, s, "a", 1, runs)
	ends := endsOf(claimAs(t, s, "n", runs, runIt))
	for i := range ends {
		run := &ends[i].Run
		run.State, run.Message, run.Detail = durable.RunFailed, strings.Repeat("錯", 480), strings.Repeat("誤", 4000)
	}
	fails := tracedStore(t, db, &stumbling{text: "INSERT INTO taskmanager_history", n: 2})
	if own, err := fails.Finish(t.Context(), durable.FinishRequest{Ends: ends}); err == nil {
		t.Fatalf("Finish = %v, want the second statement's error", own)
	}
	finishAll(t, s, ends) // none is refused
}
