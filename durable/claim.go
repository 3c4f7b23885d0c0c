package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A claimer takes due triggers for this node.
type claimer struct {
	s *Scheduler

	turn   turn // held for a claim: a stop waits for the one in progress
	empty  int  // rounds in a row that found all that is due taken by others; guarded by turn
	rounds int  // since unreadable triggers were looked at; guarded by turn

	heard   string // the largest broadcast when they were last looked at; guarded by turn
	heardAt int64  // monotonic: when that was; guarded by turn

	hungry  atomic.Bool // more was due than there were slots
	waits   atomic.Bool // for gather to be over
	lost    atomic.Bool // the answer of some claim: the store may have runs that are not here
	gathers atomic.Uint64

	mu       sync.Mutex      // guards the fields below; held before that of flights
	skipped  map[string]bool // IDs of triggers that this node cannot read, at most mostExcept
	forgiven int64           // monotonic: when they were last forgiven because of a note
	added    int             // how many of them the round under way has found
	begun    int             // claims sent
	over     int             // claims whose runs, if there was an answer, have begun
	holder   int             // the turn whose claim is under way, 0 for none
	slots    int             // that it has reserved
}

const (
	// exceptFor is how many rounds go by until unreadable triggers are looked at again.
	// Those that find new ones are not counted, lest many of them starve the others.
	exceptFor = 100
	// mostExcept bounds them: each claim names them all, on MySQL in about 3 MiB. What is due
	// behind more of them is left to nodes that can read them.
	mostExcept = 5000
	// contended is the first wait when all that is due is being claimed by others.
	contended = 5 * time.Millisecond
	// herd bounds the random delay before a wake-up that other nodes have, too.
	herd = 10 * time.Millisecond
)

// except leaves a trigger out of further claims; false if it is already.
func (c *claimer) except(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.skipped[id]:
		return false
	case len(c.skipped) == mostExcept: // not counted: there is no point in another round at once
		return true
	case c.skipped == nil:
		c.skipped = map[string]bool{}
	}
	c.skipped[id] = true
	c.added++
	return true
}

// forgive has the next claim look at the triggers again that could not be read.
func (c *claimer) forgive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped = nil
}

// forgiveSeldom is forgive for what may come a hundred times a second: calls by hand, or
// an edit on another node that has mended a trigger.
func (c *claimer) forgiveSeldom() {
	_, now := c.s.host.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Duration(now-c.forgiven) >= c.s.config.PollInterval {
		c.skipped, c.forgiven = nil, now
	}
}

// found tells how many exceptions there are since the last call.
func (c *claimer) found() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.added = c.added, 0
	return n
}

func (c *claimer) exceptions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.skipped))
}

// round is the loop's work: a claim, and another as long as something is due and a
// slot is free; then sleep until the next instant at which something is.
func (c *claimer) round(ctx context.Context) error {
	more, err := c.once(ctx)
	if more {
		c.s.loops.claim.wake()
	}
	return err
}

// once is one claim; more tells that another may find something.
func (c *claimer) once(ctx context.Context) (more bool, err error) {
	turn := c.turn.take()
	defer c.turn.end(turn)
	s := c.s
	if !s.running() {
		return false, nil
	}
	if c.rounds == exceptFor {
		c.rounds = 0
		c.forgive()
	}
	limit := s.flights.reserve()
	c.hold(turn, limit)
	unused := 0
	defer func() {
		if c.unhold(turn) {
			unused = limit
		}
		s.flights.release(unused)
	}()
	ask, may := limit, s.mayClaim() && s.lease.holds() // without a lease its runs would be others' before long
	if !may {
		ask = 0
	}
	node := s.nodeID()
	_, asked := s.host.Now()
	c.count(&c.begun)
	answered := sync.OnceFunc(func() {
		if c.turn.has(turn) {
			c.count(&c.over)
		}
	})
	defer answered()
	res, err := s.store.Claim(ctx, ClaimRequest{
		Node: node, Limit: ask, Handlers: s.registry.names(), Except: c.exceptions(), Plan: s.planner.plan,
	})
	if !c.unhold(turn) { // it was given up on: what it may have claimed shows in a heartbeat
		s.loops.beat.wake()
		return false, nil
	}
	unused = limit
	if errors.Is(err, ErrNodeDead) {
		c.empty++
		s.loops.beat.wake() // which finds out, and gets a new ID
		s.loops.claim.in(contended << min(c.empty, 10))
		return false, nil
	}
	if err := s.noteStore("claim", err); err != nil {
		answered()
		c.forgive() // should the store refuse the claim for the sake of what it was to leave out
		c.lost.Store(true)
		s.loops.beat.wake() // what it may have claimed shows in a heartbeat
		return false, err
	}
	unreadable := c.found()
	if unreadable == 0 {
		c.rounds++
	}
	unused -= s.take(res)
	c.broadcast(ctx, res.Broadcast)
	if err := s.waits.poll(ctx); err != nil {
		s.logSeldom("waits", slog.LevelWarn, "runs that are waited for could not be read", errAttr(err))
	}
	if !may { // leading, or the next heartbeat, wakes the loop
		s.loops.claim.in(s.config.PollInterval)
		return false, nil
	}
	_, now := s.host.Now()
	return c.sleep(res, ask, unreadable, time.Duration(now-asked)), nil
}

// take begins what a claim has brought, and returns how many slots that took.
func (s *Scheduler) take(res ClaimResult) (slots int) {
	for _, c := range res.Claimed {
		if s.begin(c.Run, c.Job) {
			slots++
		}
	}
	for _, r := range res.Skipped {
		s.skippedRun(r)
	}
	for _, t := range res.Parked {
		s.parked(t)
	}
	return slots
}

// broadcast has this node look at the broadcasts that there are when there is a new one,
// and once a poll interval: a larger ID may hide a smaller one that came later.
func (c *claimer) broadcast(ctx context.Context, largest string) {
	_, now := c.s.host.Now()
	if largest == "" || largest == c.heard && time.Duration(now-c.heardAt) < c.s.config.PollInterval {
		return
	}
	if c.s.locals.broadcasts(ctx) {
		c.heard, c.heardAt = largest, now
	}
}

// sleep sets the loop's alarm by what the claim has found. Only durations are used:
// the store's clock says when, this node's how long.
func (c *claimer) sleep(res ClaimResult, ask, unreadable int, took time.Duration) (more bool) {
	s := c.s
	did := len(res.Claimed) + len(res.Skipped) + len(res.Parked) + unreadable
	due := !res.Next.IsZero() && !res.Next.After(res.Now)
	switch {
	case due && did > 0 && len(res.Claimed) < ask:
		c.empty = 0
		return true
	case due && len(res.Claimed) == ask: // there is more than slots
		c.empty = 0
		c.hungry.Store(true)
		s.loops.claim.in(s.config.PollInterval)
		c.slotsFreed()
	case due:
		c.empty++
		s.loops.claim.in(contended << min(c.empty, 10))
	default:
		c.empty = 0
		wait := s.config.PollInterval
		if !res.Next.IsZero() {
			wait = min(wait, res.Next.Sub(res.Now)-took)
		}
		if s.lease.others() && wait < s.config.PollInterval {
			wait += time.Duration(s.planner.uniform() * float64(herd))
		}
		s.loops.claim.in(wait)
	}
	return false
}

// gather is how long a claim that found more than it had slots for waits for most of
// them to be free again: claims for a slot or two cost as much as for a hundred.
const gather = 2 * time.Millisecond

// slotsFreed is called when there may be free slots again.
func (c *claimer) slotsFreed() {
	if !c.hungry.Load() {
		return
	}
	free, handlers := c.s.flights.free()
	switch {
	case free == 0:
	case handlers == 0, 8*free >= 7*c.s.config.MaxConcurrentRuns:
		c.feed()
	case c.waits.CompareAndSwap(false, true):
		name := fmt.Sprintf("durable/%s/gather#%d", c.s.instance, c.gathers.Add(1))
		if _, err := c.s.after(name, gather, func() { c.waits.Store(false); c.feed() }); err != nil {
			c.waits.Store(false)
		}
	}
}

// feed has the loop claim again.
func (c *claimer) feed() {
	if c.hungry.CompareAndSwap(true, false) {
		c.s.loops.claim.wake()
	}
}

// hold notes that a claim with so many slots is on its way; unhold that it is back, and
// tells whether it was still waited for.
func (c *claimer) hold(turn, slots int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holder, c.slots = turn, slots
}

func (c *claimer) unhold(turn int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder != turn {
		return false
	}
	c.holder = 0
	return true
}

// giveUp is called when a claim hangs, by the watchdog or a stop: its slots are free
// again, and its answer counts as lost.
func (c *claimer) giveUp() {
	c.turn.giveUp()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = c.begun
	if c.holder != 0 {
		c.holder = 0
		c.lost.Store(true)
		c.s.flights.release(c.slots)
	}
}

func (c *claimer) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// claims tells how many claims were sent, and how many of them are over.
func (c *claimer) claims() (begun, over int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, c.over
}

// mayClaim tells whether cluster-wide jobs are this node's to claim.
func (s *Scheduler) mayClaim() bool {
	return s.store.Shared() || s.config.Leader == nil || s.term.leading()
}

// begin starts a run that was claimed, with its slot; false if it needs none.
func (s *Scheduler) begin(r *RunRow, job *JobRow) bool {
	if !s.lease.holdsAs(r.Node) { // the answer took too long: others may hold it for lost
		s.log(slog.LevelWarn, "claim came back after the lease had ended", slog.String("job", r.Job), slog.String("run", r.ID))
		s.claimer.lost.Store(true) // if nobody does, a heartbeat finds it
		return false
	}
	if s.flights.isClosed() { // it came back too late for the stop
		s.handBack(r, job)
		return false
	}
	s.stats.claimed.Add(1)
	if r.Passed > 0 && r.Attempt == 1 {
		s.stats.misfired.Add(1)
	}
	lateness := max(0, r.StartedAt.Sub(r.ScheduledAt))
	if lateness > time.Second && r.Kind == KindSchedule {
		s.stats.late.Add(1)
	}
	if s.config.Observer != nil {
		e := runEvent(EventStarted, *r)
		e.Lateness = lateness
		s.emit(e)
	}
	return s.flights.start(r, job, false)
}

// handBack ends a run that was claimed and has not started: another node is to do it. To
// the plan what follows is what the run was, with its place among what is due.
func (s *Scheduler) handBack(r *RunRow, job *JobRow) {
	end := s.planner.conclude(*r, *job, ending{cause: ErrStopping}, r.StartedAt)
	end.Run.Message = "claimed, but not started: the scheduler stopped"
	kind := r.Kind
	if kind == KindSchedule { // whose trigger has gone on
		kind = KindRetry
	}
	end.Follow = s.planner.follow(*r, *job, kind, r.Attempt, r.StartedAt)
	end.Follow.DueAt = r.ScheduledAt
	s.finisher.add(end)
}

func (s *Scheduler) skippedRun(r RunRow) {
	s.stats.skipped.Add(1)
	if r.Code == CodeMisfire {
		s.stats.misfired.Add(1)
		s.log(slog.LevelWarn, "firings passed over", slog.String("job", r.Job), slog.String("trigger", r.Trigger), slog.Int64("firings", r.Passed))
	}
	s.emit(runEvent(EventSkipped, r))
	s.waits.done(r)
}

func (s *Scheduler) parked(t TriggerRow) {
	e := Event{Kind: EventParked, Job: t.Job, Trigger: t.Name, Detail: t.Reason}
	if t.State == StateBlocked {
		s.stats.blocked.Add(1)
		e.Kind = EventBlocked
	}
	s.emit(e)
}
