package engine

import (
	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// nothing is zero allocations a tick: the runtime makes a few of its own in a
// window, which over a million ticks stay below a thousandth.
const nothing = 0.001

func our(workload string) result.Cell { return result.Cell{Workload: workload, Contender: "ours"} }

func cell(workload, contender string) result.Cell {
	return result.Cell{Workload: workload, Contender: contender}
}

// Checks is the engine's cost table: what must hold, and what is aimed at.
func Checks() []check.Row {
	return append(runChecks(), standChecks()...)
}

// runChecks are the rows about running tasks.
func runChecks() []check.Row {
	against := func(label, workload, contender string, m row.Metric, must, aim float64) check.Part {
		return check.Ratio(label, our(workload), cell(workload, contender), m, must, aim)
	}
	return []check.Row{
		{Measure: "allocations per tick", Parts: []check.Part{
			check.Value("no time limit", our(Steady100k), row.Allocs, nothing, nothing),
			check.Value("with ExecutionTimeout", our(Timeout), row.Allocs, 2, 1),
		}},
		{Measure: "CPU per tick, 100,000 tasks at 1 s", Parts: []check.Part{
			against("of AfterFunc", Steady100k, "afterfunc", row.CPUPerTick, 0.40, 0.32),
			against("of robfig/cron", Steady100k, "robfig", row.CPUPerTick, 0.12, check.NoAim),
			against("of netresearch", Steady100k, "netresearch", row.CPUPerTick, 0.12, check.NoAim),
		}},
		{Measure: "CPU per tick, 1,000,000 tasks at 10 s", Parts: []check.Part{
			against("of AfterFunc", Steady1M, "afterfunc", row.CPUPerTick, 0.45, 0.35),
		}},
		{Measure: "1,000,000 runs a second", Parts: []check.Part{
			check.AtLeast(check.Value("achieved", our(Headroom), row.Achieved, 0.999, check.NoAim)),
			check.Value("cores", our(Headroom), row.Cores, 0.5, 0.3),
		}},
		{Measure: "100,000 tasks due at one instant", Parts: []check.Part{
			against("p99 lateness of Ticker's", Burst, "ticker", row.P99, 0.4, 0.25),
			against("CPU of AfterFunc's", Burst, "afterfunc", row.CPUPerTick, 0.2, 0.12),
		}},
		{Measure: "start lateness, 100,000 at 1 s", Parts: []check.Part{
			against("p50 of AfterFunc's", Steady100k, "afterfunc", row.P50, 1.25, check.NoAim),
			against("p99 of AfterFunc's", Steady100k, "afterfunc", row.P99, 1.1, 0.9),
		}},
		{Measure: "p99.9 lateness at 1,000,000", Parts: []check.Part{
			against("of AfterFunc's", Steady1M, "afterfunc", row.P999, 1.2, 0.8),
		}},
		{Measure: "1 % of tasks block 50 ms: the others", Parts: []check.Part{
			check.AtLeast(check.Value("achieved", our(Slow), row.Achieved, 0.999, check.NoAim)),
			check.Ratio("p99 lateness of that without them", our(Slow), our(Steady10k), row.P99, 1.2, 1.0),
		}},
		{Measure: "growth of CPU per tick, 1,000 to 1,000,000", Parts: []check.Part{
			check.Ratio("at 1,000,000 of that at 1,000", our(Steady1M), our(Steady1k), row.CPUPerTick, 2.0, 1.6),
		}},
		{Measure: "one task at 60 Hz", Parts: []check.Part{
			against("default: p50 of Ticker's", Hz60, "ticker", row.P50, 1.1, check.NoAim),
			against("default: p99 of Ticker's", Hz60, "ticker", row.P99, 1.1, check.NoAim),
			check.Ratio("precise: p50 of Ticker's", cell(Hz60, "precise"), cell(Hz60, "ticker"), row.P50, 0.4, 0.3),
			check.Ratio("precise: p99 of Ticker's", cell(Hz60, "precise"), cell(Hz60, "ticker"), row.P99, 0.4, 0.3),
			check.Value("precise: share of a core", cell(Hz60, "precise"), row.Cores, 0.03, check.NoAim),
		}},
		{Measure: "light load, 1,000 tasks at 1 s", Parts: []check.Part{
			against("CPU of AfterFunc's", Light, "afterfunc", row.CPUPerTick, 1.15, 1.0),
		}},
	}
}

// standChecks are the rows about tasks that stand there.
func standChecks() []check.Row {
	byCount := []result.Cell{our(Idle10k), our(Idle100k), our(Idle1M)}
	afterFunc := cell(Churn, "afterfunc")
	return []check.Row{
		{Measure: "bytes per task that has run", Parts: []check.Part{
			check.Value("N = 100,000", our(Idle100k), row.BytesPer, 400, 256),
			check.Value("N = 1,000,000", our(Idle1M), row.BytesPer, 400, 256),
		}},
		{Measure: "schedule, stop one at N = 100,000", Parts: []check.Part{
			check.Ratio("schedule, of AfterFunc's", our(Churn), afterFunc, row.AddNs, 1.5, 1.0),
			check.Ratio("stop, of AfterFunc's", our(Churn), afterFunc, row.StopNs, 1.5, 1.0),
		}},
		{Measure: "goroutines with N idle tasks", Parts: []check.Part{
			check.Constant("difference over N = 10,000 to 1,000,000", byCount, row.Goroutines, 0, check.NoAim),
			check.Value("of ours, N = 1,000,000", our(Idle1M), row.Goroutines, 16, 0),
		}},
	}
}
