package onlyonce

import (
	"context"
	"time"
	"unicode/utf8"
)

// Store keeps records and decides, one key at a time, who may run. It is all
// that a new backend has to implement; package storetest examines one.
//
// Refusals are values: a lost claim, a fenced write are ordinary results.
// Errors mean that the store failed, and say how far it got: ErrConflict (a
// concurrent statement won, nothing happened, repeat it), ErrUncertain (it may
// have happened, repeat it with the same attempt token), anything else (it did
// not happen).
//
// Every method is one atomic step. Durations go in, the store's own clock
// makes times of them and judges them. Every write after the claim names fence
// and attempt token, and changes nothing when they no longer match; all writes
// may be repeated with the same arguments. Methods are safe for concurrent use
// by any number of goroutines and processes.
type Store interface {
	// Features says what the store promises beyond the rules common to all.
	Features() Features

	// Claim makes one attempt the owner of the key, or says why not. See
	// Verdict for what each answer means and in which order they are decided.
	Claim(ctx context.Context, req ClaimRequest) (Claim, error)

	// Renew makes the lease end that long from now. It returns false when the
	// owner has lost the key, or the key is no longer in progress.
	Renew(ctx context.Context, owner Owner, lease time.Duration) (bool, error)

	// Complete stores the answer: in_progress or in_doubt → completed. The
	// lease is not looked at: only a later claim ends an owner's right.
	Complete(ctx context.Context, owner Owner, answer Answer) (Settled, error)

	// Release frees the key: in_progress → failed_retryable. It is called only
	// with proof that no effect happened that is not recorded as a step. The
	// record then lives for its retention; where this life has steps that are
	// begun or done, for FreedStepRetention at least, since a new life would
	// begin without them.
	Release(ctx context.Context, owner Owner, reason string) (bool, error)

	// Park puts the key in doubt: in_progress → in_doubt. Fence and token stay,
	// so that the doubted attempt's own late completion still counts.
	Park(ctx context.Context, park ParkRequest) (bool, error)

	// Get reads a record; false if there is none or it has expired.
	Get(ctx context.Context, key Key) (Record, bool, error)

	// Sweep does one bounded batch of housekeeping; see SweepRequest. What it has
	// done counts beside an error.
	Sweep(ctx context.Context, req SweepRequest) (SweepResult, error)
}

// FreedStepRetention is how long a freed key with finished steps is kept at the
// least: as long as steps are by default.
const FreedStepRetention = 90 * 24 * time.Hour

// Features says what a store promises. What it does not promise, storetest
// skips by name.
type Features struct {
	// Name is the store's name in messages: "memory", "sqlite", "postgres".
	Name string
	// SingleProcess: records are seen by this process alone.
	SingleProcess bool
	// Durable: what a method has confirmed survives a crash of everything.
	Durable bool
	// Transactions: the store is a TxStore.
	Transactions bool
	// Steps: the store is a StepStore.
	Steps bool
	// Resources: claims may name a resource. Where it is false they are refused.
	Resources bool
	// Recovery: the store is a RecoveryStore.
	Recovery bool
	// Settings: the store is a SettingStore.
	Settings bool
	// Operators: the store is an OperatorStore.
	Operators bool
	// SeesUncommitted: a request that differs from an atomic attempt still
	// under way is told so (422) rather than that the key is busy (409).
	SeesUncommitted bool
	// Observes: the store has no clock, or several, so that a lease is not
	// judged by the time it was written with. A handle takes a key over only after
	// it has seen the same fence and the same renewal for a whole lease by its own
	// monotonic clock (rule C4); its own claims and renewals count as seen. A
	// handle that meets a key for the first time is told that it is busy, however
	// old the claim. Clocks of several machines decide about retention alone.
	Observes bool
	// CommitDecides: transactions of one key may run side by side, and only at
	// the commit all but one of them are rolled back (ErrConflict; rule C1). A
	// duplicate of one that is still open is not told that the key is busy.
	CommitDecides bool
}

// ClaimRequest asks for a key.
type ClaimRequest struct {
	Key Key
	// Operation is the key's for as long as its life lasts: one that is resumed
	// keeps what it began with.
	Operation   string
	Fingerprint Fingerprint
	// Attempt is this attempt's token; repeating a claim with the same token
	// finds the claim it made.
	Attempt Token
	// Lease must be positive: a claim without an end cannot be made.
	Lease time.Duration
	// Retention counts from completion.
	Retention time.Duration
	// Abandon is recorded, and with the record's own says whether an attempt
	// whose lease is over may be taken over: they must be the same, and not
	// AbandonHold.
	Abandon Abandon
	// Resolve claims a key in doubt, to settle it.
	Resolve bool
	// Doubt is the fence of the doubt that is to be resolved, as it was seen; 0:
	// whichever there is. Another one, which somebody has left meanwhile, is Doubtful:
	// what was decided about the first need not hold for it.
	Doubt int64
	// Resource is what the operation works on, within the key's scope; empty:
	// nothing. At most one key of the scope holds a resource (rule C12): from
	// its claim until it is completed or freed. A key that is freed behind a
	// step that is begun or done holds on, since money may have moved. A resumed
	// life that has a resource keeps it, whatever this says: a deploy that names it
	// otherwise must not let it go.
	Resource string
	// Keep is what somebody else needs to run the operation again without its
	// caller (rule D6); nil: nothing is kept. It is kept until the key is
	// completed, or freed without a step that is begun or done; a resumed life
	// keeps what it has. Only a RecoveryStore keeps it.
	Keep []byte
}

// Validate refuses what no store may accept: a claim whose lease never ends, or
// a key over its limits. Every store calls it first.
func (r ClaimRequest) Validate() error {
	if r.Lease <= 0 || r.Retention <= 0 {
		return configError("ClaimRequest", "needs a positive lease and retention, got %v and %v", r.Lease, r.Retention)
	}
	if !validResource(r.Resource) {
		return configError("ClaimRequest.Resource", "must have at most %d printable characters", maxResource)
	}
	return r.Key.Validate()
}

// ValidateAtomic refuses what a claim inside a transaction cannot have: nobody
// would see who holds a resource, and a crash leaves nothing to resume.
func (r ClaimRequest) ValidateAtomic() error {
	if r.Resource != "" || r.Keep != nil {
		return configError("ClaimRequest", "in atomic mode neither a resource nor a request can be kept: the transaction's own locks guard what it writes")
	}
	return nil
}

// maxResource is the longest name of a resource, in bytes.
const maxResource = 255

func validResource(name string) bool {
	return len(name) <= maxResource && !hasControl(name) && utf8.ValidString(name)
}

// Verdict is what became of a claim. A store decides in this order: absent or
// expired (Won), the same attempt token (Won, or Replay once completed),
// another fingerprint (Mismatch), then by state, and last by its resource.
type Verdict uint8

// The verdicts. Only Won and Resumed make the caller the owner.
const (
	// Won: a new life of the key begins; fence and origin are new.
	Won Verdict = iota + 1
	// Resumed: an earlier attempt of the same life was taken over, freed or is
	// being resolved; the fence has risen, finished steps stand.
	Resumed
	// Replay: completed; the record holds the answer.
	Replay
	// Busy: an attempt owns the key. The record may be empty when the owner's
	// claim is not committed yet.
	Busy
	// Mismatch: the fingerprint or its version differs. Nothing was changed.
	Mismatch
	// Doubtful: the key is in doubt, and the claim did not ask to resolve it.
	Doubtful
	// Abandoned: the lease is over, but the key may not be taken over.
	Abandoned
	// ResourceBusy: the key could be claimed, but another one holds its
	// resource; Claim.Record is the holder's. Nothing was changed.
	ResourceBusy
)

// Owns tells whether the verdict makes the claimer the owner.
func (v Verdict) Owns() bool { return v == Won || v == Resumed }

// String is the verdict's name.
func (v Verdict) String() string {
	names := [...]string{"none", "won", "resumed", "replay", "busy", "mismatch", "doubtful", "abandoned", "resource busy"}
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

// Claim is the result of asking for a key.
type Claim struct {
	Verdict Verdict
	// From is the state the key was in before it was Resumed; else empty. A
	// repeated claim is told the same.
	From State
	// Record is the key's record after the claim.
	Record Record
	// Remaining is how much is left by the store's clock: for Replay of the
	// answer's retention, else of the owner's lease. See Record.Remaining.
	Remaining time.Duration
}

// Settled is the result of completing a key.
type Settled struct {
	// Held is false when the owner has lost the key and nothing was changed.
	Held bool
	// Earlier is for CompleteTx alone, with Held false: the owner has not lost the
	// key, an earlier transaction of its own has completed it.
	Earlier bool
	// ExpiresAt is when the stored answer expires, by the store's clock.
	ExpiresAt time.Time
}

// ParkRequest puts a key in doubt.
type ParkRequest struct {
	Owner  Owner
	Reason string
	// LeaseOver parks somebody else's attempt, and only if its lease is over
	// by the store's clock.
	LeaseOver bool
}

// SweepRequest bounds one batch of housekeeping: expired completed and
// failed_retryable records are deleted, abandoned attempts are decided as a
// takeover would decide them, steps that outlived their retention go.
type SweepRequest struct {
	// Limit is how many rows of each kind one call may touch.
	Limit int
	// Grace is how long a lease must have been over before a sweeper decides.
	Grace time.Duration
	// StepRetention is how long steps are kept after their last change, and in
	// any case for as long as their key's life lasts.
	StepRetention time.Duration
}

// Validate refuses what would decide about attempts that are alive, or never end.
// Every store calls it first.
func (r SweepRequest) Validate() error {
	if r.Limit <= 0 || r.Grace < 0 || r.StepRetention < 0 {
		return configError("SweepRequest", "needs a positive Limit, and neither a negative Grace nor StepRetention, got %d, %v and %v", r.Limit, r.Grace, r.StepRetention)
	}
	return nil
}

// SweepResult is what one batch did.
type SweepResult struct {
	// Busy: another sweeper is at work; nothing was done.
	Busy bool
	// Deleted counts records, Freed and Parked decided attempts, Steps deleted
	// steps.
	Deleted, Freed, Parked, Steps int
	// More: a limit was reached, so another call has work to do.
	More bool
}

// TxStore is a Store whose records live beside business data: claim, business
// write and answer can share one transaction. Tx is the driver's transaction.
type TxStore[Tx any] interface {
	Store

	// Atomic claims the key, runs fn and completes in one transaction. When
	// the claim is not won, fn does not run and nothing is changed. When fn
	// returns a nil answer or an error, everything is rolled back. A commit
	// whose reply is lost returns ErrUncertain: repeating Atomic with the same
	// attempt token finds the answer (Replay of its own token) or runs again.
	// fn must not commit, must not keep tx, and must do nothing that a
	// rollback does not undo.
	Atomic(ctx context.Context, req ClaimRequest, fn TxFunc[Tx]) (Claim, Settled, error)

	// Finish runs fn and completes the owner's key with its answer in one
	// transaction; when the owner has lost the key, it is rolled back and
	// Settled.Held is false. When an earlier Finish of this owner committed,
	// fn does not run, or its writes are rolled back, and Held is true.
	Finish(ctx context.Context, owner Owner, fn TxFunc[Tx]) (Settled, error)

	// CompleteTx completes the owner's key in the caller's own transaction.
	// When Held is false the caller must roll back. So it is also when the owner
	// has completed the key before, as after a commit whose reply was lost: what
	// this transaction has written is there already. Settled.Earlier tells the two
	// apart.
	CompleteTx(ctx context.Context, tx Tx, owner Owner, answer Answer) (Settled, error)

	// StepTx runs fn and records its result as that of a step that is done, in
	// one transaction. When the step is done already, fn does not run, or its
	// writes are rolled back, and the recorded result is returned. held is false,
	// and nothing is changed, unless the owner holds the key in progress and
	// nothing else is recorded under the step's name. An error of fn rolls back
	// and comes back as it is. Stores without steps need not implement it.
	StepTx(ctx context.Context, owner Owner, step TxStep, fn TxStepFunc[Tx]) (result []byte, held bool, err error)
}

// TxStep names a step whose effect is in the store's own database.
type TxStep struct {
	Name       string
	Occurrence int
}

// ProviderStore is recorded as the provider of such steps. They have no derived
// key, no reference and no request.
const ProviderStore = "store"

// TxStepFunc is a step's code inside a store's transaction.
type TxStepFunc[Tx any] func(ctx context.Context, tx Tx) (result []byte, err error)

// TxFunc is business code that runs inside a store's transaction.
type TxFunc[Tx any] func(ctx context.Context, tx Tx) (*Answer, error)

// SettingStore keeps small named values that all processes must agree on: the
// fingerprint secret and the policies that records were written under.
type SettingStore interface {
	// Setting reads a value; false if there is none.
	Setting(ctx context.Context, kind, id string) ([]byte, bool, error)
	// AddSetting inserts the value unless one is there, and returns the one
	// that stands.
	AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error)
}

// StepState is where a step stands.
type StepState string

// The states of a step.
const (
	// StepBegun: the intent is recorded; whether it was sent, and what became
	// of it, is not.
	StepBegun StepState = "begun"
	// StepDone: the result is recorded.
	StepDone StepState = "done"
	// StepNotApplied: it is proved that the last send had no effect.
	StepNotApplied StepState = "not_applied"
)

// Intent is what a step is about to do, recorded before its first byte leaves.
type Intent struct {
	Name       string
	Occurrence int
	Provider   string
	// Epoch rises only on proof that the last send was not applied.
	Epoch int
	// DerivedKey goes to the provider with every send of this epoch.
	DerivedKey string
	// Reference is our own name for the effect, for asking the provider.
	Reference string
	// Request is the bytes to be sent, the same on every send.
	Request []byte
	// SendWithin is how long after BeginStep the bytes may still leave. Of
	// several sends in one epoch the latest such moment counts.
	SendWithin time.Duration
}

// StepRecord is what is kept of a step.
type StepRecord struct {
	Intent
	State  StepState
	Result []byte
	// Sends counts the recorded intentions to send in this epoch.
	Sends int
	// Age is how long ago this epoch's first send was recorded, Idle how long
	// ago its last one, both by the store's clock at the moment of reading. A store
	// that Observes errs on the safe side: Idle is how long this handle has known of
	// the last send, by its own monotonic clock, since "not found" is proof only
	// after a while; Age adds what clocks may differ by, since nothing is sent past
	// what a provider remembers.
	Age, Idle time.Duration
}

// StepStore keeps the steps of operations. Steps belong to one life of a key
// (Record.Origin) and outlive it. Both writes change nothing and return false
// unless the owner holds the key in progress.
type StepStore interface {
	// BeginStep records that a send is about to happen: a new step, another
	// send of a begun step's epoch (its intent stays as first recorded, but
	// for SendWithin), or the first send of a higher epoch after a step was
	// not applied. Anything else is left alone and false is returned.
	BeginStep(ctx context.Context, owner Owner, intent Intent) (bool, error)
	// EndStep records how a begun step ended.
	EndStep(ctx context.Context, owner Owner, end StepEnd) (bool, error)
	// Steps lists the steps of the key's present life, in order of beginning.
	Steps(ctx context.Context, key Key) ([]StepRecord, error)
}

// StepEnd is the end of a step.
type StepEnd struct {
	Name       string
	Occurrence int
	State      StepState // StepDone or StepNotApplied
	Result     []byte
}

// RecoveryStore finds operations that nobody retries (rule X1). A key is due for
// a turn when something was kept with its claim and it is
//
//   - in progress, its lease over,
//   - in doubt, or
//   - failed_retryable with a step of its life that is begun or done outside the
//     store (its provider is not ProviderStore): money may have moved, and nobody
//     was told. Where nothing has left, the caller's retry decides.
//
// Its first turn comes when the lease it was last claimed with has run out; a
// claim never makes a turn come earlier, since who is given a key claims it as
// ever, by fence, and the pause until its next turn must stand.
type RecoveryStore interface {
	// Due gives keys whose turn has come for at least DueRequest.Grace, those
	// longest due first, and puts their next turn off, in one atomic step: of
	// several recoverers each key goes to one. A key that somebody is just
	// working on is passed over. None given means that none was found due, if need
	// be in a bounded part of what is there: the next look goes on.
	Due(ctx context.Context, req DueRequest) ([]Due, error)
	// Kept reads what was kept with the key's present life; false if nothing
	// is.
	Kept(ctx context.Context, key Key) ([]byte, bool, error)
	// Requeue makes the key's next turn the first again, and due at once. It
	// returns false when nothing is kept.
	Requeue(ctx context.Context, key Key) (bool, error)
}

// DueRequest asks for keys that are due.
type DueRequest struct {
	// Limit is how many to give at most; positive.
	Limit int
	// Operations are those whose keys are given; nil: all. Others keep their turns.
	Operations []string
	// Grace is how long their turn must have been due.
	Grace time.Duration
	// Pause is between the first turn of a key and its second, twice as long
	// before the third, and so on up to MaxPause.
	Pause, MaxPause time.Duration
}

// Validate refuses what would give turns to attempts that are alive, or no pause
// between them. Every store calls it first.
func (r DueRequest) Validate() error {
	if r.Limit <= 0 || r.Grace < 0 || r.Pause < 0 || r.MaxPause < 0 {
		return configError("DueRequest", "needs a positive Limit, and no negative Grace, Pause or MaxPause, got %d, %v, %v and %v", r.Limit, r.Grace, r.Pause, r.MaxPause)
	}
	return nil
}

// Until is the pause after a key's n-th turn, the first being 1.
func (r DueRequest) Until(turn int) time.Duration {
	pause := r.Pause
	for ; turn > 1 && pause < r.MaxPause; turn-- {
		pause *= 2
	}
	return min(pause, r.MaxPause)
}

// Due is a key whose turn has come.
type Due struct {
	Record Record
	// Keep is what was kept with the claim.
	Keep []byte
	// Turn counts the turns of this life, this one included.
	Turn int
}

// OperatorStore lets people see what is there and keeps what they did.
type OperatorStore interface {
	// List gives records in the order of their digests, from behind a cursor.
	List(ctx context.Context, filter ListFilter) (ListPage, error)
	// AddAudit keeps an entry for good; its time is the store's.
	AddAudit(ctx context.Context, entry AuditEntry) error
	// Audit lists the entries of a key, oldest first.
	Audit(ctx context.Context, key Key) ([]AuditEntry, error)
}

// ListFilter selects records. Empty fields select everything.
type ListFilter struct {
	State State
	Scope string
	// After is the Next of the page before.
	After string
	// Limit is the size of a page; 0 means 100.
	Limit int
}

// ListPage is one page of records.
type ListPage struct {
	Records []Record
	// Next is empty on the last page.
	Next string
}

// AuditEntry is one act of an operator.
type AuditEntry struct {
	Key    Key
	Action string
	Actor  string
	Reason string
	Fence  int64
	At     time.Time
}
