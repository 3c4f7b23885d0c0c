package main

import (
	"context"
	"errors"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// heavy is the tag of tasks that are not to run at the same time.
const heavy = "heavy"

const (
	tickRate       = 60
	stateInterval  = 100 * time.Millisecond
	heartbeatEvery = time.Second
)

// schedule sets up everything that happens again and again.
func (g *game) schedule() error {
	s := &scheduler{manager: g.manager}
	status := newSummary(g)

	// The world advances by a fixed step, so a tick that comes too late is caught
	// up with rather than skipped; its grid starts now, without jitter.
	status.world = s.ticks("world.tick", time.Second/tickRate, g.stepWorld,
		taskmanager.WithPrecise(), taskmanager.WithJitter(0),
		taskmanager.WithOverlap(taskmanager.CatchUp(5)))

	// Cheap and frequent: the defaults serve. An overlapping tick is skipped and
	// counted, and the jitter keeps these from all starting at one instant.
	s.every("world.broadcast", stateInterval, g.server.broadcastState)
	s.every("session.heartbeat", heartbeatEvery, g.server.heartbeat)
	s.every("session.cleanup", time.Second, g.server.dropIdle)

	// Heavy: one at a time. The snapshot waits for its turn; the leaderboard, soon
	// due again, rather skips one.
	s.every("snapshot.save", 2*time.Second, g.saveWorld,
		taskmanager.WithTag(heavy), taskmanager.WithExecutionTimeout(time.Second))
	s.every("leaderboard.refresh", 500*time.Millisecond, g.board.refresh,
		taskmanager.WithTag(heavy), taskmanager.WithSkipOverLimit())
	// Sometimes outlives its limit. Only the third time-out in a row makes it back
	// off.
	s.every("analytics.rollup", 700*time.Millisecond, g.analytics.rollup,
		taskmanager.WithTag(heavy), taskmanager.WithExecutionTimeout(200*time.Millisecond),
		taskmanager.WithFailuresBeforeBackoff(3))

	// The upstream has outages. Each failure delays the next try, for longer and
	// longer, but never more than two seconds: players are waiting.
	s.every("matchmaker.sync", 500*time.Millisecond, g.matchmaker.sync,
		taskmanager.WithExecutionTimeout(time.Second), taskmanager.WithBackoffCap(2*time.Second))

	s.every("summary", time.Second, status.print, taskmanager.WithJitter(0))

	return errors.Join(s.errs...)
}

func (g *game) stepWorld(_ context.Context, tick taskmanager.Tick) error {
	g.world.step(tick.Index)
	return nil
}

// A scheduler collects errors, so that a list of tasks reads as one.
type scheduler struct {
	manager *taskmanager.TaskManager
	errs    []error
}

func (s *scheduler) every(name string, interval time.Duration, fn taskmanager.Func, opts ...taskmanager.TaskOption) {
	s.add(s.manager.ScheduleRecurring(name, interval, fn, opts...))
}

func (s *scheduler) ticks(name string, interval time.Duration, fn taskmanager.TickFunc, opts ...taskmanager.TaskOption) *taskmanager.Handle {
	return s.add(s.manager.ScheduleTicks(name, interval, fn, opts...))
}

func (s *scheduler) add(h *taskmanager.Handle, err error) *taskmanager.Handle {
	if err != nil {
		s.errs = append(s.errs, err)
		return nil
	}
	return h
}
