package taskmanager_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/taskmanager-go/taskmanager"
)

func TestStackID(t *testing.T) {
	for stack, want := range map[string]uint64{
		"goroutine 12 [running]:\nmain.main()":      12,
		"goroutine 1 [":                             1,
		"goroutine 7":                               7,
		"goroutine 18446744073709551615 [select]:":  1<<64 - 1,
		"goroutine 18446744073709551616 [select]:":  0,
		"goroutine 21 gp=0xc000 m=nil [chan wait]:": 21,
		"goroutine  [running]:":                     0,
		"goroutine x [running]:":                    0,
		"goroutine -3 [running]:":                   0,
		"goroutine ":                                0,
		"":                                          0,
		"thread 12 [running]:":                      0,
	} {
		if got := taskmanager.StackID([]byte(stack)); got != want {
			t.Errorf("stackID(%q) = %d, want %d", stack, got, want)
		}
	}
}

func TestEachGoroutineHasAnIDOfItsOwnAndKeepsIt(t *testing.T) {
	var mu sync.Mutex
	ids := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			id := taskmanager.GoroutineID()
			for range 10 {
				runtime.Gosched()
				if got := taskmanager.GoroutineID(); got != id {
					t.Errorf("GoroutineID = %d, and %d before", got, id)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			ids[id] = true
		})
	}
	wg.Wait()
	if ids[0] || len(ids) != 100 {
		t.Errorf("%d different ids of 100, 0 among them: %v", len(ids), ids[0])
	}
	buf := make([]byte, 100)
	if line := string(buf[:runtime.Stack(buf, false)]); taskmanager.GoroutineID() != taskmanager.StackID([]byte(line)) {
		t.Errorf("GoroutineID = %d, and the stack begins %q", taskmanager.GoroutineID(), line)
	}
}

// standsHere is a place for a goroutine to be found at.
func standsHere(id chan<- uint64, release <-chan struct{}) {
	id <- taskmanager.GoroutineID()
	<-release
}

func deeper(depth int, id chan<- uint64, release <-chan struct{}) {
	if depth > 0 {
		deeper(depth-1, id, release)
		return
	}
	standsHere(id, release)
}

func TestStacksFindsTheGoroutinesAskedForHoweverManyThereAre(t *testing.T) {
	// Some megabytes of text, more than the first buffer.
	const others = 1500
	release := make(chan struct{})
	id := make(chan uint64)
	var wg sync.WaitGroup
	ids := map[uint64]bool{}
	all := map[uint64]bool{}
	for i := range others {
		wg.Go(func() { deeper(30, id, release) })
		one := <-id
		all[one] = true
		if i%500 == 0 || i == others-1 {
			ids[one] = true
		}
	}
	found := taskmanager.Stacks(ids)
	if len(found) != len(ids) {
		t.Errorf("found %d of %d goroutines", len(found), len(ids))
	}
	size := 0
	for one, stack := range taskmanager.Stacks(all) {
		size += len(stack)
		if taskmanager.StackID([]byte(stack)) != one || !strings.Contains(stack, "standsHere") || strings.Count(stack, "goroutine ") < 1 {
			t.Fatalf("stack of goroutine %d:\n%s", one, stack)
		}
	}
	if size <= 1<<20 {
		t.Errorf("all stacks are %d bytes: too few to need a second buffer", size)
	}
	close(release)
	wg.Wait()
	if found := taskmanager.Stacks(map[uint64]bool{1 << 63: true}); len(found) != 0 {
		t.Errorf("found %v, want none", found)
	}
}
