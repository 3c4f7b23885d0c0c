package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/taskmanager-go/taskmanager/durable"
)

// One connection is enough for a whole scheduler, with fifty jobs at once.
func TestFaultPoolOfOne(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		var jobs []jobSpec
		for i := range 50 {
			jobs = append(jobs, jobSpec{Name: fmt.Sprintf("job-%02d", i), Handler: []string{"short", "slow"}[i%2], Recover: i%3 == 0, Schedule: "every 200ms x4"})
		}
		n := w.spec("node", jobs...)
		n.Pool, n.Slots, n.Timeout = 1, 20, 30*time.Second
		node := w.start(n)
		w.poll("all have run four times", func() bool {
			return w.number("SELECT count(*) FROM taskmanager_history") == 200
		})
		w.settle()
		node.stop()
		w.audit()
		if st := node.Stats(); st.Revived != 0 || node.has("event outage")+node.has("event fenced") != 0 {
			w.Errorf("Stats = %+v, want no errors", st)
		}
	})
}

// The application has the only connection for longer than a heartbeat: the node waits for
// it, and nobody dies.
func TestFaultPoolTaken(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		const timeout = 15 * time.Second
		jobs := []jobSpec{{Name: "hold", Handler: "hold", Recover: true}, {Name: "quick", Handler: "quick", Concurrent: true}}
		n := w.spec("crowded", jobs...)
		db, err := n.open(nil)
		if err != nil {
			w.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		beats := make(chan struct{}, 1)
		n.db, n.Timeout = db, timeout
		n.wrap = func(s durable.Store) durable.Store {
			return &tapStore{Store: s, onBeat: func(_ time.Time, _ durable.BeatResult, err error) {
				if err == nil {
					select {
					case beats <- struct{}{}:
					default:
					}
				}
			}}
		}
		crowded := w.start(n)
		w.Cleanup(func() {
			crowded.stop()
			_ = db.Close()
		})
		w.call(crowded, "hold")
		crowded.await(w, "run hold", 1)
		n = w.spec("other", jobs...)
		n.Timeout = timeout
		other := w.start(n)
		select {
		case <-beats:
		default:
		}
		<-beats
		conn, err := db.Conn(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(timeout/3 + time.Second) // that is what is tested
		if err := conn.Close(); err != nil {
			w.Fatal(err)
		}
		<-beats
		w.call(crowded, "quick")
		if err := w.journal.let("hold"); err != nil {
			w.Fatal(err)
		}
		w.settle()
		crowded.stop()
		other.stop()
		w.audit()
		if n := other.has("event node dead") + crowded.has("event fenced") + crowded.has("event node lost"); n != 0 {
			w.Errorf("the node was lost %d times, want never", n)
		}
	})
}

// Nodes that claim, end, edit, pause, purge and call by hand at once: deadlocks happen,
// and nobody hears of them.
func TestFaultDeadlocksStayInside(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		const jobCount, calls = 6, 30
		var jobs []jobSpec
		for i := range jobCount {
			jobs = append(jobs, jobSpec{Name: fmt.Sprint("job-", i), Handler: "short", Recover: i%2 == 0, Concurrent: i%3 > 0})
		}
		var nodes []*node
		for i := range 4 {
			n := w.spec(fmt.Sprint("node-", i), jobs...)
			n.Timeout, n.Poll = 30*time.Second, 50*time.Millisecond
			nodes = append(nodes, w.start(n))
		}
		ids := make(chan string, len(nodes)*calls)
		var g errgroup.Group
		for i, n := range nodes {
			g.Go(func() error {
				ctx, cancel := context.WithTimeout(w.Context(), eventually)
				defer cancel()
				for c := range calls {
					job := jobs[(i+c)%jobCount].Name
					id, err := n.Trigger(ctx, job, nil)
					if err != nil && !errors.Is(err, durable.ErrConflict) {
						return err
					}
					ids <- id
					if c%5 == 0 {
						if err := n.PauseJob(ctx, job); err != nil {
							return err
						}
						if err := n.ResumeJob(ctx, job); err != nil {
							return err
						}
						if _, err := n.Purge(ctx, time.Now().Add(-time.Hour)); err != nil {
							return err
						}
						if _, err := n.Cancel(ctx, "job-9"); !errors.Is(err, durable.ErrNotFound) {
							return fmt.Errorf("Cancel of nothing = %w", err)
						}
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			w.Error(err)
		}
		close(ids)
		for id := range ids {
			w.want[id] = true
		}
		w.settle()
		for _, n := range nodes {
			st, outages := n.Stats(), n.has("event outage")
			n.stop()
			if outages != 0 {
				if w.driver == "sqlite" { // which is not fair to those who wait for the file
					w.Logf("a round did not get its turn in time: %+v", st)
					continue
				}
				w.Errorf("Stats = %+v, want no errors", st)
			}
		}
		w.audit()
	})
}
