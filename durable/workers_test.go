package durable_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/durable"
)

// A workshop has workers whose flights note that they have begun, and end as they are
// told: odd numbers at once, the others with the gate.
type workshop struct {
	*durable.Workers
	gate  chan struct{}
	mu    sync.Mutex
	begun []int
}

func newWorkshop(t *testing.T) *workshop {
	m, err := taskmanager.New()
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{gate: make(chan struct{})}
	w.Workers = durable.NewWorkers(m, w.run)
	t.Cleanup(func() {
		w.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *workshop) run(n int) {
	w.mu.Lock()
	w.begun = append(w.begun, n)
	gate := w.gate
	w.mu.Unlock()
	if n%2 == 0 {
		<-gate
	}
	if n%5 == 0 {
		runtime.Goexit()
	}
}

// open lets those at the gate go on, and closes it behind them.
func (w *workshop) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
	w.gate = make(chan struct{})
}

func TestNoFlightWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		const flights = 30
		for round := range 2 {
			for i := range flights {
				w.Do(2 * (5*i + 1)) // none is a multiple of 5
			}
			synctest.Wait()
			if got := len(w.begun); got != (round+1)*flights {
				t.Errorf("round %d: %d flights have begun while none has ended, want %d", round, got, (round+1)*flights)
			}
			w.open()
			synctest.Wait()
			if idle, _ := w.Idle(); idle != flights {
				t.Errorf("round %d: %d workers are idle, want the %d that were at work", round, idle, flights)
			}
		}
		w.Trim() // what was idle all the time: none since the second round
		if idle, _ := w.Idle(); idle != flights {
			t.Errorf("%d workers after the first trim, want %d", idle, flights)
		}
		w.Do(2)
		synctest.Wait()
		w.Trim()
		if idle, _ := w.Idle(); idle != 0 {
			t.Errorf("%d workers are idle beside the one at work, want 0: nothing else was needed", idle)
		}
		w.open()
	})
}

func TestEachFlightBeginsOnceAndNoneIsLeft(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			w := newWorkshop(t)
			n := 0
			for range 60 {
				switch r.IntN(6) {
				case 0:
					w.open()
				case 1:
					w.Trim()
				case 2:
					synctest.Wait()
				default:
					for range r.IntN(8) {
						w.Do(n)
						n++
					}
				}
			}
			synctest.Wait()
			if _, queued := w.Idle(); queued != 0 {
				t.Errorf("seed %d: %d flights are left in the queue", seed, queued)
			}
			slices.Sort(w.begun)
			for i, got := range w.begun {
				if got != i {
					t.Fatalf("seed %d: flight %d began instead of %d", seed, got, i)
				}
			}
			if len(w.begun) != n {
				t.Errorf("seed %d: %d flights began, want %d", seed, len(w.begun), n)
			}
			w.open()
		})
	}
}

func TestClosedWorkersEndWhenTheyAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		w.Do(2)
		w.Do(4)
		w.Do(1)
		synctest.Wait()
		w.Close()
		w.open()
		synctest.Wait()
		if idle, _ := w.Idle(); idle != 0 {
			t.Errorf("%d workers are idle after the end, want 0", idle)
		}
	}) // which waits for all goroutines
}
