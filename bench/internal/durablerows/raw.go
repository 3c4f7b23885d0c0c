package durablerows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/durable"
)

// A rawLoop is what is left if a job is claimed and recorded by hand, with no library.
type rawLoop struct {
	schema []string
	load   string // inserts jobs; %s is the values
	values string // of one job; %[1]d is its number
	// turn claims a batch, and records it.
	turn func(ctx context.Context, db *sql.DB) (int, error)
	done string // counts what is left to do, or what is done
	left bool   // done counts what is left
}

// raw runs a loop on as many connections as claimers, on SQLite one.
func raw(database string, l rawLoop) contend {
	return func(ctx context.Context, d drain) (_ *backlog, err error) {
		p, err := newPlace(ctx, database)
		if err != nil {
			return nil, err
		}
		db, err := p.open(claimers)
		if err != nil {
			return nil, errors.Join(err, p.drop())
		}
		release := func() error { return errors.Join(db.Close(), p.drop()) }
		defer closeOnError(&err, release)
		if err := l.fill(ctx, db, d.jobs); err != nil {
			return nil, err
		}
		if err := p.analyze(ctx, db); err != nil {
			return nil, err
		}
		n := claimers
		if database == sqlite {
			n = 1
		}
		var deadlocks atomic.Int64
		turns := loops{n: n, each: func(ctx context.Context, _ int) (int, error) {
			n, err := l.turn(ctx, db)
			if isDeadlock(err) {
				deadlocks.Add(1)
				return 0, nil
			}
			return n, err
		}}
		b := turns.backlog(p.server, func(ctx context.Context) (int64, error) {
			n, err := count(ctx, db, l.done)
			if l.left {
				n = int64(d.jobs) - n
			}
			return n, err
		}, release)
		b.figures = func(o *row.Outcome) {
			if n := deadlocks.Load(); n > 0 {
				o.Notef("%d deadlocks, which the loop retried", n)
			}
		}
		return b, nil
	}
}

func isDeadlock(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1213
}

func (l *rawLoop) fill(ctx context.Context, db *sql.DB, n int) error {
	for _, s := range l.schema {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	for first := 0; first < n; first += 1000 {
		var rows []string
		for i := first; i < min(first+1000, n); i++ {
			rows = append(rows, fmt.Sprintf(l.values, i))
		}
		if _, err := db.ExecContext(ctx, fmt.Sprintf(l.load, strings.Join(rows, ", "))); err != nil {
			return err
		}
	}
	return nil
}

// limitLoop is the limit on PostgreSQL: one narrow table, one statement that marks rows
// as claimed, one that deletes them. Nothing is recorded.
var limitLoop = rawLoop{
	schema: []string{
		`CREATE TABLE raw (id bigint PRIMARY KEY, state smallint NOT NULL, due_at bigint NOT NULL, node text NOT NULL, data text NOT NULL)`,
		`CREATE INDEX raw_due ON raw (state, due_at, id)`,
	},
	load: `INSERT INTO raw VALUES %s`, values: `(%[1]d, 0, %[1]d, '', '` + payload + `')`,
	done: `SELECT count(*) FROM raw`, left: true,
	turn: func(ctx context.Context, db *sql.DB) (int, error) {
		ids, err := column[int64](db.QueryContext(ctx, `UPDATE raw SET state = 1, node = 'n' WHERE id IN (
			SELECT id FROM raw WHERE state = 0 ORDER BY due_at, id LIMIT 100 FOR UPDATE SKIP LOCKED) RETURNING id`))
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		_, err = db.ExecContext(ctx, `DELETE FROM raw WHERE id = ANY($1)`, ids)
		return len(ids), err
	},
}

// The loops below do what a durable scheduler has to: a due row is moved among the
// active ones in one transaction, and from there into the history in another.

const (
	rawColumns = `id, job, due_at, data`
	rawValues  = `('%026[1]d', 'job', %[1]d, '` + payload + `')`
)

// movingSchema is the same for all databases; %[1]s is the type of texts that are keys.
func movingSchema(text string) []string {
	return []string{
		fmt.Sprintf(`CREATE TABLE raw_due (id %[1]s PRIMARY KEY, job %[1]s NOT NULL, due_at bigint NOT NULL, data text NOT NULL)`, text),
		`CREATE INDEX raw_due_at ON raw_due (due_at, id)`,
		fmt.Sprintf(`CREATE TABLE raw_active (id %[1]s PRIMARY KEY, job %[1]s NOT NULL, due_at bigint NOT NULL, data text NOT NULL, node %[1]s NOT NULL)`, text),
		fmt.Sprintf(`CREATE TABLE raw_history (id %[1]s PRIMARY KEY, job %[1]s NOT NULL, due_at bigint NOT NULL, data text NOT NULL, node %[1]s NOT NULL, state smallint NOT NULL)`, text),
		`CREATE INDEX raw_history_job ON raw_history (job, due_at)`,
	}
}

func moving(text string, turn func(ctx context.Context, db *sql.DB) (int, error)) rawLoop {
	return rawLoop{
		schema: movingSchema(text), load: `INSERT INTO raw_due (` + rawColumns + `) VALUES %s`, values: rawValues,
		done: `SELECT count(*) FROM raw_history`, turn: turn,
	}
}

var postgresLoop = moving("text", func(ctx context.Context, db *sql.DB) (int, error) {
	ids, err := column[string](db.QueryContext(ctx, `WITH gone AS (
		DELETE FROM raw_due WHERE id IN (SELECT id FROM raw_due WHERE due_at <= $1 ORDER BY due_at, id LIMIT 100 FOR UPDATE SKIP LOCKED)
		RETURNING id, job, due_at, data)
		INSERT INTO raw_active SELECT id, job, due_at, data, 'n' FROM gone RETURNING id`, int64(1)<<50))
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = db.ExecContext(ctx, `WITH gone AS (DELETE FROM raw_active WHERE id = ANY($1) RETURNING id, job, due_at, data, node)
		INSERT INTO raw_history SELECT id, job, due_at, data, node, 1 FROM gone`, ids)
	return len(ids), err
})

var sqliteLoop = moving("text", func(ctx context.Context, db *sql.DB) (int, error) {
	var ids []string
	err := inTx(ctx, db, nil, func(tx *sql.Tx) (err error) {
		ids, err = column[string](tx.QueryContext(ctx, `INSERT INTO raw_active SELECT `+rawColumns+`, 'n' FROM raw_due WHERE due_at <= ? ORDER BY due_at, id LIMIT 100 RETURNING id`, int64(1)<<50))
		if err != nil || len(ids) == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM raw_due WHERE id IN (`+quoted(ids)+`)`)
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return len(ids), inTx(ctx, db, nil, func(tx *sql.Tx) error { return record(ctx, tx, "", ids) })
})

// mariadbLoop goes by the primary key where the optimizer would rather scan a small
// table and lock what is others'.
var mariadbLoop = moving("varchar(64) CHARACTER SET ascii COLLATE ascii_bin", func(ctx context.Context, db *sql.DB) (int, error) {
	var ids []string
	committed := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	err := inTx(ctx, db, committed, func(tx *sql.Tx) (err error) {
		ids, err = column[string](tx.QueryContext(ctx, `SELECT id FROM raw_due FORCE INDEX (raw_due_at) WHERE due_at <= ? ORDER BY due_at, id LIMIT 100 FOR UPDATE SKIP LOCKED`, int64(1)<<50))
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err = tx.ExecContext(ctx, `INSERT INTO raw_active SELECT `+rawColumns+`, 'n' FROM raw_due FORCE INDEX (PRIMARY) WHERE id IN (`+quoted(ids)+`)`); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM raw_due WHERE id IN (`+quoted(ids)+`)`)
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return len(ids), inTx(ctx, db, committed, func(tx *sql.Tx) error { return record(ctx, tx, " FORCE INDEX (PRIMARY)", ids) })
})

// rawOwn is sqliteLoop on the library's tables: the same columns and indexes, moved by hand. What
// it is slower than sqliteLoop is the price of what the library keeps of a run, and what the
// library is slower than it is the price of all else.
func rawOwn(ctx context.Context, d drain) (_ *backlog, err error) {
	s, err := openFilled(ctx, sqlite, 1, d.jobs)
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, s.close)
	db, err := s.place.open(1)
	if err != nil {
		return nil, err
	}
	turns := loops{n: 1, each: func(ctx context.Context, _ int) (int, error) { return ownTurn(ctx, db) }}
	return turns.backlog(s.server(), s.ended, func() error { return errors.Join(db.Close(), s.close()) }), nil
}

// ownTurn claims a batch of one-shot triggers and records that they succeeded.
func ownTurn(ctx context.Context, db *sql.DB) (int, error) {
	const ended = `id, job, trigger_name, kind, state, scheduled_at, started_at, ended_at, duration, node, attempt, retry_of,
		idempotency_key, data, priority, fence, passed, code, message, detail`
	now := time.Now().UnixMicro()
	var ids []string
	err := inTx(ctx, db, nil, func(tx *sql.Tx) (err error) {
		ids, err = column[string](tx.QueryContext(ctx, `INSERT INTO taskmanager_run (`+ended+`, trigger_id, is_held, is_exclusive, to_recover, to_cancel)
			SELECT id, job, origin, kind, ?, scheduled_at, ?, NULL, 0, 'n', attempt, retry_of, idempotency_key, data, priority, 1, 0, '', '', '', id, 0, 0, 0, 0
			FROM taskmanager_trigger WHERE state = ? AND priority = ? AND due_at <= ? ORDER BY due_at, id LIMIT 100 RETURNING id`,
			durable.RunRunning, now, durable.StateWaiting, durable.DefaultPriority, now))
		if err != nil || len(ids) == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM taskmanager_trigger WHERE id IN (`+quoted(ids)+`)`)
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return len(ids), inTx(ctx, db, nil, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO taskmanager_history SELECT id, job, trigger_name, kind, ?, scheduled_at, started_at, ?, 1, node, attempt,
			retry_of, idempotency_key, data, priority, fence, passed, code, message, detail FROM taskmanager_run WHERE id IN (`+quoted(ids)+`)`,
			durable.RunSucceeded, now)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM taskmanager_run WHERE id IN (`+quoted(ids)+`)`)
		return err
	})
}

// record moves active rows into the history.
func record(ctx context.Context, tx *sql.Tx, primary string, ids []string) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO raw_history SELECT `+rawColumns+`, node, 1 FROM raw_active`+primary+` WHERE id IN (`+quoted(ids)+`)`); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM raw_active WHERE id IN (`+quoted(ids)+`)`)
	return err
}

func quoted(ids []string) string { return "'" + strings.Join(ids, "', '") + "'" }

func inTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// column reads a query's only column.
func column[T any](rows *sql.Rows, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}
