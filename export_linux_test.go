package taskmanager

import "time"

// KernelTimer is what drives a precise task.
type KernelTimer = kernelTimer

func NewKernelTimer() (KernelTimer, error) { return newKernelTimer() }

func (t kernelTimer) Set(d time.Duration) { t.set(d) }
func (t kernelTimer) Wait() bool          { return t.wait() }
func (t kernelTimer) Close()              { t.close() }
