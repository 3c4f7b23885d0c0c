package check

import (
	"math"
	"testing"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
)

var (
	us    = result.Cell{Workload: "w", Contender: "us"}
	them  = result.Cell{Workload: "w", Contender: "them"}
	wrong = result.Cell{Workload: "w", Contender: "wrong"}
	none  = result.Cell{Workload: "w", Contender: "none"}
)

func set() *result.Set {
	run := func(c result.Cell, rep int, ns, right float64) result.Run {
		return result.Run{Workload: c.Workload, Contender: c.Contender, Rep: rep,
			Outcome: row.Outcome{Values: row.Values{row.NsPerOp: ns, row.Agrees: right}}}
	}
	return &result.Set{Runs: []result.Run{
		run(us, 0, 10, 1), run(us, 1, 40, 1), run(us, 2, 12, 1),
		run(them, 0, 100, 1), run(them, 1, 400, 1), run(them, 2, 100, 1),
		run(wrong, 0, 1, 0), run(wrong, 1, 1, 0),
		{Workload: "w", Contender: "none", Error: "crashed"},
	}}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		part Part
		want float64
		n    int
	}{
		{Ratio("", us, them, row.NsPerOp, 1, 1), 0.1, 3},
		{Value("", us, row.NsPerOp, 1, 1), 12, 3},
		{OverBest("", us, []result.Cell{them, wrong, none}, row.NsPerOp, 1, 1), 0.1, 3},
		{Constant("", []result.Cell{us, them}, row.NsPerOp, 1, 1), 88, 1},
		{Constant("", []result.Cell{us, none}, row.NsPerOp, 1, 1), math.NaN(), 0},
		{Ratio("", us, none, row.NsPerOp, 1, 1), math.NaN(), 0},
	} {
		got := c.part.Figure(set())
		if got.N != c.n || c.n > 0 && math.Abs(got.Median-c.want) > 1e-9 {
			t.Errorf("figure of %v = %v, want %v from %d", c.part.Cells, got, c.want, c.n)
		}
	}
}

func TestTheMedianDecides(t *testing.T) {
	for _, c := range []struct {
		figure, must, aim float64
		atLeast           bool
		want              Status
	}{
		{0.4, 0.4, 0.3, false, Holds},
		{0.3, 0.4, 0.3, false, Reached},
		{0.41, 0.4, 0.3, false, Broken},
		{0.1, 0.4, NoAim, false, Holds},
		{0.9995, 0.999, NoAim, true, Holds},
		{0.99, 0.999, NoAim, true, Broken},
		{math.NaN(), 1, 1, false, Unclear},
	} {
		p := Part{Must: c.must, Aim: c.aim, AtLeast: c.atLeast}
		if got := p.judge(stats.Summarize([]float64{c.figure})); got != c.want {
			t.Errorf("judge(%v against %v, %v) = %q, want %q", c.figure, c.must, c.aim, got, c.want)
		}
	}
}
