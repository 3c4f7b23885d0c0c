package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// A swarm is the bots, who play as people would: over the network, knowing only the
// protocol. One in sleepers falls asleep again and again, so that the cleanup has
// something to do.
type swarm struct {
	bots []*bot

	joins, states, pings, byes atomic.Uint64 // what they have been told
	lost                       atomic.Uint64 // connections that failed
}

const (
	sleepers   = 20
	awakeFor   = 2 // pings that a sleeper answers
	rejoinWait = 500 * time.Millisecond
	arrival    = time.Second // during which the bots come
)

func newSwarm(n int) *swarm {
	s := &swarm{}
	for i := range n {
		s.bots = append(s.bots, &bot{
			swarm:  s,
			name:   fmt.Sprintf("bot-%03d", i),
			sleepy: i%sleepers == sleepers-1,
			random: rand.New(rand.NewPCG(3, uint64(i))),
		})
	}
	return s
}

// play has all bots play until ctx has ended and the server has let them go.
func (s *swarm) play(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	var group errgroup.Group
	for _, b := range s.bots {
		group.Go(func() error { return b.play(ctx, dial) })
	}
	return group.Wait()
}

// A bot is one player. All of it belongs to one goroutine.
type bot struct {
	swarm    *swarm
	name     string
	sleepy   bool
	answered int // pings, since it joined
	random   *rand.Rand
}

// play comes back after each session for as long as there is a game. That one ends
// is not an error: servers drop bots, and networks fail.
func (b *bot) play(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	for wait := b.arrival(); pause(ctx, wait); wait = rejoinWait {
		conn, err := dial(ctx)
		if err == nil {
			err = errors.Join(b.session(conn), conn.Close())
		}
		if err != nil && ctx.Err() == nil {
			b.swarm.lost.Add(1)
		}
	}
	return nil
}

func (b *bot) arrival() time.Duration { return time.Duration(b.random.Int64N(int64(arrival))) }

// session plays until the server says goodbye.
func (b *bot) session(conn net.Conn) error {
	b.answered = 0
	if err := say(conn, "join %s", b.name); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		if verb == "bye" {
			b.swarm.byes.Add(1)
			return nil
		}
		if err := b.react(conn, verb, rest); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// react does all that a bot does: nothing without having been told something, so it
// needs no timer.
func (b *bot) react(conn net.Conn, verb, rest string) error {
	asleep := b.sleepy && b.answered >= awakeFor
	switch {
	case verb == "welcome":
		b.swarm.joins.Add(1)
	case verb == "state":
		b.swarm.states.Add(1)
		if !asleep && b.random.IntN(5) == 0 {
			return say(conn, "steer %d %d", b.random.IntN(3)-1, b.random.IntN(3)-1)
		}
	case verb == "ping":
		b.swarm.pings.Add(1)
		if !asleep {
			b.answered++
			return say(conn, "pong %s", rest)
		}
	}
	return nil
}

func say(conn net.Conn, format string, args ...any) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	_, err := conn.Write(fmt.Appendf(nil, format+"\n", args...))
	return err
}
