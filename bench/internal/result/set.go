// Package result holds what was measured, as it is written to results.json.
package result

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/host"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/bench/internal/stats"
)

// A Run is one child process: one contender at one workload, once.
type Run struct {
	Workload  string `json:"workload"`
	Contender string `json:"contender"`
	Rep       int    `json:"rep"`
	row.Outcome
	Error string     `json:"error,omitempty"`
	Wall  float64    `json:"wall_s"`
	Noise host.Noise `json:"noise"`
}

// A Set is all runs of one call of the benchmark.
type Set struct {
	Started     time.Time    `json:"started"`
	Took        float64      `json:"took_s"`
	Mode        string       `json:"mode"`
	Interrupted bool         `json:"interrupted,omitempty"`
	Machine     host.Machine `json:"machine"`
	Runs        []Run        `json:"runs"`
}

// A Cell is one contender at one workload.
type Cell struct{ Workload, Contender string }

// Of returns the runs of the cell.
func (s *Set) Of(c Cell) []Run {
	var runs []Run
	for _, r := range s.Runs {
		if r.Workload == c.Workload && r.Contender == c.Contender {
			runs = append(runs, r)
		}
	}
	return runs
}

// Values returns one metric of the cell by repetition.
func (s *Set) Values(c Cell, m row.Metric) map[int]float64 {
	v := map[int]float64{}
	for _, r := range s.Of(c) {
		if x, ok := r.Values[m]; ok {
			v[r.Rep] = x
		}
	}
	return v
}

// Spread summarizes one metric of the cell.
func (s *Set) Spread(c Cell, m row.Metric) stats.Spread {
	var v []float64
	for _, x := range s.Values(c, m) {
		v = append(v, x)
	}
	return stats.Summarize(v)
}

// Ratio is the metric of a over that of b, repetition by repetition.
func (s *Set) Ratio(a, b Cell, m row.Metric) stats.Spread {
	return stats.Ratios(s.Values(a, m), s.Values(b, m))
}

// Noise summarizes the foreign load over all runs, and counts those that were
// disturbed.
func (s *Set) Noise() (foreign, steal stats.Spread, disturbed int, known bool) {
	var f, st []float64
	for _, r := range s.Runs {
		if !r.Noise.Known {
			continue
		}
		f, st = append(f, r.Noise.Foreign), append(st, r.Noise.Steal)
		if r.Noise.Foreign > host.Quiet || r.Noise.Steal > host.Quiet {
			disturbed++
		}
	}
	return stats.Summarize(f), stats.Summarize(st), disturbed, len(f) > 0
}

// Read loads a results.json.
func Read(path string) (*Set, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s Set
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", path, err)
	}
	return &s, nil
}
