package taskmanager

import (
	"runtime"
	"slices"
	"testing"
)

// markProbe is an engine whose loop reads the marks on its stack.
func markProbe(t *testing.T, marks ...uint64) (got []uint64, printed []uint64) {
	t.Helper()
	e := &engine{}
	e.fault = func(string) {
		if len(marks) > 1 { // a run inside a run, of another manager perhaps
			inner, text := markProbe(t, marks[1:]...)
			got, printed = inner, text
			panic("enough")
		}
		got = here()
		buf := make([]byte, 1<<16)
		printed = identities(buf[:runtime.Stack(buf, false)])
		panic("enough")
	}
	func() {
		defer func() { _ = recover() }()
		e.pumpMarked("probe", marks[0])
	}()
	return got, printed
}

func TestEveryMarkIsReadOffTheStackItIsOn(t *testing.T) {
	for i := range uint64(256) {
		want := []uint64{goroutineID(), markBit | i}
		got, printed := markProbe(t, markBit|i)
		if !slices.Equal(got, want) || !slices.Equal(printed, want) {
			t.Fatalf("mark %d: read %x, printed %x, want %x", i, got, printed, want)
		}
	}
}

func TestAPumpWithoutAMarkIsKnownByItsGoroutinesIDAlone(t *testing.T) {
	want := []uint64{goroutineID()}
	if got, printed := markProbe(t, goroutineID()); !slices.Equal(got, want) || !slices.Equal(printed, want) {
		t.Errorf("read %x, printed %x, want %x", got, printed, want)
	}
}

func TestMarksOfRunsInsideRunsAreToldApart(t *testing.T) {
	outer, inner := uint64(markBit|0xA7), uint64(markBit|0x3C)
	want := []uint64{goroutineID(), inner, outer}
	if got, printed := markProbe(t, outer, inner); !slices.Equal(got, want) || !slices.Equal(printed, want) {
		t.Errorf("read %x, printed %x, want %x", got, printed, want)
	}
}

func TestWhenAllMarksAreTakenTheGoroutinesIDServes(t *testing.T) {
	seen := map[uint64]bool{}
	var taken []uint64
	for len(taken) < 256 {
		mark := takeMark()
		if mark&markBit == 0 {
			break // others are out there
		}
		if seen[mark] {
			t.Fatalf("mark %x was given twice", mark)
		}
		seen[mark] = true
		taken = append(taken, mark)
	}
	if got, want := takeMark(), goroutineID(); got != want {
		t.Errorf("takeMark = %x, want the goroutine's id %d", got, want)
	}
	for _, mark := range taken {
		dropMark(mark)
	}
	mark := takeMark()
	defer dropMark(mark)
	if mark&markBit == 0 {
		t.Error("no mark, though they were given back")
	}
}
