package durable

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A nodeLease is this node's claim to be alive. It is renewed every third of
// NodeTimeout, and trusted until the sending of the last heartbeat that was answered
// + NodeTimeout - margin, on this node's monotonic clock: before any other node can
// have declared it dead. From then on exclusive runs are cancelled.
type nodeLease struct {
	s *Scheduler

	turn turn // held for a heartbeat: none may come after the node has left

	mu      sync.Mutex // guards the fields below; see Scheduler for the order of locks
	gone    bool       // the node has left, or is about to
	node    NodeRow
	until   int64          // monotonic: until when the lease is trusted; 0 before the first
	last    int64          // monotonic: the last heartbeat that was answered
	steady  int64          // monotonic: since when heartbeats have not failed for long
	alive   int            // nodes
	fence   func()         // stops the alarm for the end of trust
	fences  int            // alarms made, for their names
	strange map[string]int // active runs of this node that it does not know: claims sent when first seen
}

func (l *nodeLease) init(s *Scheduler) {
	l.s = s
	l.rename()
	s.instance = l.node.ID
}

// rename gives the node an ID of its own, for a new life.
func (l *nodeLease) rename() {
	now, _ := l.s.host.Now()
	id := newID(now, l.s.random)
	l.node = NodeRow{ID: l.s.config.Node + "-" + strings.ToLower(id[len(id)-12:]), Name: l.s.config.Node}
}

func (s *Scheduler) nodeID() string {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	return s.lease.node.ID
}

// margin is how long before the end of the lease the node stops trusting it: time for
// handlers to come to their end.
func (l *nodeLease) margin() time.Duration { return l.s.config.NodeTimeout / 6 }

// holds tells whether the node may trust its lease.
func (l *nodeLease) holds() bool { return l.left() > 0 }

// holdsAs is holds for work that was given to the node under that ID.
func (l *nodeLease) holdsAs(id string) bool {
	_, now := l.s.host.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node.ID == id && now < l.until
}

func (l *nodeLease) left() time.Duration {
	_, now := l.s.host.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Duration(l.until-now))
}

// others tells whether other nodes are alive.
func (l *nodeLease) others() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alive > 1
}

// steadyFor is how long heartbeats have been answered: until they have for a whole
// NodeTimeout nobody is declared dead, so that after an outage of the store all
// survivors can renew first.
func (l *nodeLease) steadyFor() time.Duration {
	_, now := l.s.host.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.steady == 0 || time.Duration(now-l.last) > l.s.config.NodeTimeout*2/3 {
		return 0 // none yet, or none for long: this round may come before the next heartbeat
	}
	return time.Duration(now - l.steady)
}

// register is the first heartbeat.
func (l *nodeLease) register(ctx context.Context) error {
	l.mu.Lock()
	l.node.StartedAt, _ = l.s.host.Now()
	l.gone = false // as after a Start that failed
	l.mu.Unlock()
	return l.beat(ctx)
}

// beat is the loop's work: a heartbeat, and what it brings to light.
func (l *nodeLease) beat(ctx context.Context) error {
	s := l.s
	turn := l.turn.take()
	defer l.turn.end(turn)
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return nil
	}
	node := l.node
	l.mu.Unlock()
	_, over := s.claimer.claims()
	known := s.flights.ids()
	wall, sent := s.host.Now()
	res, err := s.store.Beat(ctx, node, s.config.NodeTimeout)
	if err := s.noteStore("heartbeat", err); err != nil {
		return err
	}
	wallAfter, now := s.host.Now()
	if res.Dead {
		l.reborn(node)
		s.loops.beat.wake()
		return nil
	}
	lapsed := !l.holds()
	l.renewed(node, sent, now, res.Alive)
	if lapsed {
		s.loops.claim.wake() // which has waited for it
	}
	s.noteSkew(res.Now.Sub(wall.Add(wallAfter.Sub(wall)/2)), wallAfter.Sub(wall))
	for _, r := range res.Runs {
		if r.Cancel {
			s.flights.cancel(r.ID, ErrCancelled)
		}
	}
	return l.reconcile(ctx, node, known, res.Runs, over)
}

// renewed takes note of a heartbeat that was answered.
func (l *nodeLease) renewed(node NodeRow, sent, now int64, alive int) {
	s := l.s
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node.ID != node.ID {
		return
	}
	if l.steady == 0 || time.Duration(now-l.last) > s.config.NodeTimeout*2/3 {
		l.steady = now
	}
	l.last, l.alive = now, alive
	l.until = max(l.until, sent+int64(s.config.NodeTimeout-l.margin())) // an answer may come after that of a later one
	if l.fence != nil {
		l.fence()
		l.fence = nil
	}
	l.fences++
	name := fmt.Sprintf("durable/%s/fence#%d", node.ID, l.fences)
	stop, err := s.after(name, time.Duration(l.until-now), func() { l.fenced(node.ID) })
	if err == nil {
		l.fence = stop
	}
}

// fenced is called when the lease is not to be trusted any more.
func (l *nodeLease) fenced(node string) {
	s := l.s
	l.mu.Lock()
	_, now := s.host.Now()
	stale := l.node.ID != node || now < l.until
	l.mu.Unlock()
	if ph := phase(s.phase.Load()); stale || ph < phaseRunning || ph == phaseStopped { // by a Start that failed
		return
	}
	n := s.flights.cancelAll(ErrLeaseLost, func(f *flight) bool { return f.row.Exclusive && !f.local })
	s.emit(Event{Kind: EventFenced, Count: int64(n)})
	s.log(slog.LevelError, "no heartbeat was answered in time, exclusive runs are cancelled", slog.Int("runs", n))
}

// reborn is called when the store holds the node for dead: all its runs are somebody
// else's business, and it goes on under another ID.
func (l *nodeLease) reborn(dead NodeRow) {
	s := l.s
	l.mu.Lock()
	if l.node.ID != dead.ID {
		l.mu.Unlock()
		return
	}
	l.rename()
	l.node.StartedAt, _ = s.host.Now()
	l.until, l.steady, l.strange = 0, 0, nil
	id := l.node.ID
	l.mu.Unlock()
	n := s.flights.cancelAll(ErrLeaseLost, func(f *flight) bool { return f.row.Node == dead.ID && !f.local })
	s.emit(Event{Kind: EventNodeLost, Detail: dead.ID, Count: int64(n)})
	s.log(slog.LevelError, "this node was declared dead, it goes on under another ID", slog.String("was", dead.ID),
		slog.String("is", id), slog.Int("runs", n))
}

// reconcile compares the runs that the store has of this node with those here. known
// are those that were here before the store was asked, over the claims that were over
// before that: a run of one of those that is not known is one whose answer got lost.
func (l *nodeLease) reconcile(ctx context.Context, node NodeRow, known map[string]bool, own []OwnRun, over int) error {
	s := l.s
	theirs := map[string]bool{}
	var strange []string
	begun, _ := s.claimer.claims()
	l.mu.Lock()
	seen := map[string]int{}
	for _, r := range own {
		theirs[r.ID] = true
		if known[r.ID] || s.flights.has(r.ID) {
			continue
		}
		first, again := l.strange[r.ID]
		if !again {
			first = begun
		}
		seen[r.ID] = first
		if over >= first { // no claim is under way that may still bring it
			strange = append(strange, r.ID)
		}
	}
	l.strange = seen
	l.mu.Unlock()
	for id := range known {
		if !theirs[id] && !s.flights.hasReturned(id) {
			s.flights.cancel(id, ErrLeaseLost)
		}
	}
	return s.adopt(ctx, node, strange)
}

// adopt starts runs that were claimed for this node by a claim whose answer got lost.
func (s *Scheduler) adopt(ctx context.Context, node NodeRow, ids []string) error {
	return s.strangers(ctx, node, ids, func(r *RunRow, job *JobRow) {
		if !s.running() {
			return
		}
		s.log(slog.LevelWarn, "run adopted whose claim got lost on the way", slog.String("job", r.Job), slog.String("run", r.ID))
		s.flights.release(-1) // its slot, which no claim has reserved
		if !s.begin(r, job) {
			s.flights.release(1)
		}
	})
}

// handBackLost hands such runs back when the scheduler stops.
func (l *nodeLease) handBackLost(ctx context.Context) error {
	s := l.s
	if !s.claimer.lost.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opTimeout)
	defer cancel()
	defer l.turn.end(l.turn.take())
	l.mu.Lock()
	node := l.node
	l.mu.Unlock()
	res, err := s.store.Beat(ctx, node, s.config.NodeTimeout)
	if err := s.noteStore("heartbeat", err); err != nil {
		return err
	}
	var ids []string
	for _, r := range res.Runs {
		if !s.flights.has(r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return s.strangers(ctx, node, ids, s.handBack)
}

// strangers has runs of this node taken that it does not know.
func (s *Scheduler) strangers(ctx context.Context, node NodeRow, ids []string, take func(*RunRow, *JobRow)) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.store.Runs(ctx, RunQuery{IDs: ids, States: []RunState{RunRunning}, Limit: len(ids)})
	if err != nil {
		return s.noteStore("read runs", err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Job)
	}
	jobs, err := s.jobsByName(ctx, names)
	if err != nil {
		return err
	}
	for _, r := range rows {
		job, there := jobs[r.Job]
		if r.Node != node.ID || s.flights.has(r.ID) {
			continue
		}
		if !there { // removed since: nothing says any more what to run
			now, _ := s.host.Now()
			r.Recover = false
			s.finisher.add(s.planner.conclude(r, JobRow{Name: r.Job}, ending{cause: ErrLeaseLost}, now))
			continue
		}
		take(&r, &job)
	}
	return nil
}

// jobsByName reads jobs.
func (s *Scheduler) jobsByName(ctx context.Context, names []string) (map[string]JobRow, error) {
	jobs := map[string]JobRow{}
	if len(names) == 0 {
		return jobs, nil
	}
	states, err := s.store.Jobs(ctx, JobQuery{Names: names, Limit: len(names), WithoutTriggers: true, WithoutRuns: true})
	if err != nil {
		return nil, s.noteStore("read jobs", err)
	}
	for _, j := range states {
		jobs[j.Job.Name] = j.Job
	}
	return jobs, nil
}

// skewAllowed is the difference of clocks that nobody is told of.
const skewAllowed = time.Second

// noteSkew takes note of the store's clock less this node's, as good as took allows.
func (s *Scheduler) noteSkew(skew, took time.Duration) {
	was := time.Duration(s.skew.Swap(int64(skew)))
	if skew.Abs() <= skewAllowed+took.Abs() {
		return
	}
	if was.Abs() <= skewAllowed {
		s.emit(Event{Kind: EventSkew, Duration: skew})
	}
	s.logSeldom("skew", slog.LevelWarn, "this node's clock differs from the store's", slog.Duration("by", skew))
}
