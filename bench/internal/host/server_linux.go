package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ProcessCPU returns the processor time, user and system, of all processes on this
// machine whose command has that name, and of their children that have ended; 0 if
// there is none. Read before and after, it is what a server has used in between.
func ProcessCPU(command string) time.Duration {
	if command == "" {
		return 0
	}
	var sum time.Duration
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (command) state ppid …; a command may have anything in it.
		text := string(b)
		open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		if open < 0 || shut < open || text[open+1:shut] != command {
			continue
		}
		f := strings.Fields(text[shut+1:])
		const utime = 11 // then stime, and both of children that were waited for
		for i := utime; i < utime+4 && i < len(f); i++ {
			n, _ := strconv.ParseInt(f[i], 10, 64)
			sum += time.Duration(n) * time.Second / userHZ
		}
	}
	return sum
}
