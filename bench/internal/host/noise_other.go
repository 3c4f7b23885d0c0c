//go:build !linux

package host

import "time"

func machineCPU() (busy, steal time.Duration, ok bool) { return 0, 0, false }
