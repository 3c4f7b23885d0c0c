package durable_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/taskmanager-go/taskmanager/cronsched"
	"github.com/taskmanager-go/taskmanager/durable"
)

// definitions are the jobs of one seed.
type definitions struct {
	slots int // of each node
	jobs  []durable.Job
	local bool
}

// simEvery are the periods of cron triggers; all divide a minute.
var simEvery = []int{1, 1, 2, 2, 3, 4, 6}

func cronEvery(n int) cronsched.Schedule {
	return cronsched.MustParse(fmt.Sprintf("cron */%d * * * * * tz=UTC", n))
}

func pick[T any](r *rand.Rand, l []T) T { return l[r.IntN(len(l))] }

func randomTrigger(r *rand.Rand, name string) durable.Trigger {
	t := durable.Trigger{Name: name, Schedule: cronEvery(pick(r, simEvery)), Priority: r.IntN(11)}
	t.Misfire = durable.Misfire(r.IntN(4))
	if t.Misfire == durable.RunAll {
		t.MaxCatchUp = r.IntN(3) * 2
	}
	return t
}

func everyTrigger(r *rand.Rand) durable.Trigger {
	text := fmt.Sprintf("every 00:00:%02d", 1+r.IntN(3))
	if r.IntN(2) == 0 {
		text += fmt.Sprintf(" x%d", 2+r.IntN(8))
	}
	return durable.Trigger{Name: "every", Schedule: cronsched.MustParse(text), Misfire: durable.Misfire(r.IntN(4))}
}

func randomRetry(r *rand.Rand) durable.Retry {
	if r.IntN(3) == 0 {
		return durable.Retry{}
	}
	retry := durable.Retry{MaxRetries: 1 + r.IntN(3), Delay: time.Duration(100+r.IntN(900)) * time.Millisecond, Jitter: r.IntN(2) == 0}
	if retry.Exponential = r.IntN(2) == 0; retry.Exponential {
		retry.MaxDelay = 2 * time.Second
	}
	return retry
}

func newDefinitions(r *rand.Rand) definitions {
	d := definitions{slots: 2 + r.IntN(3), local: r.IntN(2) == 0}
	timeout := func() time.Duration {
		if r.IntN(2) == 0 {
			return 0
		}
		return time.Duration(600+r.IntN(1000)) * time.Millisecond
	}
	job := func(name string, triggers ...durable.Trigger) durable.Job {
		return durable.Job{
			Name: name, Handler: "h", Triggers: triggers, Retry: randomRetry(r), Timeout: timeout(),
			RequestsRecovery: r.IntN(2) == 0, Data: map[string]int{"x": 1},
		}
	}
	solo := job("solo", randomTrigger(r, "a"))
	two := job("two", randomTrigger(r, "a"), randomTrigger(r, "b"))
	par := job("par", randomTrigger(r, "a"))
	par.AllowConcurrent = true
	every := job("every", everyTrigger(r))
	hand := job("hand")
	d.jobs = []durable.Job{solo, two, par, every, hand}
	if d.local {
		local := job("local", durable.Trigger{Name: "a", Schedule: cronEvery(pick(r, simEvery))})
		local.RunOnEveryNode, local.RequestsRecovery = true, false
		d.jobs = append(d.jobs, local)
	}
	return d
}

// register makes the jobs known to a node that has not started.
func (d *definitions) register(n *simNode) {
	must := func(err error) {
		if err != nil {
			n.s.t.Fatalf("sim: %v", err)
		}
	}
	must(durable.Handle(n.sched, "h", n.handle))
	for _, j := range d.jobs {
		must(n.sched.AddJob(context.Background(), j))
	}
}

// newVersion changes the code of nodes that start from now on.
func (d *definitions) newVersion(r *rand.Rand) {
	d.jobs = append([]durable.Job(nil), d.jobs...)
	j := &d.jobs[r.IntN(3)]
	*j = changed(r, *j)
}

// changed is another definition of a job.
func changed(r *rand.Rand, j durable.Job) durable.Job {
	j.Triggers = append([]durable.Trigger(nil), j.Triggers...)
	for i := range j.Triggers {
		if t := &j.Triggers[i]; r.IntN(2) == 0 {
			*t = randomTrigger(r, t.Name)
		}
	}
	j.Retry = randomRetry(r)
	if r.IntN(3) == 0 {
		j.AllowConcurrent = !j.AllowConcurrent
	}
	if r.IntN(3) == 0 {
		j.RequestsRecovery = !j.RequestsRecovery
	}
	return j
}

// operate is what people do before a step.
func (s *sim) operate() {
	p, r := &s.profile, s.random
	var up []*simNode
	for _, n := range s.slots {
		if n.up() && !n.frozen && !n.stopping.Load() {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return
	}
	n := pick(r, up)
	ctx := s.direct()
	job := pick(r, s.def.jobs)
	say := func(what string, err error) {
		text := what + " " + job.Name
		if err != nil {
			text += ": error"
		}
		s.note(n, "operator", text)
	}
	if s.happens(p.manual) {
		if r.IntN(2) == 0 {
			job.Name = "hand"
		}
		s.count(faultManual)
		if job.RunOnEveryNode {
			s.count(faultBroadcast)
		}
		id, err := n.sched.Trigger(ctx, job.Name, map[string]int{"y": 2})
		s.audit.triggered(job, id, err)
		say("triggers "+id, err)
	}
	if s.happens(p.cancel) {
		s.count(faultCancel)
		_, err := n.sched.Cancel(ctx, job.Name)
		say("cancels", err)
	}
	if s.happens(p.pause) {
		s.count(faultPauseJob)
		if r.IntN(2) == 0 {
			say("pauses", n.sched.PauseJob(ctx, job.Name))
		} else {
			say("resumes", n.sched.ResumeJob(ctx, job.Name))
		}
	}
	if s.happens(p.pause) {
		s.count(faultPauseTrigger)
		if r.IntN(2) == 0 {
			say("pauses trigger of", n.sched.PauseTrigger(ctx, job.Name, "a"))
		} else {
			say("resumes trigger of", n.sched.ResumeTrigger(ctx, job.Name, "a"))
		}
	}
	if s.happens(p.edit) && job.Name != "every" && job.Name != "hand" && !job.RunOnEveryNode {
		s.count(faultEditJob)
		say("replaces", n.sched.ReplaceJob(ctx, changed(r, job)))
	}
	if s.happens(p.edit) {
		s.count(faultEditTrigger)
		t := randomTrigger(r, "extra")
		switch r.IntN(3) {
		case 0:
			say("adds trigger to", n.sched.AddTrigger(ctx, job.Name, t))
		case 1:
			say("replaces trigger of", n.sched.ReplaceTrigger(ctx, job.Name, t))
		case 2:
			say("removes trigger of", n.sched.RemoveTrigger(ctx, job.Name, "extra"))
		}
	}
	if s.happens(p.remove) {
		s.count(faultRemoveJob)
		job = durable.Job{Name: "api", Handler: "h", Retry: randomRetry(r), RequestsRecovery: true, Triggers: []durable.Trigger{randomTrigger(r, "a")}}
		if r.IntN(2) == 0 {
			say("removes", n.sched.RemoveJob(ctx, "api"))
		} else {
			say("adds", n.sched.AddJob(ctx, job))
		}
	}
	if s.happens(p.hand) && !job.RunOnEveryNode {
		s.count(faultHandEdit)
		say("takes the due time off", (&auditStore{Store: s.audit.store, a: s.audit}).Edit(ctx, job.Name, durable.EditJob, func(e *durable.Edit) error {
			if e.Job == nil {
				return durable.ErrNotFound
			}
			for i := range e.Triggers {
				if t := &e.Triggers[i]; t.State == durable.StateWaiting {
					t.DueAt = time.Time{}
				}
			}
			return nil
		}))
	}
}

// resumeAll ends all pauses.
func (d *definitions) resumeAll(n *simNode) { d.forAll(n, false) }

// pauseTriggers has nothing be due any more.
func (d *definitions) pauseTriggers(n *simNode) { d.forAll(n, true) }

func (d *definitions) forAll(n *simNode, pause bool) {
	s := n.s
	ctx := s.direct()
	must := func(err error) {
		if err != nil {
			s.audit.fail("control", "a call fails although the store answers: %v", err)
		}
	}
	states, err := s.mem.Jobs(ctx, durable.JobQuery{})
	must(err)
	for _, st := range states {
		if st.Job.Paused {
			must(n.sched.ResumeJob(ctx, st.Job.Name))
		}
		for _, t := range st.Triggers {
			switch {
			case t.OneShot():
			case pause:
				must(n.sched.PauseTrigger(ctx, t.Job, t.Name))
			case t.Paused:
				must(n.sched.ResumeTrigger(ctx, t.Job, t.Name))
			}
		}
	}
}

// An outcome is what a handler does in the end.
type outcome int

const (
	outSuccess outcome = iota
	outError
	outPermanent
	outPanic
	outGoexit
	outSnooze
	outRetryAfter
)

// A script is what the handler of one run does.
type script struct {
	lasts   time.Duration
	deaf    time.Duration // how long it goes on after its context has ended
	reacts  time.Duration // how long it takes to come to its end then
	outcome outcome
	excuse  bool // it returns its context's cause, if that has ended
}

// script follows from the run's ID and the seed alone.
func (s *sim) script(run durable.Run) script {
	h := fnv.New64a()
	h.Write([]byte(run.ID))
	r := rand.New(rand.NewPCG(s.seed, h.Sum64()))
	if s.healed.Load() {
		return script{lasts: time.Duration(r.IntN(200)) * time.Millisecond, reacts: time.Millisecond}
	}
	sc := script{lasts: time.Duration(r.IntN(1200)) * time.Millisecond, reacts: time.Duration(1+r.IntN(60)) * time.Millisecond, excuse: r.IntN(3) > 0}
	if r.IntN(5) == 0 {
		sc.lasts *= 4
	}
	if r.IntN(4) == 0 {
		sc.lasts = 0
	}
	if r.Float64() < s.profile.badHandler {
		sc.outcome = outcome(r.IntN(int(outRetryAfter) + 1))
	}
	if r.Float64() < s.profile.badHandler/4 {
		s.count(faultHandlerDeaf)
		sc.deaf = time.Duration(r.IntN(2000)) * time.Millisecond
		if r.IntN(4) == 0 {
			sc.deaf *= 5
		}
	}
	return sc
}

var errSim = errors.New("sim: the handler fails")

// handle is the handler of all runs.
func (n *simNode) handle(ctx context.Context, run durable.Run, _ struct{}) error {
	s := n.s
	sc := s.script(run)
	h := s.audit.began(n, run, ctx, sc)
	err := n.clk.Sleep(ctx, sc.lasts)
	if n.killed.Load() {
		return errGone
	}
	// Runs whose contexts end at once go on in a fixed order.
	if ctx.Err() != nil {
		s.audit.told(h)
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(n.life, cancel)
		_ = n.clk.Sleep(life, sc.reacts+sc.deaf+time.Duration(h.number)*time.Nanosecond)
		stop()
		cancel()
		if n.killed.Load() {
			return errGone
		}
		if sc.excuse {
			s.audit.left(h, outError)
			return context.Cause(ctx)
		}
		err = nil
	}
	if err != nil { // the clock was closed
		return errGone
	}
	s.audit.left(h, sc.outcome)
	switch sc.outcome {
	case outError:
		s.count(faultHandlerError)
		return errSim
	case outPermanent:
		s.count(faultHandlerPermanent)
		return durable.Permanent(errSim)
	case outPanic:
		s.count(faultHandlerPanic)
		panic("sim")
	case outGoexit:
		s.count(faultHandlerGoexit)
		runtime.Goexit()
	case outSnooze:
		s.count(faultHandlerSnooze)
		return durable.Snooze(300 * time.Millisecond)
	case outRetryAfter:
		s.count(faultHandlerRetryAfter)
		return errors.Join(errSim, durable.RetryAfter(200*time.Millisecond))
	}
	return nil
}

var outcomeNames = [...]string{"success", "error", "permanent error", "panic", "goexit", "snooze", "retry after"}
