//go:build !unix

package host

import (
	"runtime/metrics"
	"time"
)

// CPU returns the processor time this process has used, as the Go runtime
// estimates it: good to a few per cent while collections happen, blind to the
// kernel's share. Figures from such a machine compare only with each other.
func CPU() time.Duration {
	s := []metrics.Sample{{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(s)
	return time.Duration((s[0].Value.Float64() - s[1].Value.Float64()) * 1e9)
}
