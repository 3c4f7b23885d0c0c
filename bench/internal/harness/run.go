package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// Run executes the steps one after the other, telling progress what it does.
// When ctx ends it returns what it has, marked as interrupted.
func Run(ctx context.Context, steps []Step, mode row.Mode, progress io.Writer) (*result.Set, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	set := &result.Set{Started: time.Now().UTC().Truncate(time.Second), Mode: mode.String()}
	left := Estimate(steps, mode)
	fmt.Fprintf(progress, "%d measurements, about %v\n", len(steps), left.Round(time.Second))
	start := time.Now()
	for i, s := range steps {
		fmt.Fprintf(progress, "[%3d/%d, %v left] %-32s ", i+1, len(steps), left.Round(time.Second), s.Workload.ID(s.Entry))
		r := s.run(ctx, exe, mode)
		if ctx.Err() != nil {
			set.Interrupted = true
			fmt.Fprintln(progress, "interrupted")
			break
		}
		set.Runs = append(set.Runs, r)
		left -= startCost + s.Entry.Takes(mode)
		fmt.Fprintln(progress, summary(s.Workload, r))
	}
	set.Took = time.Since(start).Seconds()
	return set, nil
}

// summary is the end of a progress line: the figure that matters most.
func summary(w *row.Workload, r result.Run) string {
	if r.Error != "" {
		return "FAILED: " + r.Error
	}
	s := "ok"
	if v, ok := r.Values[w.Key]; ok {
		s = w.Key.Format(v) + " " + w.Key.Title()
	}
	if a, ok := r.Values[row.Achieved]; ok && (a < 0.98 || a > 1.02) {
		s += fmt.Sprintf(", achieved %.3f", a)
	}
	if r.Noise.Known && r.Noise.Foreign+r.Noise.Steal >= 0.05 {
		s += fmt.Sprintf("  (foreign %.2f, steal %.2f)", r.Noise.Foreign, r.Noise.Steal)
	}
	if len(r.Notes) > 0 {
		s += "  (" + r.Notes[0] + ")"
	}
	return s
}
