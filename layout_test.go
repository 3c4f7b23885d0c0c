package taskmanager

import (
	"strconv"
	"testing"
	"unsafe"
)

func TestWarmReadsEachCacheLineOfATask(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the layout is that of 64 bits")
	}
	const line = 64
	var h Handle
	lines := map[uintptr]bool{}
	for _, offset := range []uintptr{
		unsafe.Offsetof(h.node), // read by whoever pops it
		unsafe.Offsetof(h.fn),
		unsafe.Offsetof(h.name) + unsafe.Sizeof(uintptr(0)), // its length
		unsafe.Offsetof(h.startAt),
		unsafe.Offsetof(h.id),
	} {
		lines[offset/line] = true
	}
	// The allocator's next size would be that of five and a half.
	if size := unsafe.Sizeof(h); int(size) > len(lines)*line {
		t.Errorf("reads %d cache lines of a task of %d bytes", len(lines), size)
	}
}
