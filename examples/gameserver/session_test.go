package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// startServer serves pipes until the test calls stop, which returns when the last
// session has ended.
func startServer(t *testing.T) (s *server, dial func() net.Conn, stop func()) {
	t.Helper()
	s = newServer(newWorld())
	pipes := newPipeNetwork()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.serve(ctx, pipes) }()
	dial = func() net.Conn {
		conn, err := pipes.dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	return s, dial, func() {
		cancel()
		s.close(errStopping)
		if err := <-served; err != nil {
			t.Errorf("serve() = %v, want nil", err)
		}
	}
}

// lastLine reads until the server ends the connection.
func lastLine(conn net.Conn) (last string) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		last = lines.Text()
	}
	return last
}

func TestBadClientsAreToldAndDropped(t *testing.T) {
	for name, c := range map[string]struct{ say, want string }{
		"unknown verb":        {"join me\nfly\n", "bye protocol error: \"fly\""},
		"steer before join":   {"steer 1 1\n", "bye protocol error: join first, and once"},
		"joined twice":        {"join me\njoin me\n", "bye protocol error: join first, and once"},
		"line without an end": {"join " + strings.Repeat("x", 2*maxLine), "bye bufio.Scanner: token too long"},
		"never joins":         {"", "bye read pipe: i/o timeout"},
		"quits":               {"join me\nquit\n", "bye you have quit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dial, stop := startServer(t)
				defer stop()
				conn := dial()
				go func() { _, _ = fmt.Fprint(conn, c.say) }()
				if got := lastLine(conn); got != c.want {
					t.Errorf("the last line is %q, want %q", got, c.want)
				}
				synctest.Wait()
				if n := s.world.size(); n != 0 {
					t.Errorf("%d players are left, want 0", n)
				}
				_ = conn.Close()
			})
		})
	}
}

func TestFullServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial, stop := startServer(t)
		defer stop()
		s.mu.Lock()
		for range maxSessions {
			n, _ := newSession(nil)
			s.sessions[n] = struct{}{}
		}
		s.mu.Unlock()
		conn := dial()
		defer conn.Close()
		if got, want := lastLine(conn), "bye the server is full"; got != want {
			t.Errorf("the last line is %q, want %q", got, want)
		}
	})
}

// TestDeafClientHoldsUpNobody: one client never reads; the lines for it are dropped
// and it loses its connection, and another one gets all of its own.
func TestDeafClientHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial, stop := startServer(t)
		defer stop()
		deaf, good := dial(), dial()
		defer deaf.Close()
		for _, conn := range []net.Conn{deaf, good} {
			if _, err := fmt.Fprintln(conn, "join me"); err != nil {
				t.Fatal(err)
			}
		}
		lines := bufio.NewScanner(good)
		for want := range 2 * queueLimit {
			synctest.Wait() // both have joined, and what was sent is on its way
			if err := s.heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
			if want == 0 && (!lines.Scan() || !strings.HasPrefix(lines.Text(), "welcome ")) {
				t.Fatalf("the first line is %q, want a welcome", lines.Text())
			}
			if !lines.Scan() || lines.Text() != fmt.Sprint("ping ", want+1) {
				t.Fatalf("the line is %q, want ping %d", lines.Text(), want+1)
			}
		}
		if s.traffic.dropped.Load() == 0 {
			t.Error("no line for the deaf client was dropped")
		}
		pause(t.Context(), writeLimit)
		synctest.Wait()
		if n := s.world.size(); n != 1 {
			t.Errorf("%d players are left, want 1", n)
		}
		_ = good.Close()
	})
}

func TestSilenceIsMeasuredFromTheLastLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial, stop := startServer(t)
		defer stop()
		conn := dial()
		defer conn.Close()
		if _, err := fmt.Fprintln(conn, "join me"); err != nil {
			t.Fatal(err)
		}
		last := make(chan string, 1)
		go func() { last <- lastLine(conn) }()
		for _, c := range []struct {
			wait    time.Duration
			players int
		}{{idleLimit, 1}, {time.Nanosecond, 0}} {
			pause(t.Context(), c.wait)
			if err := s.dropIdle(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := s.world.size(); got != c.players {
				t.Fatalf("after %v more, %d players are there, want %d", c.wait, got, c.players)
			}
		}
		if got, want := <-last, "bye "+errIdle.Error(); got != want {
			t.Errorf("the last line is %q, want %q", got, want)
		}
	})
}

func TestParseCommand(t *testing.T) {
	for _, c := range []struct {
		line string
		want command
		ok   bool
	}{
		{"join me", command{verb: "join", name: "me"}, true},
		{" steer  -1 1 ", command{verb: "steer", dx: -1, dy: 1}, true},
		{"pong 7", command{verb: "pong"}, true},
		{"quit", command{verb: "quit"}, true},
		{"", command{}, false},
		{"join", command{}, false},
		{"join " + strings.Repeat("x", maxName+1), command{}, false},
		{"steer 2 0", command{}, false},
		{"steer 0 x", command{}, false},
		{"steer 0", command{}, false},
		{"quit now", command{}, false},
	} {
		got, err := parseCommand(c.line)
		if (err == nil) != c.ok || c.ok && got != c.want || !c.ok && !errors.Is(err, errProtocol) {
			t.Errorf("parseCommand(%q) = %+v, %v, want %+v, ok %v", c.line, got, err, c.want, c.ok)
		}
	}
}

func FuzzParseCommand(f *testing.F) {
	f.Add("join me")
	f.Add("steer -1 1")
	f.Fuzz(func(t *testing.T, line string) {
		c, err := parseCommand(line)
		if err == nil && (c.dx*c.dx > 1 || c.dy*c.dy > 1 || len(c.name) > maxName) {
			t.Errorf("parseCommand(%q) = %+v, which the world is not made for", line, c)
		}
	})
}
