// Package taskmanager runs functions again and again inside a process: session
// cleanups, heartbeats, snapshots, cache refreshes, 60 Hz world ticks; a handful
// of them or a million. They do not drift, do not overlap, do not start all at
// once, a panic in one takes nothing down, and each can tell how it fares.
//
//	m, err := taskmanager.New()
//	…
//	h, err := m.ScheduleRecurring("session.cleanup", 30*time.Second, cleanup)
//
// [New] makes a manager; [TaskManager.ScheduleRecurring] is what one needs most.
// Package tasktest makes time deterministic in tests, package cronsched has cron
// expressions and other schedules on the wall clock.
//
// This text is the manual. What a single function does, its defaults and errors,
// stands at the function.
//
// # Vocabulary
//
//	task     a name, a schedule, a function and options
//	tick     an instant at which a task is due
//	run      one call of the function
//	handle   what scheduling returns: to look at the task and to control it
//	ledger   the count of what became of the ticks
//	manager  what the tasks belong to, with the time, limits and shutdown they share
//
// # Ticks and the grid
//
// An interval task is due at fixed rate on an absolute grid: tick k is at
//
//	start + jitter + k·interval,  k = 1, 2, 3, …
//
// on the monotonic clock, computed and not added up, so that no run time, late
// start or rounding ever moves it. The jitter is drawn once, uniform in
// [0, 250 ms) if nothing else is said, so that servers that were started together
// do not act together; a task that has to begin at once wants WithJitter(0). With
// [WithImmediately] k starts at 0. [WithStartAt] and [WithEndAt] bound the grid,
// [WithMaxRuns] the number of runs.
//
// With [WithFixedDelay] there is no grid: the next tick is one interval after the
// end of the run.
//
// Ticks that cannot be served (late start, slow run, a process that was stopped)
// are not replayed: there is one run, for the latest of them, and then the next
// tick on the grid. [WithOverlap] can say otherwise.
//
// [TaskManager.ScheduleTicks] tells the function which tick it serves: its index,
// its exact instant, and how late the run is.
//
// # The ledger
//
// Every tick that falls due is decided at once or, if it is held or has to wait
// its turn, is pending for a while; and ends as exactly one of these, which a
// [Ledger] counts:
//
//	ran              a run started for it
//	skipped running  the previous run was still going on
//	skipped backoff  it came during backoff, and a later one was served
//	skipped limit    a concurrency limit was reached
//	skipped paused   the task was paused
//	missed           too late, folded into a later run; or left when the task ended
//	coalesced        folded into the one run of Coalesce
//	dropped          beyond the bound of CatchUp
//
// For an interval task their sum ([Ledger.Due]) is the number of instants of its
// grid since it was scheduled, to the last one. For a [Schedule] it is the number
// of instants that the engine obtained from it; stretches that it was not asked
// about, after a pause or a step of the clock, are counted as gaps. Runs by
// [Handle.RunNow] are runs and not ticks. And always
//
//	Runs = Successes + Failures + Cancelled + InFlight
//
// # Overlap
//
// What becomes of a tick that comes while the run before goes on:
//
//	Skip                     it is skipped (the default)
//	Coalesce                 all such ticks become one run, right after this one
//	CatchUp(n)               they are replayed one after the other, at most n wait;
//	                         for game loops of a fixed timestep
//	WithNonReentrant(false)  a second run starts beside the first
//
// # Failure and backoff
//
// A run fails when it returns an error, panics, calls runtime.Goexit or outlives
// its [WithExecutionTimeout]. To have been cancelled because the task or the
// manager stops is not a failure. A panic becomes a [*PanicError] with its stack,
// and the task goes on.
//
// After f failures in a row, f at least [WithFailuresBeforeBackoff] (1):
//
//	ceiling = min(BackoffCap, BackoffBase · 2^min(f - FailuresBeforeBackoff, BackoffMaxPower))
//	delay   = uniform in [0, ceiling], from crypto/rand
//
// with a base of 1 s, a power of 5 and a cap of 15 s at most if nothing else is
// said. No run starts before the end of the failed one plus the delay. If ticks
// fell due before that, the latest of them is served then; otherwise the next one
// runs as usual. A success ends the streak. [WithBackoff] takes a policy of
// github.com/cenkalti/backoff/v4 instead; when it says Stop, the task stops with
// [ErrBackoffStop]. [FullJitter] is the engine's own policy for use elsewhere.
//
// # Time
//
// Interval tasks live on monotonic time: setting the wall clock moves nothing.
//
// Schedules live on the wall clock. While there is a task with one, the engine
// compares the two clocks once a second. A step of 100 ms or more is logged,
// counted ([Totals]) and given to the observer, and schedules follow it:
//
//	forward, past the next instant   one late run, then the next instant after now
//	back, by 3 hours at most         nothing fires twice: the next instant is after
//	                                 the last one served
//	back, by more                    the clock was wrong before: seated anew from now
//
// A machine that was suspended is a step forward where the monotonic clock stands
// still meanwhile, as on Linux: interval tasks go on where they were, and a
// schedule makes one late run. Nothing ever replays hours of ticks.
//
// A schedule's Next is the user's code and is called on a goroutine of its own, except
// by Schedule, RescheduleWith and Explain, which call it on the caller's and wait for as
// long as it takes. If it panics, takes longer than five seconds or does not move
// forward, its task stops with [ErrSchedule].
//
// All time comes from the clock given to [WithClock], the real one if none is.
//
// # Contexts
//
// The context of a run ends when the task stops (cause [ErrStopped]), when
// Shutdown gives up waiting ([ErrClosed]), and when the run's time limit passes
// (Err is context.DeadlineExceeded, the cause [ErrExecutionTimeout]). All runs of
// a task without a time limit share one context, which never ends before the
// task does. With a limit each run has its own, which ends with the run too. None
// is ever reused for another run.
//
// Go cannot kill a goroutine. A function that ignores its context keeps its own
// task from running, is shown as overdue, and is named by Shutdown; it disturbs
// no other task.
//
// # Limits
//
// [WithMaxConcurrentRuns] bounds the runs of a manager that go on at once,
// [WithTagLimit] those of the tasks with a tag. A run over a limit waits for its
// turn, in order of due time; a task has one place in the queue at most, and ticks
// that come meanwhile are missed, or held by CatchUp. With [WithSkipOverLimit] it
// is skipped instead.
//
// # Precise tasks
//
// A task starts about as late as Go's timers are: some hundred microseconds to a
// millisecond. [WithPrecise] gives a task a goroutine and, on Linux, a kernel
// timer of its own, and it spins for the last quarter of a millisecond. That is
// for a game loop, not for a thousand tasks. On other systems and on a fake clock
// it changes nothing.
//
// # Shutdown
//
// [TaskManager.Shutdown] does, in this order:
//
//  1. every task is stopped: no run starts any more, new tasks are refused;
//  2. runs in flight are waited for, until its ctx ends;
//  3. then their contexts are cancelled, and they are waited for during
//     [WithShutdownGrace], 1 s;
//  4. what still goes on is abandoned, and the [*ShutdownError] says by name which
//     runs were cancelled and which abandoned, and where those stand;
//  5. the observer and the log get the rest of the grace for what is queued.
//
// It does not wait for goroutines that functions have started, does not wait for
// the run that it is called from, and makes up for no tick. Only the first call
// acts; all get the same verdict, but for a later one from inside a run, which does not
// wait for it and returns nil. [TaskManager.Close] is Shutdown without step 2. A manager
// that is closed cannot be used again; its handles stay readable.
//
// # Looking at it
//
// [Handle.Snapshot] is all that is known of a task, [Handle.Explain] says in words
// why it is not running now and when it will. [TaskManager.Report] is a table of
// all tasks, [TaskManager.Handler] serves it as /debug/tasks, and
// [TaskManager.Expvar] gives the totals to package expvar. An [Observer] is told
// of every run and of every tick that did not become one; adapters to metrics and
// tracing stand on it. The log (slog) has a line when a task begins to fail, when it
// panics for the first time in a streak of failures, when it has recovered, when it is
// stopped for a reason, when a run is overdue, when the wall clock was set, at the first
// panic of an Observer or log handler, if crypto/rand fails, and at a fault of the
// engine; none for a tick.
//
// # Concurrency
//
// All methods may be called from any goroutine, also from inside runs: a task may
// stop or reschedule itself, schedule others, or shut the manager down. No lock is
// held while user code runs. Unless runs of a task may overlap, each happens before
// the next, so that what only that task touches needs no lock.
//
// A task and its runs move through these states:
//
//	task:  live ──Stop, StopTag, Shutdown, a bad schedule, backoff.Stop──> stopped
//	       live ──its last run has ended, or no instant is left──────────> complete
//
//	run:   free ──a tick, RunNow──> queued ──start──> running ──end──> free
//	                                queued ──Stop, a limit, or Pause for a tick's──> free
//
//	seat:  seated ──due──> asking ──Next──> seated, or ended
//	                       asking ──panic, 5 s, bad answer──> the task stops
//
// (A seat is what a task with a [Schedule] has: the instant that is next.) What
// [State] shows is made from these: running if a run is in flight, else stopped,
// complete, paused, backing off or scheduled.
//
// A run takes place on the goroutine that found its tick due, together with
// others that were due then, unless the task is known to be slow, reentrant,
// waited at a limit or has a schedule: then on one of its own. One that turns out
// to block holds up nobody: within a millisecond or so another goroutine takes
// over what was left. There is no goroutine for an idle task and none for an idle
// manager, and one runtime timer in all.
//
// # Cost
//
// A tick allocates nothing without a time limit. CPU, memory and lateness beside
// time.AfterFunc, time.Ticker and other libraries are measured in the module in
// bench.
package taskmanager

// Lock order: TaskManager.mu, engine.mu, task.mu, then the leaf locks, under which
// no other of these is taken: limitContext.mu, shutdown.mu, entropy.mu, marks.mu, the
// queue's of events, and those of the source of time, which come after the queue's.
// extra.policyMu is held while a user's backoff policy runs, and so taken with no other
// lock held.
//
// The reason for that order: what begins or ends a task has to change the index of
// names, the wheel and the task in one step, and comes from above; the pump comes
// from the wheel, and goes to one task after the other. What finds, under a lower
// lock, that a task is over has that done aside, on a goroutine (endAside).
//
// Where things are:
//
//	taskmanager.go   TaskManager, New, looking up, RunOnce, the end of a task
//	recurring.go     scheduling: intervals and schedules
//	options.go       options and their defaults; validate.go refuses, optionsjson.go reads
//	task.go          the task and its runs: fields, states, arithmetic of the grid
//	ledger.go        what becomes of the ticks that are due
//	run.go           a run: begin, call, judge, account, what follows
//	handle.go        what one can do with a task
//	seat.go          tasks with a Schedule; clockwatch.go: steps of the wall clock
//	engine.go        the pump: from time to runs
//	wheel.go         deadlines by time
//	batch.go         many runs due at once, shared by goroutines
//	gate.go          limits
//	timelimit.go     time limits; runcontext.go: the contexts of runs
//	precise.go       precise tasks; precise_linux.go, precise_other.go: their kernel timer
//	backoff.go       backoff; jitter.go: random numbers; overlap.go: the policies
//	shutdown.go      the end of the manager
//	stack.go         goroutines: which one, and where it stands; mark.go: the pump's
//	snapshot.go      what is known of a task; distribution.go: its distributions
//	report.go        the table; debug.go: over HTTP; explain.go: in words
//	events.go        observer and log
//	clocksource.go   time: the real clock, or somebody's
//	once.go          runs without ticks: RunOnce; host.go: what package durable sees
//	names.go         the index of names
//	errors.go        errors
//	internal/seam    what tasktest and durable need of the engine and users do not
//	internal/queue   calls of observers and log handlers, which may block
