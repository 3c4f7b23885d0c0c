package durable

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager/internal/limits"
)

// A Memory is a Store in the memory of this process: what it has is gone when the
// process ends, and no other process sees it. It is the reference for what Stores
// do.
//
// A request first decides, calling the functions it was given, and then changes
// rows, which cannot fail: a function that returns an error or panics leaves no
// trace.
type Memory struct {
	clock func() time.Time // immutable

	// mu guards all below. It is held while the functions of a request are called.
	mu       sync.Mutex
	triggers map[string]*memoryTrigger // by ID
	active   map[string]*memoryRun     // by ID
	ended    map[string]*memoryRun     // by ID
	nodes    map[string]*NodeRow
	leases   map[string]*LeaseRow

	// named has whatever belongs to a name of a job, and jobs the ones of them that
	// exist, in order of name.
	named map[string]*memoryJob
	jobs  ordered[*memoryJob]

	// Each trigger is in one of these, as its state says, or in none: see put.
	waiting    map[string]*[limits.Priorities]dueHeap // by handler, then priority
	undue      map[*memoryTrigger]struct{}
	broadcasts ordered[*memoryTrigger]
	blocked    map[*memoryJob]struct{} // jobs that have blocked triggers
	running    map[*memoryTrigger]struct{}

	request uint64          // counts claims and finishes, for the marks they leave on rows
	taken   []planned       // by the claim under way; here to be used again
	newRuns map[string]bool // IDs, of the claim under way; so too

	byNode  map[string]map[*memoryRun]struct{} // active runs
	byStart ordered[*memoryRun]                // ended runs
}

// A memoryJob is what belongs to the name of a job. It outlives the job, for the
// sake of fence, which must rise over all jobs of that name.
type memoryJob struct {
	row      JobRow
	exists   bool
	fence    int64
	triggers ordered[*memoryTrigger] // schedule triggers, then one-shot ones, by name
	blocked  ordered[*memoryTrigger] // in the order of claims
	active   map[*memoryRun]struct{}
	ended    ordered[*memoryRun]
	claimed  uint64 // the last request that planned a run of it
}

// busy tells whether no other run of the job may be active.
func (j *memoryJob) busy() bool {
	return j.exists && !j.row.AllowConcurrent && len(j.active) > 0
}

type memoryTrigger struct {
	row   TriggerRow
	job   *memoryJob
	place int // in its dueHeap
}

type memoryRun struct {
	row  RunRow
	job  *memoryJob
	gone uint64 // the last request that decided to end it
	kept uint64 // and to keep it
}

// A MemoryOption changes a new Memory.
type MemoryOption func(*Memory)

// MemoryNow makes now the store's clock. The default, and that of nil, is time.Now.
func MemoryNow(now func() time.Time) MemoryOption {
	if now == nil {
		now = time.Now
	}
	return func(m *Memory) { m.clock = now }
}

// NewMemory returns an empty store.
func NewMemory(opts ...MemoryOption) *Memory {
	m := &Memory{
		clock:      time.Now,
		triggers:   map[string]*memoryTrigger{},
		active:     map[string]*memoryRun{},
		ended:      map[string]*memoryRun{},
		nodes:      map[string]*NodeRow{},
		leases:     map[string]*LeaseRow{},
		named:      map[string]*memoryJob{},
		jobs:       ordered[*memoryJob]{less: func(a, b *memoryJob) bool { return a.row.Name < b.row.Name }},
		waiting:    map[string]*[limits.Priorities]dueHeap{},
		undue:      map[*memoryTrigger]struct{}{},
		broadcasts: ordered[*memoryTrigger]{less: func(a, b *memoryTrigger) bool { return a.row.ID < b.row.ID }},
		blocked:    map[*memoryJob]struct{}{},
		running:    map[*memoryTrigger]struct{}{},
		newRuns:    map[string]bool{},
		byNode:     map[string]map[*memoryRun]struct{}{},
		byStart:    ordered[*memoryRun]{less: startsBefore},
	}
	for _, o := range opts {
		if o != nil {
			o(m)
		}
	}
	return m
}

// Shared tells that no other process sees the rows.
func (m *Memory) Shared() bool { return false }

func (m *Memory) now() time.Time { return instant(m.clock()) }

// instant is t as stores keep it.
func instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

func startsBefore(a, b *memoryRun) bool { return a.row.Key().before(b.row.Key()) }

func (k RunKey) before(l RunKey) bool {
	if c := k.StartedAt.Compare(l.StartedAt); c != 0 {
		return c < 0
	}
	return k.ID < l.ID
}

func triggerBefore(a, b *memoryTrigger) bool {
	if x, y := a.row.OneShot(), b.row.OneShot(); x != y {
		return y
	}
	if a.row.Name != b.row.Name {
		return a.row.Name < b.row.Name
	}
	return a.row.ID < b.row.ID
}

func claimedBefore(a, b *memoryTrigger) bool {
	if a.row.Priority != b.row.Priority {
		return a.row.Priority > b.row.Priority
	}
	if c := a.row.DueAt.Compare(b.row.DueAt); c != 0 {
		return c < 0
	}
	return a.row.ID < b.row.ID
}

// name gives what belongs to the name of a job.
func (m *Memory) name(job string) *memoryJob {
	j := m.named[job]
	if j == nil {
		j = &memoryJob{
			row:      JobRow{Name: job},
			triggers: ordered[*memoryTrigger]{less: triggerBefore},
			blocked:  ordered[*memoryTrigger]{less: claimedBefore},
			active:   map[*memoryRun]struct{}{},
			ended:    ordered[*memoryRun]{less: startsBefore},
		}
		m.named[job] = j
	}
	return j
}

// addTrigger adds a new row, unless its ID is known, or that of an active run.
func (m *Memory) addTrigger(row TriggerRow) {
	if m.triggers[row.ID] != nil || row.OneShot() && m.active[row.ID] != nil {
		return
	}
	row.Version = 1
	t := &memoryTrigger{row: ownTrigger(row, nil), job: m.name(row.Job)}
	m.triggers[row.ID] = t
	t.job.triggers.insert(t)
	m.put(t)
}

func (m *Memory) deleteTrigger(t *memoryTrigger) {
	m.takeOut(t)
	m.forgetTrigger(t)
}

// forgetTrigger deletes t when it is taken out already.
func (m *Memory) forgetTrigger(t *memoryTrigger) {
	t.job.triggers.remove(t)
	delete(m.triggers, t.row.ID)
}

// setTrigger changes t into row, which has the same ID and job.
func (m *Memory) setTrigger(t *memoryTrigger, row TriggerRow) {
	m.takeOut(t)
	m.becomeTrigger(t, row)
}

// becomeTrigger changes t when it is taken out already, and puts it.
func (m *Memory) becomeTrigger(t *memoryTrigger, row TriggerRow) {
	row.Version = t.row.Version + 1
	row = ownTrigger(row, t.row.Data)
	if row.Name == t.row.Name && row.OneShot() == t.row.OneShot() {
		t.row = row
	} else {
		t.job.triggers.remove(t)
		t.row = row
		t.job.triggers.insert(t)
	}
	m.put(t)
}

// put files t under its state.
func (m *Memory) put(t *memoryTrigger) {
	switch t.row.State {
	case StateWaiting:
		if t.row.DueAt.IsZero() {
			m.undue[t] = struct{}{}
		} else {
			m.queue(t).push(t)
		}
	case StateBlocked:
		t.job.blocked.insert(t)
		m.blocked[t.job] = struct{}{}
	case StateRunning:
		m.running[t] = struct{}{}
	case StateBroadcast:
		m.broadcasts.insert(t)
	}
}

// takeOut is the reverse of put.
func (m *Memory) takeOut(t *memoryTrigger) {
	switch t.row.State {
	case StateWaiting:
		if t.row.DueAt.IsZero() {
			delete(m.undue, t)
		} else {
			m.queue(t).remove(t)
		}
	case StateBlocked:
		t.job.blocked.remove(t)
		if len(t.job.blocked.parts) == 0 {
			delete(m.blocked, t.job)
		}
	case StateRunning:
		delete(m.running, t)
	case StateBroadcast:
		m.broadcasts.remove(t)
	}
}

// queue is the heap for t while it waits.
func (m *Memory) queue(t *memoryTrigger) *dueHeap {
	q := m.waiting[t.row.Handler]
	if q == nil {
		q = new([limits.Priorities]dueHeap)
		m.waiting[t.row.Handler] = q
	}
	return &q[min(max(t.row.Priority, 0), limits.Priorities-1)]
}

// unblock sets the first n blocked triggers of a job waiting, and tells how many there
// were. One of them will run, and the others are blocked again: to wake them all at each
// end would cost a queue of runs the square of its length.
func (m *Memory) unblock(j *memoryJob, n int) int {
	var first []*memoryTrigger
	for t := range j.blocked.rising(none) {
		if len(first) == n {
			break
		}
		first = append(first, t)
	}
	for _, t := range first {
		m.setTrigger(t, released(t.row))
	}
	return len(first)
}

func released(t TriggerRow) TriggerRow {
	t.State, t.Reason = StateWaiting, ""
	return t
}

func (m *Memory) addActive(row RunRow) {
	r := &memoryRun{row: row, job: m.name(row.Job)}
	m.active[row.ID] = r
	r.job.active[r] = struct{}{}
	own := m.byNode[row.Node]
	if own == nil {
		own = map[*memoryRun]struct{}{}
		m.byNode[row.Node] = own
	}
	own[r] = struct{}{}
}

func (m *Memory) dropActive(r *memoryRun) {
	delete(m.active, r.row.ID)
	delete(r.job.active, r)
	own := m.byNode[r.row.Node]
	if delete(own, r); len(own) == 0 {
		delete(m.byNode, r.row.Node)
	}
}

// addEnded adds an ended run, unless its ID is known.
func (m *Memory) addEnded(row RunRow) {
	m.fileEnded(&memoryRun{row: row, job: m.name(row.Job)})
}

func (m *Memory) fileEnded(r *memoryRun) {
	if m.ended[r.row.ID] != nil {
		return
	}
	m.ended[r.row.ID] = r
	m.byStart.insert(r)
	r.job.ended.insert(r)
}

func (m *Memory) dropEnded(r *memoryRun) {
	delete(m.ended, r.row.ID)
	m.byStart.remove(r)
	r.job.ended.remove(r)
}

// The own functions make a row the store's: a copy, in the resolution of stores.
// They save the copy of data when it is what the store has already.

func ownJob(j JobRow, has json.RawMessage) JobRow {
	j.Data = ownData(j.Data, has)
	j.Created, j.Updated = instant(j.Created), instant(j.Updated)
	return j
}

func ownTrigger(t TriggerRow, has json.RawMessage) TriggerRow {
	t.Data = ownData(t.Data, has)
	t.DueAt, t.PrevAt, t.ScheduledAt = instant(t.DueAt), instant(t.PrevAt), instant(t.ScheduledAt)
	return t
}

func ownRun(r RunRow, has json.RawMessage) RunRow {
	r.Data = ownData(r.Data, has)
	r.ScheduledAt, r.StartedAt, r.EndedAt = instant(r.ScheduledAt), instant(r.StartedAt), instant(r.EndedAt)
	return r
}

func ownData(data, has json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	if bytes.Equal(data, has) {
		return has
	}
	return bytes.Clone(data)
}

// The out functions make a row the caller's.

func outJob(j JobRow) JobRow {
	j.Data = bytes.Clone(j.Data)
	return j
}

func outTrigger(t TriggerRow) TriggerRow {
	t.Data = bytes.Clone(t.Data)
	return t
}

func outRun(r RunRow) RunRow {
	r.Data = bytes.Clone(r.Data)
	return r
}
