package host

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of /proc/stat. The kernel shows user space 100 to the
// second on every architecture that Go supports.
const userHZ = 100

// machineCPU reads how much processor time all of the machine has used, and
// how much was stolen from it, since boot.
func machineCPU() (busy, steal time.Duration, ok bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, false
	}
	var t [9]time.Duration
	for i := 1; i < len(t); i++ {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, 0, false
		}
		t[i] = time.Duration(n) * time.Second / userHZ
	}
	// user, nice, system, irq, softirq; idle (4) and iowait (5) are not use.
	return t[1] + t[2] + t[3] + t[6] + t[7], t[8], true
}
