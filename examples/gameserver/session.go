package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	joinLimit  = 2 * time.Second // from connecting to having joined
	idleLimit  = 3 * time.Second // without a word; the cleanup task sees to it
	writeLimit = time.Second     // for a client to take what is sent at once
	queueLimit = 64              // lines that wait for a slow client
)

// A session is one client's connection. One goroutine reads, one writes; the first
// of them to end ends the other.
type session struct {
	conn  net.Conn
	lines *bufio.Scanner // of the reading goroutine
	queue chan []byte
	end   context.CancelCauseFunc // ends run; the cause is told to the client
	heard atomic.Int64            // when the last line came, in Unix nanoseconds

	player uint64 // 0 before join; guarded by server.mu
}

// newSession returns a session and the context that its run is for.
func newSession(conn net.Conn) (*session, context.Context) {
	ctx, end := context.WithCancelCause(context.Background())
	s := &session{conn: conn, lines: bufio.NewScanner(conn), queue: make(chan []byte, queueLimit), end: end}
	s.lines.Buffer(make([]byte, 0, maxLine), maxLine)
	s.heard.Store(time.Now().UnixNano())
	return s, ctx
}

// run serves the client until one of the two is through with the other, and
// returns why; never nil. It closes the connection. The first reason counts: what
// end was called with, and not the end of file with which the client answers.
func (s *session) run(ctx context.Context, obey func(line string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.read(obey) })
	group.Go(func() error { return s.write(ctx) })
	_ = group.Wait()
	return context.Cause(ctx)
}

func (s *session) read(obey func(line string) error) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(joinLimit)); err != nil {
		return err
	}
	for s.lines.Scan() {
		s.heard.Store(time.Now().UnixNano())
		if err := obey(s.lines.Text()); err != nil {
			return err
		}
	}
	if err := s.lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

// joined takes off the deadline for joining. From now on a client that falls silent
// is the cleanup task's business: one pass a second for all of them, instead of a
// timer moved for every line.
func (s *session) joined() error { return s.conn.SetReadDeadline(time.Time{}) }

// send queues a line. It never waits: what a client is too slow to take is dropped,
// and there will be newer news.
func (s *session) send(line []byte) (queued bool) {
	select {
	case s.queue <- line:
		return true
	default:
		return false
	}
}

// write sends what is queued until ctx ends, and then says goodbye. It closes the
// connection, which is what ends a read that is waiting.
func (s *session) write(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.conn.Close()) }()
	w := bufio.NewWriter(s.conn)
	for {
		select {
		case line := <-s.queue:
			if err := s.flush(w, line, nil); err != nil {
				return err
			}
		case <-ctx.Done():
			why := context.Cause(ctx)
			return errors.Join(why, s.flush(w, nil, fmt.Appendf(nil, "bye %v\n", why)))
		}
	}
}

// flush sends first, what is queued, and last.
func (s *session) flush(w *bufio.Writer, first, last []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	_, _ = w.Write(first) // an error stays with w, and comes from Flush
	for range len(s.queue) {
		_, _ = w.Write(<-s.queue)
	}
	_, _ = w.Write(last)
	return w.Flush()
}

// silent is how long the client has not said a word.
func (s *session) silent(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, s.heard.Load()))
}
