package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
)

// A console is where everything is printed, the log too: whole lines, one after the
// other. On a terminal it keeps a block at the bottom that is redrawn.
type console struct {
	terminal bool

	mu    sync.Mutex // guards the fields below, and is held while writing
	out   io.Writer
	block string // at the bottom of the terminal now
}

func newConsole(out io.Writer, terminal bool) *console { return &console{out: out, terminal: terminal} }

// isTerminal tells whether f is one that understands cursor movements.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 &&
		runtime.GOOS != "windows" && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
}

// Write prints whole lines above the block.
func (c *console) Write(lines []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.drawLocked(string(lines), c.block); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// printf prints whole lines. Like fmt.Printf's, its error is nobody's.
func (c *console) printf(format string, args ...any) { _, _ = fmt.Fprintf(c, format, args...) }

// status shows how things stand: a line, and on a terminal a table below it, in the
// place of the last one.
func (c *console) status(line, table string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.terminal {
		return c.drawLocked(line+"\n", "")
	}
	return c.drawLocked("", line+"\n\n"+table)
}

// clear takes the block away.
func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.drawLocked("", "")
}

// drawLocked prints lines in the place of the block, and the new block below them.
// A line of the block that is too long for the terminal is cut there, since else
// its end could not be erased.
func (c *console) drawLocked(lines, block string) error {
	if c.block != "" {
		lines = fmt.Sprintf("\x1b[%dA\r\x1b[J", strings.Count(c.block, "\n")) + lines
	}
	if c.block = block; block != "" {
		lines += "\x1b[?7l" + block + "\x1b[?7h"
	}
	_, err := io.WriteString(c.out, lines)
	return err
}
