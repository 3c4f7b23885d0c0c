package main

import (
	"errors"
	"net"
	"sync/atomic"
)

// traffic counts what goes over the network. Its zero value is ready for use.
type traffic struct {
	in, out  atomic.Uint64 // bytes
	accepted atomic.Uint64 // connections
	idle     atomic.Uint64 // sessions ended for silence
	dropped  atomic.Uint64 // lines that a client was too slow to take
}

// left counts a session that has ended for that reason.
func (t *traffic) left(why error) {
	if errors.Is(why, errIdle) {
		t.idle.Add(1)
	}
}

// meter returns conn with its bytes counted.
func (t *traffic) meter(conn net.Conn) net.Conn {
	t.accepted.Add(1)
	return &meteredConn{conn, t}
}

type meteredConn struct {
	net.Conn
	traffic *traffic
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.in.Add(uint64(n))
	return n, err
}

func (c *meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.out.Add(uint64(n))
	return n, err
}
