// Package fnrow makes workloads of functions: a contender is a
// testing.Benchmark, run in a process of its own like everything else.
package fnrow

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// A Func is one contender's way to do what the workload is about.
type Func struct {
	Contender string
	Title     string
	Skip      string // why it cannot, or empty
	// Make prepares what Bench uses, outside of the measured time.
	Make func() (Bench, error)
}

// A Bench is a function ready to be measured.
type Bench struct {
	Run func(*testing.B)
	// Verify, when not nil, says what is wrong with the function's answers. A
	// wrong answer is measured all the same and marked as wrong: it tells what
	// the figure is worth.
	Verify func() error
}

// benchTimes is how long a function is measured for, at least.
var benchTimes = map[row.Mode]time.Duration{
	row.Smoke: time.Millisecond, row.Quick: 10 * time.Millisecond, row.Full: 100 * time.Millisecond,
}

// Columns are the metrics of a function row.
var Columns = []row.Metric{row.NsPerOp, row.AllocsPerOp, row.BytesPerOp, row.Agrees}

// Workload fills w in: its entries, and what all function rows have in common.
func Workload(w row.Workload, funcs []Func) row.Workload {
	w.Columns, w.Key = Columns, row.NsPerOp
	w.Modes = []row.Mode{row.Smoke, row.Quick, row.Full}
	w.Reps, w.QuickAll = 3, true
	for _, f := range funcs {
		w.Entries = append(w.Entries, row.Entry{
			Contender: f.Contender, Title: f.Title, Skip: f.Skip, Core: true,
			Measure: f.measure,
			// The first rounds of a benchmark are too short to count; all of
			// them together take about as long as the one that counts.
			Takes: func(mode row.Mode) time.Duration { return 2 * benchTimes[mode] },
		})
	}
	return w
}

func (f Func) measure(mode row.Mode) (row.Outcome, error) {
	b, err := f.Make()
	if err != nil {
		return row.Outcome{}, err
	}
	o := row.Outcome{Values: row.Values{row.Agrees: 1}}
	if b.Verify != nil {
		if err := b.Verify(); err != nil {
			o.Values[row.Agrees] = 0
			o.Notef("%v", err)
		}
	}
	testing.Init()
	if err := flag.Set("test.benchtime", benchTimes[mode].String()); err != nil {
		return o, err
	}
	r := testing.Benchmark(func(tb *testing.B) { tb.ReportAllocs(); b.Run(tb) })
	if r.N == 0 {
		return o, fmt.Errorf("bench: %s: the benchmark failed", f.Contender)
	}
	o.Values[row.NsPerOp] = float64(r.T.Nanoseconds()) / float64(r.N)
	o.Values[row.AllocsPerOp] = float64(r.AllocsPerOp())
	o.Values[row.BytesPerOp] = float64(r.AllocedBytesPerOp())
	return o, nil
}
