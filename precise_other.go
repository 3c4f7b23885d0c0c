//go:build !linux

package taskmanager

import (
	"errors"
	"time"
)

// A kernelTimer exists on Linux only. Elsewhere a precise task has normal timing.
type kernelTimer struct{}

func newKernelTimer() (kernelTimer, error) { return kernelTimer{}, errors.ErrUnsupported }
func (kernelTimer) set(time.Duration)      {}
func (kernelTimer) wait() bool             { return false }
func (kernelTimer) close()                 {}
