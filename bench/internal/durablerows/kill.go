package durablerows

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/taskmanager-go/taskmanager/bench/internal/row"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/sqlstore"
)

// NodeFlag, as the first argument, makes the binary a node that is there to be killed.
// The rest is the database, its data source name and the node's timeout.
const NodeFlag = "-node"

const held = "held" // the job and its handler

// Node is the main function of such a node. It tells what happens, a line each:
//
//	leading
//	following
//	run ID of-run
//
// and ends with its input, so that it does not outlive who started it.
func Node(words []string, in io.Reader, out io.Writer) error {
	if len(words) != 3 {
		return fmt.Errorf("bench: %s wants a database, a data source name and a timeout", NodeFlag)
	}
	timeout, err := time.ParseDuration(words[2])
	if err != nil {
		return err
	}
	p := place{database: words[0], dsn: words[1], driver: "sqlite", dialect: sqlstore.SQLite()}
	switch p.database {
	case postgres:
		p.driver, p.dialect = "pgx", sqlstore.PostgreSQL()
	case mariadb:
		p.driver, p.dialect = "mysql", sqlstore.MySQL()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	store, db, err := p.store(ctx, 4)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := durable.New(store, durable.Config{
		Node: "victim", NodeTimeout: timeout, PollInterval: 50 * time.Millisecond, ShutdownTimeout: -1, Retention: -1,
		Observer: durable.ObserverFunc(func(e durable.Event) {
			switch e.Kind {
			case durable.EventLeading, durable.EventFollowing:
				fmt.Fprintln(out, e.Kind)
			}
		}),
	})
	if err != nil {
		return err
	}
	err = durable.Handle(s, held, func(ctx context.Context, run durable.Run, _ args) error {
		fmt.Fprintf(out, "run %s %s\n", run.ID, run.RetryOf)
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// A kill is the time from a node's death to the start of its recoverable run on
// another: the leader is the one that dies, by a signal that cannot be caught, with the
// run in its handler.
type kill struct {
	database string
	timeout  time.Duration // of the nodes
	trials   map[row.Mode]int
}

func (k kill) measure(ctx context.Context, mode row.Mode) (o row.Outcome, err error) {
	var took []float64
	for range k.trials[mode] {
		d, err := k.trial(ctx)
		if err != nil {
			return o, err
		}
		took = append(took, d.Seconds())
	}
	slices.Sort(took)
	o.Values = row.Values{
		row.Runs: float64(len(took)), row.Recovery: took[len(took)/2], row.RecoveryMax: took[len(took)-1],
	}
	return o, nil
}

func (k kill) trial(ctx context.Context) (took time.Duration, err error) {
	s, err := openStored(ctx, k.database, 2)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.Edit(ctx, held, durable.EditJob, func(e *durable.Edit) error {
		e.Job = &durable.JobRow{Name: held, Handler: held, AllowConcurrent: true, RequestsRecovery: true, Source: durable.SourceAPI}
		return nil
	}); err != nil {
		return 0, err
	}
	t := &trial{kill: k, stored: s, said: make(chan said, 100)}
	defer t.end()
	for i := range t.nodes {
		if err := t.start(i); err != nil {
			return 0, err
		}
	}
	// A node declares nobody dead before its heartbeats were answered for a while.
	if err := t.hear(ctx, 2*k.timeout+10*time.Second, func(said) bool { return t.leader() >= 0 }); err != nil {
		return 0, err
	}
	time.Sleep(3 * k.timeout / 2)
	id, err := t.occupyLeader(ctx)
	if err != nil {
		return 0, err
	}
	leader := t.leader()
	start := time.Now()
	if err := t.nodes[leader].cmd.Process.Kill(); err != nil {
		return 0, err
	}
	err = t.hear(ctx, 4*k.timeout+20*time.Second, func(s said) bool {
		took = s.at.Sub(start)
		return s.node != leader && len(s.words) == 3 && s.words[0] == "run" && s.words[2] == id
	})
	return took, err
}

// A trial is two nodes, of which one is killed.
type trial struct {
	kill
	*stored
	nodes [2]victim
	said  chan said
}

// A victim is a node in a process of its own.
type victim struct {
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{}   // closed when it says no more
	errs strings.Builder // its log
	led  bool
}

// said is a line that a node has written.
type said struct {
	node  int
	words []string
	at    time.Time
}

func (t *trial) start(i int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	n := &t.nodes[i]
	cmd := exec.Command(exe, NodeFlag, t.database, t.place.dsn, t.timeout.String())
	cmd.Stderr = &n.errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.in, n.done = cmd, in, make(chan struct{})
	go func() {
		defer close(n.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			t.said <- said{i, strings.Split(lines.Text(), " "), time.Now()}
		}
	}()
	return nil
}

// end kills what is left, and waits for it.
func (t *trial) end() {
	go func() {
		for range t.said {
		}
	}()
	for i := range t.nodes {
		if n := &t.nodes[i]; n.cmd != nil {
			_ = n.cmd.Process.Kill()
			<-n.done
			_ = n.cmd.Wait()
			_ = n.in.Close()
		}
	}
	close(t.said)
}

// hear waits until a node says what it should.
func (t *trial) hear(ctx context.Context, most time.Duration, f func(said) bool) error {
	limit := time.After(most)
	for {
		select {
		case s := <-t.said:
			t.nodes[s.node].led = s.words[0] == "leading" || t.nodes[s.node].led && s.words[0] != "following"
			if f(s) {
				return nil
			}
		case <-limit:
			return fmt.Errorf("bench: the nodes were silent for %v: %.200s %.200s", most, &t.nodes[0].errs, &t.nodes[1].errs)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leader is the one node that leads, or -1.
func (t *trial) leader() int {
	for i := range t.nodes {
		if t.nodes[i].led {
			return i
		}
	}
	return -1
}

// occupyLeader calls the job until the leader has a run of it, and gives its ID.
func (t *trial) occupyLeader(ctx context.Context) (id string, err error) {
	const calls = 10 // a node has as many slots
	for i := range calls {
		if err := t.call(ctx, i); err != nil {
			return "", err
		}
		var by int
		err := t.hear(ctx, 10*time.Second, func(s said) bool {
			if s.words[0] != "run" {
				return false
			}
			id, by = s.words[1], s.node
			return true
		})
		if err != nil {
			return "", err
		}
		if by == t.leader() {
			return id, nil
		}
	}
	return "", errors.New("bench: the leader claimed nothing")
}

func (t *trial) call(ctx context.Context, i int) error {
	return t.Edit(ctx, held, durable.EnqueueOnly, func(e *durable.Edit) error {
		id := fmt.Sprintf("%026d", i)
		e.Add = []durable.TriggerRow{{
			ID: id, Job: held, Name: "manual-" + id, Handler: held, Kind: durable.KindManual,
			Priority: durable.DefaultPriority, DueAt: e.Now, ScheduledAt: e.Now, Attempt: 1, IdempotencyKey: held + "//" + id,
		}}
		return nil
	})
}
