package cronrows

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/fnrow"
	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

const unsupported = "not supported"

// Modules are the paths of the modules compared, for the versions.
func Modules() []string {
	var paths []string
	for _, e := range engines {
		paths = append(paths, e.module)
	}
	return paths
}

// Workloads returns the family: Next along a chain and from random instants,
// and Parse.
func Workloads() []row.Workload {
	var ws []row.Workload
	for _, x := range expressions {
		for _, zone := range zones {
			ws = append(ws, nextRow(x, zone, "chain", chain), nextRow(x, zone, "random", random))
		}
	}
	for _, x := range expressions {
		ws = append(ws, parseRow(x))
	}
	return ws
}

func nextName(x expression, zone, walk string) string {
	return "cron-next-" + x.name + "-" + map[string]string{"UTC": "utc", "America/New_York": "ny"}[zone] + "-" + walk
}

func parseName(x expression) string { return "cron-parse-" + x.name }

func nextRow(x expression, zone, walk string, bench func(nextFunc, *time.Location, *testing.B)) row.Workload {
	w := row.Workload{
		Name: nextName(x, zone, walk), Title: "`" + x.text + "`, " + zone + ", " + walk,
		Group: "Cron: the next instant", Ours: "ours", Pivot: true,
		About: "Chain: the instant after the previous answer, 16 in a row from 2026. Random: 256 instants from 2020 to 2040. \"Wrong\" marks engines whose chain differs from a day-by-day search.",
	}
	return fnrow.Workload(w, funcs(x, func(e engine) (fnrow.Bench, error) {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			return fnrow.Bench{}, err
		}
		next, err := e.parse(e.text(x), loc)
		return fnrow.Bench{
			Run:    func(b *testing.B) { bench(next, loc, b) },
			Verify: func() error { return x.verify(loc, next) },
		}, err
	}))
}

func parseRow(x expression) row.Workload {
	w := row.Workload{
		Name: parseName(x), Title: "`" + x.text + "`", Group: "Cron: parsing", Ours: "ours", Pivot: true,
		About: "From text to something that can be asked for its next instant. gronx keeps nothing and only validates.",
	}
	return fnrow.Workload(w, funcs(x, func(e engine) (fnrow.Bench, error) {
		text := e.text(x)
		_, err := e.parse(text, time.UTC)
		return fnrow.Bench{Run: func(b *testing.B) {
			for b.Loop() {
				_, _ = e.parse(text, time.UTC)
			}
		}}, err
	}))
}

func (e engine) text(x expression) string {
	if e.rewrite == nil {
		return x.text
	}
	return e.rewrite(x.text)
}

// funcs is every engine's function for one expression.
func funcs(x expression, prepare func(engine) (fnrow.Bench, error)) []fnrow.Func {
	var fs []fnrow.Func
	for _, e := range engines {
		f := fnrow.Func{Contender: e.name, Title: e.title, Make: func() (fnrow.Bench, error) { return prepare(e) }}
		if slices.Contains(e.lacks, x.text) {
			f.Skip = unsupported
		}
		fs = append(fs, f)
	}
	return fs
}

func chain(next nextFunc, loc *time.Location, b *testing.B) {
	start := chainStart(loc)
	t, i := start, 0
	for b.Loop() {
		t = next(t)
		if i++; i == steps {
			t, i = start, 0
		}
	}
}

func random(next nextFunc, loc *time.Location, b *testing.B) {
	from, to := time.Date(2020, 1, 1, 0, 0, 0, 0, loc), time.Date(2040, 1, 1, 0, 0, 0, 0, loc)
	r := rand.New(rand.NewPCG(1, 2))
	ts := make([]time.Time, randoms)
	for i := range ts {
		ts[i] = from.Add(time.Duration(r.Int64N(int64(to.Sub(from)/time.Second))) * time.Second)
	}
	i := 0
	for b.Loop() {
		next(ts[i%randoms])
		i++
	}
}

// Checks is the cost table of the cron engine: in every row at most a fifth of
// the fastest peer that supports the expression and is right.
func Checks() []check.Row {
	next := check.Row{Measure: "Next, of the fastest peer"}
	allocs := check.Row{Measure: "Next, allocations"}
	parse := check.Row{Measure: "Parse"}
	for _, x := range expressions {
		for _, zone := range zones {
			for _, walk := range []string{"chain", "random"} {
				name := nextName(x, zone, walk)
				label := "`" + x.text + "`, " + zone + ", " + walk
				us := result.Cell{Workload: name, Contender: "ours"}
				next.Parts = append(next.Parts, check.OverBest(label, us, peers(name), row.NsPerOp, 0.2, 0.1))
				allocs.Parts = append(allocs.Parts, check.Value(label, us, row.AllocsPerOp, 0, check.NoAim))
			}
		}
		if x.text == "0 0 22 L * ?" {
			continue // robfig/cron has no L to compare with
		}
		us := result.Cell{Workload: parseName(x), Contender: "ours"}
		rob := result.Cell{Workload: parseName(x), Contender: "robfig"}
		parse.Parts = append(parse.Parts,
			check.Ratio("`"+x.text+"`, of robfig/cron", us, rob, row.NsPerOp, 0.4, 0.25),
			check.Value("`"+x.text+"`, allocations", us, row.AllocsPerOp, 6, 2))
	}
	return []check.Row{next, allocs, parse}
}

func peers(workload string) []result.Cell {
	var cells []result.Cell
	for _, e := range engines {
		if e.name != "ours" {
			cells = append(cells, result.Cell{Workload: workload, Contender: e.name})
		}
	}
	return cells
}
