package contender

import "time"

// A grid is the instants first + k*interval, k = 0, 1, ...
type grid struct {
	first    time.Time
	interval time.Duration
}

// after returns the first instant later than t. It is what robfig/cron and
// netresearch/go-cron call a Schedule: their own Every rounds to whole seconds
// and so makes all tasks fire together.
func (g grid) after(t time.Time) time.Time {
	d := t.Sub(g.first)
	if d < 0 {
		return g.first
	}
	return g.first.Add((d/g.interval + 1) * g.interval)
}

// Next implements the Schedule interface of both cron libraries.
func (g *grid) Next(t time.Time) time.Time { return g.after(t) }

// wall takes the monotonic reading off the grid, for libraries that keep
// their instants as wall clock times.
func (g grid) wall() *grid { return &grid{g.first.Round(0), g.interval} }
