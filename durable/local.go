package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/taskmanager-go/taskmanager"
	"github.com/taskmanager-go/taskmanager/cronsched"
)

// localRefresh is how many poll intervals go by between two looks at which jobs run on
// every node.
const localRefresh = 10

// seenFor is how long a broadcast is remembered that was not read again: while it is told,
// every read has it, so that this only has to be longer than reads overtake each other by.
const seenFor = time.Hour

// locals are the jobs that run on every node: by this node's own clock, without claims.
// The store has their definitions, and a record of each run.
type locals struct {
	s *Scheduler

	mu       sync.Mutex // guards the fields below; may be held while calling the manager
	jobs     map[string]JobRow
	triggers map[string]*localTrigger // by job and name
	past     map[string]*localPast    // by trigger ID
	busy     map[string]int           // runs of each job on this node
	retries  map[string]func()        // stops of attempts to come, by ID
	held     []RunRow                 // attempts that wait for a run of their job here, or for its resumption
	seen     map[string]int64         // broadcasts taken, or from before the start; monotonic: when last read
	primed   bool
	lives    int // tasks made, for their names
	stopped  bool
}

// A localTrigger is a trigger on this node's clock.
type localTrigger struct {
	row      TriggerRow
	schedule cronsched.Schedule
	stop     func()              // its task; nil between the firings of an every trigger
	task     *taskmanager.Handle // of a schedule that is not an every one
	gone     bool
	past     *localPast
}

// A localPast is what is remembered of a trigger while it is paused, too.
type localPast struct {
	schedule string
	fired    int
	last     time.Time // the last instant fired on time
}

// refresh is a loop's work: it reads which jobs and triggers there are.
func (l *locals) refresh(ctx context.Context) error {
	if !l.s.running() {
		return nil
	}
	states, err := l.read(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil
	}
	jobs := map[string]JobRow{}
	wanted := map[string]TriggerRow{}
	known := map[string]bool{}
	for _, st := range states {
		for _, t := range st.Triggers {
			known[t.ID] = true
		}
		if !l.s.registry.knows(st.Job.Handler) {
			l.s.unknownHandler(st.Job)
			continue
		}
		jobs[st.Job.Name] = st.Job
		for _, t := range st.Triggers {
			if !t.OneShot() && t.State == StateLocal && !t.Paused && !st.Job.Paused {
				wanted[t.Job+"/"+t.Name] = t
			}
		}
	}
	l.jobs = jobs
	for key, t := range l.triggers {
		if row, there := wanted[key]; !there || row.Schedule != t.row.Schedule || row.ID != t.row.ID {
			l.drop(key, t)
		} else if t.task != nil && t.task.State() == taskmanager.Stopped { // its calendar panicked
			l.fail(t, t.task.Err())
		}
	}
	for key, row := range wanted {
		if t := l.triggers[key]; t != nil {
			t.row = row
			continue
		}
		l.add(key, row)
	}
	maps.DeleteFunc(l.past, func(id string, _ *localPast) bool { return !known[id] })
	l.broadcastLocked(states)
	l.releaseLocked()
	return nil
}

func (l *locals) read(ctx context.Context) (all []JobState, err error) {
	for after := ""; ; {
		states, err := l.s.store.Jobs(ctx, JobQuery{EveryNode: true, WithoutRuns: true, After: after})
		if err := l.s.noteStore("read jobs", err); err != nil {
			return nil, err
		}
		all = append(all, states...)
		if len(states) < pageSize {
			return all, nil
		}
		after = states[len(states)-1].Job.Name
	}
}

func (l *locals) drop(key string, t *localTrigger) {
	t.gone = true
	if t.stop != nil {
		t.stop()
	}
	delete(l.triggers, key)
}

// add begins a trigger.
func (l *locals) add(key string, row TriggerRow) {
	s, err := l.s.registry.schedule(row.Schedule)
	if err != nil {
		l.s.unreadable(row, err)
		return
	}
	t := &localTrigger{row: row, schedule: s, past: l.past[row.ID]}
	if t.past == nil {
		if l.past == nil {
			l.past = map[string]*localPast{}
		}
		t.past = &localPast{}
		l.past[row.ID] = t.past
	}
	if t.past.schedule != row.Schedule {
		t.past.schedule, t.past.fired = row.Schedule, 0
	}
	if l.triggers == nil {
		l.triggers = map[string]*localTrigger{}
	}
	l.triggers[key] = t
	if _, _, every := s.FixedDelay(); every {
		l.armEvery(t)
		return
	}
	h, err := l.s.manager.Schedule(l.taskName(row), s, func(context.Context) error { l.due(t); return nil },
		exempt(), taskmanager.WithJitter(0), taskmanager.WithTag("durable"))
	if err != nil {
		l.fail(t, err)
		return
	}
	t.task, t.stop = h, h.Stop
}

// fail drops a trigger whose calendar, which is user code, panicked. The next refresh
// tries it again.
func (l *locals) fail(t *localTrigger, err error) {
	l.drop(t.row.Job+"/"+t.row.Name, t)
	if !errors.Is(err, taskmanager.ErrClosed) {
		l.s.unreadable(t.row, err)
	}
}

func (l *locals) taskName(row TriggerRow) string {
	l.lives++
	return fmt.Sprintf("durable/%s/%s/%s#%d", l.s.instance, row.Job, row.Name, l.lives)
}

// armEvery has an every trigger fire one delay from now.
func (l *locals) armEvery(t *localTrigger) {
	_, runs, _ := t.schedule.FixedDelay()
	if t.gone || l.stopped || runs > 0 && t.past.fired >= runs {
		return
	}
	now, _ := l.s.host.Now()
	var next time.Time
	var ok bool
	if err := guarded(func() error { next, ok = t.schedule.Next(now); return nil }); err != nil {
		l.fail(t, err)
		return
	}
	if !ok {
		return
	}
	if t.stop != nil { // of an alarm set by a change while a run was under way
		t.stop()
	}
	stop, err := l.s.after(l.taskName(t.row), next.Sub(now), func() { l.due(t) })
	if err == nil {
		t.stop = stop
	}
}

// due is called when a trigger is due.
func (l *locals) due(t *localTrigger) {
	s := l.s
	now, _ := s.host.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	job, there := l.jobs[t.row.Job]
	if t.gone || l.stopped || !there {
		return
	}
	_, _, every := t.schedule.FixedDelay()
	at := micros(now)
	perNode := every
	if !every {
		if prev, ok := t.schedule.Prev(now.Add(1)); ok {
			if late := now.Sub(prev) > s.config.MisfireThreshold; !late {
				if at = micros(prev); t.past.last.Equal(at) { // the clock was set back
					return
				}
				t.past.last = at
			} else {
				perNode = true
				policy := s.planner.policy(t.row)
				if _, end := t.schedule.Window(); policy == Skip || policy != RunAll && !end.IsZero() && now.After(end) {
					l.passOver(t, prev, now)
					return
				}
			}
		}
	}
	key := idempotencyKey(t.row.Job, t.row.Name, at)
	if perNode {
		key += "/" + s.nodeID()
	}
	row := RunRow{
		ID: newID(now, s.random), Job: job.Name, Trigger: t.row.Name, Kind: KindSchedule, ScheduledAt: at, Attempt: 1,
		IdempotencyKey: key, Data: mergedOrBad(job.Data, t.row.Data), Priority: t.row.Priority,
	}
	if l.startLocked(job, row) {
		t.past.fired++
	} else if every {
		l.armEvery(t)
	}
}

// passOver records firings that came too late to run, up to the one at.
func (l *locals) passOver(t *localTrigger, at, now time.Time) {
	first := at
	if last := t.past.last; !last.IsZero() {
		if next, ok := following(t.schedule, last); ok && next.Before(at) {
			first = next
		}
	}
	t.past.last = micros(at)
	r := *l.s.planner.passedOver(Due{Now: now, Trigger: t.row}, micros(first), countMissed(t.schedule, first, now))
	r.Node, r.StartedAt = l.s.nodeID(), micros(now)
	l.s.skippedRun(r)
	l.s.finisher.add(End{Run: r, Local: true})
}

// startLocked starts a run on this node, unless the job must not overlap itself here.
func (l *locals) startLocked(job JobRow, row RunRow) bool {
	s := l.s
	now, _ := s.host.Now()
	row.Node, row.StartedAt = s.nodeID(), micros(now)
	if !job.AllowConcurrent && l.busy[job.Name] > 0 {
		row.State, row.Code, row.Message = RunSkipped, CodeConflict, "another run of the job is active on this node"
		s.skippedRun(row)
		if row.Kind == KindBroadcast { // somebody asked for it
			s.finisher.add(End{Run: row, Local: true})
		}
		return false
	}
	if !s.flights.start(&row, &job, true) { // a stop was sooner
		return false
	}
	if l.busy == nil {
		l.busy = map[string]int{}
	}
	l.busy[job.Name]++
	s.emit(runEvent(EventStarted, row)) // its end waits for the lock
	return true
}

// ended takes over when the handler of a local run has returned.
func (l *locals) ended(fl *flight, end End) {
	follow, in := end.Follow, end.FollowIn
	end.Local, end.Follow, end.FollowIn = true, nil, 0
	l.mu.Lock()
	name := fl.row.Job
	if l.busy[name]--; l.busy[name] <= 0 {
		delete(l.busy, name)
	}
	if follow != nil && !l.stopped {
		l.retryLocked(fl, *follow, in, end.Run.State == RunFailed)
	}
	if t := l.triggers[name+"/"+fl.row.Trigger]; t != nil && fl.row.Kind == KindSchedule {
		if _, _, every := t.schedule.FixedDelay(); every {
			l.armEvery(t)
		}
	}
	l.releaseLocked()
	l.mu.Unlock()
	l.s.finisher.land(fl, end)
}

// retryLocked has another attempt wait in this process; counted if the last one failed.
func (l *locals) retryLocked(fl *flight, t TriggerRow, in time.Duration, failed bool) {
	row := *fl.row
	row.ID, row.Kind, row.Attempt, row.RetryOf = t.ID, t.Kind, t.Attempt, t.RetryOf
	if l.retries == nil {
		l.retries = map[string]func(){}
	}
	stop, err := l.s.after("durable/retry/"+t.ID, in, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.retries, t.ID)
		l.attemptLocked(row)
	})
	if err != nil {
		return
	}
	l.retries[t.ID] = stop
	if failed {
		l.s.stats.retried.Add(1)
	}
	l.s.followed(&t, in)
}

// attemptLocked starts another attempt, or holds it back as the store would: it is not
// lost to another run of its job, nor does it run while the job is paused.
func (l *locals) attemptLocked(row RunRow) {
	job, there := l.jobs[row.Job]
	switch {
	case !there || l.stopped:
	case job.Paused, !job.AllowConcurrent && l.busy[row.Job] > 0:
		l.held = append(l.held, row)
	default:
		l.startLocked(job, row)
	}
}

// releaseLocked looks at the attempts again that were held back.
func (l *locals) releaseLocked() {
	held := l.held
	l.held = nil
	for _, row := range held {
		l.attemptLocked(row)
	}
}

// broadcasts takes the broadcasts that the store has.
func (l *locals) broadcasts(ctx context.Context) (ok bool) {
	states, err := l.read(ctx)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broadcastLocked(states)
	return true
}

// prime takes note of the broadcasts from before the node's start: they are not its.
func (l *locals) prime(ctx context.Context) error {
	states, err := l.read(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.primed = false
	l.broadcastLocked(states)
	l.primed = true
	return nil
}

func (l *locals) broadcastLocked(states []JobState) {
	_, mono := l.s.host.Now()
	if l.seen == nil {
		l.seen = map[string]int64{}
	}
	for _, st := range states {
		for _, t := range st.Triggers {
			if t.State != StateBroadcast {
				continue
			}
			_, seen := l.seen[t.ID]
			l.seen[t.ID] = mono
			if seen || !l.primed || l.stopped || !l.s.registry.knows(st.Job.Handler) {
				continue
			}
			if l.jobs == nil {
				l.jobs = map[string]JobRow{}
			}
			l.jobs[st.Job.Name] = st.Job
			now, _ := l.s.host.Now()
			l.startLocked(st.Job, RunRow{
				ID: newID(now, l.s.random), Job: t.Job, Kind: KindBroadcast, ScheduledAt: t.ScheduledAt, Attempt: 1,
				IdempotencyKey: t.IdempotencyKey, Data: t.Data, Priority: t.Priority,
			})
		}
	}
	// Reads overtake each other: one that does not have a broadcast proves nothing.
	maps.DeleteFunc(l.seen, func(_ string, last int64) bool { return mono-last > int64(seenFor) })
}

// stop ends all triggers and drops the attempts to come.
func (l *locals) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for key, t := range l.triggers {
		l.drop(key, t)
	}
	for id, stop := range l.retries {
		stop()
		delete(l.retries, id)
		l.dropped(id)
	}
	for _, row := range l.held {
		l.dropped(row.ID)
	}
	l.held = nil
}

func (l *locals) dropped(id string) {
	l.s.log(slog.LevelInfo, "attempt of a job that runs on every node dropped by the stop", slog.String("run", id))
}
