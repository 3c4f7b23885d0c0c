package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// A summary is the task that shows, once a second, how the game fares. Its runs do
// not overlap, so its fields need no lock.
type summary struct {
	game  *game
	world *taskmanager.Handle
	start time.Time
	last  reading
}

// A reading is what to take the difference of from one second to the next.
type reading struct {
	at      time.Time
	ticks   uint64
	in, out uint64
}

func newSummary(g *game) *summary {
	now := time.Now()
	return &summary{game: g, start: now, last: reading{at: now}}
}

func (s *summary) print(context.Context) error {
	world := s.world.Snapshot()
	traffic := &s.game.server.traffic
	now := reading{time.Now(), world.Runs, traffic.in.Load(), traffic.out.Load()}
	second := now.at.Sub(s.last.at).Seconds()
	each := func(now, last uint64) float64 { return float64(now-last) / second }

	var b strings.Builder
	fmt.Fprintf(&b, "%5.1fs  world %.1f/s late p50 %s p99 %s missed %d", now.at.Sub(s.start).Seconds(),
		each(now.ticks, s.last.ticks), short(world.Lateness.Quantile(0.5)), short(world.Lateness.Quantile(0.99)),
		world.Ticks.Missed+world.Ticks.Dropped)
	fmt.Fprintf(&b, " | players %d, idle dropped %d", s.game.world.size(), traffic.idle.Load())
	fmt.Fprintf(&b, " | kB/s in %.1f out %.1f", each(now.in, s.last.in)/1000, each(now.out, s.last.out)/1000)
	all := s.game.manager.Totals()
	fmt.Fprintf(&b, " | all tasks: runs %d, failed %d, skipped %d", all.Runs, all.Failures, all.Ticks.Skipped())
	if leader, ok := s.game.board.leader(); ok {
		fmt.Fprintf(&b, " | top %s %d", leader.Name, leader.Score)
	}
	if ill := s.game.illTasks(now.at); ill != "" {
		fmt.Fprintf(&b, " | %s", ill)
	}
	s.last = now
	return s.game.screen.status(b.String(), s.game.manager.Report().String())
}

// illTasks names the tasks whose last run failed, and what the engine does about it.
func (g *game) illTasks(now time.Time) string {
	var ill []string
	for h := range g.manager.Tasks() {
		t := h.Snapshot()
		switch {
		case t.ConsecutiveFailures == 0:
		case t.State == taskmanager.BackingOff:
			ill = append(ill, fmt.Sprintf("%s backing off, %d failed, next in %s", t.Name, t.ConsecutiveFailures, short(t.NextRun.Sub(now))))
		default:
			ill = append(ill, fmt.Sprintf("%s failed", t.Name))
		}
	}
	return strings.Join(ill, ", ")
}

// finalReport is the last word: every task as Shutdown left it, and what went over
// the network.
func (g *game) finalReport() string {
	t := &g.server.traffic
	return fmt.Sprintf("%s\nnetwork: %d connections, %.1f kB in, %.1f kB out, %d dropped for silence, %d lines dropped for slowness\n",
		g.manager.Report(), t.accepted.Load(), float64(t.in.Load())/1000, float64(t.out.Load())/1000, t.idle.Load(), t.dropped.Load())
}

// short prints a duration with as much precision as one reads.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
