package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// The table of docs/durable-semantics.md, row by row: a process dies by its own kill -9 at
// each point, and another node sees to what it left.
func TestFaultKilledAtEachPoint(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		points := []struct {
			point          string
			plain, recover []outcome // what may be, for each kind of job
		}{
			{beforeClaim, []outcome{fresh1}, []outcome{fresh1}},
			{claimSent, []outcome{fresh1, neverRan}, []outcome{fresh1, recovered1}},
			{afterClaim, []outcome{neverRan}, []outcome{recovered1}},
			{inHandler, []outcome{ranLost}, []outcome{recovered2}},
			{afterHandler, []outcome{ranLost}, []outcome{recovered2}},
			{inFinish, []outcome{ranLost}, []outcome{recovered2}},
			{finishSent, []outcome{ranLost, fresh1}, []outcome{recovered2, fresh1}},
			{afterFinish, []outcome{fresh1}, []outcome{fresh1}},
		}
		var victims []*process
		var jobs []jobSpec
		may := map[string][]outcome{}
		for i, p := range points {
			if w.driver == "sqlite" && (p.point == claimSent || p.point == finishSent) {
				continue
			}
			for _, recover := range []bool{false, true} {
				name := fmt.Sprintf("p%d-%v", i, recover)
				j := jobSpec{Name: name, Handler: "quick-" + name, Recover: recover}
				may[name] = p.plain
				if recover {
					may[name] = p.recover
				}
				n := w.spec("victim-"+name, j)
				n.Point, n.Target = p.point, name
				if p.point == inFinish { // the transaction is seen from inside by triggers that wait for the end
					n.Jobs[0].Schedule = "every 50ms x1"
				} else {
					n.Call = []string{name}
				}
				jobs = append(jobs, n.Jobs...)
				victims = append(victims, w.spawn(n))
			}
		}
		for _, v := range victims {
			v.died()
		}
		survivor := w.start(w.spec("survivor", jobs...))
		w.settle()
		survivor.stop()
		w.audit()
		for _, j := range jobs {
			got := outcome{starts: w.startsOf(j.Name)}
			for _, r := range w.runsOf(j.Name) {
				got.runs += fmt.Sprintf("%v %v, ", r.Kind, r.State)
			}
			got.runs = strings.Replace(got.runs, "schedule", "manual", 1)
			is := false
			for _, o := range may[j.Name] {
				is = is || o == got
			}
			if !is {
				w.Errorf("%s: %+v, want one of %+v", j.Name, got, may[j.Name])
			}
		}
	})
}

// An outcome is how often a firing's handler began, and its runs.
type outcome struct {
	starts int
	runs   string
}

var (
	fresh1     = outcome{1, "manual succeeded, "}
	neverRan   = outcome{0, "manual lost, "}
	ranLost    = outcome{1, "manual lost, "}
	recovered1 = outcome{1, "manual lost, recovery succeeded, "}
	recovered2 = outcome{2, "manual lost, recovery succeeded, "}
)

// Another node leads, and recovers, when the leader is killed.
func TestFaultLeaderKilled(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		hold := jobSpec{Name: "hold", Handler: "hold", Recover: true}
		n := w.spec("leader", hold)
		n.Timeout, n.Call = time.Second, []string{"hold"}
		leader := w.spawn(n)
		leader.await(w, "event leading", 1)
		leader.await(w, "run hold", 1)
		n = w.spec("follower", hold)
		n.Timeout = time.Second
		follower := w.start(n)
		leader.kill()
		follower.await(w, "event leading", 1)
		follower.await(w, "event node dead", 1)
		if err := w.journal.let("hold"); err != nil {
			w.Fatal(err)
		}
		w.settle()
		follower.stop()
		w.audit()
	})
}

// Scenario 19: three processes, with clocks that are off by two seconds either way, one of
// them killed every other second or so. On SQLite they share a file, and none ever hears
// that it is busy.
func TestFaultOneRunPerFiring(t *testing.T) {
	const jobCount, seconds = 10, 20
	onDatabases(t, everyDatabase, func(w *world) {
		first := time.Now().UTC().Truncate(time.Second).Add(4 * time.Second)
		last := first.Add((seconds - 1) * time.Second)
		var jobs []jobSpec
		for i := range jobCount {
			body := "short"
			if i >= jobCount*2/3 { // some are in their body when the process dies
				body = "slow"
			}
			j := jobSpec{Name: fmt.Sprint("job-", i), Handler: body, Recover: i%2 == 0, Concurrent: i%4 < 2,
				Schedule: fmt.Sprintf("cron * * * * * * start=%s end=%s", first.Format(time.RFC3339), last.Format(time.RFC3339))}
			jobs = append(jobs, j)
			for s := range seconds {
				w.instants = append(w.instants, firing{j.Name, first.Add(time.Duration(s) * time.Second)})
			}
		}
		spec := func(i int) *nodeSpec {
			n := w.spec(fmt.Sprint("node-", i), jobs...)
			n.Timeout, n.Skew = 3*time.Second, time.Duration(i-1)*2*time.Second
			return n
		}
		var nodes, all []*process
		for i := range 3 {
			nodes = append(nodes, w.spawn(spec(i)))
		}
		all = append(all, nodes...)
		for kills := 0; time.Now().Before(last); kills++ {
			i := rand.IntN(3)
			nodes[i].await(w, "started", 1)
			select {
			case <-nodes[i].ended:
			case <-time.After(time.Duration(1500+rand.IntN(1000)) * time.Millisecond):
			}
			nodes[i].kill()
			nodes[i] = w.spawn(spec(i))
			all = append(all, nodes[i])
		}
		for _, n := range nodes {
			n.await(w, "started", 1)
		}
		w.settle()
		for _, n := range nodes {
			n.term()
		}
		for _, n := range nodes {
			n.await(w, "stopped <nil>", 1)
			n.wait()
		}
		w.audit()
		skews := 0
		for _, n := range all {
			for _, line := range append(n.log.lines, n.lines...) {
				if strings.Contains(line, "clock differs from the store's") {
					skews++
				}
				if strings.Contains(line, "SQLITE_BUSY") || strings.Contains(line, "is locked") || strings.Contains(strings.ToLower(line), "deadlock") {
					w.Errorf("it reached the user: %s", line)
				}
			}
		}
		if skews < 2 {
			w.Errorf("%d lines about a clock that is off, want one of two nodes at least", skews)
		}
		w.Logf("%d processes, %d runs", w.children, len(w.history()))
	})
}

// Scenario 20: a node is frozen beyond its lease, another recovers its run, and it comes
// back: its context ends, its end is refused, and the slot is the other's still.
func TestFaultFrozenHolder(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		hold := jobSpec{Name: "hold", Handler: "hold", Recover: true, Schedule: "every 50ms x2"}
		n := w.spec("frozen", hold)
		n.Timeout = 3 * time.Second
		frozen := w.spawn(n)
		line := frozen.await(w, "run hold", 1)
		id := strings.Fields(line)[2]
		n = w.spec("other", hold)
		n.Timeout = 3 * time.Second
		other := w.start(n)
		frozen.freeze()
		other.await(w, "event node dead", 1)
		recovery := strings.Fields(other.await(w, "run hold", 1))[2] // recovery, or the trigger's second run
		frozen.thaw()
		frozen.await(w, "ctx hold "+id+" "+durable.ErrLeaseLost.Error(), 1)
		frozen.await(w, "event refused hold", 1)
		frozen.await(w, "event node lost", 1) // it goes on under another ID
		if n := w.number("SELECT count(*) FROM taskmanager_run WHERE job = 'hold'"); n != 1 {
			w.Errorf("%d active runs after the loser's end was refused, want the other's", n)
		}
		if n := w.number("SELECT count(*) FROM taskmanager_run WHERE id = '" + recovery + "' AND state = 0"); n != 1 {
			w.Errorf("the other's run %s is gone from the active ones", recovery)
		}
		if n := frozen.has("run hold"); n != 1 {
			w.Errorf("the frozen node began %d runs while the slot was the other's, want 1", n)
		}
		if err := w.journal.let("hold"); err != nil {
			w.Fatal(err)
		}
		w.settle()
		frozen.leave()
		other.stop()
		w.audit()
	})
}

// Scenario 21: SIGTERM with a body that takes several leases. Heartbeats last through the
// drain, and nobody else runs it.
func TestFaultCleanLeaver(t *testing.T) {
	onDatabases(t, everyDatabase, func(w *world) {
		const timeout = 7 * time.Second
		hold := jobSpec{Name: "hold", Handler: "hold", Recover: true}
		n := w.spec("leaver", hold)
		n.Timeout, n.Call = timeout, []string{"hold"}
		leaver := w.spawn(n)
		leaver.await(w, "run hold", 1)
		n = w.spec("other", hold)
		n.Timeout = timeout
		other := w.start(n)
		leaver.term()
		until := time.Now().Add(2*timeout + timeout/2).UnixMicro()
		w.poll("it is alive two leases later", func() bool {
			return w.number("SELECT heartbeat_at FROM taskmanager_node WHERE name = 'leaver' AND dead = 0") > until
		})
		if err := w.journal.let("hold"); err != nil {
			w.Fatal(err)
		}
		leaver.await(w, "stopped <nil>", 1)
		leaver.wait()
		w.settle()
		if n := other.has("event node dead"); n != 0 {
			w.Errorf("%d nodes were declared dead, want none", n)
		}
		other.stop()
		w.audit()
		rows := w.runsOf("hold")
		if len(rows) != 1 || rows[0].State != durable.RunSucceeded || w.startsOf("hold") != 1 {
			w.Errorf("runs = %+v, want one that succeeded", rows)
		}
		if n := w.number("SELECT count(*) FROM taskmanager_node"); n != 0 {
			w.Errorf("%d nodes are left, want none", n)
		}
	})
}
