package taskmanager

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
)

// Shutdown and Wait have to know whether they are called from inside a run, and of
// which, and Shutdown says where an abandoned run stands. The runtime tells a
// goroutine's identity only in the text of its stack (goroutineID), which costs 3 µs:
// a tenth of a wake-up with a single tick. So the pump's goroutines carry a mark
// instead: a number that is written into the stack itself, as the choice of two
// functions out of sixteen that it calls through, and is read off the stack when
// somebody asks, which is hardly ever.
//
// A run is identified by its goroutine's id or by such a mark, as one number:

// markBit is set in a mark and in no goroutine's id.
const markBit = 1 << 63

// marks are the numbers in use, for all managers together: a goroutine may be in
// runs of several.
var marks struct {
	mu   sync.Mutex
	used [256]bool
	next uint8 // where to look first
}

// takeMark returns a mark of the caller's own, to be given back by dropMark; or the
// goroutine's id, if all marks are in use.
func takeMark() uint64 {
	marks.mu.Lock()
	defer marks.mu.Unlock()
	for range marks.used {
		i := marks.next
		marks.next++
		if !marks.used[i] {
			marks.used[i] = true
			return markBit | uint64(i)
		}
	}
	return goroutineID()
}

func dropMark(mark uint64) {
	if mark&markBit == 0 {
		return
	}
	marks.mu.Lock()
	defer marks.mu.Unlock()
	marks.used[uint8(mark)] = false
}

// pumpMarked calls pumpLoop with the mark on the stack, if it is one.
func (e *engine) pumpMarked(loop string, mark uint64) {
	if mark&markBit == 0 { // the goroutine's id: here and identities find it anyway
		e.pumpLoop(loop, mark)
		return
	}
	markFuncs[mark>>4&15](e, loop, mark, 1)
}

// marked is what each of the mark functions calls: the next, then the loop.
func (e *engine) marked(loop string, mark uint64, left int) {
	if left > 0 {
		markFuncs[mark&15](e, loop, mark, left-1)
		return
	}
	e.pumpLoop(loop, mark)
}

var markFuncs [16]func(e *engine, loop string, mark uint64, left int)

func init() { // not in the declaration, since the functions refer to the array
	markFuncs = [...]func(*engine, string, uint64, int){
		mark0, mark1, mark2, mark3, mark4, mark5, mark6, mark7,
		mark8, mark9, markA, markB, markC, markD, markE, markF,
	}
}

//go:noinline
func mark0(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark1(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark2(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark3(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark4(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark5(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark6(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark7(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark8(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func mark9(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func markA(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func markB(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func markC(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func markD(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func markE(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

//go:noinline
func markF(e *engine, loop string, mark uint64, left int) { e.marked(loop, mark, left) }

// here are the identities of the calling goroutine: its id, and its marks.
func here() []uint64 {
	ids := []uint64{goroutineID()}
	pcs := make([]uintptr, 64)
	for skip := 1; ; skip += len(pcs) { // however deep the caller is
		n := runtime.Callers(skip, pcs)
		for frames := runtime.CallersFrames(pcs[:n]); n > 0; {
			frame, more := frames.Next()
			ids = appendMark(ids, frame.Function)
			if !more {
				break
			}
		}
		if n < len(pcs) {
			return wholeMarks(ids)
		}
	}
}

// markPrefix begins the names of the mark functions.
var markPrefix = func() string {
	pc, _, _, _ := runtime.Caller(0)
	name := runtime.FuncForPC(pc).Name() // example.com/a.init.func1
	return name[:strings.LastIndexByte(name, '/')+1] +
		strings.SplitN(name[strings.LastIndexByte(name, '/')+1:], ".", 2)[0] + ".mark"
}()

// appendMark appends the digit of a mark function, as 16 and more, if the name is
// that of one.
func appendMark(ids []uint64, function string) []uint64 {
	digit, ok := strings.CutPrefix(function, markPrefix)
	if !ok || len(digit) != 1 {
		return ids
	}
	if i := strings.IndexByte("0123456789ABCDEF", digit[0]); i >= 0 {
		ids = append(ids, markBit|1<<32|uint64(i))
	}
	return ids
}

// wholeMarks makes marks of the pairs of digits behind the id. The lower digit comes
// first, since it was called last.
func wholeMarks(ids []uint64) []uint64 {
	whole := ids[:1]
	for i := 2; i < len(ids); i += 2 {
		whole = append(whole, markBit|ids[i]&15<<4|ids[i-1]&15)
	}
	return whole
}

// identities are those of the goroutine whose stack is printed there.
func identities(stack []byte) []uint64 {
	ids := []uint64{stackID(stack)}
	for line := range bytes.Lines(stack) {
		name, _, _ := bytes.Cut(line, []byte("("))
		ids = appendMark(ids, string(name))
	}
	return wholeMarks(ids)
}
