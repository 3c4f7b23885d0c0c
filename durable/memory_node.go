package durable

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// alive tells whether the node has a lease.
func alive(n *NodeRow, now time.Time) bool { return !n.Dead && now.Before(n.LeaseUntil) }

// Beat implements Store.
func (m *Memory) Beat(ctx context.Context, node NodeRow, ttl time.Duration) (BeatResult, error) {
	if err := ctx.Err(); err != nil {
		return BeatResult{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	n := m.nodes[node.ID]
	res := BeatResult{Now: now, Dead: n != nil && n.Dead}
	switch {
	case res.Dead:
	case ttl <= 0:
		if len(m.byNode[node.ID]) == 0 {
			delete(m.nodes, node.ID)
		}
	case n == nil:
		m.nodes[node.ID] = &NodeRow{
			ID: node.ID, Name: node.Name,
			StartedAt: now, Heartbeat: now, LeaseUntil: instant(now.Add(ttl)),
		}
	default:
		n.Heartbeat, n.LeaseUntil = now, instant(now.Add(ttl))
	}
	for _, n := range m.nodes {
		if alive(n, now) {
			res.Alive++
		}
	}
	for r := range m.byNode[node.ID] {
		res.Runs = append(res.Runs, OwnRun{r.row.ID, r.row.Cancel})
	}
	slices.SortFunc(res.Runs, func(a, b OwnRun) int { return cmp.Compare(a.ID, b.ID) })
	return res, nil
}

// Expire implements Store.
func (m *Memory) Expire(ctx context.Context, r ExpireRequest) (ExpireResult, error) {
	if err := ctx.Err(); err != nil {
		return ExpireResult{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	res := ExpireResult{Now: now}
	for id, n := range m.nodes {
		switch {
		case !n.Dead && n.LeaseUntil.Add(r.Grace).Before(now):
			n.Dead = true
			res.Dead = append(res.Dead, *n)
		case n.Dead && n.LeaseUntil.Add(limits.DeadNodeKept).Before(now) && len(m.byNode[id]) == 0:
			delete(m.nodes, id)
		}
	}
	slices.SortFunc(res.Dead, func(a, b NodeRow) int { return cmp.Compare(a.ID, b.ID) })
	for id, own := range m.byNode {
		if n := m.nodes[id]; n != nil && !n.Dead {
			continue
		}
		for a := range own {
			res.Runs = append(res.Runs, a.row)
		}
	}
	slices.SortFunc(res.Runs, func(a, b RunRow) int { return cmp.Compare(a.ID, b.ID) })
	res.Runs = firstRows(res.Runs, r.Limit, outRun)
	res.Released = m.dropHolds()
	for t := range m.undue {
		if t.row.ID > r.After {
			res.Undue = append(res.Undue, t.row)
		}
	}
	slices.SortFunc(res.Undue, func(a, b TriggerRow) int { return cmp.Compare(a.ID, b.ID) })
	res.Undue = slices.DeleteFunc(firstRows(res.Undue, r.Limit, outTrigger), func(row TriggerRow) bool {
		if row.OneShot() {
			row.DueAt = now
			m.setTrigger(m.triggers[row.ID], row)
			res.Released++
		}
		return row.OneShot()
	})
	for j := range m.blocked {
		if len(j.active) == 0 {
			res.Released += m.unblock(j, limits.Wakes)
		}
	}
	for _, t := range slices.Collect(m.broadcasts.rising(none)) {
		if !t.row.DueAt.IsZero() && t.row.DueAt.Before(now) {
			m.deleteTrigger(t)
		}
	}
	return res, nil
}

// dropHolds has triggers wait again that are to wait for the end of a run that is not there,
// and tells how many may be due.
func (m *Memory) dropHolds() (n int) {
	if len(m.running) == 0 {
		return 0
	}
	held := map[string]bool{}
	for _, r := range m.active {
		held[r.row.TriggerID] = true
	}
	for t := range m.running {
		if !held[t.row.ID] {
			row := released(t.row)
			if row.Paused { // whoever repairs it sees to that
				row.DueAt = time.Time{}
			}
			if !row.DueAt.IsZero() {
				n++
			}
			m.setTrigger(t, row)
		}
	}
	return n
}

// firstRows makes the first rows the caller's, and drops the rest.
func firstRows[T any](rows []T, limit int, out func(T) T) []T {
	rows = rows[:min(len(rows), max(limit, 0))]
	for i := range rows {
		rows[i] = out(rows[i])
	}
	return rows
}

// Nodes implements Store.
func (m *Memory) Nodes(ctx context.Context) ([]NodeRow, time.Time, error) {
	if err := ctx.Err(); err != nil {
		return nil, time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := make([]NodeRow, 0, len(m.nodes))
	for _, n := range m.nodes {
		rows = append(rows, *n)
	}
	slices.SortFunc(rows, func(a, b NodeRow) int { return cmp.Compare(a.ID, b.ID) })
	return rows, m.now(), nil
}

// Lease implements Store.
func (m *Memory) Lease(ctx context.Context, name, holder string, ttl time.Duration) (LeaseRow, error) {
	if err := ctx.Err(); err != nil {
		return LeaseRow{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	l := m.leases[name]
	if l == nil {
		if ttl <= 0 {
			return LeaseRow{Name: name}, nil
		}
		l = &LeaseRow{Name: name}
		m.leases[name] = l
	}
	if !now.Before(l.Until) {
		l.Holder, l.Until = "", time.Time{}
	}
	switch {
	case l.Holder == "" && ttl > 0:
		l.Holder, l.Until = holder, instant(now.Add(ttl))
		l.Token++
	case l.Holder == holder && ttl > 0:
		l.Until = instant(now.Add(ttl))
	case l.Holder == holder:
		l.Holder, l.Until = "", time.Time{}
	}
	return *l, nil
}
