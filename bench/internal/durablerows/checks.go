package durablerows

import (
	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

func cell(workload, contender string) result.Cell {
	return result.Cell{Workload: workload, Contender: contender}
}

// Checks are the bounds of the family: ratios within one run where they can be.
func Checks() []check.Row {
	none := check.NoAim
	over := func(label, workload, contender string, must float64) check.Part {
		return check.AtLeast(check.Ratio(label, cell(workload, "ours"), cell(workload, contender), row.JobsPerS, must, none))
	}
	least := func(label, workload, contender string, m row.Metric, must float64) check.Part {
		return check.AtLeast(check.Value(label, cell(workload, contender), m, must, none))
	}
	most := func(label, workload, contender string, m row.Metric, must float64) check.Part {
		return check.Value(label, cell(workload, contender), m, must, none)
	}
	return []check.Row{
		{Measure: "committed runs, PostgreSQL", Parts: []check.Part{
			over("of the raw limit", runsPostgres, "raw", 0.5),
			over("of River's", runsPostgres, "river", 1.5),
			most("errors", runsPostgres, "ours", row.Errors, 0),
		}},
		{Measure: "committed runs, SQLite", Parts: []check.Part{
			over("of the raw loop", runsSQLite, "raw", 0.6),
			over("of River's", runsSQLite, "river", 5),
			most("errors", runsSQLite, "ours", row.Errors, 0),
		}},
		{Measure: "committed runs, MariaDB", Parts: []check.Part{
			over("of the raw loop", runsMariaDB, "raw", 0.6),
			most("errors that reach a user", runsMariaDB, "ours", row.Errors, 0),
			most("the same, jobs without concurrency", runsMariaDB, "exclusive", row.Errors, 0),
		}},
		{Measure: "runs/s in memory, a core of the machine's", Parts: []check.Part{
			least("whole library", runsMemory, "ours", row.PerCore, 200_000),
			least("store alone", runsMemory, "store", row.PerCore, 200_000),
		}},
		{Measure: "idle poll", Parts: []check.Part{
			most("PostgreSQL: time at ten times as many waiting", idleName, postgres, row.PollGrowth, 2),
			most("PostgreSQL: queries", idleName, postgres, row.PerPoll, 1),
			most("SQLite: time at ten times as many waiting", idleName, sqlite, row.PollGrowth, 2),
			most("SQLite: queries", idleName, sqlite, row.PerPoll, 1),
			most("MariaDB: time at ten times as many waiting", idleName, mariadb, row.PollGrowth, 2),
			most("MariaDB: queries", idleName, mariadb, row.PerPoll, 1),
		}},
		{Measure: "p99 lateness of a known instant, ms", Parts: []check.Part{
			most("PostgreSQL", lateName, postgres, row.P99, 15),
			most("PostgreSQL, 3 nodes", lateName, "postgres-3", row.P99, 15),
			most("SQLite", lateName, sqlite, row.P99, 15),
			most("woken by NOTIFY", wakeName, postgres, row.P99, 15),
		}},
		{Measure: "10,000 triggers due in one second, s", Parts: []check.Part{
			most("PostgreSQL, at its beginning", herdName, postgres, row.LastStart, 1.5),
			most("PostgreSQL, evenly over it", herdName, "postgres-spread", row.LastStart, 1.5),
			most("SQLite, at its beginning", herdName, sqlite, row.LastStart, 1.5),
		}},
		{Measure: "kill -9 of the leader, s at most", Parts: []check.Part{
			most("PostgreSQL, NodeTimeout 1 s", killName, postgres, row.RecoveryMax, 3),
			most("SQLite, NodeTimeout 1 s", killName, sqlite, row.RecoveryMax, 3),
			most("PostgreSQL, NodeTimeout 5 s", kill5Name, postgres, row.RecoveryMax, 15),
		}},
	}
}
