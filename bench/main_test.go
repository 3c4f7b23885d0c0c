package main

import (
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/check"
	"github.com/taskmanager-go/taskmanager/bench/internal/harness"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

func TestEveryModeKeepsToItsTime(t *testing.T) {
	for mode, bound := range map[row.Mode]time.Duration{
		row.Smoke: 130 * time.Second, row.Quick: 230 * time.Second, row.Full: 52 * time.Minute,
	} {
		steps := harness.Selection{Mode: mode}.Plan(workloads())
		if got := harness.Estimate(steps, mode); len(steps) == 0 || got > bound {
			t.Errorf("%v: %d measurements in about %v, want some in at most %v", mode, len(steps), got, bound)
		}
	}
}

func TestEveryContenderIsInTheSmokeRun(t *testing.T) {
	run := map[string]bool{}
	for _, s := range (harness.Selection{Mode: row.Smoke}).Plan(workloads()) {
		run[s.Entry.Contender] = true
	}
	for _, w := range workloads() {
		for _, e := range w.Entries {
			if !run[e.Contender] {
				t.Errorf("smoke leaves out %s", e.Contender)
			}
		}
	}
}

func TestNamesAreUniqueAndLeadBack(t *testing.T) {
	all := workloads()
	seen := map[string]bool{}
	for i := range all {
		for j := range all[i].Entries {
			id := all[i].ID(&all[i].Entries[j])
			if seen[id] {
				t.Errorf("%s is there twice", id)
			}
			seen[id] = true
			if _, e, err := row.Find(all, id); err != nil || e != &all[i].Entries[j] {
				t.Errorf("Find(%q) = %v, %v", id, e, err)
			}
		}
	}
	if _, _, err := row.Find(all, "no/such"); err == nil {
		t.Error("Find of nothing gives no error")
	}
}

// A check whose cells are skipped or not part of a full run could never be
// computed, and would stand there as not measured for ever.
func TestEveryCheckIsMeasuredByAFullRun(t *testing.T) {
	all := workloads()
	planned := map[string]bool{}
	for _, s := range (harness.Selection{Mode: row.Full}).Plan(all) {
		planned[s.Workload.ID(s.Entry)] = true
	}
	for c := range check.Cells(checks()) {
		id := c.Workload + "/" + c.Contender
		if _, e, err := row.Find(all, id); err != nil || e.Skip == "" && !planned[id] {
			t.Errorf("a check needs %s, which is not measured (%v)", id, err)
		}
	}
}
