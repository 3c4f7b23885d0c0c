package pgnotify_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
)

// dialled is a Waker whose connections dial makes.
func dialled(t *testing.T, dial func() (net.Conn, error)) *pgnotify.Waker {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://postgres@127.0.0.1:1/test?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) { return dial() }
	w, err := pgnotify.NewFromConfig(config, "c")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNothingConnectsAfterClose(t *testing.T) {
	var dials atomic.Int64
	w := dialled(t, func() (net.Conn, error) { dials.Add(1); return nil, errors.New("no server") })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := w.Notify(t.Context(), durable.NoteDue); !errors.Is(err, pgnotify.ErrClosed) {
			t.Fatalf("Notify after Close = %v, want ErrClosed", err)
		}
	}
	if n := dials.Load(); n != 0 {
		t.Errorf("%d of 1,000 calls of Notify after Close have connected, want none", n)
	}
}

// A server that is gone as soon as it has let somebody in.
func TestALinkThatIsCutBeforeItListensIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logins atomic.Int64
		w := dialled(t, func() (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				b := pgproto3.NewBackend(server, server)
				m, err := b.ReceiveStartupMessage()
				if _, login := m.(*pgproto3.StartupMessage); err != nil || !login { // to cancel another's query
					return
				}
				logins.Add(1)
				b.Send(&pgproto3.AuthenticationOk{})
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				if b.Flush() != nil {
					return
				}
				for {
					if _, err := b.Receive(); err != nil {
						return
					}
				}
			}()
			return client, nil
		})
		_, stop := listen(t, w)
		time.Sleep(30 * time.Second)
		if n := logins.Load(); n < 2 {
			t.Errorf("%d connections in 30 s of a link that is dead, want it replaced", n)
		}
		stop()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // of the bubble: the driver closes what it has given up on behind its caller
	})
}
