package taskmanager_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager"
)

const year = 365 * 24 * time.Hour

// A wheelModel is deadlines in a sorted slice.
type wheelModel []*taskmanager.Node

func byWhen(a, b *taskmanager.Node) int { return cmp.Compare(a.When(), b.When()) }

func (m *wheelModel) add(n *taskmanager.Node) {
	i, _ := slices.BinarySearchFunc(*m, n, byWhen)
	*m = slices.Insert(*m, i, n)
}

func (m *wheelModel) remove(n *taskmanager.Node) {
	*m = slices.DeleteFunc(*m, func(o *taskmanager.Node) bool { return o == n })
}

func (m wheelModel) earliest() int64 {
	if len(m) == 0 {
		return taskmanager.Never
	}
	return m[0].When()
}

func (m wheelModel) due(now int64) (n int) {
	for n < len(m) && m[n].When() <= now {
		n++
	}
	return n
}

// A wheelCheck does the same things to a wheel and to the model.
type wheelCheck struct {
	t     *testing.T
	r     *rand.Rand
	wheel *taskmanager.Wheel
	exact bool
	model wheelModel
	idle  []*taskmanager.Node
	now   int64
}

// distance is a time to a deadline, or to the next move, of any order of magnitude.
func (c *wheelCheck) distance() int64 {
	scale := []time.Duration{1, 1000, 300 * time.Microsecond, 70 * time.Millisecond, 20 * time.Second, 80 * time.Minute, 14 * 24 * time.Hour, year, 9 * year, 12 * year}
	return c.r.Int64N(int64(scale[c.r.IntN(len(scale))]) + 1)
}

func (c *wheelCheck) add(when int64) {
	last := len(c.idle) - 1
	if last < 0 {
		return
	}
	n := c.idle[last]
	c.idle = c.idle[:last]
	c.wheel.Add(n, when, c.now)
	if n.When() != when || n.Filed() != (when != taskmanager.Never) {
		c.t.Fatalf("after add at %d: when %d, filed %v", when, n.When(), n.Filed())
	}
	if n.Filed() {
		c.model.add(n)
	} else {
		c.idle = append(c.idle, n)
	}
}

func (c *wheelCheck) remove() {
	if len(c.model) == 0 {
		return
	}
	n := c.model[c.r.IntN(len(c.model))]
	c.wheel.Remove(n)
	c.wheel.Remove(n) // harmless
	c.model.remove(n)
	c.idle = append(c.idle, n)
}

// pop takes out what is due, limit at a time, or stops in the middle.
func (c *wheelCheck) pop(limit int) {
	for done := false; !done; {
		var got []*taskmanager.Node
		due := c.model.due(c.now)
		got, done = c.wheel.PopDue(c.now, limit, nil)
		for _, n := range got {
			if n.When() > c.now {
				c.t.Fatalf("popped %v before its instant", time.Duration(n.When()-c.now))
			}
			if n.Filed() || !slices.Contains(c.model, n) {
				c.t.Fatalf("popped a node that was not filed, or is so still")
			}
			c.model.remove(n)
		}
		c.idle = append(c.idle, got...)
		if len(got) > limit || done && len(got) != due || !done && len(got) != limit {
			c.t.Fatalf("popped %d of %d due, done %v, with a limit of %d", len(got), due, done, limit)
		}
		c.check()
		if !done && c.r.IntN(4) == 0 {
			return
		}
		if done && c.wheel.Wake() <= c.now {
			c.t.Fatalf("wake = now%+d with all popped that is due", c.wheel.Wake()-c.now)
		}
	}
}

func (c *wheelCheck) check() {
	if err := c.wheel.Check(); err != nil {
		c.t.Fatal(err)
	}
	if c.wheel.Count() != len(c.model) {
		c.t.Fatalf("count = %d, want %d", c.wheel.Count(), len(c.model))
	}
	wake, earliest := c.wheel.Wake(), c.model.earliest()
	latest := earliest
	if !c.exact && earliest != taskmanager.Never {
		// The end of a dense slot, or of what a wake-up serves where there are some.
		latest = max((earliest/taskmanager.SlotLength+1)*taskmanager.SlotLength, c.now+taskmanager.Crowded)
	}
	if wake > latest || (wake == taskmanager.Never) != (len(c.model) == 0) {
		c.t.Fatalf("wake = now%+d, with %d nodes, the earliest at now%+d", wake-c.now, len(c.model), earliest-c.now)
	}
}

func (c *wheelCheck) step() {
	switch p := c.r.IntN(100); {
	case p < 35:
		c.add(c.now + c.distance())
	case p < 40: // many at an instant, more than the wheel looks through one by one
		when := c.now + c.distance()
		if c.r.IntN(2) == 0 { // right where slots of upper levels begin
			slot := taskmanager.SlotLength << (8 * (1 + c.r.IntN(4)))
			when = (c.now/slot+1+c.r.Int64N(300))*slot + c.r.Int64N(3) - 1
		}
		for range c.r.IntN(40) {
			c.add(when)
		}
	case p < 45: // in the past, by a late pump
		c.add(max(0, c.now-c.distance()))
	case p < 47:
		c.add(taskmanager.Never)
	case p < 65:
		c.remove()
	case p < 80:
		c.now += c.distance()
		c.pop(1 + c.r.IntN(20))
	case p < 95: // as the engine does it
		if wake := c.wheel.Wake(); wake != taskmanager.Never {
			c.now = max(c.now, wake)
			c.pop(1 << 30)
		}
	default:
		c.pop(1)
	}
	c.check()
}

func TestTheWheelAgreesWithASortedSlice(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("exact %v, seed %d", exact, seed), func(t *testing.T) {
				c := &wheelCheck{t: t, r: rand.New(rand.NewPCG(seed, 2)), wheel: taskmanager.NewWheel(exact), exact: exact, now: 1}
				for range 30 + c.r.IntN(300) {
					c.idle = append(c.idle, &taskmanager.Node{})
				}
				for range 600 {
					c.step()
				}
				// Woken when it asks to be, it gives back all there is.
				for len(c.model) > 0 {
					c.now = max(c.now, c.wheel.Wake())
					c.pop(1 << 30)
				}
			})
		}
	}
}

func TestADeadlineBeyondTheHorizonHidesNoEarlierOne(t *testing.T) {
	for _, exact := range []bool{false, true} {
		w := taskmanager.NewWheel(exact)
		var far, near taskmanager.Node
		w.Add(&far, int64(20*year), 1) // waits in the last slot, which begins in 3322 days
		now := int64(30 * 24 * time.Hour)
		if due, done := w.PopDue(now, 10, nil); len(due) > 0 || !done {
			t.Fatalf("popped %d, done %v", len(due), done)
		}
		w.Add(&near, int64(3340*24*time.Hour), now) // in the slot behind that
		for w.Count() > 1 {
			if now = w.Wake(); now > near.When() {
				t.Fatalf("exact %v: woken at %v for a deadline at %v", exact, time.Duration(now), time.Duration(near.When()))
			}
			w.PopDue(now, 10, nil)
		}
		if near.Filed() || !far.Filed() {
			t.Errorf("exact %v: near filed %v, far %v, want the near one popped", exact, near.Filed(), far.Filed())
		}
	}
}

func TestASparseWheelWakesAtTheVeryInstant(t *testing.T) {
	for _, ahead := range []time.Duration{1, time.Microsecond, time.Millisecond, 67 * time.Millisecond, time.Second, 17 * time.Second, time.Minute, 73 * time.Minute, 13 * 24 * time.Hour, year} {
		w := taskmanager.NewWheel(false)
		var nodes [5]taskmanager.Node
		for i := range nodes {
			w.Add(&nodes[i], 1+int64(ahead)*int64(5-i), 1)
		}
		if got, want := w.Wake(), 1+int64(ahead); got != want {
			t.Errorf("wake = %d with the first of five at %d", got, want)
		}
	}
}

func TestADenseSlotIsServedInOneWakeup(t *testing.T) {
	w := taskmanager.NewWheel(false)
	start := 5 * taskmanager.SlotLength
	nodes := make([]taskmanager.Node, 200)
	for i := range nodes {
		w.Add(&nodes[i], start+int64(i)*taskmanager.SlotLength/200, 1)
	}
	wake := w.Wake()
	if want := start + taskmanager.SlotLength; wake != want {
		t.Errorf("wake = %d, want the end of the slot, %d", wake, want)
	}
	if due, done := w.PopDue(wake, 1000, nil); len(due) != 200 || !done {
		t.Errorf("popped %d, done %v, want 200, true", len(due), done)
	}
}

func TestWhereSlotsAreDenseAWakeupServesAStretch(t *testing.T) {
	for _, left := range []int{0, 1, 3, 8, 15} {
		w := taskmanager.NewWheel(false)
		start := 5 * taskmanager.SlotLength
		nodes := make([]taskmanager.Node, 20)
		step := taskmanager.SlotLength / int64(len(nodes))
		for i := range nodes {
			w.Add(&nodes[i], start+int64(i)*step, 1)
		}
		var soon, later taskmanager.Node // in the stretch, and behind it
		now := start + int64(len(nodes)-left-1)*step
		w.Add(&soon, now+taskmanager.Crowded-1, 1)
		w.Add(&later, start+5*taskmanager.SlotLength, 1)
		if due, done := w.PopDue(now, 1000, nil); len(due) != len(nodes)-left || !done {
			t.Fatalf("popped %d, done %v, want all but %d", len(due), done, left)
		}
		end := now + taskmanager.Crowded
		if got := w.Wake(); got != end && got != soon.When() {
			t.Errorf("wake = now%+d with %d left, want now%+d", got-now, left, end-now)
		}
		if due, _ := w.PopDue(end, 1000, nil); len(due) != left+1 {
			t.Errorf("popped %d at the end, want %d", len(due), left+1)
		}
		if got := w.Wake(); got != later.When() {
			t.Errorf("wake = %d after the dense slot, want the next instant, %d", got, later.When())
		}
	}
}

func TestDenseSlotsInARowAreServedAStretchAtATime(t *testing.T) {
	w := taskmanager.NewWheel(false)
	start := 5 * taskmanager.SlotLength
	nodes := make([]taskmanager.Node, 200)
	step := taskmanager.SlotLength / 20
	for i := range nodes {
		w.Add(&nodes[i], start+int64(i)*step, 1)
	}
	now := start + 3*step
	w.PopDue(now, 1000, nil)
	for popped := 4; popped < 180; {
		wake := w.Wake()
		if wake != now+taskmanager.Crowded {
			t.Fatalf("wake = now%+d, want now%+d", wake-now, taskmanager.Crowded)
		}
		now = wake
		due, done := w.PopDue(now, 1000, nil)
		if popped += len(due); !done || int64(popped) != (now-start)/step+1 {
			t.Fatalf("%d popped until %d, done %v", popped, now-start, done)
		}
	}
}

func TestFilingAllocatesNothingInTheLongRun(t *testing.T) {
	w := taskmanager.NewWheel(false)
	nodes := make([]taskmanager.Node, 500)
	now := int64(1)
	for i := range nodes {
		w.Add(&nodes[i], now+int64(i+1)*int64(time.Millisecond), now)
	}
	var due []*taskmanager.Node
	turn := func() {
		now = w.Wake()
		due, _ = w.PopDue(now, 1<<30, due[:0])
		for i, n := range due {
			w.Add(n, n.When()+int64(time.Second)+int64(i), now)
		}
	}
	for range 20_000 {
		turn()
	}
	if got := testing.AllocsPerRun(20, func() {
		for range 500 {
			turn()
		}
	}); got != 0 {
		t.Errorf("%v allocations in 500 wake-ups, want 0", got)
	}
}

// BenchmarkWheel is the price of one tick in the wheel, its popping and filing anew,
// for tasks whose intervals are from 0.5 to 1.5 s.
func BenchmarkWheel(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			w := taskmanager.NewWheel(false)
			nodes := make([]taskmanager.Node, size)
			interval := func() int64 { return int64(time.Second)/2 + r.Int64N(int64(time.Second)) }
			for i := range nodes {
				w.Add(&nodes[i], 1+r.Int64N(int64(time.Second)), 1)
			}
			now := int64(1)
			var due []*taskmanager.Node
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += len(due) {
				now = max(now, w.Wake())
				due, _ = w.PopDue(now, 1024, due[:0])
				for _, n := range due {
					w.Add(n, n.When()+interval(), now)
				}
			}
		})
	}
}
