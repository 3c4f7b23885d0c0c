package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/durable"
	"github.com/taskmanager-go/taskmanager/tasktest"
)

// The times of a simulated cluster.
const (
	simNodeTimeout = 3 * time.Second
	simPoll        = 500 * time.Millisecond
	simMisfire     = time.Second
	simBackoff     = 300 * time.Millisecond
	simMaxStep     = 60 * time.Millisecond
	simReaction    = 100 * time.Millisecond // of a handler to the end of its context
	simChaos       = 18 * time.Second       // how long there are faults
	simHeal        = 11 * time.Second       // how long the cluster has to heal
	simDrain       = 20 * time.Second       // how long it has to end what it has begun
)

var simStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A profile says how often each fault occurs in one seed: each is left out of many
// seeds, so that others are seen alone. Rates of what the operator and the machines do
// are per second, those of calls per call.
type profile struct {
	crash, freeze, stop, partition, outage, step float64
	manual, cancel, pause, edit, remove, hand    float64
	storeError, lostAnswer                       float64
	slowRequest, slowAnswer, badNote             float64
	drift, badHandler                            float64
	newCode                                      float64
}

func newProfile(r *rand.Rand) profile {
	some := func(most float64) float64 {
		if r.Float64() < 0.5 {
			return 0
		}
		return most * r.Float64()
	}
	return profile{
		crash: some(0.3), freeze: some(0.4), stop: some(0.2), partition: some(0.3), outage: some(0.15), step: some(0.3),
		manual: some(4), cancel: some(0.6), pause: some(0.6), edit: some(0.8), remove: some(0.3), hand: some(0.3),
		storeError: some(0.08), lostAnswer: some(0.08), slowRequest: some(0.06), slowAnswer: some(0.06), badNote: some(0.3),
		drift: some(0.005), badHandler: some(0.5), newCode: some(1),
	}
}

// A sim is a simulated cluster: schedulers on one memory store, in one process, on
// fake time. All that it does follows from its seed.
//
// Time is the database's, in small steps. In each, the nodes' clocks move on one after
// the other; the database's is ahead of them by a step at most, which is like a slow
// network.
type sim struct {
	t       testing.TB
	seed    uint64
	random  *rand.Rand // of the main goroutine
	profile profile
	mem     *durable.Memory
	audit   *auditor
	def     definitions

	nowNanos    atomic.Int64 // the database's clock, since simStart
	outageUntil atomic.Int64
	healed      atomic.Bool
	slots       []*simNode // of each place for a node the one that is there now, or nil
	all         []*simNode
	restartAt   []int64
	step        int
	reached     int64 // where the steps are: nowNanos is a little ahead at times

	mu     sync.Mutex // guards the fields below
	counts [faults]int
	events map[string]int
	trace  []traceLine
	notes  []simNote
}

type traceLine struct {
	at   int64
	who  *simNode
	what string
	text string
}

func (l traceLine) String() string {
	who := "sim"
	if l.who != nil {
		who = l.who.name
	}
	return fmt.Sprintf("%10.4f %-5s %-8s %s", time.Duration(l.at).Seconds(), who, l.what, l.text)
}

func (s *sim) note(n *simNode, what, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, traceLine{s.nowNanos.Load(), n, what, text})
}

func (s *sim) count(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[f]++
}

func (s *sim) countLocked(f fault) { s.counts[f]++ }

func (s *sim) now() time.Time { return simStart.Add(time.Duration(s.nowNanos.Load())) }

// tickNow is the database's clock as the store reads it: it moves on a little with each
// look, so that a node that waits for an instant shortly after the step's end does not
// ask for it all through the step.
func (s *sim) tickNow() time.Time {
	return simStart.Add(time.Duration(s.nowNanos.Add(int64(300 * time.Microsecond))))
}

// A simNode is one life of a node.
type simNode struct {
	s           *sim
	name        string
	slot        int
	clk         *tasktest.Clock
	manager     *taskmanager.TaskManager
	sched       *durable.Scheduler
	storeRandom *rand.Rand // one call at a time
	idRandom    *rand.Rand
	idMu        sync.Mutex
	hear        func(durable.Note)
	drift       float64

	life     context.Context // of the process
	kill     context.CancelFunc
	killed   atomic.Bool
	stopping atomic.Bool
	stopped  chan struct{}
	slow     atomic.Int32 // calls that are parked
	cutUntil atomic.Int64 // partitioned until then
	lastBad  atomic.Int64 // when the last fault befell it

	// The main goroutine's:
	wallSteps int
	frozen    bool
	thawAt    int64
	owed      time.Duration
	freeSince int64 // since when it has had a free slot, -1 if it has not
	dieAt     int64 // when the process of a stopped node ends
}

func (n *simNode) faulted() { n.lastBad.Store(n.s.nowNanos.Load()) }

func (n *simNode) up() bool { return n != nil && !n.killed.Load() }

// healthy tells whether nothing has befallen the node for a while.
func (n *simNode) healthy() bool {
	if !n.up() {
		return false
	}
	now := n.s.nowNanos.Load()
	return !n.frozen && !n.stopping.Load() && now-n.lastBad.Load() > int64(2500*time.Millisecond) &&
		now > n.cutUntil.Load()+int64(2500*time.Millisecond) && now > n.s.outageUntil.Load()+int64(2500*time.Millisecond)
}

func newSim(t testing.TB, seed uint64, plant plant) *sim {
	s := &sim{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), events: map[string]int{}}
	s.profile = newProfile(s.random)
	s.mem = durable.NewMemory(durable.MemoryNow(s.tickNow))
	var store durable.Store = s.mem
	s.audit = newAuditor(s)
	if plant != nil {
		store = plant(store)
	}
	s.audit.store = store
	s.def = newDefinitions(rand.New(rand.NewPCG(seed, 2)))
	nodes := 2 + s.random.IntN(3)
	s.slots = make([]*simNode, nodes)
	s.restartAt = make([]int64, nodes)
	return s
}

// boot starts a node in a slot; false if it did not come up.
func (s *sim) boot(slot int) bool {
	n := &simNode{s: s, slot: slot, name: fmt.Sprintf("n%d.%d", slot, len(s.all)), freeSince: -1, stopped: make(chan struct{})}
	id := uint64(len(s.all))
	s.all = append(s.all, n)
	n.storeRandom = rand.New(rand.NewPCG(s.seed, 100+2*id))
	n.idRandom = rand.New(rand.NewPCG(s.seed, 101+2*id))
	n.life, n.kill = context.WithCancel(context.Background())
	n.clk = tasktest.NewClock(s.t)
	n.clk.StepWall(time.Duration(s.nowNanos.Load()) + s.skew())
	if s.profile.drift > 0 {
		n.drift = s.profile.drift * (2*s.random.Float64() - 1)
		s.count(faultDrift)
	}
	n.faulted()
	var err error
	if n.manager, err = taskmanager.New(n.clk.Option(), taskmanager.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		s.t.Fatal(err)
	}
	n.sched, err = durable.New(&faultStore{n: n, store: &auditStore{Store: s.audit.store, a: s.audit, n: n}}, durable.Config{
		Manager: n.manager, Node: fmt.Sprintf("node%d", slot), MaxConcurrentRuns: s.def.slots, PollInterval: simPoll,
		NodeTimeout: simNodeTimeout, MisfireThreshold: simMisfire, ShutdownTimeout: time.Second, Retention: -1,
		Waker: simWaker{n}, Logger: slog.New(simLog{n}),
		Observer: durable.ObserverFunc(n.observe),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	durable.Deterministic(n.sched, n.uint64, func() backoff.BackOff { return backoff.NewConstantBackOff(simBackoff) })
	s.def.register(n)
	if err := n.sched.Start(s.direct()); err != nil {
		s.note(n, "boot", "fails")
		s.die(n)
		return false
	}
	s.note(n, "boot", n.sched.Node())
	s.slots[slot] = n
	return true
}

func (n *simNode) uint64() uint64 {
	n.idMu.Lock()
	defer n.idMu.Unlock()
	return n.idRandom.Uint64()
}

// skew is how far off a node's clock is.
func (s *sim) skew() time.Duration {
	if s.profile.step == 0 {
		return 0
	}
	return time.Duration((s.random.Float64() - 0.5) * float64(6*time.Second))
}

func (s *sim) direct() context.Context {
	return context.WithValue(context.Background(), direct{}, true)
}

// die ends the process of a node: nothing that it does has an effect any more.
func (s *sim) die(n *simNode) {
	if n.killed.Swap(true) {
		return
	}
	s.audit.died(n)
	n.kill()
	if s.slots[n.slot] == n {
		s.slots[n.slot] = nil
	}
	s.restartAt[n.slot] = s.nowNanos.Load() + s.random.Int64N(int64(6*time.Second))
}

// observe counts what nodes tell of.
func (n *simNode) observe(e durable.Event) {
	if n.killed.Load() {
		return
	}
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	n.s.events[e.Kind.String()]++
}

// A simLog counts warnings and errors by their text.
type simLog struct{ n *simNode }

func (simLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (l simLog) WithAttrs([]slog.Attr) slog.Handler         { return l }
func (l simLog) WithGroup(string) slog.Handler              { return l }
func (l simLog) Handle(_ context.Context, r slog.Record) error {
	if l.n.killed.Load() {
		return nil
	}
	l.n.s.mu.Lock()
	defer l.n.s.mu.Unlock()
	l.n.s.events[r.Message]++
	return nil
}

// run is the whole simulation; it returns what the auditor found, nil if nothing.
func (s *sim) run() *violation {
	defer s.close()
	for slot := range s.slots {
		if !s.boot(slot) {
			s.restartAt[slot] = 1
		}
	}
	for s.nowNanos.Load() < int64(simChaos) {
		s.chaos()
		if s.tick() {
			return s.audit.bad
		}
	}
	return s.end()
}

// tick is one step; it tells whether the auditor has found something.
func (s *sim) tick() bool {
	s.step++
	dt := time.Duration(2+s.random.IntN(int(simMaxStep/time.Millisecond)-2)) * time.Millisecond
	s.reached += int64(dt)
	s.nowNanos.Store(max(s.reached, s.nowNanos.Load()))
	s.deliver()
	for _, i := range s.random.Perm(len(s.slots)) {
		n := s.slots[i]
		if !n.up() {
			continue
		}
		d := dt + time.Duration(n.drift*float64(dt))
		if n.frozen {
			n.owed += d
			continue
		}
		n.clk.Advance(d)
	}
	for _, n := range s.slots {
		if !n.up() {
			continue
		}
		select {
		case <-n.stopped:
			if n.dieAt == 0 {
				n.dieAt = s.nowNanos.Load() + s.random.Int64N(int64(5*time.Second))
				s.note(n, "stop", "has stopped")
				s.audit.stopped(n)
			}
		default:
		}
		if n.dieAt > 0 && s.nowNanos.Load() >= n.dieAt {
			s.note(n, "stop", "process ends")
			s.die(n)
		}
	}
	s.audit.step()
	return s.audit.bad != nil
}

// deliver hands out notes that are due.
func (s *sim) deliver() {
	now := s.nowNanos.Load()
	s.mu.Lock()
	var due []simNote
	rest := s.notes[:0]
	for _, m := range s.notes {
		if m.at <= now {
			due = append(due, m)
		} else {
			rest = append(rest, m)
		}
	}
	s.notes = rest
	s.mu.Unlock()
	for _, m := range due {
		if n := s.slots[m.to]; n.up() && !n.frozen && n.hear != nil {
			n.hear(m.note)
		}
	}
}

// happens tells whether something of that rate happens in this step.
func (s *sim) happens(rate float64) bool {
	return s.random.Float64() < rate*simMaxStep.Seconds()/2
}

func (s *sim) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.random.Int64N(int64(b-a)))
}

// chaos does what goes wrong before a step.
func (s *sim) chaos() {
	p := &s.profile
	now := s.nowNanos.Load()
	for slot, n := range s.slots {
		switch {
		case n == nil:
			if now >= s.restartAt[slot] {
				if p.newCode > 0 && s.random.Float64() < p.newCode {
					s.def.newVersion(s.random)
					s.count(faultNewCode)
				}
				if s.boot(slot) {
					s.count(faultRestart)
				} else {
					s.restartAt[slot] = now + int64(time.Second)
				}
			}
			continue
		case n.frozen:
			if now >= n.thawAt {
				s.thaw(n)
			}
			continue
		}
		switch {
		case s.happens(p.crash):
			s.count(faultCrash)
			s.note(n, "fault", "crash")
			s.die(n)
			continue
		case s.happens(p.stop) && !n.stopping.Load() && n.slow.Load() == 0:
			s.count(faultStop)
			s.note(n, "fault", "stop")
			s.stop(n)
		case s.happens(p.freeze) && !n.stopping.Load():
			d := s.between(100*time.Millisecond, 2*simNodeTimeout+simNodeTimeout)
			if s.random.IntN(2) == 0 {
				d /= 10
			}
			s.count(faultFreeze)
			if d > simNodeTimeout {
				s.count(faultFreezePastLease)
			}
			s.note(n, "fault", "freeze")
			n.frozen, n.thawAt = true, now+int64(d)
		}
		if s.happens(p.partition) {
			s.count(faultPartition)
			s.note(n, "fault", "partition")
			n.cutUntil.Store(now + int64(s.between(200*time.Millisecond, 8*time.Second)))
		}
		if s.happens(p.step) {
			s.count(faultWallStep)
			s.note(n, "fault", "wall step")
			n.wallSteps++
			n.clk.StepWall(s.skew())
		}
	}
	if s.happens(p.outage) {
		s.count(faultOutage)
		s.note(nil, "fault", "outage")
		s.outageUntil.Store(now + int64(s.between(100*time.Millisecond, 6*time.Second)))
	}
	s.operate()
}

func (s *sim) thaw(n *simNode) {
	s.note(n, "fault", "thaw")
	n.frozen = false
	owed := n.owed
	n.owed = 0
	n.faulted()
	s.audit.thawed(n)
	n.clk.Stall(owed)
}

// stop shuts a node down in good order.
func (s *sim) stop(n *simNode) {
	n.stopping.Store(true)
	go func() {
		defer close(n.stopped)
		err := n.sched.Shutdown(context.Background())
		if n.killed.Load() {
			return
		}
		text := "clean"
		if err != nil {
			text = "not clean"
		}
		s.note(n, "stop", text)
	}()
	n.clk.Advance(0)
}

// end heals everything, waits until all is quiet, and has the auditor look at what is
// left.
func (s *sim) end() *violation {
	s.note(nil, "sim", "heals")
	s.healed.Store(true)
	s.outageUntil.Store(0)
	for slot, n := range s.slots {
		if n.up() && n.frozen {
			s.thaw(n)
		}
		if n.up() && n.stopping.Load() {
			s.note(n, "sim", "ends")
			s.die(n)
			n = nil
		}
		if n.up() {
			n.cutUntil.Store(0)
			continue
		}
		if !s.boot(slot) {
			s.audit.fail("boot", "a node does not start although the store answers")
			return s.audit.bad
		}
	}
	n := s.slots[0]
	s.def.resumeAll(n)
	for until := s.nowNanos.Load() + int64(simHeal); s.nowNanos.Load() < until; {
		if s.tick() {
			return s.audit.bad
		}
	}
	s.note(nil, "sim", "drains")
	s.def.pauseTriggers(n)
	for until := s.nowNanos.Load() + int64(simDrain); s.nowNanos.Load() < until && !s.audit.quiet(); {
		if s.tick() {
			return s.audit.bad
		}
	}
	for range 40 { // what is recorded is heard of
		if s.tick() {
			return s.audit.bad
		}
	}
	s.audit.final()
	if s.audit.bad != nil {
		return s.audit.bad
	}
	for _, n := range s.slots {
		s.stop(n)
	}
	for range 200 {
		s.tick()
	}
	s.audit.afterStop()
	return s.audit.bad
}

// close ends all that goes on.
func (s *sim) close() {
	for _, n := range s.all {
		n.killed.Store(true)
		n.kill()
	}
	for _, n := range s.all {
		n.clk.Close(n.manager)
	}
	for _, n := range s.all {
		if n.stopping.Load() {
			<-n.stopped
		}
	}
}

// tail is the end of the trace.
func (s *sim) tail(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, l := range s.trace[max(0, len(s.trace)-n):] {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
