// Package durablerows is the family of rows about durable jobs: what a run costs on
// each database, beside what the database can do at most and beside other libraries;
// and how soon things happen that should happen soon. See bench/README.md.
package durablerows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// A measurement does the work of an entry.
type measurement func(context.Context, row.Mode) (row.Outcome, error)

// entry makes an entry of it. If a server cannot be reached the entry is not measured,
// which is an error in CI, where all servers have to be there.
func entry(contender, title string, core bool, takes map[row.Mode]time.Duration, m measurement) row.Entry {
	return row.Entry{
		Contender: contender, Title: title, Core: core,
		Takes: func(mode row.Mode) time.Duration { return takes[mode] },
		Measure: func(mode row.Mode) (row.Outcome, error) {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			o, err := m(ctx, mode)
			var u unreachable
			if !errors.As(err, &u) || mode == row.Smoke && os.Getenv("CI") == "true" {
				return o, err
			}
			o = row.Outcome{}
			o.Notef("not measured, the server cannot be reached: %v", u.error)
			return o, nil
		},
	}
}

var everyMode = []row.Mode{row.Smoke, row.Quick, row.Full}

// seconds are estimates for the modes.
func seconds(smoke, quick, full float64) map[row.Mode]time.Duration {
	s := func(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
	return map[row.Mode]time.Duration{row.Smoke: s(smoke), row.Quick: s(quick), row.Full: s(full)}
}

// Modules are the paths of the modules compared, for the versions.
func Modules() []string {
	return []string{
		"github.com/riverqueue/river", "github.com/hibiken/asynq", "modernc.org/sqlite",
		"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql",
	}
}

// Workloads returns the family.
func Workloads() []row.Workload {
	ws := throughput()
	return append(ws, idleRow(), lateRow(), wakeRow(), herdRow(),
		killRow(killName, time.Second, map[row.Mode]int{row.Smoke: 1, row.Quick: 1, row.Full: 5}, seconds(4, 4, 20), postgres, sqlite, mariadb),
		killRow(kill5Name, 5*time.Second, map[row.Mode]int{row.Full: 2}, seconds(0, 0, 34), postgres))
}

// contend prepares a contender's backlog.
type contend func(context.Context, drain) (*backlog, error)

// A size is how many jobs a contender gets in each mode: about as many as it can do in
// the time, of which there is limit at most.
type size struct{ quick, full int }

var limits = map[row.Mode]time.Duration{row.Smoke: 3 * time.Second, row.Quick: 2 * time.Second, row.Full: 6 * time.Second}

const smokeJobs = 300

func (s size) of(mode row.Mode) drain {
	return drain{map[row.Mode]int{row.Smoke: smokeJobs, row.Quick: s.quick, row.Full: s.full}[mode], limits[mode]}
}

// drained is an entry of a throughput row.
func drained(workload, contender, title string, core bool, n size, c contend) row.Entry {
	return entry(contender, title, core, seconds(0.6, 4, 9), func(ctx context.Context, mode row.Mode) (row.Outcome, error) {
		d := n.of(mode)
		b, err := c(ctx, d)
		if err != nil {
			return row.Outcome{}, err
		}
		if b.whole && mode == row.Smoke {
			d.limit /= 6
		}
		return d.measure(ctx, workload+"."+contender, b)
	})
}

// The names of the throughput rows.
const (
	runsPostgres = "durable-runs-" + postgres
	runsSQLite   = "durable-runs-" + sqlite
	runsMariaDB  = "durable-runs-" + mariadb
	runsMemory   = "durable-runs-" + memory
)

// throughputRow is what these rows have in common.
func throughputRow(name, title, about string, entries ...row.Entry) row.Workload {
	return row.Workload{
		Name: name, Title: title, Group: "Durable: claim, run, record", About: about, Modes: everyMode,
		Columns: []row.Metric{row.JobsPerS, row.CPUPerJob, row.ServerPerJob, row.PerClaim, row.PerFinish, row.ClaimMs, row.FinishMs, row.StartS, row.Errors},
		Key:     row.JobsPerS, Ours: "ours", Entries: entries, Reps: 3, OtherReps: 1,
	}
}

func throughput() []row.Workload {
	const (
		nodes8 = "**durable**, 8 nodes × 100 slots"
		excl   = "**durable**, 200 jobs without concurrency × 5 triggers"
		store  = "**the store alone**, 8 loops × 100"
	)
	return []row.Workload{
		throughputRow(runsPostgres, "Jobs that do nothing, PostgreSQL",
			"A backlog is worked off by handlers that return at once; counted are jobs whose end is committed. The limit marks and deletes rows of one narrow table and records nothing.",
			drained(runsPostgres, "ours", nodes8, true, size{40_000, 120_000}, ours(postgres, claimers, batch)),
			drained(runsPostgres, "exclusive", excl, false, size{1, 1}, exclusive(postgres, claimers, batch)),
			drained(runsPostgres, "store", store, false, size{60_000, 150_000}, storeOnly(postgres)),
			drained(runsPostgres, "raw", "raw SQL limit: claim, delete", true, size{80_000, 250_000}, raw(postgres, limitLoop)),
			drained(runsPostgres, "raw-moving", "raw SQL: claim, record, delete", false, size{80_000, 200_000}, raw(postgres, postgresLoop)),
			drained(runsPostgres, "river", "River", true, size{30_000, 100_000}, riverPostgres),
			drained(runsPostgres, "asynq", "asynq, on Redis", false, size{20_000, 60_000}, asynqRedis),
		),
		throughputRow(runsSQLite, "Jobs that do nothing, SQLite",
			"The same on a file of SQLite, by the driver modernc.org/sqlite, on one connection. The raw loop claims, records and deletes.",
			drained(runsSQLite, "ours", nodes8, true, size{30_000, 80_000}, ours(sqlite, claimers, batch)),
			drained(runsSQLite, "one-node", "**durable**, one node × 100 slots", false, size{30_000, 80_000}, ours(sqlite, 1, batch)),
			drained(runsSQLite, "exclusive", excl, false, size{1, 1}, exclusive(sqlite, claimers, batch)),
			drained(runsSQLite, "store", store, false, size{30_000, 80_000}, storeOnly(sqlite)),
			drained(runsSQLite, "raw", "raw SQL: claim, record, delete", true, size{40_000, 120_000}, raw(sqlite, sqliteLoop)),
			drained(runsSQLite, "raw-own", "the same by hand on **durable**'s tables", true, size{30_000, 80_000}, rawOwn),
			drained(runsSQLite, "river", "River", true, size{4_000, 12_000}, riverSQLite),
		),
		throughputRow(runsMariaDB, "Jobs that do nothing, MariaDB",
			"The same on MariaDB. The raw loop claims, records and deletes.",
			drained(runsMariaDB, "ours", nodes8, true, size{15_000, 50_000}, ours(mariadb, claimers, batch)),
			drained(runsMariaDB, "exclusive", excl, true, size{1, 1}, exclusive(mariadb, claimers, batch)),
			drained(runsMariaDB, "store", store, false, size{15_000, 50_000}, storeOnly(mariadb)),
			drained(runsMariaDB, "raw", "raw SQL: claim, record, delete", true, size{20_000, 60_000}, raw(mariadb, mariadbLoop)),
		),
		memoryRow(),
	}
}

func memoryRow() row.Workload {
	w := throughputRow(runsMemory, "Jobs that do nothing, in memory",
		"The store in memory: the whole library with one node of 800 slots, and the store alone.",
		drained(runsMemory, "ours", "**durable**, one node × 800 slots", true, size{200_000, 500_000}, ours(memory, 1, claimers*batch)),
		drained(runsMemory, "one-loop", "**the store alone**, one loop × 100", true, size{200_000, 500_000}, storeLoops(memory, 1)),
		drained(runsMemory, "store", "**the store alone**, 8 loops × 100", true, size{200_000, 500_000}, storeOnly(memory)),
	)
	w.Columns = []row.Metric{row.JobsPerS, row.PerCore, row.PerCPUS, row.CPUPerJob, row.PerClaim, row.PerFinish, row.ClaimMs, row.FinishMs, row.StartS, row.Errors}
	return w
}

const (
	idleName = "durable-idle"
	lateName = "durable-late"
	wakeName = "durable-wake"
	herdName = "durable-herd"
	killName = "durable-kill"
	// kill5Name is the same with a longer timeout.
	kill5Name = "durable-kill-5s"

	soon = "Durable: how soon"
)

func idleRow() row.Workload {
	w := row.Workload{
		Name: idleName, Title: "A poll that finds nothing", Group: "Durable: waiting", Modes: everyMode,
		About:   "The median of polls one after the other, first among a number of triggers that wait for a later instant, then among ten times as many. Then a whole node polls, and what its polls ask the database is counted.",
		Columns: []row.Metric{row.PollFew, row.PollMany, row.PollGrowth, row.PerPoll},
		Key:     row.PollMany, Ours: postgres, Reps: 1, OtherReps: 1,
	}
	for _, d := range []struct {
		name, title string
		core        bool
		takes       map[row.Mode]time.Duration
	}{
		{postgres, "PostgreSQL", true, seconds(2.5, 8, 50)},
		{sqlite, "SQLite", true, seconds(2, 6, 50)},
		{mariadb, "MariaDB", false, seconds(2.5, 8, 70)},
		{memory, "in memory", false, seconds(1.5, 2, 10)},
	} {
		w.Entries = append(w.Entries, entry(d.name, d.title, d.core, d.takes, idles.measure(d.name)))
	}
	return w
}

func lateRow() row.Workload {
	takes := seconds(1.5, 4, 12.5)
	return row.Workload{
		Name: lateName, Title: "Starts of known instants, idle system", Group: soon, Modes: everyMode,
		About:   "From the trigger's due instant to the first line of its handler, about 50 a second, at irregular instants.",
		Columns: []row.Metric{row.Runs, row.P50, row.P99, row.MaxLate, row.Errors}, Key: row.P99, Ours: postgres, Reps: 3, OtherReps: 1,
		Entries: []row.Entry{
			entry(postgres, "PostgreSQL", true, takes, punctual(postgres, 1)),
			entry("postgres-3", "PostgreSQL, 3 nodes", false, takes, punctual(postgres, 3)),
			entry(sqlite, "SQLite", true, takes, punctual(sqlite, 1)),
			entry(mariadb, "MariaDB", false, takes, punctual(mariadb, 1)),
			entry(memory, "in memory", false, takes, punctual(memory, 1)),
		},
	}
}

func wakeRow() row.Workload {
	return row.Workload{
		Name: wakeName, Title: "Woken by NOTIFY", Group: soon, Modes: everyMode,
		About:   "From a call by hand on one node, its commit included, to the first line of the handler on another one, which polls every 30 s only.",
		Columns: []row.Metric{row.Runs, row.P50, row.P99, row.MaxLate, row.Errors}, Key: row.P99, Ours: postgres, Reps: 3,
		Entries: []row.Entry{entry(postgres, "PostgreSQL", true, seconds(1.5, 4, 13), woken)},
	}
}

func herdRow() row.Workload {
	takes := seconds(2, 9, 10)
	return row.Workload{
		Name: herdName, Title: "10,000 triggers due in one second, one node with 200 slots", Group: soon, Modes: everyMode,
		About:   "Cron triggers; time is from the beginning of that second to the start of the last handler, and to its record.",
		Columns: []row.Metric{row.LastStart, row.LastEnd, row.PerClaim, row.PerFinish, row.ClaimMs, row.FinishMs, row.Errors},
		Key:     row.LastStart, Ours: postgres, Reps: 2, OtherReps: 1,
		Entries: []row.Entry{
			entry(postgres, "PostgreSQL, all at its beginning", true, takes, herd{postgres, 0, false}.measure),
			entry("postgres-spread", "PostgreSQL, evenly over it", false, takes, herd{postgres, time.Second, false}.measure),
			entry("postgres-exclusive", "PostgreSQL, of 10,000 jobs without concurrency", false, takes, herd{postgres, 0, true}.measure),
			entry(sqlite, "SQLite, all at its beginning", true, takes, herd{sqlite, 0, false}.measure),
			entry("sqlite-exclusive", "SQLite, of 10,000 jobs without concurrency", false, takes, herd{sqlite, 0, true}.measure),
			entry(mariadb, "MariaDB, all at its beginning", false, takes, herd{mariadb, 0, false}.measure),
			entry(memory, "in memory, all at its beginning", false, takes, herd{memory, 0, false}.measure),
		},
	}
}

func killRow(name string, timeout time.Duration, trials map[row.Mode]int, takes map[row.Mode]time.Duration, databases ...string) row.Workload {
	w := row.Workload{
		Name: name, Title: fmt.Sprintf("The leader is killed, and its run recovered, NodeTimeout %v", timeout), Group: soon,
		About:   "Two nodes in processes of their own. The one that leads is ended by SIGKILL with a recoverable run in its handler; time is until the recovery run is in its handler on the other.",
		Columns: []row.Metric{row.Runs, row.Recovery, row.RecoveryMax}, Key: row.RecoveryMax, Ours: postgres, Reps: 1, OtherReps: 1,
	}
	for _, m := range everyMode {
		if trials[m] > 0 {
			w.Modes = append(w.Modes, m)
		}
	}
	titles := map[string]string{postgres: "PostgreSQL", sqlite: "SQLite", mariadb: "MariaDB"}
	for _, d := range databases {
		w.Entries = append(w.Entries, entry(d, titles[d], d == postgres, takes, kill{d, timeout, trials}.measure))
	}
	return w
}
