// Command gameserver is a small multiplayer server that lives on recurring tasks:
// a 60 Hz world, heartbeats, session cleanup, snapshots, a leaderboard, an upstream
// that fails and a query that takes too long. It brings its own players:
//
//	go run ./examples/gameserver -for 10s
//
// Start reading at tasks.go: everything that happens again and again stands there.
// game.go is how the parts are put together and taken apart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// A config is what the command line says.
type config struct {
	addr     string        // of the game
	debug    string        // of /debug/tasks, empty for none
	snapshot string        // file, empty for one in a temporary directory
	bots     int           // players to bring along
	duration time.Duration // 0: until interrupted
}

func main() {
	cfg, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2) // parseFlags has said why
	}
	if err := play(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "gameserver:", err)
		os.Exit(1)
	}
}

// parseFlags says on w what is wrong.
func parseFlags(args []string, w io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("gameserver", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	flags.StringVar(&cfg.debug, "debug", "127.0.0.1:0", "`address` of /debug/tasks; empty for none")
	flags.StringVar(&cfg.snapshot, "snapshot", "", "`file` to save the world to (default one in a temporary directory)")
	flags.IntVar(&cfg.bots, "bots", 200, "`number` of players to bring along")
	flags.DurationVar(&cfg.duration, "for", 0, "`time` to play; 0: until interrupted")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	err := cfg.check(flags.Args())
	if err != nil {
		fmt.Fprintln(w, "gameserver:", err)
	}
	return cfg, err
}

func (c config) check(rest []string) error {
	var errs []error
	if c.bots < 0 {
		errs = append(errs, fmt.Errorf("-bots %d: must not be negative", c.bots))
	}
	if c.duration < 0 {
		errs = append(errs, fmt.Errorf("-for %v: must not be negative", c.duration))
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected %q", rest))
	}
	return errors.Join(errs...)
}

// play runs one game on real sockets, until it is interrupted or its time is up.
func play(cfg config) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills

	screen := newConsole(os.Stdout, isTerminal(os.Stdout))
	file, done, err := snapshotFile(cfg.snapshot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	cfg.snapshot = file

	game, err := newGame(cfg, screen)
	if err != nil {
		return err
	}
	network, err := listen(cfg)
	if err != nil {
		return errors.Join(err, game.manager.Close())
	}
	return game.run(ctx, network)
}

// A network is where the game listens, and how its players get there.
type network struct {
	game  net.Listener
	debug net.Listener // nil for none
	dial  func(context.Context) (net.Conn, error)
}

func listen(cfg config) (network, error) {
	game, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return network{}, err
	}
	n := network{game: game, dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", game.Addr().String())
	}}
	if cfg.debug == "" {
		return n, nil
	}
	if n.debug, err = net.Listen("tcp", cfg.debug); err != nil {
		return network{}, errors.Join(err, game.Close())
	}
	return n, nil
}

func (n network) close() error {
	err := n.game.Close()
	if n.debug != nil {
		err = errors.Join(err, n.debug.Close())
	}
	return err
}
