package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

const (
	// claimPatience is how long a stop waits for a claim in progress.
	claimPatience = 5 * time.Second
	// cancelPatience is how long a stop waits for runs that it has cancelled.
	cancelPatience = 5 * time.Second
	// flushPatience is how long a stop tries to record what has ended, and flushPause how
	// long it waits after a failure.
	flushPatience = 10 * time.Second
	flushPause    = 100 * time.Millisecond
)

// Shutdown ends the scheduler:
//
//  1. It claims nothing more; a claim in progress may end (at most 5 s). What one that
//     does not has claimed is given back, as far as the store knows of it by then.
//  2. Runs go on for ShutdownTimeout, or until ctx ends, while the node keeps its
//     lease.
//  3. Those that still run have their contexts cancelled, cause ErrStopping, and 5 s
//     to return. They are recorded as cancelled. One that does not return is recorded
//     as interrupted, and keeps its job's slot until NodeTimeout has passed.
//  4. A run that was cut short and whose job requests recovery gets its recovery run
//     at once, for other nodes to take.
//
// The node leaves the store, so that others need not wait for its lease to end. The
// error says what could not be recorded, and which runs were interrupted; nil means
// that all came to their end. Attempts of jobs that run on every node are dropped.
//
// A Start under way fails, and ends the scheduler (called by the Waker that Start waits
// for, it needs a ctx that ends). Only the first call acts; later ones wait for the same
// verdict, or for their ctx.
// Called by a handler with its own context it does not wait for the run that calls
// it: it goes on behind it, and taskmanager.ErrOwnRun is returned at once.
func (s *Scheduler) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	was := phase(s.phase.Load())
	switch {
	case was == phaseStarting: // Start sees to the end
		s.ends = true
		s.abort(errOver)
	case was < phaseStopping:
		s.phase.Store(int32(phaseStopping))
	}
	s.mu.Unlock()
	if was == phaseNew {
		s.end(nil)
		return nil
	}
	r, inside := RunFrom(ctx)
	inside = inside && s.flights.has(r.ID)
	if was == phaseRunning {
		hurry := ctx.Done()
		if inside { // the end of that run's context is no hurry for others
			hurry = nil
		}
		go s.stop(context.WithoutCancel(ctx), hurry)
	}
	if inside {
		return fmt.Errorf("durable: shutdown goes on: %w", taskmanager.ErrOwnRun)
	}
	if was != phaseRunning {
		select {
		case <-s.stopped:
		case <-ctx.Done():
			select {
			case <-s.stopped:
			default:
				return fmt.Errorf("durable: shutdown goes on: %w", context.Cause(ctx))
			}
		}
	}
	<-s.stopped
	return s.stopErr
}

// stop is the whole of Shutdown. hurry ends the waiting for runs.
func (s *Scheduler) stop(ctx context.Context, hurry <-chan struct{}) {
	l := &s.loops
	s.locals.stop()
	claimed := make(chan struct{})
	go func() {
		s.claimer.turn.end(s.claimer.turn.take())
		close(claimed)
	}()
	if !s.await(claimed, claimPatience, nil) {
		s.claimer.giveUp() // handBackLost sees to what it may have claimed
	}
	s.flights.close()
	for _, l := range []*loop{l.claim, l.local, l.sweep} {
		l.stop()
	}

	if !s.await(s.flights.quiet(), max(0, s.config.ShutdownTimeout), hurry) {
		n := s.flights.cancelAll(ErrStopping, func(*flight) bool { return true })
		s.log(slog.LevelWarn, "shutdown cancels runs", slog.Int("runs", n))
		s.await(s.flights.quiet(), cancelPatience, nil)
	}
	interrupted := s.recordInterrupted()
	err := errors.Join(s.handBackLost(ctx), s.lastFlush(ctx))
	for _, l := range []*loop{l.watch, l.elect, l.beat} {
		l.stop()
	}
	left := make(chan struct{})
	go func() { // a store or leader may ignore the end of its context
		defer close(left)
		s.term.resign(ctx)
		s.lease.leave(ctx)
	}()
	s.await(left, 2*s.opTimeout+cancelPatience, nil)
	if len(interrupted) > 0 {
		err = errors.Join(err, fmt.Errorf("durable: interrupted, and still running: %v", interrupted))
	}
	s.end(err)
}

// end is the end: what is left are things that end by themselves.
func (s *Scheduler) end(err error) {
	s.flights.workers.close()
	if s.stopFn != nil {
		listening := make(chan struct{})
		go func() {
			defer close(listening)
			s.stopListening()
		}()
		s.await(listening, cancelPatience, nil)
	}
	s.log(slog.LevelInfo, "stopped")
	s.await(s.queue.Flushed(), cancelPatience, nil)
	if s.owned {
		if closed := s.manager.Close(); err == nil && closed != nil {
			s.config.Logger.Debug("durable: manager closed", errAttr(closed), slog.String("node", s.nodeID()))
		}
	}
	s.mu.Lock()
	s.stopErr = err
	s.phase.Store(int32(phaseStopped))
	s.mu.Unlock()
	close(s.stopped)
}

// stopListening ends the notes of the Waker, which is user code.
func (s *Scheduler) stopListening() {
	if err := guarded(func() error { s.stopFn(); return nil }); err != nil {
		s.log(slog.LevelError, "waker could not be stopped", errAttr(err))
	}
	s.stopFn = nil
}

// await waits for done, at most d on the manager's clock, or until hurry; it tells
// whether done came.
func (s *Scheduler) await(done <-chan struct{}, d time.Duration, hurry <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	if d <= 0 {
		return false
	}
	var over <-chan struct{}
	// Not a random name: others draw at the same time, and a seed would not tell in which order.
	name := fmt.Sprintf("durable/%s/await#%d", s.instance, s.awaits.Add(1))
	h, err := s.once(name, d, func() {})
	if err == nil {
		defer h.Stop()
		over = h.Done() // also if the manager is closed meanwhile
	} else { // it was closed before the scheduler
		passed := make(chan struct{})
		t := time.AfterFunc(d, func() { close(passed) })
		defer t.Stop()
		over = passed
	}
	select {
	case <-done:
		return true
	case <-over:
	case <-hurry:
	}
	return false
}

// recordInterrupted records the runs that nothing could end, and returns their jobs.
func (s *Scheduler) recordInterrupted() (names []string) {
	now, mono := s.host.Now()
	for _, fl := range s.flights.all() {
		s.flights.mu.Lock()
		if fl.over {
			s.flights.mu.Unlock()
			continue
		}
		fl.gaveUp = true
		row := *fl.row
		row.Cancel = row.Cancel || errors.Is(fl.cause, ErrCancelled)
		s.flights.mu.Unlock()
		end := s.planner.conclude(row, *fl.job, ending{cause: ErrStopping, lasted: time.Duration(mono - fl.since)}, now)
		end.Run.State, end.Run.Message = RunInterrupted, "the scheduler stopped, and the handler did not return"
		end.Keep, end.Local = !fl.local, fl.local
		if fl.local {
			end.Follow = nil
		}
		s.finisher.add(end)
		names = append(names, fl.row.Job)
		s.log(slog.LevelError, "run interrupted, its handler goes on", slog.String("job", fl.row.Job), slog.String("run", fl.row.ID))
	}
	return names
}

// handBackLost hands back runs whose claim got lost on the way, if there may be some.
func (s *Scheduler) handBackLost(ctx context.Context) error {
	done := make(chan struct{})
	var err error
	go func() { // a store may ignore the end of its context
		defer close(done)
		err = guarded(func() error { return s.lease.handBackLost(ctx) })
	}()
	if !s.await(done, s.opTimeout+cancelPatience, nil) {
		return fmt.Errorf("durable: the store was not asked for runs whose claim got lost: %w", context.DeadlineExceeded)
	}
	return err
}

// lastFlush records what has ended, with patience for a store that is away, but less than
// usual for one that hangs: it may do so for the sake of one end, and the others are to be
// recorded meanwhile.
func (s *Scheduler) lastFlush(ctx context.Context) error {
	s.loops.finish.stop() // its round may be waiting for just that
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	go func() {
		defer close(done)
		for {
			err = nil
			for try := s.finisher.pending(); try > 0 && s.finisher.pending() > 0; try-- {
				s.finisher.recall(math.MaxInt64)
				if err = guarded(func() error { return s.finisher.flush(ctx, flushPatience/4) }); err != nil && !errors.Is(err, errAside) {
					break
				}
			}
			if s.finisher.pending() == 0 || ctx.Err() != nil {
				return
			}
			s.await(ctx.Done(), flushPause, nil)
		}
	}()
	if !s.await(done, flushPatience, nil) {
		cancel()
		if !s.await(done, cancelPatience, nil) { // the store ignores the end of its context
			return fmt.Errorf("durable: the ends of %d runs could not be recorded, they will count as lost: %w", s.finisher.pending(), context.DeadlineExceeded)
		}
	}
	if n := s.finisher.pending(); n > 0 {
		return fmt.Errorf("durable: the ends of %d runs could not be recorded, they will count as lost: %w", n, err)
	}
	return nil
}

// leave takes the node out of the store. If runs of it are still active its lease
// stays, and ends by itself.
func (l *nodeLease) leave(ctx context.Context) {
	defer l.turn.end(l.turn.take())
	l.mu.Lock()
	l.gone = true
	if l.fence != nil {
		l.fence()
		l.fence = nil
	}
	node := l.node
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.s.opTimeout)
	defer cancel()
	err := guarded(func() error { _, err := l.s.store.Beat(ctx, node, 0); return err })
	if err != nil {
		l.s.log(slog.LevelWarn, "node could not leave, its lease ends by itself", errAttr(err))
	}
}
