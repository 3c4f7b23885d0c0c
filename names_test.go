package taskmanager_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

// collidingNames have hashes that are equal in the low bits, so that in a table of
// up to 1<<bits slots all of them begin their search at one place.
func collidingNames(s *taskmanager.Names, n, bits int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("task ", i); s.Hash(name)&(1<<bits-1) == 1<<bits-2 { // the row goes round the end
			names = append(names, name)
		}
	}
	return names
}

func TestNamesAgreeWithAMap(t *testing.T) {
	for name, draw := range map[string]func(*taskmanager.Names) []string{
		"ordinary": func(*taskmanager.Names) (names []string) {
			for i := range 600 {
				names = append(names, fmt.Sprint("task ", i))
			}
			return names
		},
		"colliding":        func(s *taskmanager.Names) []string { return collidingNames(s, 150, 10) },
		"partly colliding": func(s *taskmanager.Names) []string { return collidingNames(s, 300, 5) },
		"few":              func(s *taskmanager.Names) []string { return collidingNames(s, 4, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			s := taskmanager.NewNames()
			r := rand.New(rand.NewPCG(1, 2))
			names := draw(s)
			model := map[string]*taskmanager.Handle{}
			gone := taskmanager.NewNamed(names[0])
			for step := range 6000 {
				name := names[r.IntN(len(names))]
				// In long waves, so that the table is full at times and nearly empty at others.
				if filling := step/1000%2 == 0; r.IntN(10) < 3 == filling {
					if h := model[name]; h != nil {
						s.Remove(h)
						s.Remove(h) // harmless
						delete(model, name)
						gone = h
					}
				} else {
					h := taskmanager.NewNamed(name)
					if added := s.Add(h); added != (model[name] == nil) {
						t.Fatalf("add(%q) = %v, want %v", name, added, !added)
					} else if added {
						model[name] = h
					}
				}
				if found := s.Find(name); found != model[name] {
					t.Fatalf("find(%q) = %p, want %p", name, found, model[name])
				}
				s.Remove(gone) // nobody else of the same name
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
				if count, _ := s.Size(); count != len(model) {
					t.Fatalf("%d names, want %d", count, len(model))
				}
			}
			all := map[string]*taskmanager.Handle{}
			for _, h := range s.All() {
				all[h.Name()] = h
			}
			for _, name := range names {
				if all[name] != model[name] || s.Find(name) != model[name] {
					t.Errorf("%q: all has %p, find returns %p, want %p", name, all[name], s.Find(name), model[name])
				}
			}
		})
	}
}

func TestNamesOfOneHashLiveSideBySide(t *testing.T) {
	s := taskmanager.NewNames()
	byHash := map[uint32]string{}
	var one, other string
	for i := 0; other == ""; i++ { // some 80,000 names
		name := fmt.Sprint(i)
		if one = byHash[s.Hash(name)]; one != "" {
			other = name
		}
		byHash[s.Hash(name)] = name
	}
	a, b := taskmanager.NewNamed(one), taskmanager.NewNamed(other)
	if !s.Add(a) || !s.Add(b) || s.Find(one) != a || s.Find(other) != b {
		t.Errorf("%q and %q, of one hash, are taken for one", one, other)
	}
	s.Remove(a)
	if s.Find(one) != nil || s.Find(other) != b {
		t.Errorf("removing %q removed %q", one, other)
	}
}

func TestNamesGiveTheirMemoryBack(t *testing.T) {
	s := taskmanager.NewNames()
	var tasks []*taskmanager.Handle
	for i := range 100_000 {
		h := taskmanager.NewNamed(fmt.Sprint(i))
		s.Add(h)
		tasks = append(tasks, h)
	}
	if _, slots := s.Size(); slots > 4*len(tasks) {
		t.Errorf("%d slots for %d names", slots, len(tasks))
	}
	for _, h := range tasks {
		s.Remove(h)
	}
	if count, slots := s.Size(); count != 0 || slots > 1024 {
		t.Errorf("%d names left in %d slots, want none in 1024 at most", count, slots)
	}
}

func TestChurnDoesNotLetTheTableOfNamesGrow(t *testing.T) {
	s := taskmanager.NewNames()
	for i := range 100 {
		s.Add(taskmanager.NewNamed(fmt.Sprint("resident ", i)))
	}
	for i := range 100_000 {
		h := taskmanager.NewNamed(fmt.Sprint(i))
		s.Add(h)
		s.Remove(h)
	}
	if count, slots := s.Size(); count != 100 || slots > 512 {
		t.Errorf("%d names in %d slots, want 100 in 512 at most", count, slots)
	}
}

// BenchmarkNames is the scheduling and stopping of one task among many, as the set
// of names sees it, and the look-up of one, beside a Go map.
func BenchmarkNames(b *testing.B) {
	for _, size := range []int{1_000, 100_000, 1_000_000} {
		tasks := make([]*taskmanager.Handle, size)
		for i := range tasks {
			tasks[i] = taskmanager.NewNamed(fmt.Sprint("task ", i))
		}
		// The last tenth comes and goes.
		resident := size / 10 * 9
		b.Run(fmt.Sprint("ours/churn/", size), func(b *testing.B) {
			s := taskmanager.NewNames()
			for _, h := range tasks {
				s.Add(h)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				h := tasks[resident+i%(size-resident)]
				s.Remove(h)
				s.Add(h)
			}
		})
		b.Run(fmt.Sprint("map/churn/", size), func(b *testing.B) {
			s := map[string]*taskmanager.Handle{}
			for _, h := range tasks {
				s[h.Name()] = h
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				h := tasks[resident+i%(size-resident)]
				delete(s, h.Name())
				s[h.Name()] = h
			}
		})
		b.Run(fmt.Sprint("ours/fill/", size), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				s := taskmanager.NewNames()
				for _, h := range tasks {
					s.Add(h)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/name")
		})
		b.Run(fmt.Sprint("map/fill/", size), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				s := map[string]*taskmanager.Handle{}
				for _, h := range tasks {
					s[h.Name()] = h
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/name")
		})
	}
}

// As fmt and slog do, while the engine is at work on the task.
func TestAHandleIsPrintedByItsName(t *testing.T) {
	m := newManager()
	defer m.Close()
	h := must(m.ScheduleRecurring("a", time.Millisecond, nothing, taskmanager.WithJitter(0)))
	for range 100 {
		if got := fmt.Sprint(h, struct{ H *taskmanager.Handle }{h}); got != "a {a}" {
			t.Fatalf("a handle is printed as %.100q, want its name", got)
		}
	}
}
