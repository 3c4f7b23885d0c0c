// Package durable runs jobs that must survive a restart, be seen, be retried, and run
// once in a cluster. Its loops are recurring tasks of package taskmanager, its
// schedules those of package cronsched, and what it knows is in a [Store]: in memory,
// or with package sqlstore in SQLite, PostgreSQL, MySQL or MariaDB.
//
//	s, err := durable.New(store, durable.Config{}) // nil is a store in memory
//	err = durable.Handle(s, "report", func(ctx context.Context, run durable.Run, args ReportArgs) error { … })
//	err = s.AddJob(ctx, durable.Job{
//		Name: "report.nightly", Handler: "report", Data: ReportArgs{…},
//		Triggers: []durable.Trigger{{Schedule: cronsched.MustParse("cron 0 0 6 * * *")}},
//		Retry:    durable.Retry{MaxRetries: 5, Delay: time.Minute, Exponential: true},
//	})
//	err = s.Run(ctx) // until ctx ends; or Start, and Shutdown at the end
//
// # Words
//
//   - A job says what to do: a handler, its data, rules for concurrency, retries and
//     time. A trigger says when; a job has any number of them, and with none it runs by
//     hand only. A run is one attempt, and its record in the history.
//   - A node is one process with a [Scheduler]. Its ID is its name and a suffix of its
//     own: two processes, and two lives of one, are never taken for each other.
//
// # A trigger's life
//
//	            due, and claimed                     its run ended
//	waiting ───────────────────────▶ running ───────────────────────▶ waiting
//	   │ ▲                            (every, and a backlog of RunAll)
//	   │ │ that run ended
//	   │ └──────────── blocked        another run of its job is active
//	   │ ◀── resume ── paused         it, or its job, is paused
//	   ├─────────────▶ complete       no instant is left, or it ran N times
//	   └─────────────▶ error          its calendar panicked; ResumeTrigger tries again
//
// A cron trigger is waiting for its next instant while its run goes on. One-shot
// triggers (calls by hand, retries, recoveries) lead to one run and are gone.
//
// Due triggers are claimed by priority, then due instant, over all that is due. A
// trigger that is taken later than MisfireThreshold has misfired, and its policy
// decides: [RunOnce], [Skip] or [RunAll]. One-shot triggers never misfire.
//
// # Who owns a run
//
// There is no master. A firing belongs to the node whose transaction changed the
// trigger's row, on the condition that it still was what the node had read. All
// instants that decide ownership are the store's clock; a node uses its own clock for
// durations only.
//
// A node keeps one lease for all its runs, and renews it every third of NodeTimeout:
//
//	sent ──────────── answered                          margin
//	 │◀───────────────── NodeTimeout ──────────────────────▶│
//	 │◀──────────── trusted by the node ──────────▶│         │
//	                                       exclusive runs    others may
//	                                       are cancelled     take them
//
// Trust counts from the sending, on the monotonic clock, and ends a sixth of NodeTimeout
// early: a node that cannot reach the store has cancelled the runs that must not
// overlap before any other node can hold it for dead. A node that was frozen beyond its
// lease finds out by its next heartbeat: its contexts end with [ErrLeaseLost], the ends
// of its runs are refused, and it goes on under another ID. After a SIGSTOP its exclusive
// runs are cancelled as soon as it goes on. After a suspension of the machine they are not:
// the monotonic clock of Linux stands still meanwhile, so they may overlap the new owner's
// until that heartbeat, which comes within a third of NodeTimeout.
//
// What a handler writes to can do the same: [Run].Fence rises with every run of a job,
// so a store that remembers the largest it has seen can refuse an older one.
//
// Dead nodes are noticed by the leader, or by any node when the leader has not within
// 5 s; only nodes whose heartbeats have been answered for a whole NodeTimeout do it, so
// that after an outage of the store all who live renew first. The runs of a dead node
// are lost. A job with RequestsRecovery gets a recovery run for each.
//
// # What is promised
//
// A firing is claimed at most once. Every promise that runs of a job do not overlap is
// for handlers that end when their context ends.
//
//	the node dies …                          RequestsRecovery       without it
//	before its claim is committed            another node claims    the same
//	after the claim, before the handler      runs again             did not run: lost
//	in the handler                           runs again             ran in part: lost
//	after the handler, before its end is     runs again             ran: recorded as lost
//	recorded
//	after that                               recorded               recorded
//
// So a crash never makes a firing run twice without RequestsRecovery, and with it the
// firing runs at least once. A failed run is repeated as the job's [Retry] says, a snoozed
// one as its handler said. Each time the [Run].IdempotencyKey is the same. Nothing can
// promise exactly once for effects outside the store.
//
// # Jobs that run on every node
//
// A job with RunOnEveryNode is not claimed: every node runs it by its own clock, and
// runs on one node do not overlap. The store has the definition and a record of each
// run. Called by hand, such a job runs on all nodes, each with the same ScheduledAt.
// Retries wait in the process, and are dropped when it stops. A firing that comes too
// late runs once, now, or with [Skip] not at all. What fell due before the node's start,
// or while the job or the trigger was paused, is not made up for.
//
// # Tests of one's own jobs
//
// Without a store, a scheduler and its manager are on one clock, so that fake time works
// with no more than Config{Manager: m}, m from tasktest.New. Advance runs what falls due,
// a day in about a second. Calls that wait ([Scheduler.Wait], [Scheduler.TriggerAndWait],
// [Scheduler.Shutdown]) wait for the clock to be moved by another goroutine; the end of
// the test ends the scheduler without them. In a bubble of testing/synctest, with the
// zero Config, they can just be called.
//
// # In the package
//
//	store.go       what a Store does, and the rows it keeps; kinds.go names their states,
//	               tx.go is a Store inside a transaction
//	memory*.go     the Store in memory
//	job.go         jobs and triggers as they are given, and what is wrong with them;
//	               retry.go, and names.go for the grammar of names
//	errors.go      what calls and handlers return, and codes of failed runs
//	handler.go     handlers, middleware, calendars: what a node knows
//	plan.go        what becomes of a due trigger   } functions of what they are given:
//	end.go         what becomes of an ended run    } no clock, no store
//	edit.go        what becomes of a changed job   }
//	control.go     the calls that change jobs, in a transaction or not
//	scheduler.go   a node: its parts; start.go: Start and Run
//	loop.go        a loop as a recurring task, and what revives it
//	claim.go       the loop that claims
//	flights.go     runs on this node; workers.go has the goroutines for them
//	finish.go      the loop that records their ends
//	lease.go       the loop that keeps the node alive
//	sweep.go       the loop that sees to what dead nodes left
//	leader.go      the loop that elects
//	local.go       jobs that run on every node
//	wake.go        notes between nodes; notes.go sends them
//	wait.go        calls that wait for a run's end
//	stop.go        Shutdown
//	query.go       Status, and what there is to read
//	observe.go     events, counters, the log
//	housekeeping.go the built-in job
//	turn.go        a lock that a watchdog can take away; guard.go calls user code; id.go
//	               and text.go make IDs, and texts that databases take
package durable
