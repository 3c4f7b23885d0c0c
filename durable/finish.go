package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// batch bounds how many ends are recorded in one transaction, and batchBytes about
// how much they weigh.
const (
	batch      = 100
	batchBytes = 1 << 20
)

// A finisher records the ends of runs. While one batch is on its way others gather,
// so that batches grow with the load and a lone end waits for nobody.
type finisher struct {
	s *Scheduler

	turn     turn          // held for a batch: they are one after the other
	gathered atomic.Uint64 // waits for others, for their names

	mu    sync.Mutex    // a leaf lock, but for the turn's; guards the fields below
	most  int           // bounds the next batch: fewer than batch after one that failed
	took  time.Duration // what the last batch took that was recorded, in real time
	queue []*landing
	aside []*landing // each refused alone: those in the queue go first
	free  []*landing // to be used again; as many as there are slots at most
	spare []End      // so too, for a batch; nil while one is on its way
	// gathers tells that ends wait for others: see gatherEnds.
	gathers bool
	// doubt has the IDs whose answer got lost: refused may mean recorded.
	doubt map[string]bool
}

// A landing is a flight whose handler has returned, with what is to be recorded.
type landing struct {
	flight  *flight // nil for a run of a dead node's
	end     End
	refused int   // how often the store has refused it alone
	again   int64 // monotonic: when it is tried again after that
}

// land has the end of a flight recorded. A success that nothing waits for may wait for
// others.
func (f *finisher) land(fl *flight, end End) {
	f.queued(fl, end, end.Run.State == RunSucceeded && !end.Run.Exclusive && !end.Run.Holds)
}

// add has an end recorded that is not that of a flight.
func (f *finisher) add(end End) { f.queued(nil, end, false) }

func (f *finisher) queued(fl *flight, end End, wait bool) {
	f.mu.Lock()
	l := f.landingLocked()
	l.flight, l.end = fl, end
	f.queue = append(f.queue, l)
	wait = wait && len(f.queue) < batch
	first := wait && !f.gathers
	f.gathers = f.gathers || wait
	f.mu.Unlock()
	switch {
	case !wait:
		f.s.loops.finish.wake()
	case first:
		name := fmt.Sprintf("durable/%s/ends#%d", f.s.instance, f.gathered.Add(1))
		if _, err := f.s.after(name, gatherEnds, f.gatherOver); err != nil {
			f.gatherOver()
		}
	}
}

// landingLocked is an empty landing.
func (f *finisher) landingLocked() *landing {
	n := len(f.free) - 1
	if n < 0 {
		return &landing{}
	}
	l := f.free[n]
	f.free = f.free[:n]
	return l
}

// gatherEnds is how long a success that nothing waits for waits for others of the same
// batch, while handlers run whose ends they may be. When the last one has returned
// nobody waits any more.
const gatherEnds = time.Millisecond

func (f *finisher) gatherOver() {
	f.mu.Lock()
	f.gathers = false
	some := len(f.queue) > 0
	f.mu.Unlock()
	if some {
		f.s.loops.finish.wake()
	}
}

func (f *finisher) pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue) + len(f.aside)
}

// round is the loop's work: a batch, and another as long as there is one.
func (f *finisher) round(ctx context.Context) error {
	_, now := f.s.host.Now()
	f.recall(now)
	err := f.flush(ctx, f.s.opTimeout*3/4)
	if errors.Is(err, errAside) { // the others are not to wait until the loop has backed off
		err = nil
	}
	f.mu.Lock()
	more, waits := len(f.queue) > 0 || f.recallableLocked(now) >= 0, len(f.aside) > 0
	f.mu.Unlock()
	switch {
	case err == nil && more:
		f.s.loops.finish.wake()
	case waits:
		f.s.loops.finish.in(minLoopBackoff)
	}
	return err
}

// recall puts an end that was set aside, and whose time has come, behind the others.
func (f *finisher) recall(now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.recallableLocked(now); i >= 0 {
		f.queue = append(f.queue, f.aside[i])
		f.aside = slices.Delete(f.aside, i, i+1)
	}
}

// recallableLocked is the place of such an end, or -1.
func (f *finisher) recallableLocked(now int64) int {
	return slices.IndexFunc(f.aside, func(l *landing) bool { return l.again <= now })
}

// flush records one batch. What the store refuses may be one end alone, whose job somebody
// has locked, or whose text it cannot take: what is left of the batch is halved until it
// goes through, or one end is left, which is set aside. No call takes longer than most.
func (f *finisher) flush(ctx context.Context, most time.Duration) error {
	turn := f.turn.take()
	defer f.turn.end(turn)
	for {
		n, err := f.record(ctx, turn, most)
		if err == nil || n <= 1 || ctx.Err() != nil {
			return err
		}
	}
}

// errAside is of an end that the store refuses alone, and not for the first time.
var errAside = errors.New("durable: an end of a run is set aside")

// patienceLocked is how long the store may take over the first n ends. After a batch has
// failed it may be slow, or hang for the sake of one end: which one is found out by what
// others have taken.
func (f *finisher) patienceLocked(n int, most time.Duration) time.Duration {
	least := f.s.opTimeout / 24
	switch refused := f.queue[0].refused; {
	case refused > 0:
		return min(least<<min(refused, 10), most)
	case n == 1 || f.most == batch:
		return most
	default:
		return min(max(least, 4*f.took), most)
	}
}

// record records the ends in front. If the store fails them n tells how many they were.
func (f *finisher) record(ctx context.Context, turn int, most time.Duration) (n int, err error) {
	f.mu.Lock()
	bytes := 0
	for n < len(f.queue) && n < f.most && (n == 0 || bytes < batchBytes && (f.queue[n].refused > 0) == (f.queue[0].refused > 0)) {
		bytes += len(f.queue[n].end.Run.Data) + len(f.queue[n].end.Run.Detail)
		n++
	}
	if n == 0 {
		f.mu.Unlock()
		return 0, nil
	}
	landings := slices.Clone(f.queue[:n])
	ends := f.spare[:0]
	f.spare = nil // a call that is given up on keeps its ends
	patience := f.patienceLocked(n, most)
	f.mu.Unlock()
	for _, l := range landings {
		ends = append(ends, l.end)
	}
	s := f.s
	limited, cancel := context.WithTimeout(ctx, patience)
	began := time.Now()
	ok, err := s.store.Finish(limited, FinishRequest{Ends: ends, Resume: s.planner.resume})
	took := time.Since(began)
	cancel()
	if !f.turn.has(turn) { // the watchdog gave up on it
		return 0, nil
	}
	if err != nil {
		return n, f.failed(ctx, turn, landings, err)
	}
	_ = s.noteStore("finish", nil)
	if err := f.settleDoubts(ctx, ends, ok); err != nil || !f.recorded(turn, n, took) {
		return 0, err
	}
	due := false
	for i, l := range landings {
		if l.flight != nil {
			s.flights.remove(l.flight)
		}
		s.landed(l, ok[i])
		due = due || l.end.Run.Exclusive || l.end.Run.Holds || l.end.Follow != nil
	}
	if due { // a trigger that was blocked or waited, or a follow-up
		s.loops.claim.wake()
	}
	s.claimer.slotsFreed()
	f.reuse(landings, ends)
	return 0, nil
}

// failed takes note of a batch that was not recorded, or whose answer got lost. An end
// that was alone is set aside.
func (f *finisher) failed(ctx context.Context, turn int, landings []*landing, err error) error {
	f.doubtAll(landings)
	if ctx.Err() != nil { // of the round: it says nothing about the ends
		return f.s.noteStore("finish", err)
	}
	f.mu.Lock()
	f.most = max(1, len(landings)/2)
	f.mu.Unlock()
	if len(landings) > 1 {
		return err
	}
	l := landings[0]
	if !f.setAside(turn, l) || l.refused == 1 {
		return f.s.noteStore("finish", err)
	}
	r := &l.end.Run
	f.s.logSeldom("end/"+r.ID, slog.LevelError, "end of a run cannot be recorded, others go first",
		slog.String("job", r.Job), slog.String("run", r.ID), errAttr(err))
	return fmt.Errorf("%w: %w", errAside, err)
}

// setAside takes the first end out of the queue for a while, unless somebody else sees
// to it.
func (f *finisher) setAside(turn int, l *landing) bool {
	_, now := f.s.host.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.turn.has(turn) {
		return false
	}
	l.again = now + int64(min(minLoopBackoff<<min(l.refused, 10), maxLoopBackoff))
	l.refused++
	f.queue = slices.Delete(f.queue, 0, 1)
	f.aside = append(f.aside, l)
	return true
}

// doubtAll notes that the ends may have been recorded.
func (f *finisher) doubtAll(landings []*landing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubt == nil {
		f.doubt = map[string]bool{}
	}
	for _, l := range landings {
		f.doubt[l.end.Run.ID] = true
	}
}

// recorded takes the first n ends out of the queue, unless somebody else sees to them.
func (f *finisher) recorded(turn, n int, took time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.turn.has(turn) {
		return false
	}
	f.most, f.took = min(2*f.most, batch), took
	if f.queue = slices.Delete(f.queue, 0, n); len(f.queue) == 0 {
		f.queue = nil
	}
	return true
}

// reuse takes back what a batch was made of.
func (f *finisher) reuse(landings []*landing, ends []End) {
	clear(ends)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spare = ends
	for _, l := range landings {
		if len(f.free) < f.s.config.MaxConcurrentRuns {
			*l = landing{}
			f.free = append(f.free, l)
		}
	}
}

// settleDoubts finds out which ends were refused because an earlier attempt, whose
// answer got lost, had recorded them.
func (f *finisher) settleDoubts(ctx context.Context, ends []End, ok []bool) error {
	var ids []string
	f.mu.Lock()
	for i, e := range ends {
		if f.doubt[e.Run.ID] && !ok[i] {
			ids = append(ids, e.Run.ID)
		}
	}
	f.mu.Unlock()
	var rows []RunRow
	if len(ids) > 0 {
		var err error
		rows, err = f.s.store.Runs(ctx, RunQuery{IDs: ids, Limit: len(ids)})
		if err := f.s.noteStore("read runs", err); err != nil {
			return err // the batch is tried again
		}
	}
	f.mu.Lock()
	for _, e := range ends {
		delete(f.doubt, e.Run.ID)
	}
	f.mu.Unlock()
	for i, e := range ends {
		ok[i] = ok[i] || slices.ContainsFunc(rows, func(r RunRow) bool {
			return r.ID == e.Run.ID && r.Node == e.Run.Node && r.State == e.Run.State
		})
	}
	return nil
}

// giveUp is called when a round hangs: the answer for its batch counts as lost.
func (f *finisher) giveUp() {
	f.turn.giveUp()
	f.mu.Lock()
	queue := slices.Clone(f.queue)
	f.mu.Unlock()
	f.doubtAll(queue)
}

// landed tells of a run whose end has been recorded, or refused.
func (s *Scheduler) landed(l *landing, ok bool) {
	r := l.end.Run
	if !ok {
		s.stats.refused.Add(1)
		s.emit(runEvent(EventRefused, r))
		if l.flight != nil {
			s.log(slog.LevelWarn, "run was no longer this node's, its end was refused", slog.String("job", r.Job), slog.String("run", r.ID))
			r.State, r.Code = RunLost, CodeLost
			s.waits.done(r)
		}
		return
	}
	s.stats.ended(r.State)
	if s.config.Observer != nil && r.State != RunSkipped { // of which it has been told
		s.emit(runEvent(EventEnded, r))
	}
	switch r.State {
	case RunFailed:
		level := slog.LevelWarn
		if r.Code == CodePanic {
			level = slog.LevelError
		}
		s.log(level, "run failed", slog.String("job", r.Job), slog.String("run", r.ID), slog.Int("attempt", r.Attempt),
			slog.String("code", string(r.Code)), slog.String("error", r.Message))
	case RunLost:
		s.emit(runEvent(EventLost, r))
		s.log(slog.LevelWarn, "run lost", slog.String("job", r.Job), slog.String("run", r.ID), slog.String("of", r.Node))
	}
	if t := l.end.Follow; t != nil {
		if t.Kind == KindRecovery {
			s.stats.recovered.Add(1)
		} else if r.State == RunFailed {
			s.stats.retried.Add(1)
		}
		s.followed(t, l.end.FollowIn)
	}
	s.waits.done(r)
}

// followed tells of the trigger that leads to another run.
func (s *Scheduler) followed(t *TriggerRow, in time.Duration) {
	s.emit(Event{Kind: EventFollowed, Job: t.Job, Trigger: t.Origin, Run: t.ID, RunKind: t.Kind, Attempt: t.Attempt,
		Duration: in, Detail: t.Kind.String()})
}

// sortBy sorts in order of a key.
func sortBy[T any, K cmp.Ordered](l []T, key func(T) K) {
	slices.SortFunc(l, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}
