package pgnotify_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dsn() string {
	if v := os.Getenv("TASKMANAGER_TEST_POSTGRES"); v != "" {
		return v
	}
	return "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
}

// admin is a connection to look at the others with. Without a server the test is
// skipped, which CI does not allow.
func admin(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn())
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("no server: ", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// waker has a channel of the test's own, which is its application's name too.
func waker(t *testing.T) (*pgnotify.Waker, string) {
	t.Helper()
	name := fmt.Sprintf("tm_%d_%d", os.Getpid(), time.Now().UnixNano())
	config, err := pgx.ParseConfig(dsn())
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = name
	w, err := pgnotify.NewFromConfig(config, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, name
}

// listen gives what is heard.
func listen(t *testing.T, w *pgnotify.Waker) (chan durable.Note, func()) {
	t.Helper()
	notes := make(chan durable.Note, 100)
	stop, err := w.Listen(func(n durable.Note) { notes <- n })
	if err != nil {
		t.Fatal(err)
	}
	return notes, stop
}

// hear sends note until it is heard: nobody knows when LISTEN has been said.
func hear(t *testing.T, w *pgnotify.Waker, notes chan durable.Note, note durable.Note) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if err := w.Notify(t.Context(), note); err != nil {
			t.Fatal(err)
		}
		again := time.After(50 * time.Millisecond)
	listening:
		for {
			select {
			case n := <-notes:
				if n == note {
					return
				}
			case <-again:
				break listening
			case <-deadline:
				t.Fatalf("note %q was not heard", note)
			}
		}
	}
}

func TestNotesReachAllThatListen(t *testing.T) {
	admin(t)
	w, _ := waker(t)
	one, stopOne := listen(t, w)
	two, stopTwo := listen(t, w)
	defer stopTwo()
	hear(t, w, one, durable.NoteDue)
	hear(t, w, two, durable.NoteCancel)
	stopOne()
	stopOne() // does no harm
	hear(t, w, two, durable.NoteJobs)
}

func TestLostConnectionsComeBack(t *testing.T) {
	conn := admin(t)
	w, name := waker(t)
	notes, stop := listen(t, w)
	defer stop()
	hear(t, w, notes, "before")
	for range 2 { // what notifies is lost as well as what listens
		if _, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name); err != nil {
			t.Fatal(err)
		}
		want := map[durable.Note]bool{durable.NoteDue: true, durable.NoteCancel: true, durable.NoteJobs: true}
		deadline := time.After(20 * time.Second)
		for len(want) > 0 {
			select {
			case n := <-notes:
				delete(want, n)
			case <-deadline:
				t.Fatalf("after the reconnection, notes %v were not heard", want)
			}
		}
		hear(t, w, notes, "after")
	}
}

func TestCloseEndsAll(t *testing.T) {
	conn := admin(t)
	w, name := waker(t)
	notes, stop := listen(t, w)
	hear(t, w, notes, durable.NoteDue)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := w.Notify(t.Context(), durable.NoteDue); !errors.Is(err, pgnotify.ErrClosed) {
		t.Errorf("Notify after Close = %v, want ErrClosed", err)
	}
	if _, err := w.Listen(func(durable.Note) {}); !errors.Is(err, pgnotify.ErrClosed) {
		t.Errorf("Listen after Close = %v, want ErrClosed", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("Close again = %v", err)
	}
	// The server ends a session a moment after its client has left.
	for n := 1; n > 0; {
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutServerItGoesOnTrying(t *testing.T) {
	w, err := pgnotify.New("postgres://postgres@127.0.0.1:1/test?sslmode=disable", "c")
	if err != nil {
		t.Fatal(err)
	}
	_, stop := listen(t, w)
	if err := w.Notify(t.Context(), durable.NoteDue); err == nil {
		t.Error("Notify = nil, want an error")
	}
	stop()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestNewRefusesWhatCannotBe(t *testing.T) {
	for _, channel := range []string{"", "A", "a-b", `a"; DROP`, "1a"} {
		if _, err := pgnotify.New(dsn(), channel); err == nil {
			t.Errorf("New(channel %q) = nil, want an error", channel)
		}
	}
	if _, err := pgnotify.New("postgres://%%", "c"); err == nil {
		t.Error("New of a bad connection string = nil, want an error")
	}
}
