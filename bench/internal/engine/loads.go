// Package engine is the family of rows that compares schedulers of recurring
// tasks: what they cost, how late they start, what they hold in memory.
package engine

import (
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/contender"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// The names of the workloads, as checks refer to them.
const (
	Steady1k   = "steady-1k@10ms"
	Steady10k  = "steady-10k@100ms"
	Steady100k = "steady-100k@1s"
	Steady1M   = "steady-1M@10s"
	Headroom   = "headroom-1M@1s"
	Burst      = "burst-100k@1s"
	Slow       = "slow-10k@100ms"
	Timeout    = "timeout-10k@100ms"
	Hz60       = "hz60"
	Light      = "light-1k@1s"
	Idle10k    = "idle-10k"
	Idle100k   = "idle-100k"
	Idle1M     = "idle-1M"
	Churn      = "churn-100k"
)

// The reasons why a contender is not given a work. They were found by trying.
const (
	quadratic = "registration is quadratic: the queue is searched for the key at every insertion, so 100,000 tasks take minutes"
	saturated = "saturates its core at 100,000 runs a second already, see that table"
	sortsAll  = "sorts all of its entries at each wake-up: 10,000 a second on a core already, see the tables above"
	collapsed = "does not reach 100,000 runs a second, see that table"
	fewTasks  = "for few tasks, see 60 Hz"
	noTimeout = "has no time limit for runs"
)

const (
	k = 1000
	m = 1000 * k
)

// Workloads returns the family, in the order of the report.
func Workloads() []row.Workload {
	ws := append(steadyLoads(), specialLoads()...)
	ws = append(ws, memoryAndChurn()...)
	return append(ws, smokeLoads()...)
}

var (
	lateness      = []row.Metric{row.Achieved, row.CPUPerTick, row.Cores, row.P50, row.P99, row.P999, row.MaxLate, row.Allocs, row.Bytes, row.HeapMB, row.Goroutines}
	always        = []row.Mode{row.Quick, row.Full}
	fullOnly      = []row.Mode{row.Full}
	skip100k      = skips{"quartz": quadratic, "precise": fewTasks}
	piles         = []string{"gocron"}
	measuredInOne = "One task in 16 records how late it starts. CPU is user and system time of the whole process over the runs made."
)

func steadyLoads() []row.Workload {
	const group = "Steady load"
	return []row.Workload{
		load{name: Steady100k, title: "100,000 tasks, each once a second", group: group, modes: always, all: true,
			about:  "Phases spread evenly, bodies do nothing, 100,000 runs a second. " + measuredInOne,
			steady: steady{jobs: 100 * k, interval: time.Second, warmUp: 2 * time.Second, window: 10 * time.Second},
			skips:  skip100k, brief: piles, core: []string{"ours", "afterfunc", "robfig", "netresearch"}}.workload(),
		load{name: Steady10k, title: "10,000 tasks, each every 100 ms", group: group, modes: always,
			about:  "The same 100,000 runs a second from a tenth of the tasks.",
			steady: steady{jobs: 10 * k, interval: 100 * time.Millisecond, warmUp: time.Second, window: 5 * time.Second},
			skips:  skips{"precise": fewTasks}, brief: piles, core: []string{"ours", "afterfunc"}}.workload(),
		load{name: Steady1k, title: "1,000 tasks, each every 10 ms", group: group, modes: always,
			about:  "The same 100,000 runs a second from a hundredth of the tasks.",
			steady: steady{jobs: k, interval: 10 * time.Millisecond, warmUp: time.Second, window: 5 * time.Second},
			skips:  skips{"precise": fewTasks}, brief: piles, core: []string{"ours", "afterfunc"}}.workload(),
		load{name: Steady1M, title: "1,000,000 tasks, each every 10 s", group: group, modes: fullOnly,
			about:  "The same 100,000 runs a second from a million tasks.",
			steady: steady{jobs: m, interval: 10 * time.Second, warmUp: 11 * time.Second, window: 10 * time.Second},
			skips:  skips{"precise": fewTasks, "quartz": quadratic, "robfig": sortsAll, "gocron": collapsed},
			core:   []string{"ours", "afterfunc"}}.workload(),
		load{name: Headroom, title: "1,000,000 tasks, each once a second", group: "Headroom", modes: fullOnly,
			about:  "A million runs a second: how far is it to the limit?",
			steady: steady{jobs: m, interval: time.Second, warmUp: 2 * time.Second, window: 8 * time.Second},
			skips:  skips{"precise": fewTasks, "quartz": quadratic, "robfig": saturated, "netresearch": saturated, "gocron": collapsed},
			others: 1, core: []string{"ours", "afterfunc"}}.workload(),
	}
}

func specialLoads() []row.Workload {
	return []row.Workload{
		load{name: Burst, title: "100,000 tasks due at the same instant, once a second", group: "Bursts", modes: always,
			about:  "Lateness is that of the whole crowd: the last of them can start only when the others have.",
			steady: steady{jobs: 100 * k, interval: time.Second, aligned: true, warmUp: 2 * time.Second, window: 5 * time.Second},
			skips:  skip100k, brief: piles, core: []string{"ours", "afterfunc", "ticker"}}.workload(),
		load{name: Hz60, title: "One task at 60 Hz", group: "A game loop", modes: always,
			about:  "Nothing else runs. The floor of half a millisecond is that of Go's timers.",
			steady: steady{jobs: 1, interval: time.Second / 60, warmUp: time.Second / 2, window: 10 * time.Second},
			core:   []string{"ours", "precise", "ticker"}}.workload(),
		load{name: Light, title: "1,000 tasks, each once a second", group: "Light load", modes: always,
			about:  "Nearly every run is a wake-up of its own, and everyone pays for the wake-up.",
			steady: steady{jobs: k, interval: time.Second, warmUp: time.Second, window: 5 * time.Second},
			skips:  skips{"precise": fewTasks}, core: []string{"ours", "afterfunc"}}.workload(),
		load{name: Slow, title: "Slow neighbours: 10,000 tasks every 100 ms, 1 % of which block for 50 ms", group: "Slow neighbours", modes: always,
			about:  "The figures are those of the other 99 %. Compare with the table of 10,000 tasks every 100 ms.",
			steady: steady{jobs: 10 * k, interval: 100 * time.Millisecond, slow: true, warmUp: time.Second, window: 5 * time.Second},
			skips:  skips{"precise": fewTasks}, brief: piles, core: []string{"ours"}}.workload(),
		load{name: Timeout, title: "With a time limit: 10,000 tasks every 100 ms, each run limited to 50 ms", group: "Time limits", modes: always,
			about:  "Ours by WithExecutionTimeout, the hand-made ones by context.WithTimeout around the body.",
			steady: steady{jobs: 10 * k, interval: 100 * time.Millisecond, timeout: 50 * time.Millisecond, warmUp: time.Second, window: 5 * time.Second},
			skips: skips{"precise": fewTasks, "robfig": noTimeout, "netresearch": noTimeout, "gocron": noTimeout,
				"quartz": noTimeout, "gozero": noTimeout}, core: []string{"ours"}}.workload(),
	}
}

func memoryAndChurn() []row.Workload {
	const group = "Memory"
	columns := []row.Metric{row.BytesPer, row.Goroutines, row.Ran}
	about := "Live heap and stacks for each task after it has run once, names and handles included. The bare AfterFunc has no name, no counters and no recovery."
	memory := func(name, title string, jobs int, modes []row.Mode, core []string, s skips) row.Workload {
		return load{name: name, title: title, group: group, modes: modes, about: about, columns: columns,
			key: row.BytesPer, idle: idle{jobs}, skips: s, core: core}.workload()
	}
	us := []string{"ours"}
	return []row.Workload{
		memory(Idle10k, "10,000 idle tasks", 10*k, fullOnly, us, skips{"precise": fewTasks}),
		memory(Idle100k, "100,000 idle tasks", 100*k, always, []string{"ours", "afterfunc", "ticker"}, skip100k),
		memory(Idle1M, "1,000,000 idle tasks", m, fullOnly, us, skip100k),
		load{name: Churn, title: "One more, one less, beside 100,000 tasks", group: "Schedule and stop", modes: always, all: true,
			about:   "Added to and stopped on a running scheduler, in random order. Wall time is what the caller waits; CPU time includes what the call sets off.",
			columns: []row.Metric{row.AddNs, row.StopNs, row.AddCPUNs, row.StopCPUNs}, key: row.AddNs,
			churn: churn{100 * k}, skips: skips{"precise": fewTasks, "quartz": quadratic}, core: []string{"ours", "afterfunc"}}.workload(),
	}
}

// smokeLoads start every contender on every kind of work, small.
func smokeLoads() []row.Workload {
	smoke := []row.Mode{row.Smoke}
	memory, steadySmall := idle{k}, steady{jobs: 500, interval: 100 * time.Millisecond}
	all := contenderNames()
	return []row.Workload{
		load{name: "smoke-steady", modes: smoke, steady: steadySmall, core: all}.workload(),
		load{name: "smoke-idle", modes: smoke, idle: memory, core: all}.workload(),
		load{name: "smoke-churn", modes: smoke, churn: churn{k}, core: all}.workload(),
	}
}

func contenderNames() []string {
	var names []string
	for _, c := range contender.All() {
		names = append(names, c.Name)
	}
	return names
}
