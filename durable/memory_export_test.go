package durable

import (
	"fmt"
	"slices"
)

// AllTriggers gives the rows of all triggers, of jobs that are gone too, in no order.
func (m *Memory) AllTriggers() []TriggerRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rows []TriggerRow
	for _, t := range m.triggers {
		rows = append(rows, t.row)
	}
	return rows
}

// Check compares every index with the rows, the hard way.
func (m *Memory) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, check := range []func() error{m.checkTriggers, m.checkWaiting, m.checkJobs, m.checkActive, m.checkEnded} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Memory) checkTriggers() error {
	listed, blocked, undue, broadcasts, running := 0, 0, 0, 0, 0
	for name, j := range m.named {
		if err := checkOrdered(&j.triggers); err != nil {
			return fmt.Errorf("triggers of %q: %w", name, err)
		}
		for t := range j.triggers.rising(none) {
			listed++
			if m.triggers[t.row.ID] != t || t.job != j || t.row.Job != name {
				return fmt.Errorf("trigger %q is listed under %q, and is not its", t.row.ID, name)
			}
		}
		if err := checkOrdered(&j.blocked); err != nil {
			return fmt.Errorf("blocked triggers of %q: %w", name, err)
		}
		some := false
		for t := range j.blocked.rising(none) {
			blocked++
			some = true
			if m.triggers[t.row.ID] != t || t.job != j || t.row.State != StateBlocked {
				return fmt.Errorf("trigger %q in state %d is among the blocked ones of %q", t.row.ID, t.row.State, name)
			}
		}
		if _, ok := m.blocked[j]; ok != some {
			return fmt.Errorf("job %q is among those with blocked triggers: %v, want %v", name, ok, some)
		}
	}
	for id, t := range m.triggers {
		if id != t.row.ID {
			return fmt.Errorf("trigger %q is filed under %q", t.row.ID, id)
		}
		if t.row.State == StateBlocked {
			blocked--
		}
		_, ok := m.undue[t]
		if ok != (t.row.State == StateWaiting && t.row.DueAt.IsZero()) {
			return fmt.Errorf("trigger %q in state %d, due %v, is undue: %v", id, t.row.State, t.row.DueAt, ok)
		}
		if ok {
			undue++
		}
		if t.row.State == StateBroadcast {
			broadcasts++
		}
		if _, ok := m.running[t]; ok != (t.row.State == StateRunning) {
			return fmt.Errorf("trigger %q in state %d is running: %v", id, t.row.State, ok)
		} else if ok {
			running++
		}
	}
	if listed != len(m.triggers) || blocked != 0 || undue != len(m.undue) || running != len(m.running) {
		return fmt.Errorf("%d triggers of %d are listed; %d blocked too many; %d undue of %d; %d running of %d",
			listed, len(m.triggers), blocked, undue, len(m.undue), running, len(m.running))
	}
	return checkAll(&m.broadcasts, broadcasts, func(t *memoryTrigger) bool {
		return m.triggers[t.row.ID] == t && t.row.State == StateBroadcast
	})
}

func (m *Memory) checkWaiting() error {
	n := 0
	for h, q := range m.waiting {
		for p := range q {
			for i, s := range q[p] {
				n++
				t := s.t
				if m.triggers[t.row.ID] != t || t.place != i || t.row.Handler != h || t.row.Priority != p ||
					t.row.State != StateWaiting || t.row.DueAt.UnixMicro() != s.due {
					return fmt.Errorf("heap %q, %d has at %d, place %d, due %d: %+v", h, p, i, t.place, s.due, t.row)
				}
				if i > 0 && s.before(q[p][(i-1)/4]) {
					return fmt.Errorf("heap %q, %d: row %d is before its parent", h, p, i)
				}
			}
		}
	}
	for _, t := range m.triggers {
		if t.row.State == StateWaiting && !t.row.DueAt.IsZero() {
			n--
		}
	}
	if n != 0 {
		return fmt.Errorf("heaps have %d rows too many", n)
	}
	for _, p := range m.taken {
		if p.t != nil && p.v.Run != nil {
			return fmt.Errorf("an earlier claim still holds run %q", p.v.Run.ID)
		}
	}
	return nil
}

func (m *Memory) checkJobs() error {
	n := 0
	for name, j := range m.named {
		if j.row.Name != name {
			return fmt.Errorf("job %q is filed under %q", j.row.Name, name)
		}
		if j.exists {
			n++
		}
	}
	return checkAll(&m.jobs, n, func(j *memoryJob) bool { return j.exists && m.named[j.row.Name] == j })
}

func (m *Memory) checkActive() error {
	n := 0
	for name, j := range m.named {
		for r := range j.active {
			n++
			if r.job != j || r.row.Job != name || m.active[r.row.ID] != r {
				return fmt.Errorf("run %q is active under %q, and is not its", r.row.ID, name)
			}
			if r.row.Fence > j.fence {
				return fmt.Errorf("fence of run %q = %d, more than its job's %d", r.row.ID, r.row.Fence, j.fence)
			}
		}
	}
	for node, own := range m.byNode {
		if len(own) == 0 {
			return fmt.Errorf("node %q is kept without runs", node)
		}
		for r := range own {
			n--
			if r.row.Node != node || m.active[r.row.ID] != r {
				return fmt.Errorf("run %q is active on %q, and is not its", r.row.ID, node)
			}
		}
	}
	for id, r := range m.active {
		if _, ok := r.job.active[r]; !ok || id != r.row.ID {
			return fmt.Errorf("run %q, filed under %q, is not its job's", r.row.ID, id)
		}
		if _, ok := m.byNode[r.row.Node][r]; !ok || !r.row.EndedAt.IsZero() {
			return fmt.Errorf("run %q is not its node's, or ended at %v", id, r.row.EndedAt)
		}
	}
	if n != 0 {
		return fmt.Errorf("jobs have %d active runs more than nodes", n)
	}
	return nil
}

func (m *Memory) checkEnded() error {
	filed := func(r *memoryRun) bool { return m.ended[r.row.ID] == r && !r.row.EndedAt.IsZero() }
	if err := checkAll(&m.byStart, len(m.ended), filed); err != nil {
		return fmt.Errorf("by start: %w", err)
	}
	n := 0
	for name, j := range m.named {
		own := len(slices.Collect(j.ended.rising(none)))
		n += own
		if err := checkAll(&j.ended, own, func(r *memoryRun) bool { return filed(r) && r.job == j && r.row.Job == name }); err != nil {
			return fmt.Errorf("of job %q: %w", name, err)
		}
	}
	if n != len(m.ended) {
		return fmt.Errorf("jobs have %d ended runs of %d", n, len(m.ended))
	}
	return nil
}

// checkAll wants n rows, in order, and each as it should be.
func checkAll[T any](o *ordered[T], n int, ok func(T) bool) error {
	if err := checkOrdered(o); err != nil {
		return err
	}
	for x := range o.rising(none) {
		if n--; !ok(x) {
			return fmt.Errorf("%+v should not be here", x)
		}
	}
	if n != 0 {
		return fmt.Errorf("%d rows are missing", n)
	}
	return nil
}

func checkOrdered[T any](o *ordered[T]) error {
	for _, p := range o.parts {
		if len(p) == 0 || len(p) > orderedPart {
			return fmt.Errorf("a part has %d rows", len(p))
		}
	}
	rows := slices.Collect(o.rising(none))
	for i := 1; i < len(rows); i++ {
		if !o.less(rows[i-1], rows[i]) {
			return fmt.Errorf("row %d is not before the next: %+v, %+v", i-1, rows[i-1], rows[i])
		}
	}
	back := slices.Collect(o.falling(all))
	slices.Reverse(back)
	if len(back) != len(rows) {
		return fmt.Errorf("%d rows falling, %d rising", len(back), len(rows))
	}
	return nil
}

// An IntSet is an ordered of ints, for tests.
type IntSet struct{ o ordered[int] }

func NewIntSet() *IntSet { return &IntSet{ordered[int]{less: func(a, b int) bool { return a < b }}} }

func (s *IntSet) Insert(x int) { s.o.insert(x) }
func (s *IntSet) Remove(x int) { s.o.remove(x) }
func (s *IntSet) Check() error { return checkOrdered(&s.o) }
func (s *IntSet) From(x int) []int {
	return slices.Collect(s.o.rising(func(y int) bool { return y < x }))
}
func (s *IntSet) Below(x int) []int {
	return slices.Collect(s.o.falling(func(y int) bool { return y < x }))
}
