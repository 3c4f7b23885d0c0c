package integration

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/pgnotify"
)

// A network is the way from one node to the server.
type network struct {
	w     *world
	proxy *toxiproxy.Proxy
	dsn   string

	// fault is asked before something is sent to the server; its error is the write's.
	fault atomic.Pointer[func(*wire, []byte) error]

	mu    sync.Mutex
	hole  bool
	stuck []net.Conn
}

// network makes a way of its own to the server.
func (w *world) network() *network {
	w.Helper()
	n := &network{w: w}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	n.proxy = toxiproxy.NewProxy(server, fresh(), "127.0.0.1:0", w.address())
	if err := n.proxy.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		n.heal()
		n.proxy.Stop()
	})
	var err error
	if n.dsn, err = via(w.driver, w.dsn, n.proxy.Listen); err != nil {
		w.Fatal(err)
	}
	return n
}

// address is the server's.
func (w *world) address() string {
	w.Helper()
	if w.driver == "mysql" {
		config, err := mysql.ParseDSN(w.dsn)
		if err != nil {
			w.Fatal(err)
		}
		return config.Addr
	}
	u, err := url.Parse(w.dsn)
	if err != nil {
		w.Fatal(err)
	}
	return u.Host
}

// node is a node whose way to the server this is.
func (n *network) node(name string, jobs ...jobSpec) *nodeSpec {
	s := n.w.spec(name, jobs...)
	s.DSN, s.dial = n.dsn, n.dial
	return s
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, n: n}, nil
}

// A wire is a connection that the server does not see closed while there is a black
// hole.
type wire struct {
	net.Conn
	n    *network
	deaf atomic.Bool // the next answer gets lost, with the connection
}

func (c *wire) Write(b []byte) (int, error) {
	if f := c.n.fault.Load(); f != nil {
		if err := (*f)(c, b); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

func (c *wire) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		return 0, c.reset()
	}
	return n, err
}

// reset ends the connection the hard way.
func (c *wire) reset() error {
	if conn, ok := c.Conn.(*net.TCPConn); ok {
		_ = conn.SetLinger(0)
	}
	_ = c.Conn.Close()
	return syscall.ECONNRESET
}

func (c *wire) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if !c.n.hole {
		return c.Conn.Close()
	}
	c.n.stuck = append(c.n.stuck, c.Conn)
	return c.Conn.SetDeadline(time.Unix(1, 0))
}

// toxic adds a toxic: of what goes to the server (upstream) or comes from it.
func (n *network) toxic(kind, stream, attributes string) {
	n.w.Helper()
	text := fmt.Sprintf(`{"name": "%s-%s", "type": "%s", "stream": "%s", "attributes": {%s}}`, kind, stream, kind, stream, attributes)
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		n.w.Error(err)
	}
}

// blackHole has nothing come through any more, in either direction, and nothing close.
func (n *network) blackHole() {
	n.mu.Lock()
	n.hole = true
	n.mu.Unlock()
	n.toxic("timeout", "upstream", `"timeout": 0`)
	n.toxic("timeout", "downstream", `"timeout": 0`)
}

// heal takes all toxics away. Connections that were cut stay so.
func (n *network) heal() {
	n.mu.Lock()
	n.hole = false
	stuck := n.stuck
	n.stuck = nil
	n.mu.Unlock()
	for _, c := range stuck {
		_ = c.Close()
	}
	n.proxy.Toxics.ResetToxics(context.Background())
}

// cut ends all connections, and lets none be made.
func (n *network) cut() { n.proxy.Stop() }

func (n *network) mend() {
	n.w.Helper()
	if err := n.proxy.Start(); err != nil {
		n.w.Fatal(err)
	}
}

// A tapStore tells of what goes on in the store, one call at a time.
type tapStore struct {
	durable.Store
	onPlan   func(durable.Verdict)
	onFinish func(durable.FinishRequest)
	onBeat   func(time.Time, durable.BeatResult, error) // with the time of the sending
	onDone   func(error)                                // of a claim or finish
	calls    atomic.Int64
	serial   chan struct{} // nil if calls may overlap
}

func (s *tapStore) enter() (leave func()) {
	s.calls.Add(1)
	if s.serial == nil {
		return func() {}
	}
	s.serial <- struct{}{}
	return func() { <-s.serial }
}

func (s *tapStore) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	defer s.enter()()
	plan := r.Plan
	r.Plan = func(d durable.Due) durable.Verdict {
		v := plan(d)
		if s.onPlan != nil {
			s.onPlan(v)
		}
		return v
	}
	res, err := s.Store.Claim(ctx, r)
	if s.onDone != nil {
		s.onDone(err)
	}
	return res, err
}

func (s *tapStore) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	defer s.enter()()
	if s.onFinish != nil {
		s.onFinish(r)
	}
	own, err := s.Store.Finish(ctx, r)
	if s.onDone != nil {
		s.onDone(err)
	}
	return own, err
}

func (s *tapStore) Beat(ctx context.Context, n durable.NodeRow, ttl time.Duration) (durable.BeatResult, error) {
	defer s.enter()()
	sent := time.Now()
	res, err := s.Store.Beat(ctx, n, ttl)
	if s.onBeat != nil {
		s.onBeat(sent, res, err)
	}
	return res, err
}

func (s *tapStore) Expire(ctx context.Context, r durable.ExpireRequest) (durable.ExpireResult, error) {
	defer s.enter()()
	return s.Store.Expire(ctx, r)
}

func (s *tapStore) Jobs(ctx context.Context, q durable.JobQuery) ([]durable.JobState, error) {
	defer s.enter()()
	return s.Store.Jobs(ctx, q)
}

func (s *tapStore) Runs(ctx context.Context, q durable.RunQuery) ([]durable.RunRow, error) {
	defer s.enter()()
	return s.Store.Runs(ctx, q)
}

func (s *tapStore) Lease(ctx context.Context, name, holder string, ttl time.Duration) (durable.LeaseRow, error) {
	defer s.enter()()
	return s.Store.Lease(ctx, name, holder, ttl)
}

// A node that vanishes in the middle of a claim holds the rows that it has locked until
// the server gives it up: PostgreSQL after the store's 5 s, MariaDB when the connection's
// idle_transaction_timeout says so. Everything else goes on meanwhile.
func TestFaultBlackHoleInAClaim(t *testing.T) {
	onDatabases(t, servers, func(w *world) {
		net := w.network()
		if w.driver == "mysql" {
			if w.number("SELECT count(*) FROM information_schema.system_variables WHERE variable_name = 'IDLE_TRANSACTION_TIMEOUT'") <= 0 {
				w.Skip("only MariaDB has idle_transaction_timeout")
			}
			net.dsn += "?idle_transaction_timeout=5"
		}
		at := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)
		var jobs []jobSpec
		for i := range 6 {
			jobs = append(jobs, jobSpec{Name: fmt.Sprint("job-", i), Handler: "quick", Recover: i%2 == 0, Schedule: "once " + at})
		}
		after := jobSpec{Name: "after", Handler: "quick-after", Concurrent: true}
		vanished := make(chan struct{})
		vanish := sync.OnceFunc(func() {
			net.blackHole()
			close(vanished)
		})
		n := net.node("vanishing", append(jobs, after)...)
		n.wrap = func(s durable.Store) durable.Store {
			return &tapStore{Store: s, onPlan: func(durable.Verdict) { vanish() }}
		}
		vanishing := w.start(n)
		<-vanished
		other := w.start(w.spec("other", append(jobs, after)...))
		id := w.call(other, "after")
		other.await(w, "run after "+id, 1)
		for _, j := range jobs {
			other.await(w, "run "+j.Name+" ", 1)
		}
		other.await(w, "event node dead", 1)
		net.heal()
		vanishing.await(w, "event node lost", 1)
		w.settle()
		other.stop()
		w.call(vanishing, "after") // it goes on
		vanishing.await(w, "run after", 1)
		w.settle()
		vanishing.stop()
		w.audit()
	})
}

// The connection is reset while a commit is under way: it did not get there, or its answer
// did not. Either way the firing runs once, with nobody dying.
func TestFaultResetInACommit(t *testing.T) {
	onDatabases(t, servers, func(w *world) {
		net := w.network()
		var armed atomic.Bool
		var stream, point, target string // written before arm, read after
		arm := func(job string) {
			if job == target {
				armed.Store(true)
			}
		}
		fault := func(c *wire, b []byte) error {
			switch {
			case !isCommit(b) || !armed.CompareAndSwap(true, false):
			case stream == "sent":
				return c.reset()
			default:
				c.deaf.Store(true)
			}
			return nil
		}
		net.fault.Store(&fault)
		var faults atomic.Int64
		tap := &tapStore{serial: make(chan struct{}, 1)}
		tap.onPlan = func(v durable.Verdict) {
			if v.Run != nil && point == "claim" && faults.Load() == 0 {
				arm(v.Run.Job)
			}
		}
		tap.onFinish = func(r durable.FinishRequest) {
			for _, e := range r.Ends {
				if point == "finish" && faults.Load() == 0 {
					arm(e.Run.Job)
				}
			}
		}
		tap.onDone = func(err error) {
			if err != nil {
				faults.Add(1)
			}
		}
		jobs := manyJobs(8, "quick")
		n := net.node("node", jobs...)
		n.Timeout = 15 * time.Second
		n.wrap = func(s durable.Store) durable.Store { tap.Store = s; return tap }
		node := w.start(n)
		i := 0
		for _, p := range []string{"claim", "finish"} {
			for _, s := range []string{"sent", "answered"} {
				for range 2 { // with recovery, and without
					faults.Store(0)
					tap.serial <- struct{}{}
					stream, point, target = s, p, jobs[i].Name
					<-tap.serial
					id := w.call(node, jobs[i].Name)
					ctx, cancel := context.WithTimeout(w.Context(), eventually)
					r, err := node.Wait(ctx, id)
					cancel()
					if err != nil || r.State != durable.RunSucceeded {
						w.Errorf("%s, %s: %+v, %v, want one that succeeded", p, s, r, err)
					}
					if faults.Load() == 0 {
						w.Errorf("%s, %s: nothing failed", p, s)
					}
					if n := w.startsOf(jobs[i].Name); n != 1 {
						w.Errorf("%s, %s: %d starts, want 1", p, s, n)
					}
					i++
				}
			}
		}
		w.settle()
		node.stop()
		w.audit()
		if n := node.has("event node lost") + node.has("event fenced"); n != 0 {
			w.Errorf("the node was lost %d times", n)
		}
	})
}

// One node is cut off: it ends its exclusive run before another takes it, and comes back
// under another ID.
func TestFaultOneNodeCutOff(t *testing.T) {
	onDatabases(t, servers, func(w *world) {
		net := w.network()
		hold := jobSpec{Name: "hold", Handler: "hold", Recover: true}
		mine := jobSpec{Name: "mine", Handler: "quick-mine"}
		cut := w.start(net.node("cut", hold, mine))
		w.call(cut, "hold")
		cut.await(w, "run hold", 1)
		was := cut.Node()
		other := w.start(w.spec("other", hold))
		net.cut()
		cut.await(w, "event fenced", 1)
		cut.await(w, "ctx hold", 1)
		other.await(w, "event node dead", 1)
		other.await(w, "run hold", 1)
		net.mend()
		cut.await(w, "event node lost", 1)
		if cut.Node() == was {
			w.Errorf("the node is %s still, want another ID", was)
		}
		if err := w.journal.let("hold"); err != nil {
			w.Fatal(err)
		}
		w.call(other, "mine")
		cut.await(w, "run mine", 1)
		w.settle()
		cut.stop()
		other.stop()
		w.audit()
	})
}

// A slow link makes a heartbeat last as long as all its round trips, but does not kill.
func TestFaultSlowLink(t *testing.T) {
	onDatabases(t, servers, func(w *world) {
		net := w.network()
		net.toxic("latency", "downstream", `"latency": `+slowLatency)
		jobs := manyJobs(2, "quick")
		n := net.node("slow", append(jobs, jobSpec{Name: "hold", Handler: "hold"})...)
		n.Timeout = slowTimeout
		slow := w.start(n)
		n = w.spec("other")
		n.Timeout = slowTimeout
		other := w.start(n)
		w.call(other, "hold")
		for _, j := range jobs {
			w.call(other, j.Name)
		}
		slow.await(w, "run hold", 1)
		until := time.Now().Add(slowTimeout * 3 / 2).UnixMicro()
		w.poll("it is alive one lease and a half later", func() bool {
			return w.number("SELECT heartbeat_at FROM taskmanager_node WHERE name = 'slow'") > until
		})
		if err := w.journal.let("hold"); err != nil {
			w.Fatal(err)
		}
		w.settle()
		net.heal()
		slow.stop()
		other.stop()
		if n := other.has("event node dead") + slow.has("event fenced") + slow.has("event node lost"); n != 0 {
			w.Errorf("the slow node was lost %d times, want never", n)
		}
		w.audit()
	})
}

// The connection that listens is cut, and no other: the node polls, and hears again when
// it can.
func TestFaultListenerCutOff(t *testing.T) {
	onDatabases(t, []string{"postgres"}, func(w *world) {
		net := w.network()
		waker := func(dsn string) (durable.Waker, func()) {
			config, err := pgx.ParseConfig(dsn)
			if err != nil {
				w.Fatal(err)
			}
			v, err := pgnotify.NewFromConfig(config, fmt.Sprintf("c%x", w.dsn[len(w.dsn)-8:]))
			if err != nil {
				w.Fatal(err)
			}
			return v, func() { _ = v.Close() }
		}
		job := jobSpec{Name: "job", Handler: "quick", Concurrent: true}
		n := w.spec("listens", job)
		far, closeFar := waker(net.dsn)
		w.Cleanup(closeFar)
		heard := newFeed()
		n.waker, n.Poll = &tapWaker{far, heard}, time.Second
		listens := w.start(n)
		n = w.spec("calls")
		near, closeNear := waker(w.dsn)
		w.Cleanup(closeNear)
		n.waker = near
		calls := w.start(n)
		ran := func() {
			w.Helper()
			id := w.call(calls, "job")
			listens.await(w, "run job "+id, 1)
		}
		w.poll("it hears", func() bool { ran(); return heard.has("due") > 0 })
		net.cut()
		before := heard.has("due")
		for range 3 {
			ran()
		}
		if n := heard.has("due") - before; n > 1 { // one may have been on its way
			w.Errorf("it heard %d notes while it was cut off", n)
		}
		net.mend()
		w.poll("it hears again", func() bool { ran(); return heard.has("due") > before+1 })
		w.settle()
		listens.stop()
		calls.stop()
		w.audit()
	})
}

// A tapWaker tells which notes were heard.
type tapWaker struct {
	durable.Waker
	heard *feed
}

func (v *tapWaker) Listen(f func(durable.Note)) (func(), error) {
	return v.Waker.Listen(func(n durable.Note) {
		v.heard.add(string(n))
		f(n)
	})
}

const (
	// A heartbeat is seven round trips, a claim on a new connection about 25, and each has a
	// third of NodeTimeout, 10 s at most.
	slowLatency = "50" // ms, of each round trip
	slowTimeout = 15 * time.Second
)

// manyJobs are exclusive jobs without a trigger, every other one with recovery.
func manyJobs(n int, body string) (jobs []jobSpec) {
	for i := range n {
		jobs = append(jobs, jobSpec{Name: fmt.Sprintf("job-%02d", i), Handler: body, Recover: i%2 == 0})
	}
	return jobs
}
