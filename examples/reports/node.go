package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/storeurl"
)

// A node is this process: a scheduler on the database, and what tells you about it.
type node struct {
	store     *storeurl.Opened
	manager   *taskmanager.TaskManager
	scheduler *durable.Scheduler
	screen    *screen
	leader    *leader
	start     time.Time
}

// newNode opens the database, brings its tables up to date, and sets up the scheduler.
func newNode(ctx context.Context, cfg config, screen *screen) (n *node, err error) {
	store, err := storeurl.Open(ctx, cfg.db)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	if err := store.Store.Migrate(ctx); err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewTextHandler(screen, &slog.HandlerOptions{Level: slog.LevelError}))
	manager, err := taskmanager.New(taskmanager.WithLogger(logger))
	if err != nil {
		return nil, err
	}
	n = &node{store: store, manager: manager, screen: screen, leader: &leader{Leader: durable.StoreLeader(store.Store)}, start: time.Now()}
	n.scheduler, err = durable.New(store.Store, n.config(cfg, logger))
	if err != nil {
		return nil, errors.Join(err, manager.Close())
	}
	h := &handlers{
		scheduler: n.scheduler, screen: screen,
		tenants: []string{"acme", "globex", "initech", "umbrella"},
		effort:  max(cfg.demo/12, 50*time.Millisecond),
	}
	if err := errors.Join(h.register(), addJobs(ctx, n.scheduler, cfg.demo)); err != nil {
		return nil, errors.Join(err, manager.Close())
	}
	return n, nil
}

func (n *node) config(cfg config, logger *slog.Logger) durable.Config {
	c := durable.Config{
		Manager: n.manager, Node: cfg.node, Leader: n.leader, Waker: n.store.Waker, Logger: logger,
		Observer: durable.ObserverFunc(n.screen.observe),
	}
	if cfg.demo > 0 { // all copies must agree on NodeTimeout
		c.PollInterval, c.NodeTimeout, c.ShutdownTimeout = time.Second, 3*time.Second, 10*time.Second
	}
	return c
}

// run works until ctx ends, and tells how it came to its end.
func (n *node) run(ctx context.Context) error {
	n.screen.line("%s on %s", n.scheduler.Node(), n.store)
	_, err := n.manager.ScheduleRecurring("summary", 2*time.Second, n.summarize, taskmanager.WithJitter(0))
	if err == nil {
		err = n.scheduler.Start(ctx)
	}
	if err != nil {
		return errors.Join(err, n.manager.Close(), n.store.Close())
	}
	<-ctx.Done()
	n.screen.line("stopping: %v", context.Cause(ctx))
	ctx = context.WithoutCancel(ctx)
	err = n.scheduler.Shutdown(ctx)
	if err == nil {
		n.screen.line("stopped: every run of this node has come to its end")
	}
	err = errors.Join(err, n.finalReport(ctx))
	return errors.Join(err, n.manager.Shutdown(ctx), n.store.Close())
}
