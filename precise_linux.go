package taskmanager

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// A kernelTimer is a timerfd that is waited for through the runtime's poller. The
// runtime's own timers, when every processor is idle, sleep in whole milliseconds
// rounded up (runtime/netpoll_epoll.go); a descriptor that becomes readable wakes
// them at once.
type kernelTimer struct {
	file *os.File
	fd   uintptr
}

const clockMonotonic = 1 // CLOCK_MONOTONIC, what Go's monotonic clock is

func newKernelTimer() (kernelTimer, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return kernelTimer{}, errno
	}
	return kernelTimer{os.NewFile(fd, "timerfd"), fd}, nil
}

// set makes wait return once, d from now; 0 disarms it.
func (t kernelTimer) set(d time.Duration) {
	spec := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(d))}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, t.fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

// wait returns when the timer has expired, or false when it has been closed.
func (t kernelTimer) wait() bool {
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err == nil
}

func (t kernelTimer) close() { _ = t.file.Close() }
