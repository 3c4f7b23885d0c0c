package durable_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/durable/storetest"
)

// A checkedMemory compares all indexes with the rows after each call, and what a
// claim looks at with what a search through all rows finds. The suite alone would
// not do: its model test has a memory store for its oracle.
type checkedMemory struct {
	*durable.Memory
	t   *testing.T
	now func() time.Time
	mu  sync.Mutex // one call at a time
}

func (c *checkedMemory) check() {
	c.t.Helper()
	if err := c.Memory.Check(); err != nil {
		c.t.Fatalf("Check() = %v, want nil", err)
	}
}

func (c *checkedMemory) Claim(ctx context.Context, r durable.ClaimRequest) (durable.ClaimResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.check()
	want, next := c.search(r)
	plan := r.Plan
	looked := 0
	r.Plan = func(d durable.Due) durable.Verdict {
		if looked >= len(want) || d.Trigger.ID != want[looked] {
			c.t.Errorf("Claim looks at trigger %q, the %d. of %q", d.Trigger.ID, looked+1, want)
		}
		looked++
		return plan(d)
	}
	res, err := c.Memory.Claim(ctx, r)
	if err != nil {
		return res, err
	}
	if looked != len(want) {
		c.t.Errorf("Claim looked at %d triggers, want %d", looked, len(want))
	}
	if !res.Next.Equal(next) {
		c.t.Errorf("Claim.Next = %v, want %v", res.Next, next)
	}
	return res, err
}

// search finds what is due, in the order of claims, and what is due next.
func (c *checkedMemory) search(r durable.ClaimRequest) (ids []string, next time.Time) {
	now := c.now().UTC().Truncate(time.Microsecond)
	var due []durable.TriggerRow
	for _, t := range c.Memory.AllTriggers() {
		if t.State != durable.StateWaiting || t.DueAt.IsZero() || !slices.Contains(r.Handlers, t.Handler) || slices.Contains(r.Except, t.ID) {
			continue
		}
		if next.IsZero() || t.DueAt.Before(next) {
			next = t.DueAt
		}
		if !t.DueAt.After(now) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b durable.TriggerRow) int {
		switch {
		case a.Priority != b.Priority:
			return b.Priority - a.Priority
		case !a.DueAt.Equal(b.DueAt):
			return a.DueAt.Compare(b.DueAt)
		case a.ID < b.ID:
			return -1
		}
		return 1
	})
	for _, t := range due[:min(len(due), r.Limit)] {
		ids = append(ids, t.ID)
	}
	return ids, next
}

func (c *checkedMemory) Finish(ctx context.Context, r durable.FinishRequest) ([]bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.check()
	return c.Memory.Finish(ctx, r)
}

func (c *checkedMemory) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.check()
	return c.Memory.Edit(ctx, job, scope, change)
}

func (c *checkedMemory) Expire(ctx context.Context, r durable.ExpireRequest) (durable.ExpireResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.check()
	return c.Memory.Expire(ctx, r)
}

func (c *checkedMemory) Purge(ctx context.Context, r durable.PurgeRequest) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.check()
	return c.Memory.Purge(ctx, r)
}

func TestMemoryKeepsItsIndexesTrue(t *testing.T) {
	storetest.Run(t, func(t *testing.T, now func() time.Time) durable.Store {
		return &checkedMemory{Memory: durable.NewMemory(durable.MemoryNow(now)), t: t, now: now}
	})
}

func TestMemoryForgetsDeadNodesADayAfterTheirLease(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	m := durable.NewMemory(durable.MemoryNow(func() time.Time { return now }))
	ctx := context.Background()
	if _, err := m.Beat(ctx, durable.NodeRow{ID: "n"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{2 * time.Minute, 1}, {24*time.Hour - time.Minute, 1}, {time.Microsecond, 0}} {
		now = now.Add(step.pass)
		if _, err := m.Expire(ctx, durable.ExpireRequest{}); err != nil {
			t.Fatal(err)
		}
		rows, _, _ := m.Nodes(ctx)
		if len(rows) != step.want {
			t.Errorf("Nodes() at %v = %d nodes, want %d", now, len(rows), step.want)
		}
	}
}

func TestMemoryIsNotShared(t *testing.T) {
	if durable.NewMemory().Shared() {
		t.Error("Shared() = true, want false")
	}
}

func TestMemoryHasTheTimeOfTheSystemByDefault(t *testing.T) {
	before := time.Now().Truncate(time.Microsecond)
	_, now, err := durable.NewMemory().Nodes(context.Background())
	if err != nil || now.Before(before) || now.After(time.Now()) || now.Location() != time.UTC {
		t.Errorf("Nodes() = %v, %v, want the time of now in UTC, nil", now, err)
	}
}

func TestOrderedRowsAgreeWithASortedSlice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := durable.NewIntSet()
	var model []int
	for step := range 20_000 {
		x := r.IntN(4000)
		if step < 1000 {
			x = 4000 + step // in order
		}
		i, in := slices.BinarySearch(model, x)
		if in {
			s.Remove(x)
			model = slices.Delete(model, i, i+1)
		} else {
			s.Insert(x)
			model = slices.Insert(model, i, x)
		}
		if step%500 != 0 {
			continue
		}
		if err := s.Check(); err != nil {
			t.Fatalf("step %d: Check() = %v, want nil", step, err)
		}
		at := r.IntN(5000)
		i, _ = slices.BinarySearch(model, at)
		below := slices.Clone(model[:i])
		slices.Reverse(below)
		if !slices.Equal(s.From(at), model[i:]) || !slices.Equal(s.Below(at), below) {
			t.Fatalf("step %d: From(%d), Below(%d) = %d and %d rows, want %d and %d, in order", step, at, at, len(s.From(at)), len(s.Below(at)), len(model)-i, i)
		}
	}
	for _, x := range slices.Clone(model) {
		s.Remove(x)
	}
	if len(s.From(0)) > 0 || len(s.Below(1<<30)) > 0 {
		t.Error("rows are left after all were removed")
	}
}
