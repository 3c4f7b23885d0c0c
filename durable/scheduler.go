package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/cenkalti/backoff/v4"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/internal/queue"
	"github.com/taskmanager-go/taskmanager/internal/seam"
)

// A Config has what operators tune. Its zero value means the defaults.
type Config struct {
	// Manager runs the scheduler's loops and runs. Nil is one of its own, which ends
	// with the scheduler. Its limits and default task options do not apply to them.
	Manager *taskmanager.TaskManager
	// Node is the node's name, at most 48 bytes of text. Empty is
	// $TASKMANAGER_NODE_ID, else $HOSTNAME, else the host's name.
	Node string
	// MaxConcurrentRuns is how many claimed runs the node does at once. 0 is 10. Runs
	// of jobs that run on every node are not counted.
	MaxConcurrentRuns int
	// PollInterval is how long the node goes without looking for due triggers when
	// it knows of none and nobody wakes it. 0 is 5 s.
	PollInterval time.Duration
	// NodeTimeout is the node's lease: after so long without a heartbeat it is dead,
	// and its runs are lost. At least 300 ms; 0 is 90 s. All nodes must agree.
	NodeTimeout time.Duration
	// MisfireThreshold is how late a trigger may be taken without having misfired.
	// At least PollInterval. 0 is 60 s, or PollInterval if that is longer.
	MisfireThreshold time.Duration
	// Misfire is the policy of triggers that have none. The zero value is RunOnce.
	Misfire Misfire
	// ShutdownTimeout is how long Shutdown waits for runs before it cancels them. 0
	// is 30 s, less than 0 is not at all.
	ShutdownTimeout time.Duration
	// Retention is how long the built-in job keeps the history. 0 is 30 days, less
	// than 0 is for ever: there is no such job.
	Retention time.Duration
	// MaxDataSize bounds the JSON of a job, a trigger, and a call by hand merged with
	// its job's, each. 0 is 256 KiB.
	MaxDataSize int
	// Leader elects the node that sees to what dead nodes left. Nil is an election
	// in the store. With a store that is not shared and a Leader given, jobs are
	// claimed only while leading.
	Leader Leader
	// Waker spares nodes the wait for their next poll. Nil is the store, if it is
	// one, else polling alone.
	Waker Waker
	// Observer is told of every Event.
	Observer Observer
	// Logger gets the log. Nil is slog.Default().
	Logger *slog.Logger
}

// The defaults of a Config.
const (
	defaultMaxConcurrentRuns = 10
	defaultPollInterval      = 5 * time.Second
	defaultNodeTimeout       = 90 * time.Second
	defaultMisfireThreshold  = time.Minute
	defaultShutdownTimeout   = 30 * time.Second
	defaultRetention         = 30 * 24 * time.Hour
	defaultMaxDataSize       = 256 << 10
	minNodeTimeout           = 300 * time.Millisecond
	maxInterval              = 365 * 24 * time.Hour
	maxNodeName              = 48
	// The loops' own backoff while the store is away.
	minLoopBackoff = 500 * time.Millisecond
	maxLoopBackoff = 10 * time.Second
)

// withDefaults checks the Config and fills in what is zero.
func (c Config) withDefaults() (Config, error) {
	var bad check
	positive := func(field string, v *time.Duration, def time.Duration) {
		if *v < 0 {
			bad.fail(field, *v, "must not be negative")
		}
		if *v == 0 {
			*v = def
		}
	}
	if c.MaxConcurrentRuns < 0 {
		bad.fail("MaxConcurrentRuns", c.MaxConcurrentRuns, "must not be negative")
	}
	if c.MaxConcurrentRuns == 0 {
		c.MaxConcurrentRuns = defaultMaxConcurrentRuns
	}
	positive("PollInterval", &c.PollInterval, defaultPollInterval)
	positive("NodeTimeout", &c.NodeTimeout, defaultNodeTimeout)
	if c.NodeTimeout > 0 && c.NodeTimeout < minNodeTimeout {
		bad.fail("NodeTimeout", c.NodeTimeout, "must be at least "+minNodeTimeout.String())
	}
	for _, v := range []struct {
		field string
		d     time.Duration
	}{{"PollInterval", c.PollInterval}, {"NodeTimeout", c.NodeTimeout}} {
		if v.d > maxInterval { // multiples of it are reckoned with
			bad.fail(v.field, v.d, "must be at most "+maxInterval.String())
		}
	}
	positive("MisfireThreshold", &c.MisfireThreshold, max(defaultMisfireThreshold, c.PollInterval))
	if c.MisfireThreshold >= 0 && c.MisfireThreshold < c.PollInterval {
		bad.fail("MisfireThreshold", c.MisfireThreshold, "must be at least PollInterval, "+c.PollInterval.String())
	}
	switch {
	case c.Misfire > RunAll:
		bad.fail("Misfire", c.Misfire, "is no policy")
	case c.Misfire == MisfireDefault:
		c.Misfire = RunOnce
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = defaultShutdownTimeout
	}
	if c.Retention == 0 {
		c.Retention = defaultRetention
	}
	if c.MaxDataSize < 0 {
		bad.fail("MaxDataSize", c.MaxDataSize, "must not be negative")
	}
	if c.MaxDataSize == 0 {
		c.MaxDataSize = defaultMaxDataSize
	}
	if len(c.Node) > maxNodeName || !utf8.ValidString(c.Node) || strings.ContainsRune(c.Node, 0) {
		bad.fail("Node", c.Node, fmt.Sprintf("must be at most %d bytes of text without NUL", maxNodeName))
	}
	if c.Node == "" {
		c.Node = nodeName()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, bad.err()
}

// nodeName is the name of a node that was given none.
func nodeName() string {
	for _, name := range []string{os.Getenv("TASKMANAGER_NODE_ID"), os.Getenv("HOSTNAME")} {
		if name != "" {
			return shortened(name)
		}
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return shortened(name)
	}
	return "node"
}

func shortened(name string) string {
	for n := maxNodeName; ; n-- {
		if s := cut(name, n); len(s) <= maxNodeName {
			return s
		}
	}
}

// A phase is where a scheduler's life stands.
//
//	new --Start--> starting --all went well--> running --Shutdown--> stopping --> stopped
//	starting --a failure--> new
//	starting --Shutdown; Start sees to the rest--> stopping --> stopped
//	new --Shutdown--> stopping --> stopped
type phase int32

const (
	phaseNew phase = iota
	phaseStarting
	phaseRunning
	phaseStopping // nothing is claimed any more
	phaseStopped
)

// A Scheduler is a node: it runs jobs kept in a store. Make it with New, register
// handlers, add jobs, Start it, and Shutdown at the end. All methods are safe for
// concurrent use.
//
// What reads jobs and runs, or changes them, needs the store only. Before Start it finds
// the jobs that are in the store, those in code only once a Start has written them there;
// after Shutdown, what it asks for is done by other nodes, or the next life of this one.
type Scheduler struct {
	// Order of locks: those of locals and loop, nodeLease (which emit and log take, for the
	// node's ID), claimer and waits, flights, workers, the manager's. The others are leaves.

	control // changes of jobs, made at once

	config   Config // with defaults; immutable
	store    Store
	manager  *taskmanager.TaskManager
	host     seam.Host
	owned    bool // the manager is the scheduler's own
	registry *registry
	planner  *planner
	queue    *queue.Queue
	instance string // tells this scheduler's tasks from others' in the manager
	random   func() uint64
	// opTimeout bounds one round of a loop, and so its calls of the store. Calls that have a
	// bound of their own have it in real time, whatever the manager's clock: what they wait
	// for, a network say, knows no other.
	opTimeout   time.Duration
	loopBackoff func() backoff.BackOff

	stats    counters
	throttle throttle
	outage   outage
	skew     atomic.Int64
	// undueAfter is the ID behind which the next sweep looks for triggers without a due
	// instant, a string; "" or none for the beginning.
	undueAfter atomic.Value
	phase      atomic.Int32  // changes with mu held
	awaits     atomic.Uint64 // waits of a stop, for their names

	flights  flights
	finisher finisher
	claimer  claimer
	lease    nodeLease
	term     term
	locals   locals
	waits    waits
	notes    notes

	loops struct{ claim, finish, beat, sweep, elect, local, watch *loop }

	// stopFn stops the Waker: Start's, then the stop's.
	stopFn func()

	mu      sync.Mutex              // guards the fields below
	code    []codeJob               // added before Start, and not changed from then on
	abort   context.CancelCauseFunc // of the Start under way
	ends    bool                    // a Shutdown came during that
	stopped chan struct{}
	stopErr error
}

// A codeJob is a job that was added before Start.
type codeJob struct {
	job      JobRow
	triggers []TriggerRow
}

// New makes a scheduler on a store; nil is a NewMemory of its own, on the manager's
// clock. Errors are *FieldError.
func New(store Store, config Config) (*Scheduler, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		config: config, store: store, manager: config.Manager, registry: newRegistry(),
		random: rand.Uint64, stopped: make(chan struct{}),
	}
	if s.manager == nil {
		if s.manager, err = taskmanager.New(taskmanager.WithLogger(config.Logger)); err != nil {
			return nil, err
		}
		s.owned = true
	}
	s.host = seam.HostOf(s.manager)
	if s.store == nil {
		s.store = NewMemory(MemoryNow(func() time.Time { now, _ := s.host.Now(); return now }))
	}
	s.queue = queue.New(s.host.Go, s.userPanicked)
	s.control = control{s, s.store, true}
	s.planner = &planner{
		registry: s.registry, misfire: config.Misfire, threshold: config.MisfireThreshold,
		random: func() uint64 { return s.random() }, unreadable: s.unreadable,
	}
	s.opTimeout = min(max(config.NodeTimeout/3, time.Second), 10*time.Second)
	// Heartbeats must come again within NodeTimeout of the end of an outage, so that no
	// node that has them back already can hold this one for dead.
	longest := min(maxLoopBackoff, config.NodeTimeout/3)
	s.loopBackoff = func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(min(minLoopBackoff, longest)),
			backoff.WithMaxInterval(longest), backoff.WithMaxElapsedTime(0))
	}
	s.flights.init(s)
	s.finisher.s, s.claimer.s, s.locals.s, s.waits.s = s, s, s, s
	s.finisher.most = batch
	s.lease.init(s)
	s.term.init(s)
	beat := config.NodeTimeout / 3
	s.loops.claim = s.newLoop("claim", config.PollInterval, s.claimer.round)
	s.loops.finish = s.newLoop("finish", max(beat, time.Second), s.finisher.round)
	s.loops.beat = s.newLoop("beat", beat, s.lease.beat)
	s.loops.sweep = s.newLoop("sweep", min(beat, maxSweep), s.sweep)
	s.loops.elect = s.newLoop("elect", beat, s.term.elect)
	s.loops.local = s.newLoop("local", localRefresh*config.PollInterval, s.locals.refresh)
	s.loops.watch = s.newLoop("watch", max(beat, time.Second), s.watch)
	s.loops.claim.giveUp, s.loops.finish.giveUp, s.loops.beat.giveUp = s.claimer.giveUp, s.finisher.giveUp, s.lease.turn.giveUp
	if err := s.addHousekeeping(); err != nil {
		return nil, err
	}
	return s, nil
}

// all gives the loops; the last one watches the others.
func (s *Scheduler) all() []*loop {
	l := &s.loops
	return []*loop{l.beat, l.elect, l.claim, l.finish, l.sweep, l.local, l.watch}
}

// AddCalendar registers a calendar, which schedules refer to by name (calendar=NAME).
// Before Start only. It is asked in the midst of the store's transactions, with rows
// locked: it must be quick, and call neither the Scheduler nor the Store.
func (s *Scheduler) AddCalendar(name string, cal cronsched.Calendar) error {
	return s.registry.addCalendar(name, cal)
}

// Use adds middleware around the handlers of all runs, the first added outermost.
// Before Start only.
func (s *Scheduler) Use(m Middleware) error { return s.registry.use(m) }

// Handlers lists the registered handlers in order of name.
func (s *Scheduler) Handlers() []HandlerInfo { return s.registry.list() }

// Node gives the node's ID: its name and a suffix that no other life of it has.
func (s *Scheduler) Node() string { return s.nodeID() }

// AddJob adds a job. Before Start it is a job in code: Start writes it to the store,
// and updates the one there if, and only if, its definition in code has changed since
// the last Start that did. Later it is written at once, and must be new (ErrExists).
// What is wrong with it comes back as a *FieldError for each field.
func (s *Scheduler) AddJob(ctx context.Context, j Job) error {
	if phase(s.phase.Load()) != phaseNew {
		return s.control.AddJob(ctx, j)
	}
	job, triggers, err := s.registry.rows(j, s.config.MaxDataSize) // calls user code: no lock is held
	if err != nil {
		return err
	}
	s.mu.Lock()
	if phase(s.phase.Load()) != phaseNew {
		s.mu.Unlock()
		return s.control.AddJob(ctx, j)
	}
	defer s.mu.Unlock()
	for _, c := range s.code {
		if c.job.Name == job.Name {
			return &FieldError{Field: "Name", Value: job.Name, Reason: ErrExists.Error(), Err: ErrExists}
		}
	}
	s.code = append(s.code, codeJob{job, triggers})
	return nil
}

// onlyInCode tells whether the job was added before Start, which has not come yet.
func (s *Scheduler) onlyInCode(job string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return phase(s.phase.Load()) == phaseNew && slices.ContainsFunc(s.code, func(c codeJob) bool { return c.job.Name == job })
}

// pageSize is the default Limit of a JobQuery.
const pageSize = 1000

func (s *Scheduler) unknownHandler(j JobRow) {
	s.stats.unreadable.Add(1)
	err := &FieldError{Field: "Handler", Value: j.Handler, Reason: "is not registered on this node"}
	s.emit(Event{Kind: EventUnreadable, Job: j.Name, Err: err})
	s.logSeldom("handler/"+j.Name, slog.LevelWarn, "job has a handler that this node does not know", slog.String("job", j.Name), slog.String("handler", j.Handler))
}

// unreadable is told by the planner of a trigger that it leaves alone.
func (s *Scheduler) unreadable(t TriggerRow, err error) {
	if !s.claimer.except(t.ID) {
		return
	}
	s.stats.unreadable.Add(1)
	if _, now := s.host.Now(); !s.throttle.pass("unreadable/"+t.ID+"/"+errText(err), now) {
		return
	}
	s.emit(Event{Kind: EventUnreadable, Job: t.Job, Trigger: t.Name, Err: err})
	s.log(slog.LevelError, "trigger cannot be read, it is left alone", slog.String("job", t.Job), slog.String("trigger", t.Name),
		slog.String("schedule", t.Schedule), errAttr(err))
}

// running tells whether new work may begin.
func (s *Scheduler) running() bool { return phase(s.phase.Load()) == phaseRunning }

// watch revives loops that hang.
func (s *Scheduler) watch(context.Context) error {
	for _, l := range s.all() {
		if l != s.loops.watch {
			l.watch()
		}
	}
	s.flights.workers.trim()
	return nil
}

// after calls f once, d from now, unless stop is called before.
func (s *Scheduler) after(name string, d time.Duration, f func()) (stop func(), err error) {
	h, err := s.once(name, d, f)
	if err != nil {
		return nil, err
	}
	return h.Stop, nil
}

// once is a task that calls f, d from now, and is complete.
func (s *Scheduler) once(name string, d time.Duration, f func()) (*taskmanager.Handle, error) {
	return s.manager.ScheduleRecurring(name, max(d, time.Nanosecond), func(context.Context) error { f(); return nil },
		exempt(), taskmanager.WithJitter(0), taskmanager.WithMaxRuns(1), taskmanager.WithTag("durable"))
}

// errPanicked is for user code that panicked where it cannot be recorded otherwise.
var errPanicked = errors.New("durable: user code panicked")
