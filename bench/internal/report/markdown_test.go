package report

import (
	"strings"
	"testing"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

func TestWhoCannotDoTheWorkIsShown(t *testing.T) {
	all := []row.Workload{{
		Name: "w", Title: "Work", Group: "G", Key: row.CPUPerTick, Ours: "us", Columns: []row.Metric{row.Achieved, row.CPUPerTick},
		Entries: []row.Entry{
			{Contender: "us", Title: "Us"}, {Contender: "them", Title: "Them"},
			{Contender: "crash", Title: "Crash"}, {Contender: "skip", Title: "Skip", Skip: "because"},
			{Contender: "later", Title: "Later"},
		},
	}}
	run := func(contender string, rep int, achieved, cpu float64) result.Run {
		return result.Run{Workload: "w", Contender: contender, Rep: rep,
			Outcome: row.Outcome{Values: row.Values{row.Achieved: achieved, row.CPUPerTick: cpu}}}
	}
	set := &result.Set{Runs: []result.Run{
		run("us", 0, 1, 1), run("us", 1, 1, 2), run("them", 0, 0.226, 4), run("them", 1, 0.226, 8),
		{Workload: "w", Contender: "crash", Error: "did not finish in 3s"},
	}}
	var b strings.Builder
	if err := Markdown(&b, all, set, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Us | 1.000 | 1.50 (1.00–2.00) | 1.00 |",
		"| Them | 0.226 | 6.00 (4.00–8.00) | 4.00 |",
		"| Crash | – | – | – |",
		"- Crash: failed: did not finish in 3s",
		"- Skip: because",
		"Not asked for in this run: Later.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
}
