package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const maxSessions = 10_000

// Why the server ends a session. The client is told.
var (
	errStopping = errors.New("the server is stopping")
	errFull     = errors.New("the server is full")
	errIdle     = errors.New("you have been silent for too long")
)

// A server is the sessions, and what happens to all of them.
type server struct {
	world   *world
	traffic traffic

	// mu guards the fields below, and the player of every session. It is never
	// held during IO. Lock order: server.mu, then world.mu.
	mu       sync.Mutex
	sessions map[*session]struct{}
	closed   error // why no session may begin any more

	pings int // of the heartbeat task, whose runs do not overlap
}

func newServer(w *world) *server { return &server{world: w, sessions: map[*session]struct{}{}} }

// serve accepts clients until ctx ends, and returns when the last of them has left,
// for which close is what to call.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			clients.Go(func() { s.handle(s.traffic.meter(conn)) })
		case ctx.Err() != nil:
			return nil
		case !isTemporary(err):
			return fmt.Errorf("accept: %w", err)
		case !pause(ctx, 50*time.Millisecond): // out of file descriptors, say
			return nil
		}
	}
}

// isTemporary tells whether Accept may be called again. The method is deprecated
// because it says too little in general; for Accept it says just this.
func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// pause waits for d, and tells whether it did: false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// handle is one client's stay, from accept to close.
func (s *server) handle(conn net.Conn) {
	session, ctx := newSession(conn)
	if err := s.admit(session); err != nil {
		session.end(err) // run says it to the client
	}
	err := session.run(ctx, func(line string) error { return s.obey(session, line) })
	s.dismiss(session)
	s.traffic.left(err)
}

// admit takes a session among those that close ends.
func (s *server) admit(n *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed != nil:
		return s.closed
	case len(s.sessions) >= maxSessions:
		return errFull
	}
	s.sessions[n] = struct{}{}
	return nil
}

func (s *server) dismiss(n *session) {
	s.mu.Lock()
	delete(s.sessions, n)
	player := n.player
	s.mu.Unlock()
	s.world.leave(player)
}

// close ends all sessions, and has those end at once that are still to come.
func (s *server) close(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = why
	for n := range s.sessions {
		n.end(why)
	}
}

// obey does what a client's line says. Its error ends the session.
func (s *server) obey(n *session, line string) error {
	c, err := parseCommand(line)
	if err != nil {
		return err
	}
	player := s.playerOf(n)
	switch {
	case (c.verb == "join") != (player == 0):
		return fmt.Errorf("%w: join first, and once", errProtocol)
	case c.verb == "join":
		return s.join(n, c.name)
	case c.verb == "steer":
		s.world.steer(player, c.dx, c.dy)
	case c.verb == "quit":
		return errQuit
	}
	return nil
}

func (s *server) playerOf(n *session) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.player
}

func (s *server) join(n *session, name string) error {
	id := s.world.join(name)
	s.post(n, fmt.Appendf(nil, "welcome %d\n", id))
	s.mu.Lock()
	n.player = id // from now on it gets what all get
	s.mu.Unlock()
	return n.joined()
}

// A seat is a session with its player.
type seat struct {
	*session
	player uint64
}

// seats copies the sessions that have joined, so that no lock is held while
// something is done to them.
func (s *server) seats() []seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	seats := make([]seat, 0, len(s.sessions))
	for n := range s.sessions {
		if n.player != 0 {
			seats = append(seats, seat{n, n.player})
		}
	}
	return seats
}

// post queues a line for one client.
func (s *server) post(n *session, line []byte) {
	if !n.send(line) {
		s.traffic.dropped.Add(1)
	}
}

// broadcastState is the task that tells every player where they are.
func (s *server) broadcastState(context.Context) error {
	state := s.world.state()
	for _, n := range s.seats() {
		if i, ok := find(state.Players, n.player); ok {
			p := state.Players[i]
			s.post(n.session, fmt.Appendf(nil, "state %d %.2f %.2f %d\n", state.Tick, p.X, p.Y, p.Score))
		}
	}
	return nil
}

// heartbeat is the task that asks every player for a sign of life.
func (s *server) heartbeat(context.Context) error {
	s.pings++
	line := fmt.Appendf(nil, "ping %d\n", s.pings)
	for _, n := range s.seats() {
		s.post(n.session, line)
	}
	return nil
}

// dropIdle is the task that ends the sessions of those who give none.
func (s *server) dropIdle(context.Context) error {
	now := time.Now()
	for _, n := range s.seats() {
		if n.silent(now) > idleLimit {
			n.end(errIdle)
		}
	}
	return nil
}

// broadcastTop tells every player who leads.
func (s *server) broadcastTop(leaders []player) {
	var b strings.Builder
	b.WriteString("top")
	for _, p := range leaders {
		fmt.Fprintf(&b, " %s:%d", p.Name, p.Score)
	}
	b.WriteString("\n")
	line := []byte(b.String())
	for _, n := range s.seats() {
		s.post(n.session, line)
	}
}
