package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A server is a database server of the test's own, to be killed.
type server struct {
	*testing.T
	dir, port string
	dsn       string
	program   string
	args      []string
	as        *syscall.SysProcAttr // nil if it may run as this user
	crash     syscall.Signal       // which it does not survive
	cmd       *exec.Cmd
	ended     chan struct{}
}

// ownServer makes a server with an empty database; it is not started yet.
func ownServer(t *testing.T, name string) (s *server, driver string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	s = &server{T: t, dir: dir, port: port, crash: syscall.SIGKILL}
	data := filepath.Join(dir, "data")
	if name == "postgres" {
		s.runAs("postgres")
		s.crash = syscall.SIGQUIT // an immediate stop
		s.program = s.binary("postgres", "/usr/lib/postgresql/*/bin/postgres")
		s.make(filepath.Join(filepath.Dir(s.program), "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
		s.args = []string{"-D", data, "-p", port, "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB"}
		s.dsn = "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"
		return s, "pgx"
	}
	s.runAs("mysql")
	s.program = s.binary("mariadbd", "/usr/sbin/mariadbd")
	s.make(s.binary("mariadb-install-db", "/usr/bin/mariadb-install-db"), "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	s.args = []string{"--no-defaults", "--datadir=" + data, "--socket=" + filepath.Join(dir, "socket"), "--port=" + port, "--bind-address=127.0.0.1",
		"--pid-file=" + filepath.Join(dir, "pid"), "--innodb-buffer-pool-size=16M", "--skip-name-resolve"}
	s.dsn = "root@tcp(127.0.0.1:" + port + ")/tm"
	return s, "mysql"
}

// binary finds a program. CI must have it.
func (s *server) binary(name, pattern string) string {
	s.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		if os.Getenv("CI") == "true" {
			s.Fatal("no ", name)
		}
		s.Skip("no ", name)
	}
	return found[len(found)-1]
}

// runAs has the server run as another user, which servers insist on if this one is root.
func (s *server) runAs(name string) {
	s.Helper()
	if os.Geteuid() != 0 {
		return
	}
	u, err := user.Lookup(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			s.Fatal(err)
		}
		s.Skip(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := os.Chown(s.dir, int(uid), int(gid)); err != nil {
		s.Fatal(err)
	}
}

func (s *server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.as
	return cmd
}

func (s *server) make(program string, args ...string) {
	s.Helper()
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// start starts the server. It is up when it says so to those who ask.
func (s *server) start() {
	s.Helper()
	s.cmd = s.command(s.program, s.args...)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
	s.Cleanup(s.kill)
}

// kill ends the server without giving it time for anything.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(s.crash)
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// up waits until the server answers.
func (s *server) up(driver string) {
	s.Helper()
	dsn := s.dsn
	if driver == "mysql" {
		dsn = "root@tcp(127.0.0.1:" + s.port + ")/"
	}
	db := open(s, driver, dsn)
	for end := time.Now().Add(eventually); ; time.Sleep(50 * time.Millisecond) {
		err := db.PingContext(s.Context())
		if err == nil {
			break
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.Fatalf("the server does not start: %v\n%s", err, log)
		}
	}
	if driver == "mysql" {
		do(s, db, "CREATE DATABASE IF NOT EXISTS tm")
	}
}

// The server crashes, stays away for longer than NodeTimeout, and comes back: nothing
// that was acknowledged is lost, exclusive runs were cancelled before the leases ended,
// nobody who lives is declared dead, and work goes on by itself.
func TestFaultServerCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("fault tests take their time")
	}
	t.Parallel()
	for _, name := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 3 * time.Second
			s, driver := ownServer(t, name)
			s.start()
			s.up(driver)
			w := worldAt(t, driver, s.dsn)
			hold := jobSpec{Name: "hold", Handler: "hold", Recover: true}
			jobs := []jobSpec{hold, {Name: "plain", Handler: "short", Concurrent: true}, {Name: "again", Handler: "slow", Concurrent: true, Recover: true}}
			var nodes []*node
			var taps []*tapStore
			var trusted atomic.Int64 // the end of the lease of the node that holds, by the wall clock
			for i := range 2 {
				n := w.spec(fmt.Sprint("node-", i), jobs...)
				n.Timeout, n.dial = timeout, (&net.Dialer{}).DialContext
				tap := &tapStore{}
				if i == 0 {
					tap.onBeat = func(sent time.Time, _ durable.BeatResult, err error) {
						if err == nil {
							trusted.Store(sent.Add(timeout).UnixNano())
						}
					}
				}
				n.wrap = func(s durable.Store) durable.Store { tap.Store = s; return tap }
				taps = append(taps, tap)
				nodes = append(nodes, w.start(n))
				if i == 0 {
					w.call(nodes[0], "hold")
					nodes[0].await(w, "run hold", 1)
				}
			}
			stop := make(chan struct{})
			acknowledged := make(chan []string)
			go func() { // work, before, while and after
				var ids []string
				for i := 0; ; i++ {
					select {
					case <-stop:
						acknowledged <- ids
						return
					case <-time.After(20 * time.Millisecond):
					}
					if id, err := nodes[i%2].Trigger(t.Context(), jobs[1+i%2].Name, nil); err == nil {
						ids = append(ids, id)
					}
				}
			}()
			nodes[0].await(w, "run plain", 3)
			nodes[1].await(w, "run", 3)
			s.kill()
			down := time.Now()
			calls := taps[0].calls.Load() + taps[1].calls.Load()
			nodes[0].await(w, "event fenced", 1)
			nodes[0].await(w, "ctx hold", 1)
			for _, e := range must(w.journal.read()) {
				if e.What == "end" && e.Job == "hold" {
					left := time.Duration(trusted.Load() - e.At.UnixNano())
					w.Logf("the exclusive run ended %v before the lease", left)
					if left < 0 {
						w.Errorf("the exclusive run ended %v after the lease", -left)
					}
				}
			}
			time.Sleep(time.Until(down.Add(2 * timeout))) // the outage is what is tested
			asked := taps[0].calls.Load() + taps[1].calls.Load() - calls
			if most := int64(60 * time.Since(down).Seconds()); asked > most {
				w.Errorf("%d calls of the store while it was away for %v, want at most %d", asked, time.Since(down), most)
			}
			w.Logf("%d calls of the store by two nodes in %v without it", asked, time.Since(down))
			s.start()
			for _, n := range nodes {
				n.await(w, "event restored", 1)
			}
			if err := w.journal.let("hold"); err != nil {
				w.Fatal(err)
			}
			ran := nodes[0].has("run plain") + nodes[1].has("run plain")
			w.poll("work goes on", func() bool { return nodes[0].has("run plain")+nodes[1].has("run plain") > ran+20 })
			close(stop)
			for _, id := range <-acknowledged {
				w.want[id] = true
			}
			w.settle()
			for _, n := range nodes {
				if dead := n.has("event node dead") + n.has("event node lost"); dead != 0 {
					w.Errorf("%d nodes were declared dead, all live", dead)
				}
				n.stop()
			}
			w.Logf("%d calls were acknowledged", len(w.want))
			w.audit()
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
