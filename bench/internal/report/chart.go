package report

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

// A chart is one SVG file. It compares a metric between the contenders of one
// workload, or over several workloads that differ in size.
type chart struct {
	file, title, axis string
	// dots: one line for each contender, one dot for each metric.
	workload string
	metrics  []row.Metric
	// curves: the metric of each contender over sizes; the fields above that
	// are for dots are then empty.
	metric row.Metric
	sizes  []sized
}

// A sized workload is a point on the x axis of curves.
type sized struct {
	n        float64
	workload string
}

// charts are what a README can show. They name workloads of the families; a
// chart whose workloads were not measured is not drawn.
var charts = []chart{
	{file: "cpu.svg", title: "CPU for a tick: 100,000 tasks, each once a second", axis: "µs of CPU a tick (logarithmic)",
		workload: "steady-100k@1s", metrics: []row.Metric{row.CPUPerTick}},
	{file: "lateness.svg", title: "Start lateness: 100,000 tasks, each once a second", axis: "ms late (logarithmic)",
		workload: "steady-100k@1s", metrics: []row.Metric{row.P50, row.P99}},
	{file: "burst.svg", title: "Start lateness: 100,000 tasks due at the same instant", axis: "ms late (logarithmic)",
		workload: "burst-100k@1s", metrics: []row.Metric{row.P50, row.P99}},
	{file: "hz60.svg", title: "Start lateness: one task at 60 Hz", axis: "ms late (logarithmic)",
		workload: "hz60", metrics: []row.Metric{row.P50, row.P99}},
	{file: "memory.svg", title: "Memory of a task that has run, beside 100,000", axis: "bytes a task (logarithmic)",
		workload: "idle-100k", metrics: []row.Metric{row.BytesPer}},
	{file: "growth.svg", title: "CPU for a tick as tasks become more, always 100,000 runs a second", axis: "µs of CPU a tick", metric: row.CPUPerTick,
		sizes: []sized{{1e3, "steady-1k@10ms"}, {1e4, "steady-10k@100ms"}, {1e5, "steady-100k@1s"}, {1e6, "steady-1M@10s"}}},
}

// drawAll writes the charts that have figures and returns them.
func drawAll(folder string, all []row.Workload, set *result.Set) ([]chart, error) {
	var drawn []chart
	for _, c := range charts {
		var svg bytes.Buffer
		var err error
		if c.sizes != nil {
			err = drawCurves(&svg, c, all, set)
		} else {
			err = drawDots(&svg, c, all, set)
		}
		switch {
		case errors.Is(err, errNothing):
			err = os.Remove(filepath.Join(folder, c.file))
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		case err == nil:
			drawn = append(drawn, c)
			err = writeFile(folder, c.file, svg.Bytes())
		}
		if err != nil {
			return drawn, err
		}
	}
	return drawn, nil
}

// errNothing says that a chart would be empty.
var errNothing = errors.New("bench: nothing to draw")

func workloadNamed(all []row.Workload, name string) *row.Workload {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// plain takes the Markdown out of a contender's title.
func plain(title string) string { return strings.ReplaceAll(title, "*", "") }
