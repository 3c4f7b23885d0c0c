package harness

import (
	"regexp"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

func workloads() []row.Workload {
	takes := func(row.Mode) time.Duration { return time.Second }
	return []row.Workload{
		{Name: "a", Modes: []row.Mode{row.Quick, row.Full}, Entries: []row.Entry{
			{Contender: "x", Core: true, Takes: takes},
			{Contender: "y", Takes: takes},
			{Contender: "z", Takes: takes, Skip: "cannot"},
		}},
		{Name: "b", Modes: []row.Mode{row.Full}, Entries: []row.Entry{{Contender: "x", Takes: takes}}},
	}
}

func ids(steps []Step) (s string) {
	for _, st := range steps {
		s += st.Workload.ID(st.Entry) + " "
	}
	return s
}

func TestPlanInterleavesRepetitionsAndChangesWhoBegins(t *testing.T) {
	for _, c := range []struct {
		name string
		sel  Selection
		want string
	}{
		{"full", Selection{Mode: row.Full}, "a/x a/y b/x a/y a/x b/x a/x a/x "},
		{"quick runs the core", Selection{Mode: row.Quick}, "a/x "},
		{"only", Selection{Mode: row.Quick, Only: regexp.MustCompile("^a/y")}, "a/y "},
		{"needed", Selection{Mode: row.Quick, Need: map[result.Cell]bool{{Workload: "a", Contender: "y"}: true}}, "a/y "},
		{"smoke", Selection{Mode: row.Smoke}, ""},
	} {
		if got := ids(c.sel.Plan(workloads())); got != c.want {
			t.Errorf("%s: Plan = %q, want %q", c.name, got, c.want)
		}
	}
}
