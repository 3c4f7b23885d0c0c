package storetest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// The size of the race.
const (
	raceClaimers = 8
	raceJobs     = 10 // every other one exclusive
	raceTriggers = 4  // of each job
	raceFirings  = 5  // of each trigger
	raceAdded    = 6  // one-shot triggers of each job
	raceRuns     = raceJobs * (raceTriggers*raceFirings + raceAdded)
	racePatience = 2 * time.Minute // of wall-clock time, for a store that is stuck
)

// A race is what the claimers see, and judge together.
type race struct {
	*world
	mu      sync.Mutex
	claimed map[string]bool           // firings
	running map[string]int            // by exclusive job
	fence   map[string]int64          // the last one, by exclusive job
	fences  map[string]map[int64]bool // by job
	done    int
}

// raceTest has eight nodes claim and finish at the same time, beside edits.
func raceTest(t *testing.T, open Open) {
	r := &race{
		world: newWorld(t, open), claimed: map[string]bool{},
		running: map[string]int{}, fence: map[string]int64{}, fences: map[string]map[int64]bool{},
	}
	for i := range raceJobs {
		name := fmt.Sprint("job-", i)
		r.job(name, func(j *durable.JobRow) { j.AllowConcurrent = i%2 == 0 })
		r.fences[name] = map[int64]bool{}
		for k := range raceTriggers {
			r.trigger(name, fmt.Sprint("t", k), r.in(-time.Hour), priority(k), func(t *durable.TriggerRow) {
				if k == 0 {
					every(t)
				}
			})
		}
	}
	limit := time.Now().Add(racePatience)
	var wg sync.WaitGroup
	for i := range raceClaimers {
		wg.Go(func() { r.claimer(fmt.Sprint("node-", i), rand.New(rand.NewPCG(1, uint64(i))), limit) })
	}
	wg.Go(func() { r.editor(rand.New(rand.NewPCG(2, 0))) })
	wg.Wait()
	r.judge()
}

// claimer claims and finishes until all is done.
func (r *race) claimer(node string, random *rand.Rand, limit time.Time) {
	if _, err := r.store.Beat(r.ctx, durable.NodeRow{ID: node, Name: node}, time.Hour); err != nil {
		r.Errorf("Beat = %v, want nil", err)
		return
	}
	for !r.over() {
		if time.Now().After(limit) {
			r.Errorf("%s: not all was claimed within %v", node, racePatience)
			return
		}
		if random.IntN(8) == 0 {
			if _, err := r.store.Expire(r.ctx, durable.ExpireRequest{Limit: 10}); err != nil {
				r.Errorf("Expire = %v, want nil", err)
				return
			}
		}
		res, err := r.store.Claim(r.ctx, durable.ClaimRequest{Node: node, Limit: 1 + random.IntN(5), Handlers: []string{"h"}, Plan: r.racePlan})
		if err != nil {
			r.Errorf("Claim = %v, want nil", err)
			return
		}
		var es []durable.End
		for _, c := range res.Claimed {
			r.began(*c.Run)
			es = append(es, ended(*c.Run))
		}
		runtime.Gosched()
		for _, e := range es {
			r.ending(e.Run)
		}
		own, err := r.store.Finish(r.ctx, durable.FinishRequest{Ends: es, Resume: raceResume})
		if err != nil {
			r.Errorf("Finish = %v, want nil", err)
			return
		}
		for i, ok := range own {
			if !ok {
				r.Errorf("Finish of %q = false, want true", es[i].Run.ID)
			}
		}
		r.mu.Lock()
		r.done += len(es)
		r.mu.Unlock()
	}
}

func (r *race) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done >= raceRuns || r.Failed()
}

// racePlan has each trigger fire as often as it should.
func (r *race) racePlan(d durable.Due) durable.Verdict {
	v := r.plan(d)
	if v.Run != nil && !v.Delete && v.Trigger.Fired == raceFirings {
		v.Trigger.State, v.Trigger.DueAt, v.Run.Holds = durable.StateComplete, time.Time{}, false
	}
	return v
}

// raceResume has a trigger due at its next instant, which is long past.
func raceResume(_ time.Time, t durable.TriggerRow) durable.TriggerRow {
	t.State = durable.StateWaiting
	return t
}

// began takes note of a run that was claimed.
func (r *race) began(run durable.RunRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	firing := fmt.Sprint(run.TriggerID, " at ", run.ScheduledAt.UnixMicro())
	if r.claimed[firing] {
		r.Errorf("firing %s was claimed twice", firing)
	}
	r.claimed[firing] = true
	if r.fences[run.Job][run.Fence] {
		r.Errorf("fence %d of %s was given twice", run.Fence, run.Job)
	}
	r.fences[run.Job][run.Fence] = true
	if !run.Exclusive {
		return
	}
	if r.running[run.Job]++; r.running[run.Job] > 1 {
		r.Errorf("%s has %d active runs, want 1", run.Job, r.running[run.Job])
	}
	if run.Fence <= r.fence[run.Job] {
		r.Errorf("fence of %s = %d after %d, want it to rise", run.Job, run.Fence, r.fence[run.Job])
	}
	r.fence[run.Job] = run.Fence
}

// ending takes note of a run whose end the store is about to be told.
func (r *race) ending(run durable.RunRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run.Exclusive {
		r.running[run.Job]--
	}
}

// editor adds one-shot triggers and edits jobs, in the midst of claims.
func (r *race) editor(random *rand.Rand) {
	for i := range raceJobs * raceAdded {
		name := fmt.Sprint("job-", i%raceJobs)
		one := r.oneShot(name, r.in(-time.Minute), priority(random.IntN(11)))
		err := r.store.Edit(r.ctx, name, durable.EnqueueOnly, func(e *durable.Edit) error {
			e.Add = []durable.TriggerRow{one}
			return nil
		})
		if err == nil {
			err = r.store.Edit(r.ctx, name, durable.EditJob, func(e *durable.Edit) error {
				e.Job.Description = fmt.Sprint("edit ", i)
				e.Triggers[random.IntN(len(e.Triggers))].Description = e.Job.Description
				e.Release = i%3 == 0
				return nil
			})
		}
		if err != nil {
			r.Errorf("Edit = %v, want nil", err)
			return
		}
	}
}

// judge looks at what is left.
func (r *race) judge() {
	r.want("firings claimed", len(r.claimed), raceRuns)
	for _, s := range r.jobs(durable.JobQuery{}) {
		r.want("active runs of "+s.Job.Name, len(s.Running), 0)
		r.want("triggers of "+s.Job.Name, len(s.Triggers), raceTriggers)
		for _, t := range s.Triggers {
			if t.State != durable.StateComplete || t.Fired != raceFirings {
				r.Errorf("trigger %q of %s is in state %d after %d firings, want %d after %d",
					t.Name, s.Job.Name, t.State, t.Fired, durable.StateComplete, raceFirings)
			}
		}
	}
	r.want("ended runs", len(r.dump().Runs), raceRuns)
}
