package pgnotify

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"

	"github.com/taskmanager-go/taskmanager/durable"
)

// The times of a connection.
const (
	connectTimeout = 10 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 15 * time.Second
	pingInterval   = 30 * time.Second // of a silent connection
	pingTimeout    = 5 * time.Second
)

// A Waker is a durable.Waker on one channel of a PostgreSQL database.
type Waker struct {
	config  *pgx.ConnConfig
	channel string

	// turn is held by whoever uses conn, the connection that notifies; nil if there
	// is none.
	turn chan struct{}
	conn *pgx.Conn

	ctx   context.Context // ends with Close
	close context.CancelFunc

	// mu guards adding to loops against Close's waiting for them.
	mu    sync.Mutex
	loops sync.WaitGroup
}

// ErrClosed is returned by a Waker after Close.
var ErrClosed = errors.New("pgnotify: closed")

var validChannel = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// New returns a Waker for the channel, whose name is of small letters, digits and "_".
// Schedulers that share tables share a channel. It does not connect yet.
func New(connString, channel string) (*Waker, error) {
	config, err := pgx.ParseConfig(connString)
	if err != nil {
		return nil, fmt.Errorf("pgnotify: %w", err)
	}
	return NewFromConfig(config, channel)
}

// NewFromConfig is New with a parsed configuration, which it copies.
func NewFromConfig(config *pgx.ConnConfig, channel string) (*Waker, error) {
	if config == nil {
		return nil, errors.New("pgnotify: no configuration")
	}
	if !validChannel.MatchString(channel) {
		return nil, fmt.Errorf("pgnotify: channel %q: not %s", channel, validChannel)
	}
	w := &Waker{config: config.Copy(), channel: channel, turn: make(chan struct{}, 1)}
	if w.config.ConnectTimeout == 0 {
		w.config.ConnectTimeout = connectTimeout
	}
	w.ctx, w.close = context.WithCancel(context.Background())
	return w, nil
}

// Notify implements durable.Waker. A connection that was lost since the last time is
// replaced.
func (w *Waker) Notify(ctx context.Context, note durable.Note) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return w.explain(ctx.Err())
	}
	defer func() { <-w.turn }()
	if w.ctx.Err() != nil { // which ends ctx in a moment; nobody would close another connection
		return ErrClosed
	}
	if w.conn != nil && w.send(ctx, note) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return w.explain(err)
	}
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return w.explain(err)
	}
	w.conn = conn
	return w.explain(w.send(ctx, note))
}

// send drops a connection that fails.
func (w *Waker) send(ctx context.Context, note durable.Note) error {
	_, err := w.conn.Exec(ctx, "SELECT pg_notify($1, $2)", w.channel, string(note))
	if err != nil {
		hangUp(w.conn)
		w.conn = nil
	}
	return err
}

func (w *Waker) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case w.ctx.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("pgnotify: %w", err)
}

// Listen implements durable.Waker. It reconnects as often as it takes, with pauses
// that grow to 15 s; since notes may have been missed by then, f gets each of the
// known ones after every reconnection. f must not call stop.
func (w *Waker) Listen(f func(durable.Note)) (stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	w.loops.Go(func() {
		defer close(done)
		w.listen(ctx, f)
	})
	return func() {
		cancel()
		<-done
	}, nil
}

func (w *Waker) listen(ctx context.Context, f func(durable.Note)) {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause),
		backoff.WithMaxInterval(longestPause),
		backoff.WithMaxElapsedTime(0))
	for again := false; ; again = true {
		heard := w.receive(ctx, f, again)
		if heard {
			pause.Reset()
		}
		t := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// receive listens on one connection until it fails, and tells whether it got as far
// as to listen.
func (w *Waker) receive(ctx context.Context, f func(durable.Note), again bool) bool {
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return false
	}
	defer hangUp(conn)
	if !w.subscribe(ctx, conn) {
		return false
	}
	if again {
		for _, n := range []durable.Note{durable.NoteDue, durable.NoteCancel, durable.NoteJobs} {
			f(n)
		}
	}
	for {
		note, err := next(ctx, conn)
		if err != nil || ctx.Err() != nil {
			return true
		}
		f(note)
	}
}

// subscribe says LISTEN, and tells whether the server has taken it in time: the link may be cut
// as soon as it is there.
func (w *Waker) subscribe(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "LISTEN "+w.channel)
	return err == nil
}

// next waits for a note. A silent connection is asked now and then whether it is
// there still: one that was cut off does not fail by itself.
func next(ctx context.Context, conn *pgx.Conn) (durable.Note, error) {
	for {
		silence, cancel := context.WithTimeout(ctx, pingInterval)
		n, err := conn.WaitForNotification(silence)
		cancel()
		if err == nil {
			return durable.Note(n.Payload), nil
		}
		if ctx.Err() != nil || silence.Err() == nil {
			return "", err
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		err = conn.Ping(ping)
		cancel()
		if err != nil {
			return "", err
		}
	}
}

// hangUp closes a connection, which takes a moment at most.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Close stops all that listen, waits for them, and closes the connections.
func (w *Waker) Close() error {
	w.mu.Lock()
	w.close()
	w.mu.Unlock()
	w.loops.Wait()
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if w.conn != nil {
		hangUp(w.conn)
		w.conn = nil
	}
	return nil
}

var _ durable.Waker = (*Waker)(nil)
