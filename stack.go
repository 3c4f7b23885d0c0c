package taskmanager

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
)

// goroutineID is the id of the calling goroutine, as the runtime prints it in
// stacks; 0 if it cannot be read. It costs some microseconds, so it is asked for
// once a goroutine and not once a run, and the pump does without (mark.go).
func goroutineID() uint64 {
	buf := stackBuffers.Get().(*[40]byte) // one on the stack would escape
	defer stackBuffers.Put(buf)
	return stackID(buf[:runtime.Stack(buf[:], false)])
}

var stackBuffers = sync.Pool{New: func() any { return new([40]byte) }}

// stackID reads the id from "goroutine 12 [running]: …".
func stackID(stack []byte) uint64 {
	rest, ok := bytes.CutPrefix(stack, []byte("goroutine "))
	if !ok {
		return 0
	}
	digits, _, _ := bytes.Cut(rest, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// stacks returns the stacks of the goroutines with these ids or marks.
func stacks(ids map[uint64]bool) map[uint64]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= 64<<20 {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	found := map[uint64]string{}
	for _, one := range bytes.Split(buf, []byte("\n\n")) {
		for _, id := range identities(one) {
			if ids[id] {
				found[id] = string(one)
			}
		}
	}
	return found
}
