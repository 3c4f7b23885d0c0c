package durable

import (
	"context"
	"encoding/json"
	"time"
)

// A Store keeps jobs, triggers, runs and nodes. It decides nothing about
// scheduling: what a due trigger leads to, and what becomes of a run, is decided
// by functions that the scheduler hands it, and it makes the answer true in one
// transaction. Package storetest has the suite that every Store passes.
//
// Instants are UTC in whole microseconds; the zero Time is "none". Rows handed out
// and taken in are values: a Store keeps no reference to them and neither does its
// caller, slices included. Rows that a Verdict or a Claimed points to change hands:
// the giver no longer touches them. Names compare byte by byte. The clock is the
// store's own (the database server's), and one for all nodes. All methods are safe
// for concurrent use, and return soon after ctx has ended.
//
// A method that returns an error may have done all or nothing, never a part: an
// answer can get lost. Functions passed in may be called again when a transaction
// has to be repeated; they must not keep what they did the first time, and must not
// call the Store.
type Store interface {
	// Claim hands due triggers to r.Plan, in order of priority (larger first),
	// then due instant, then ID, over all that is due, and makes its verdicts true.
	// If nothing is due it costs one query, but for the first time after a backlog.
	// Triggers that another node is working on at this moment are left out; while
	// there is a backlog, what others add shows within a fifth of a second.
	Claim(ctx context.Context, r ClaimRequest) (ClaimResult, error)

	// Finish ends runs, each on its own: the i-th answer tells whether the run was
	// still its node's, as End.Run.Node and the active row have it. If not, nothing
	// at all is changed on its behalf. The end of an exclusive run sets blocked
	// triggers of its job waiting, two of them, those that come first; a Claim that
	// finds triggers of such a job and runs none of them does so with the next 100.
	Finish(ctx context.Context, r FinishRequest) ([]bool, error)

	// Beat renews a node's lease until ttl from now, or registers the node. A node
	// that is dead stays dead: it needs another ID. With a ttl of 0 or less the
	// node leaves: its row is deleted if it has no active run, and else left to
	// expire.
	Beat(ctx context.Context, node NodeRow, ttl time.Duration) (BeatResult, error)

	// Expire declares nodes dead whose lease ended more than grace ago, and
	// returns what is to be seen to: see ExpireResult. Of jobs that have no active run,
	// blocked triggers are set waiting as by Finish; so are triggers in StateRunning that
	// have no active run, without a due instant if they are Paused. One-shot triggers that
	// wait without one are due now. Triggers in StateBroadcast whose DueAt has passed are
	// deleted. What others have locked is left for the next time: it waits for no editor.
	Expire(ctx context.Context, r ExpireRequest) (ExpireResult, error)

	// Edit changes one job, with its schedule triggers, in one transaction that no
	// claim, finish or edit of the same job overlaps (with EnqueueOnly, it takes no
	// locks). If change returns an error, Edit returns it and nothing is changed.
	Edit(ctx context.Context, job string, scope Scope, change func(*Edit) error) error

	// Jobs reads jobs in order of name.
	Jobs(ctx context.Context, q JobQuery) ([]JobState, error)

	// Runs reads active and ended runs, newest first: by StartedAt, then ID, both
	// falling.
	Runs(ctx context.Context, q RunQuery) ([]RunRow, error)

	// Purge deletes ended runs, at most r.Limit, those that started first, in one
	// transaction, and returns how many.
	Purge(ctx context.Context, r PurgeRequest) (int, error)

	// Nodes reads all nodes in order of ID, with the store's time now.
	Nodes(ctx context.Context) ([]NodeRow, time.Time, error)

	// Lease takes or renews the lease of that name for holder, until ttl from now;
	// with a ttl of 0 or less, holder gives it up. The token rises by one each time
	// the holder changes, and with each new term of the same holder.
	Lease(ctx context.Context, name, holder string, ttl time.Duration) (LeaseRow, error)

	// Shared tells whether other processes see the same rows.
	Shared() bool
}

// A ClaimRequest asks for due triggers.
type ClaimRequest struct {
	Node string // the claiming node's ID; a node that is unknown or dead claims nothing (ErrNodeDead)
	// Limit bounds the runs, and so the triggers looked at. With 0 nothing is
	// claimed and the result has what is due next.
	Limit    int
	Handlers []string // only triggers of these handlers are looked at
	Except   []string // IDs of triggers not to be looked at
	// Plan decides what becomes of a due trigger. Must not be nil if Limit > 0.
	Plan func(Due) Verdict
}

// A Due is a trigger that is due, with what there is to know about it.
type Due struct {
	Now     time.Time
	Trigger TriggerRow
	Job     JobRow // Name is empty if the job is gone
	// Busy tells that the job does not allow concurrency and has an active run,
	// one claimed by this very request included.
	Busy bool
}

// A Verdict is what becomes of a due trigger.
type Verdict struct {
	Leave   bool // nothing: the row stays as it is
	Delete  bool // the trigger's row goes, else it becomes Trigger
	Trigger TriggerRow
	// Run, if not nil, becomes an active run of the claiming node. The store sets
	// Node, StartedAt and Fence, which is positive, and larger than those of all the
	// job's runs whose claims had ended when this one began; for jobs that do not allow
	// concurrency, than those of all before. The row is the store's from then on, which
	// hands it out.
	Run *RunRow
	// Skipped, if not nil, is added to the ended runs. The store sets Node,
	// StartedAt and EndedAt.
	Skipped *RunRow
}

// A ClaimResult is what became of a ClaimRequest.
type ClaimResult struct {
	Now time.Time
	// Next is when the next trigger that may be looked at is due, zero if none is
	// known. If something is due now it is not after Now. It is as of before the
	// claim: ask again until nothing is due.
	Next time.Time
	// Broadcast is the largest ID of all broadcast triggers, "" without any.
	Broadcast string
	Claimed   []Claimed
	Skipped   []RunRow
	Parked    []TriggerRow // now blocked, paused or in error
}

// A Claimed is a run that is the claiming node's from now on.
type Claimed struct {
	Run *RunRow
	// Job is that of other runs of the claim, too: nobody changes it. Its Name is empty
	// if the job is gone.
	Job *JobRow
}

// A FinishRequest ends runs.
type FinishRequest struct {
	Ends []End
	// Resume gives what becomes of a trigger that waited for the end of its run
	// (RunRow.Holds), given the instant of that end. It is not called if the row is
	// no longer in StateRunning.
	Resume func(now time.Time, trigger TriggerRow) TriggerRow
}

// An End is the end of one run.
type End struct {
	// Run is the ended run. What the end adds to the active row is State, Duration,
	// Code, Message and Detail; the store sets EndedAt. ID, Job, Node, TriggerID,
	// Holds and Exclusive are as they were claimed. A Local one is a whole row.
	Run RunRow
	// Keep leaves the run active, with its new state, so that its slot stays taken:
	// for a run that a stop could not end. It is refused if the run is not RunRunning
	// any more, which is so when it has been recorded before.
	Keep bool
	// Local is for a run that was never claimed: its row is only added.
	Local bool
	// Follow, if not nil, is a trigger to be added, due FollowIn from now, or at its
	// DueAt if that is not zero and sooner. Its Handler is the job's as it is now, if
	// there still is one. It is not added if somebody wanted the run cancelled
	// (RunRow.Cancel), which the node may not know yet.
	Follow   *TriggerRow
	FollowIn time.Duration
}

// A BeatResult is what a node learns from its heartbeat.
type BeatResult struct {
	Now   time.Time
	Dead  bool // the node has been declared dead, and nothing was renewed
	Alive int  // nodes with a lease, this one included
	Runs  []OwnRun
}

// An OwnRun is an active run of the node.
type OwnRun struct {
	ID     string
	Cancel bool // somebody wants it cancelled
}

// An ExpireRequest asks for what dead nodes left behind.
type ExpireRequest struct {
	Grace time.Duration
	After string // only triggers with an ID after this one are looked at for Undue
	Limit int    // of Runs, and of the triggers looked at for Undue
}

// An ExpireResult is what there is to see to.
type ExpireResult struct {
	Now      time.Time
	Dead     []NodeRow    // declared dead now
	Runs     []RunRow     // active runs of nodes that are dead or unknown
	Undue    []TriggerRow // schedule triggers that wait without a due instant, in order of ID
	Released int          // triggers that nothing held up, and that wait for DueAt now
}

// A Scope is what an Edit sees and may change.
type Scope uint8

const (
	// EditJob loads and may change everything.
	EditJob Scope = iota
	// EnqueueOnly loads Job and the IDs of Running, without locks, and may set Add,
	// Records and Cancel only: cheap, and it holds up nobody.
	EnqueueOnly
)

// An Edit is one job in a transaction. Now, Job, Triggers and Running are loaded;
// all but Now and Running may be changed. The store gives changed rows their new
// Version, and Updated.
type Edit struct {
	Now time.Time
	// Job is nil if there is no such job. Set to nil, the job is removed with all
	// its triggers, while its runs go on.
	Job *JobRow
	// Triggers are the job's schedule triggers, in order of name. Rows may be
	// changed, added and left out.
	Triggers []TriggerRow
	// Running are the job's active runs, in order of ID; with EnqueueOnly, nothing of them
	// but the ID.
	Running []RunRow

	// Release sets all of the job's blocked triggers, and its paused ones that are
	// not paused themselves (TriggerRow.Paused), waiting.
	Release bool
	Add     []TriggerRow // one-shot triggers to be added; IDs of known triggers and active runs are ignored
	Records []RunRow     // ended runs to be added; the store sets StartedAt and EndedAt
	Cancel  []string     // active runs that are to be cancelled
	// DropAdded deletes one-shot triggers of these kinds.
	DropAdded []Kind
}

// A JobQuery selects jobs. Its zero value selects all.
type JobQuery struct {
	Names           []string // only these
	EveryNode       bool     // only those with RunOnEveryNode, and all broadcasts of these
	After           string   // only names after this one
	Limit           int      // 0 is 1,000
	WithoutTriggers bool     // leaves Triggers empty
	WithoutRuns     bool     // leaves Running empty
}

// A JobState is a job with its triggers and active runs.
type JobState struct {
	Job JobRow
	// Triggers in order of name: schedule triggers, then one-shot ones, at most
	// 100 of these; broadcasts do not count if the query is for EveryNode.
	Triggers []TriggerRow
	Running  []RunRow // in order of ID
}

// A RunQuery selects runs. Fields that are zero select all. A query by IDs, Job, From or
// Before goes to what it selects; one by Node, Trigger or States alone reads the history from
// its end until Limit is met, all of it if there are fewer: give it a From.
type RunQuery struct {
	IDs      []string
	Job      string
	Trigger  string
	States   []RunState
	Node     string
	From, To time.Time // StartedAt in [From, To)
	Before   RunKey    // only runs that come after this one in the order
	Limit    int       // 0 is 100, at most 1,000
}

// A RunKey is a place in the order of runs. The zero value is before the first.
type RunKey struct {
	StartedAt time.Time
	ID        string
}

// A PurgeRequest selects ended runs to be deleted: those of IDs, or those that
// ended more than OlderThan ago.
type PurgeRequest struct {
	IDs       []string
	OlderThan time.Duration
	Before    time.Time // used instead of OlderThan if not zero
	Limit     int       // 0 is 5,000
}

// A JobRow is a job as it is stored.
type JobRow struct {
	Name             string
	Group            string
	Description      string
	Handler          string
	Data             json.RawMessage // a JSON object, nil for none
	Retry            Retry
	Timeout          time.Duration
	AllowConcurrent  bool
	RunOnEveryNode   bool
	RequestsRecovery bool
	Paused           bool
	Source           Source
	CodeHash         string // of the last definition in code, "" without one
	Version          int64
	Created, Updated time.Time
}

// A Source says where a job came from.
type Source string

// The sources.
const (
	SourceCode Source = "code" // AddJob before Start
	SourceAPI  Source = "api"  // AddJob at run time
)

// A TriggerRow is a trigger as it is stored: one with a schedule, or a one-shot one
// that leads to one run and is gone.
type TriggerRow struct {
	ID          string // 26 letters and digits; of a one-shot trigger, also its run's
	Job         string
	Name        string // unique in the job
	Handler     string // the job's, copied
	Kind        Kind   // of the runs it leads to
	Description string
	Schedule    string // canonical text; empty for one-shot triggers
	Data        json.RawMessage
	Priority    int // 0 to 10
	Misfire     Misfire
	MaxCatchUp  int // for RunAll, 0 for all
	State       TriggerState
	Paused      bool   // by itself, not with its job
	Reason      string // why it is blocked, paused, complete, in error, or left alone by a node
	DueAt       time.Time
	PrevAt      time.Time // ScheduledAt of its last run
	Fired       int64     // runs it has led to, without retries
	Passed      int64     // firings that a misfire policy passed over
	Version     int64

	// Of one-shot triggers:
	Origin         string // name of the trigger that led to the first run
	ScheduledAt    time.Time
	Attempt        int
	RetryOf        string
	IdempotencyKey string
}

// OneShot tells whether the trigger leads to one run and is gone.
func (t *TriggerRow) OneShot() bool { return t.Kind != KindSchedule }

// A TriggerState is where a trigger stands. Only triggers in StateWaiting are
// claimed.
type TriggerState uint8

// The states. Their numbers are stored.
const (
	StateWaiting  TriggerState = iota // for DueAt
	StateRunning                      // for the end of its own run
	StateBlocked                      // for the end of another run of its job
	StatePaused                       // for Resume
	StateComplete                     // never due again
	StateError                        // for somebody to mend it
	// StateBroadcast is that of one-shot triggers that every node takes for itself,
	// until DueAt.
	StateBroadcast
	StateLocal // every node keeps its own time for it
)

// A Kind says what led to a run. Its number is stored.
type Kind uint8

// The kinds.
const (
	KindSchedule Kind = iota
	KindManual
	KindRetry
	KindRecovery
	KindBroadcast
)

// A Misfire is what becomes of a firing that is taken too late. Its number is
// stored.
type Misfire uint8

// The misfire policies.
const (
	MisfireDefault Misfire = iota // the scheduler's
	RunOnce                       // one run now, then the next from now
	Skip                          // no run, then the next from now
	RunAll                        // each at its own instant, one after the other
)

// A RunState is where a run stands. Its number is stored.
type RunState uint8

// The states. All but RunRunning are final; an interrupted run may still take its
// slot.
const (
	RunRunning RunState = iota
	RunSucceeded
	RunFailed
	RunCancelled
	RunLost
	RunInterrupted
	RunSkipped
	RunSnoozed
)

// A RunRow is a run as it is stored: active, or ended.
type RunRow struct {
	ID             string
	Job            string
	Trigger        string // the trigger's name, "" by hand
	Kind           Kind
	State          RunState
	ScheduledAt    time.Time
	StartedAt      time.Time
	EndedAt        time.Time // zero while active
	Duration       time.Duration
	Node           string
	Attempt        int
	RetryOf        string
	IdempotencyKey string
	Data           json.RawMessage
	Priority       int
	Fence          int64
	Passed         int64 // firings: those a skipped one tells of, or a misfired one stands for
	Code           Code
	Message        string
	Detail         string

	// Of active runs:
	TriggerID string
	Holds     bool // the trigger waits for the run's end
	Exclusive bool // the job did not allow concurrency at the claim
	Recover   bool // the job requests recovery
	Cancel    bool // somebody wants it cancelled
}

// Key is the run's place in the order of runs.
func (r *RunRow) Key() RunKey { return RunKey{r.StartedAt, r.ID} }

// A NodeRow is a node as it is stored.
type NodeRow struct {
	ID         string
	Name       string
	StartedAt  time.Time
	Heartbeat  time.Time
	LeaseUntil time.Time
	Dead       bool
}

// A LeaseRow is a lease as it is stored. Holder is empty if nobody has it.
type LeaseRow struct {
	Name   string
	Holder string
	Token  int64
	Until  time.Time
}
