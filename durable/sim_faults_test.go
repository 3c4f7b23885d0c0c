package durable_test

import (
	"context"
	"errors"
	"time"

	"github.com/taskmanager-go/taskmanager/durable"
)

// A fault is a kind of thing that the simulation does to the cluster.
type fault int

// The kinds of faults. Each must occur.
const (
	faultCrash fault = iota
	faultRestart
	faultNewCode
	faultFreeze
	faultFreezePastLease
	faultStop
	faultStoreError
	faultLostAnswer
	faultSlowRequest
	faultSlowAnswer
	faultPartition
	faultOutage
	faultWallStep
	faultDrift
	faultLateNote
	faultLostNote
	faultDoubleNote
	faultManual
	faultBroadcast
	faultCancel
	faultPauseJob
	faultPauseTrigger
	faultEditJob
	faultEditTrigger
	faultRemoveJob
	faultHandEdit
	faultHandlerError
	faultHandlerPermanent
	faultHandlerPanic
	faultHandlerGoexit
	faultHandlerSnooze
	faultHandlerRetryAfter
	faultHandlerDeaf
	faultHandlerSlow
	faults
)

var faultNames = [faults]string{
	"crash", "restart", "new code", "freeze", "freeze past lease", "graceful stop", "store error", "lost answer",
	"slow request", "slow answer", "partition", "outage", "wall step", "drift", "late note", "lost note", "double note",
	"manual trigger", "broadcast", "cancel", "pause job", "pause trigger", "edit job", "edit trigger", "remove job",
	"hand-edited row", "handler error", "handler permanent error", "handler panic", "handler goexit", "handler snooze",
	"handler retry after", "handler deaf to its context", "handler past its timeout",
}

func (f fault) String() string { return faultNames[f] }

var (
	errStore = errors.New("sim: store error")
	errGone  = errors.New("sim: the process is gone")
)

// direct marks contexts of calls by the simulation itself, which must not wait.
type direct struct{}

// A faultStore is the way from a node to the store.
type faultStore struct {
	n     *simNode
	store durable.Store
}

// call makes a call of the store, as well as the way there and back allows.
func (f *faultStore) call(ctx context.Context, what string, do func() error) error {
	n := f.n
	s := n.s
	r := n.storeRandom
	if n.killed.Load() {
		return errGone
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	roll, roll2 := r.Float64(), r.Float64()
	slow := time.Duration(1+r.Int64N(900)) * time.Millisecond
	if s.healed.Load() {
		if err := do(); err != nil {
			return err
		}
		return nil
	}
	patient := ctx.Value(direct{}) == nil && !n.stopping.Load()
	if f.cut() {
		n.faulted()
		return errStore
	}
	p := &s.profile
	switch {
	case roll < p.storeError:
		s.count(faultStoreError)
		s.note(n, "fault", what+" fails")
		n.faulted()
		return errStore
	case roll < p.storeError+p.slowRequest && patient:
		s.count(faultSlowRequest)
		s.note(n, "fault", what+" request slow")
		if err := f.wait(ctx, slow); err != nil {
			return err
		}
		if f.cut() {
			return errStore
		}
	}
	err := do()
	if err != nil && !errors.Is(err, durable.ErrNodeDead) {
		return err
	}
	switch {
	case roll2 < p.lostAnswer:
		s.count(faultLostAnswer)
		s.note(n, "fault", what+" answer lost")
		n.faulted()
		return errStore
	case roll2 < p.lostAnswer+p.slowAnswer && patient:
		s.count(faultSlowAnswer)
		s.note(n, "fault", what+" answer slow")
		if err := f.wait(ctx, slow); err != nil {
			return err
		}
		if f.cut() {
			return errStore
		}
	}
	return err
}

// cut tells whether nothing gets through.
func (f *faultStore) cut() bool {
	s := f.n.s
	now := s.nowNanos.Load()
	return !s.healed.Load() && (now < s.outageUntil.Load() || now < f.n.cutUntil.Load())
}

// wait parks a call.
func (f *faultStore) wait(ctx context.Context, d time.Duration) error {
	n := f.n
	n.faulted()
	n.slow.Add(1)
	defer n.slow.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.life, cancel)()
	err := n.clk.Sleep(ctx, d)
	n.faulted()
	if n.killed.Load() {
		return errGone
	}
	return err
}

func (f *faultStore) Shared() bool { return true }

func (f *faultStore) Claim(ctx context.Context, r durable.ClaimRequest) (res durable.ClaimResult, err error) {
	err = f.call(ctx, "claim", func() (err error) { res, err = f.store.Claim(ctx, r); return err })
	if err != nil {
		return durable.ClaimResult{}, err
	}
	return res, nil
}

func (f *faultStore) Finish(ctx context.Context, r durable.FinishRequest) (ok []bool, err error) {
	err = f.call(ctx, "finish", func() (err error) { ok, err = f.store.Finish(ctx, r); return err })
	if err != nil {
		return nil, err
	}
	return ok, nil
}

func (f *faultStore) Beat(ctx context.Context, node durable.NodeRow, ttl time.Duration) (res durable.BeatResult, err error) {
	err = f.call(ctx, "beat", func() (err error) { res, err = f.store.Beat(ctx, node, ttl); return err })
	if err != nil {
		return durable.BeatResult{}, err
	}
	return res, nil
}

func (f *faultStore) Expire(ctx context.Context, r durable.ExpireRequest) (res durable.ExpireResult, err error) {
	err = f.call(ctx, "expire", func() (err error) { res, err = f.store.Expire(ctx, r); return err })
	if err != nil {
		return durable.ExpireResult{}, err
	}
	return res, nil
}

func (f *faultStore) Edit(ctx context.Context, job string, scope durable.Scope, change func(*durable.Edit) error) error {
	return f.call(ctx, "edit", func() error { return f.store.Edit(ctx, job, scope, change) })
}

func (f *faultStore) Jobs(ctx context.Context, q durable.JobQuery) (rows []durable.JobState, err error) {
	err = f.call(ctx, "jobs", func() (err error) { rows, err = f.store.Jobs(ctx, q); return err })
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (f *faultStore) Runs(ctx context.Context, q durable.RunQuery) (rows []durable.RunRow, err error) {
	err = f.call(ctx, "runs", func() (err error) { rows, err = f.store.Runs(ctx, q); return err })
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (f *faultStore) Purge(ctx context.Context, r durable.PurgeRequest) (n int, err error) {
	err = f.call(ctx, "purge", func() (err error) { n, err = f.store.Purge(ctx, r); return err })
	return n, err
}

func (f *faultStore) Nodes(ctx context.Context) (rows []durable.NodeRow, now time.Time, err error) {
	err = f.call(ctx, "nodes", func() (err error) { rows, now, err = f.store.Nodes(ctx); return err })
	return rows, now, err
}

func (f *faultStore) Lease(ctx context.Context, name, holder string, ttl time.Duration) (row durable.LeaseRow, err error) {
	err = f.call(ctx, "lease", func() (err error) { row, err = f.store.Lease(ctx, name, holder, ttl); return err })
	if err != nil {
		return durable.LeaseRow{}, err
	}
	return row, nil
}

// A simNote is on its way to a node.
type simNote struct {
	note durable.Note
	at   int64
	to   int // slot
}

// A simWaker carries notes late, twice, or never.
type simWaker struct{ n *simNode }

func (w simWaker) Notify(_ context.Context, note durable.Note) error {
	n, s := w.n, w.n.s
	if n.killed.Load() {
		return errGone
	}
	if f := (&faultStore{n: n}); f.cut() {
		return errStore
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range s.slots {
		at := s.nowNanos.Load()
		roll := n.storeRandom.Float64()
		late := n.storeRandom.Int64N(int64(2 * time.Second))
		if !s.healed.Load() {
			switch p := s.profile.badNote; {
			case roll < p:
				s.countLocked(faultLostNote)
				continue
			case roll < 2*p:
				s.countLocked(faultLateNote)
				at += late
			case roll < 3*p:
				s.countLocked(faultDoubleNote)
				s.notes = append(s.notes, simNote{note, at + late, slot})
			}
		}
		s.notes = append(s.notes, simNote{note, at, slot})
	}
	return nil
}

func (w simWaker) Listen(f func(durable.Note)) (stop func(), err error) {
	w.n.hear = f
	return func() {}, nil
}
