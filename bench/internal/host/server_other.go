//go:build !linux

package host

import "time"

// ProcessCPU is not known on this system.
func ProcessCPU(string) time.Duration { return 0 }
