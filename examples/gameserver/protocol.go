package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The protocol is lines of words.
//
//	client: join NAME, steer DX DY, pong N, quit
//	server: welcome ID, state TICK X Y SCORE, ping N, top NAME:SCORE ..., bye REASON
//
// A client joins first, and says something at least every idleLimit: an answer to
// each ping is enough.
const (
	maxLine = 128 // bytes, of a client's line
	maxName = 24
)

var (
	errProtocol = errors.New("protocol error")
	errQuit     = errors.New("you have quit")
)

// A command is what a client says.
type command struct {
	verb   string
	name   string // of join
	dx, dy int    // of steer
}

func parseCommand(line string) (command, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return command{}, fmt.Errorf("%w: empty line", errProtocol)
	}
	c, args := command{verb: words[0]}, words[1:]
	switch {
	case c.verb == "join" && len(args) == 1 && len(args[0]) <= maxName:
		c.name = args[0]
		return c, nil
	case c.verb == "steer" && len(args) == 2:
		var errX, errY error
		c.dx, errX = parseDirection(args[0])
		c.dy, errY = parseDirection(args[1])
		return c, errors.Join(errX, errY)
	case c.verb == "pong" && len(args) == 1, c.verb == "quit" && len(args) == 0:
		return c, nil
	}
	return command{}, fmt.Errorf("%w: %.40q", errProtocol, line)
}

func parseDirection(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 || n > 1 {
		return 0, fmt.Errorf("%w: direction %.10q", errProtocol, s)
	}
	return n, nil
}
