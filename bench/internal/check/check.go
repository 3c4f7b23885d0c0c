// Package check holds results against the bounds a project has set itself. It
// reports; whether a bound that does not hold is an error is for the reader,
// since a busy machine can break any of them.
package check

import (
	"math"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
)

// A Row is one line of the cost table.
type Row struct {
	Measure string
	Parts   []Part
}

// A Part is one figure of a row with its bounds.
type Part struct {
	Label   string
	Cells   []result.Cell // what has to be measured for it
	Figure  func(*result.Set) stats.Spread
	Must    float64
	Aim     float64 // NaN: none
	AtLeast bool    // the figure must not be below; otherwise not above
}

// NoAim stands for a part that has a bound only.
var NoAim = math.NaN()

// Ratio bounds a metric of a over the same metric of b.
func Ratio(label string, a, b result.Cell, m row.Metric, must, aim float64) Part {
	return Part{
		Label: label, Cells: []result.Cell{a, b}, Must: must, Aim: aim,
		Figure: func(s *result.Set) stats.Spread { return s.Ratio(a, b, m) },
	}
}

// Value bounds a metric itself.
func Value(label string, c result.Cell, m row.Metric, must, aim float64) Part {
	return Part{
		Label: label, Cells: []result.Cell{c}, Must: must, Aim: aim,
		Figure: func(s *result.Set) stats.Spread { return s.Spread(c, m) },
	}
}

// AtLeast is p with its bounds the other way round.
func AtLeast(p Part) Part {
	p.AtLeast = true
	return p
}

// Constant bounds how far the medians of a metric lie apart over cells.
func Constant(label string, cells []result.Cell, m row.Metric, must, aim float64) Part {
	figure := func(s *result.Set) stats.Spread {
		var v []float64
		for _, c := range cells {
			v = append(v, s.Spread(c, m).Median)
		}
		sum := stats.Summarize(v)
		if sum.N < len(cells) {
			return stats.Summarize(nil)
		}
		return stats.Summarize([]float64{sum.Max - sum.Min})
	}
	return Part{Label: label, Cells: cells, Figure: figure, Must: must, Aim: aim}
}

// OverBest bounds a metric of a over the lowest of those peers whose answers
// are right, in each repetition.
func OverBest(label string, a result.Cell, peers []result.Cell, m row.Metric, must, aim float64) Part {
	figure := func(s *result.Set) stats.Spread {
		best := map[int]float64{}
		for _, p := range peers {
			right := s.Values(p, row.Agrees)
			for rep, v := range s.Values(p, m) {
				if b, ok := best[rep]; right[rep] == 1 && (!ok || v < b) {
					best[rep] = v
				}
			}
		}
		return stats.Ratios(s.Values(a, m), best)
	}
	return Part{Label: label, Cells: append([]result.Cell{a}, peers...), Figure: figure, Must: must, Aim: aim}
}

// A Status is what became of a part.
type Status string

const (
	Reached Status = "aim reached"
	Holds   Status = "holds"
	Broken  Status = "BROKEN"
	Unclear Status = "not measured"
)

// A Verdict is a part with its figure.
type Verdict struct {
	Measure string
	Part
	Spread stats.Spread
	Status Status
}

// Judge computes every part. The median decides.
func Judge(rows []Row, s *result.Set) []Verdict {
	var vs []Verdict
	for _, r := range rows {
		for _, p := range r.Parts {
			f := p.Figure(s)
			vs = append(vs, Verdict{r.Measure, p, f, p.judge(f)})
		}
	}
	return vs
}

func (p Part) judge(f stats.Spread) Status {
	within := func(bound float64) bool {
		if p.AtLeast {
			return f.Median >= bound
		}
		return f.Median <= bound
	}
	switch {
	case f.N == 0:
		return Unclear
	case !within(p.Must):
		return Broken
	case !math.IsNaN(p.Aim) && within(p.Aim):
		return Reached
	default:
		return Holds
	}
}

// Cells are all cells that the rows need.
func Cells(rows []Row) map[result.Cell]bool {
	need := map[result.Cell]bool{}
	for _, r := range rows {
		for _, p := range r.Parts {
			for _, c := range p.Cells {
				need[c] = true
			}
		}
	}
	return need
}
