package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Start begins: the node is registered, jobs in code are written to the store, and
// loops run until Shutdown. It fails if the store cannot be reached, and may be tried
// again then; nothing is left behind but the jobs. ErrStarted the second time,
// ErrStopped after a Shutdown, or if one comes meanwhile.
func (s *Scheduler) Start(ctx context.Context) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	if err := s.beginStart(abort); err != nil {
		return err
	}
	joined, err := s.prepare(ctx)
	if err == nil {
		err = s.startLoops()
	}
	if err != nil {
		return s.notStarted(ctx, joined, err)
	}
	s.log(slog.LevelInfo, "started", slog.Int("jobs", len(s.code)), slog.Int("handlers", len(s.registry.list())))
	for _, l := range []*loop{s.loops.elect, s.loops.local, s.loops.claim} {
		l.wake()
	}
	return nil
}

func (s *Scheduler) beginStart(abort context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch phase(s.phase.Load()) {
	case phaseNew:
	case phaseStarting, phaseRunning:
		return ErrStarted
	default:
		return errOver
	}
	s.phase.Store(int32(phaseStarting))
	s.abort = abort
	return nil
}

// errOver is of a scheduler that cannot be started any more.
var errOver = fmt.Errorf("%w: after Shutdown it does not start again, make another", ErrStopped)

// prepare is Start until the loops: it calls the store, and user code. joined tells that
// the node may be one of the store's.
func (s *Scheduler) prepare(ctx context.Context) (joined bool, err error) {
	if err := s.registry.seal(); err != nil {
		return false, err
	}
	if err := s.syncCode(ctx); err != nil {
		return false, err
	}
	if err := s.lease.register(ctx); err != nil {
		return true, fmt.Errorf("durable: register node: %w", err)
	}
	if w := s.waker(); w != nil {
		err := guarded(func() (err error) { s.stopFn, err = w.Listen(s.hear); return err })
		if err != nil {
			return true, fmt.Errorf("durable: listen: %w", err)
		}
	}
	return true, s.locals.prime(ctx)
}

// startLoops starts all or none.
func (s *Scheduler) startLoops() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends {
		return errOver
	}
	s.phase.Store(int32(phaseRunning))
	for _, l := range s.all() {
		if err := l.start(); err != nil {
			for _, l := range s.all() {
				l.stop()
			}
			s.phase.Store(int32(phaseStarting))
			return err
		}
	}
	return nil
}

// notStarted undoes a Start that failed with err, and returns its error.
func (s *Scheduler) notStarted(ctx context.Context, joined bool, err error) error {
	if s.stopFn != nil {
		s.stopListening()
	}
	if joined {
		s.lease.leave(context.WithoutCancel(ctx))
	}
	s.registry.unseal()
	s.mu.Lock()
	over, next := s.ends, phaseNew
	if over {
		next = phaseStopping
	}
	s.phase.Store(int32(next))
	s.mu.Unlock()
	if !over {
		return err
	}
	s.end(nil)
	if errors.Is(err, ErrStopped) {
		return err
	}
	return fmt.Errorf("%w: %w", errOver, err)
}

// Run starts the scheduler, waits until ctx ends, and shuts down: within ShutdownTimeout
// and 20 s, or up to 75 s if the store, the Waker and the Observer hang.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.stopped: // by a Shutdown of somebody else's
	}
	return s.Shutdown(context.WithoutCancel(ctx))
}

// syncCode writes the jobs in code to the store, and reports those that are no
// longer in code.
func (s *Scheduler) syncCode(ctx context.Context) error {
	names := map[string]bool{}
	for _, c := range s.code {
		names[c.job.Name] = true
		err := s.store.Edit(ctx, c.job.Name, EditJob, func(e *Edit) error { return s.planner.syncJob(e, c.job, c.triggers) })
		if err != nil {
			return fmt.Errorf("durable: write job %q: %w", c.job.Name, err)
		}
	}
	if err := s.dropHousekeeping(ctx); err != nil {
		return err
	}
	for after := ""; ; {
		jobs, err := s.store.Jobs(ctx, JobQuery{After: after, WithoutTriggers: true, WithoutRuns: true})
		if err != nil {
			return fmt.Errorf("durable: read jobs: %w", err)
		}
		for _, j := range jobs {
			after = j.Job.Name
			if j.Job.Source == SourceCode && !names[j.Job.Name] {
				s.log(slog.LevelWarn, "job is not in this node's code any more", slog.String("job", j.Job.Name))
			}
			if !s.registry.knows(j.Job.Handler) {
				s.unknownHandler(j.Job)
			}
		}
		if len(jobs) < pageSize {
			return nil
		}
	}
}
