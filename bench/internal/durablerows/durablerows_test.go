package durablerows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/durable"
)

func TestPlacesThatWereLeftAreToldFromThoseInUse(t *testing.T) {
	old := fmt.Sprintf("%s%d_7", placePrefix, time.Now().Add(-2*placeLife).Unix())
	for name, want := range map[string]bool{freshName(): false, old: true, "public": false, old + "x": false, "x" + old: false} {
		if got := left(name); got != want {
			t.Errorf("left(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestParametersAreAddedToURLsAndWords(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://h/d":              "postgres://h/d?search_path=s",
		"postgres://h/d?sslmode=none": "postgres://h/d?sslmode=none&search_path=s",
		"host=h dbname=d":             "host=h dbname=d search_path=s",
	} {
		if got := withParameter(dsn, "search_path", "s"); got != want {
			t.Errorf("withParameter(%q) = %q, want %q", dsn, got, want)
		}
	}
}

func TestAServerThatIsNotThereIsANoteAndInCIAnError(t *testing.T) {
	away := func(context.Context, row.Mode) (row.Outcome, error) {
		return row.Outcome{}, fmt.Errorf("open: %w", unreachable{errors.New("refused")})
	}
	e := entry("x", "X", true, seconds(1, 1, 1), away)
	t.Setenv("CI", "true")
	if o, err := e.Measure(row.Full); err != nil || len(o.Values) > 0 || len(o.Notes) != 1 || !strings.Contains(o.Notes[0], "refused") {
		t.Errorf("Measure = %v, %v, want no values and a note", o, err)
	}
	if _, err := e.Measure(row.Smoke); err == nil {
		t.Error("a smoke run in CI passes without the server")
	}
	t.Setenv("CI", "")
	if _, err := e.Measure(row.Smoke); err != nil {
		t.Errorf("a smoke run elsewhere = %v, want nil", err)
	}
}

func TestABacklogInMemoryIsWorkedOff(t *testing.T) {
	for name, c := range map[string]contend{"ours": ours(memory, 2, 10), "store": storeOnly(memory)} {
		d := drain{jobs: 300, limit: 10 * time.Second}
		b, err := c(t.Context(), d)
		if err != nil {
			t.Fatal(name, err)
		}
		o, err := d.measure(t.Context(), name, b)
		if err != nil || o.Values[row.JobsPerS] <= 0 || o.Values[row.Errors] != 0 {
			t.Errorf("%s: %v, %v, want jobs and no errors", name, o, err)
		}
		if n := b.handled(); n != 300 {
			t.Errorf("%s: %d jobs handled, want 300", name, n)
		}
	}
}

// The raw loops must do what they say: every job once.
func TestTheRawLoopOnSQLiteMovesEveryJobOnce(t *testing.T) {
	d := drain{jobs: 250, limit: 10 * time.Second}
	p, err := newPlace(t.Context(), sqlite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.drop(); err != nil {
			t.Error(err)
		}
	}()
	db, err := p.open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := sqliteLoop.fill(t.Context(), db, d.jobs); err != nil {
		t.Fatal(err)
	}
	var turns []int
	for {
		n, err := sqliteLoop.turn(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		turns = append(turns, n)
	}
	if got := fmt.Sprint(turns); got != "[100 100 50]" {
		t.Errorf("turns of %s jobs, want [100 100 50]", got)
	}
	for query, want := range map[string]int64{
		sqliteLoop.done: 250, "SELECT count(*) FROM raw_due": 0, "SELECT count(*) FROM raw_active": 0,
	} {
		if n, err := count(t.Context(), db, query); err != nil || n != want {
			t.Errorf("%s = %d, %v, want %d", query, n, err, want)
		}
	}
}

func TestANodeTellsOfItsRunAndEndsWithItsInput(t *testing.T) {
	s, err := openStored(t.Context(), sqlite, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	k := &trial{kill: kill{sqlite, time.Second, nil}, stored: s}
	if err := s.Edit(t.Context(), held, durable.EditJob, func(e *durable.Edit) error {
		e.Job = &durable.JobRow{Name: held, Handler: held, AllowConcurrent: true, RequestsRecovery: true}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := k.call(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	in := make(endOfInput)
	ended := make(chan error, 1)
	out := &lines{want: "run ", seen: func() { close(in) }}
	go func() { ended <- Node([]string{sqlite, s.place.dsn, "1s"}, in, out) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Node = %v, want nil", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the node did not end")
	}
}

// endOfInput is input that ends when it is closed.
type endOfInput chan struct{}

func (in endOfInput) Read([]byte) (int, error) {
	<-in
	return 0, errors.New("the end")
}

// lines tells when a line begins as wanted.
type lines struct {
	want string
	seen func()
}

func (l *lines) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), l.want) && l.seen != nil {
		l.seen()
		l.seen = nil
	}
	return len(b), nil
}
