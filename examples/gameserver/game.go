package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/taskmanager-go/taskmanager"
)

// drainLimit is how long Shutdown waits for the runs in flight before it cancels
// them.
const drainLimit = 3 * time.Second

var errTimeUp = errors.New("time is up")

// A game is the parts of the server, put together.
type game struct {
	cfg        config
	screen     *console
	manager    *taskmanager.TaskManager
	world      *world
	server     *server
	board      *leaderboard
	matchmaker *matchmaker
	analytics  *analytics
	bots       *swarm
}

// newGame makes a game that is ready to run. More options are for tests.
func newGame(cfg config, screen *console, more ...taskmanager.Option) (*game, error) {
	options := []taskmanager.Option{
		taskmanager.WithLogger(slog.New(slog.NewTextHandler(screen, nil))),
		// Heavy work, one at a time: the world keeps the other cores.
		taskmanager.WithTagLimit(heavy, 1),
	}
	manager, err := taskmanager.New(append(options, more...)...)
	if err != nil {
		return nil, err
	}
	g := &game{cfg: cfg, screen: screen, manager: manager, world: newWorld(), bots: newSwarm(cfg.bots)}
	g.server = newServer(g.world)
	g.board = &leaderboard{world: g.world, server: g.server}
	g.matchmaker = newMatchmaker(g.world)
	g.analytics = &analytics{world: g.world}
	return g, nil
}

// run plays until ctx ends, the time is up or the listener fails, and then takes
// the game apart in order. It returns nil if all of that was clean. The network is
// closed when it returns.
func (g *game) run(ctx context.Context, n network) error {
	if g.cfg.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.cfg.duration, errTimeUp)
		defer cancel()
	}
	g.announce(n)
	if err := g.schedule(); err != nil {
		return errors.Join(err, g.manager.Close(), n.close())
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.server.serve(ctx, n.game) })
	group.Go(func() error { return g.bots.play(ctx, n.dial) })
	group.Go(func() error {
		<-ctx.Done()
		return g.shutdown(context.Cause(ctx))
	})
	if n.debug != nil {
		group.Go(func() error { return serveDebug(ctx, n.debug, g.manager) })
	}
	err := group.Wait()
	g.screen.printf("all sessions ended\n\n%s", g.finalReport())
	return err
}

// shutdown ends a game: serve has stopped accepting, since its context has ended;
// now the world comes to rest, is saved, and only then everybody has to leave.
func (g *game) shutdown(why error) error {
	g.screen.printf("\nshutting down: %v\n", why)
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	begun := time.Now()
	drained := g.manager.Shutdown(ctx)
	g.screen.clear()
	if drained == nil {
		g.screen.printf("tasks drained in %s, every run ended by itself\n", short(time.Since(begun)))
	}
	saved := g.saveWorld(context.Background()) // even if ctx is used up
	if saved == nil {
		g.screen.printf("world saved to %s\n", g.cfg.snapshot)
	}
	g.server.close(errStopping)
	return errors.Join(drained, saved)
}

// saveWorld is the snapshot task, and the last thing that is done with the world.
func (g *game) saveWorld(ctx context.Context) error {
	return save(ctx, g.cfg.snapshot, g.world.state())
}

func (g *game) announce(n network) {
	g.screen.printf("game     %s, %d bots coming\n", n.game.Addr(), g.cfg.bots)
	if n.debug != nil {
		g.screen.printf("tasks    http://%s/debug/tasks\n", n.debug.Addr())
	}
	g.screen.printf("snapshot %s\n", g.cfg.snapshot)
	until := "Ctrl-C"
	if g.cfg.duration > 0 {
		until = fmt.Sprintf("Ctrl-C or %v have passed", g.cfg.duration)
	}
	g.screen.printf("playing until %s\n\n", until)
}
