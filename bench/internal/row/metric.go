package row

import (
	"math"
	"strconv"
)

// A Metric names one figure. The names are those of the JSON results, with
// the unit at the end.
type Metric string

const (
	Achieved    Metric = "achieved"           // runs over runs expected
	Runs        Metric = "runs"               // in the window
	CPUPerTick  Metric = "cpu_us_per_tick"    // user and system time over runs
	CPUSeconds  Metric = "cpu_s"              // in the window
	Cores       Metric = "cores"              // processor time over wall time
	P50         Metric = "late_p50_ms"        // start after the task's own instant
	P99         Metric = "late_p99_ms"        //
	P999        Metric = "late_p999_ms"       //
	MaxLate     Metric = "late_max_ms"        //
	Early       Metric = "early_share"        // of the recorded runs, before their instant
	Allocs      Metric = "allocs_per_tick"    //
	Bytes       Metric = "bytes_per_tick"     //
	HeapMB      Metric = "heap_mb"            // live heap and stacks at the end of the window
	Goroutines  Metric = "goroutines"         // above those of the benchmark itself
	BytesPer    Metric = "bytes_per_task"     // heap and stacks, after every task has run
	Ran         Metric = "ran"                // share of the tasks that have run
	AddNs       Metric = "add_ns"             // wall time of one registration
	StopNs      Metric = "stop_ns"            //
	AddCPUNs    Metric = "add_cpu_ns"         // processor time of one, what it starts included
	StopCPUNs   Metric = "stop_cpu_ns"        //
	NsPerOp     Metric = "ns_per_op"          // function benchmarks
	AllocsPerOp Metric = "allocs_per_op"      //
	BytesPerOp  Metric = "bytes_per_op"       //
	Agrees      Metric = "agrees_with_oracle" // 1: all answers right

	JobsPerS     Metric = "jobs_per_s"        // committed, of wall time
	PerCore      Metric = "jobs_per_s_core"   // over the machine's cores
	PerCPUS      Metric = "jobs_per_cpu_s"    // over this process's processor time
	CPUPerJob    Metric = "cpu_us_per_job"    // of this process
	ServerPerJob Metric = "server_us_per_job" // processor time of the server's processes
	PerClaim     Metric = "runs_per_claim"    // that claimed any
	PerFinish    Metric = "runs_per_finish"   //
	ClaimMs      Metric = "claim_ms"          // mean, of claims that claimed any
	FinishMs     Metric = "finish_ms"         // mean
	StartS       Metric = "start_s"           // until all nodes have started, beside the backlog
	Errors       Metric = "errors"            // that reached the caller of the store
	PollFew      Metric = "poll_few_us"       // median of an idle poll, few triggers waiting
	PollMany     Metric = "poll_many_us"      // ten times as many
	PollGrowth   Metric = "poll_growth"       // of the two, the second over the first
	PerPoll      Metric = "queries_per_poll"  //
	LastStart    Metric = "last_start_s"      // start of the last of all, after the first was due
	LastEnd      Metric = "last_end_s"        // the last of all recorded
	Recovery     Metric = "recovery_s"        // median
	RecoveryMax  Metric = "recovery_max_s"    //
)

// formats give every metric its column title, its decimals, and whether it is
// a wall or processor time whose spread is worth a column's width.
var formats = map[Metric]struct {
	title    string
	decimals int
	spread   bool
}{
	Achieved:    {"achieved", 3, false},
	Runs:        {"runs", 0, false},
	CPUPerTick:  {"CPU µs/tick", 2, true},
	CPUSeconds:  {"CPU s", 2, false},
	Cores:       {"cores", 3, false},
	P50:         {"p50 ms", 3, false},
	P99:         {"p99 ms", 3, true},
	P999:        {"p99.9 ms", 2, false},
	MaxLate:     {"max ms", 1, false},
	Early:       {"early", 3, false},
	Allocs:      {"allocs/tick", 3, false},
	Bytes:       {"B/tick", 1, false},
	HeapMB:      {"heap MB", 1, false},
	Goroutines:  {"goroutines", 0, false},
	BytesPer:    {"bytes/task", 0, true},
	Ran:         {"have run", 3, false},
	AddNs:       {"add ns", 0, true},
	StopNs:      {"stop ns", 0, true},
	AddCPUNs:    {"add CPU ns", 0, false},
	StopCPUNs:   {"stop CPU ns", 0, false},
	NsPerOp:     {"ns/op", 0, true},
	AllocsPerOp: {"allocs/op", 0, false},
	BytesPerOp:  {"B/op", 0, false},
	Agrees:      {"right", 0, false},

	JobsPerS:     {"jobs/s", 0, true},
	PerCore:      {"jobs/s a core", 0, false},
	PerCPUS:      {"jobs a CPU s", 0, false},
	CPUPerJob:    {"CPU µs/job", 1, false},
	ServerPerJob: {"server CPU µs/job", 1, false},
	PerClaim:     {"runs/claim", 1, false},
	PerFinish:    {"runs/record", 1, false},
	ClaimMs:      {"claim ms", 2, false},
	FinishMs:     {"record ms", 2, false},
	StartS:       {"nodes' start s", 2, false},
	Errors:       {"errors", 0, false},
	PollFew:      {"poll µs, few", 0, true},
	PollMany:     {"poll µs, many", 0, true},
	PollGrowth:   {"many/few", 2, true},
	PerPoll:      {"queries/poll", 3, false},
	LastStart:    {"all started s", 3, true},
	LastEnd:      {"all recorded s", 3, true},
	Recovery:     {"recovered s", 2, false},
	RecoveryMax:  {"at most s", 2, true},
}

// Title is the metric's column heading.
func (m Metric) Title() string { return formats[m].title }

// HasSpread reports whether the report shows the metric's range.
func (m Metric) HasSpread() bool { return formats[m].spread }

// Format prints a value of this metric, "–" for one that does not exist.
func (m Metric) Format(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', formats[m].decimals, 64)
}
