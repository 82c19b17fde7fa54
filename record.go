package onlyonce

import "time"

// State is where a key stands. An absent key has none.
type State string

// The states of a key. docs/PROTOCOL.md has the table of transitions; what is
// not in it cannot happen.
const (
	// InProgress: an attempt owns the key, for as long as its lease runs.
	InProgress State = "in_progress"
	// Completed: the answer is stored and is replayed. Final.
	Completed State = "completed"
	// FailedRetryable: it is proved that no effect happened; the same request
	// may run again at once.
	FailedRetryable State = "failed_retryable"
	// InDoubt: an effect may or may not have happened. Nobody may run the
	// operation again before that is settled.
	InDoubt State = "in_doubt"
)

// Outcome is what a handler may say about its own run; the zero value lets the
// status of the answer decide (table of rules O2 to O5).
type Outcome uint8

// The outcomes.
const (
	// ByStatus: the status of the answer decides.
	ByStatus Outcome = iota
	// Final: the answer is the answer, whatever its status.
	Final
	// NotApplied: no effect happened, so the key is free again.
	NotApplied
	// Unknown: an effect may have happened, so the key goes in doubt.
	Unknown
)

// Answer is what a caller gets and, once stored, gets again.
type Answer struct {
	// Status is the HTTP status, 200 to 599.
	Status int
	// Header holds the headers that are stored and replayed.
	Header map[string][]string
	// Body is stored and replayed byte for byte.
	Body []byte
	// NotRetained marks a completed answer whose body was not kept.
	NotRetained bool
	// Outcome is what the handler says of its run. It is not stored.
	Outcome Outcome
}

// Abandon says what may be done with a key whose attempt crashed, once the
// lease is over. It is recorded with the claim, so that a sweeper can decide
// without knowing the operation.
type Abandon uint8

// What may become of an abandoned key.
const (
	// AbandonHold: an effect may have happened; the key goes in doubt.
	AbandonHold Abandon = iota
	// AbandonRerun: the operation may run again.
	AbandonRerun
	// AbandonResume: the operation resumes behind its last finished step; with
	// an unfinished one, nobody but a resuming attempt may decide.
	AbandonResume
)

// Park reasons, stored with a key in doubt.
const (
	// ReasonAbandoned: the attempt's lease ran out and nobody heard of it.
	ReasonAbandoned = "abandoned: the attempt's lease ran out"
	// ReasonUnfinishedStep: a step has begun and its end is not recorded.
	ReasonUnfinishedStep = "a step has begun and its outcome is not known"
	// ReasonUnansweredStep: an effect happened and nobody has come for its
	// answer.
	ReasonUnansweredStep = "a step is done and the operation was never answered"
	// ReasonBehindStep is added to why a key is free when steps are done: a
	// retry goes on behind them.
	ReasonBehindStep = " behind a finished step; a retry goes on from there"
	// ReasonFailed: the handler failed where it may have had an effect.
	ReasonFailed = "the handler failed after it may have had an effect"
	// ReasonChangedSteps begins the reason of a key whose recorded steps are not
	// those that the handler asks for.
	ReasonChangedSteps = "the handler no longer fits the recorded steps: "
	// ReasonGivenUp: the recoverer has tried as often as it may.
	ReasonGivenUp = "the recoverer has given up: an operator has to find out"
	// ReasonHeld begins the reason of a key that Request.Hold has kept in doubt: only
	// Request.Resolve runs it again.
	ReasonHeld = "held: "
	// ReasonDeclared: the handler said that it does not know.
	ReasonDeclared = "the handler declared its outcome unknown"
	// ReasonNotRecovered: the Recover function gave no answer.
	ReasonNotRecovered = "what became of it could not be found out yet"
	// ReasonNotRun: a claim was given back before anything ran.
	ReasonNotRun = "the claim was given back: the handler did not run"
	// ReasonSweptFree: nobody retried an abandoned attempt that left no effect.
	ReasonSweptFree = "abandoned without effect"
)

// Record is all that a store keeps of one key. Times are of the store's clock.
type Record struct {
	Key         Key
	Operation   string
	Fingerprint Fingerprint
	State       State
	// Fence rises with every claim and takeover of the key (microseconds of
	// the store's clock when it first rises), and never returns to a value.
	Fence int64
	// Origin is the fence of the claim that began this life of the key; steps
	// belong to one life.
	Origin int64
	// Attempt is the token of the attempt that owns or last owned the key.
	Attempt Token
	// Attempts counts the claims of this life.
	Attempts int
	Abandon  Abandon
	// Reason says why the key is in doubt or free to run, for people.
	Reason string
	// Resource is what the operation works on; empty: it has named nothing.
	Resource string
	// Holds: no other key of the scope may have the resource.
	Holds bool
	// Answer is nil unless the key is completed.
	Answer *Answer
	// Retention is how long the record lives after it is completed or freed.
	Retention time.Duration
	CreatedAt time.Time
	// LeaseEnd is when the owner's right to the key ends, unless renewed.
	LeaseEnd time.Time
	// CompletedAt and ExpiresAt are zero until there is something to expire.
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Remaining is how long the record stands as it is: an answer until it expires,
// anything else until its lease is over. now is the store's.
func (r Record) Remaining(now time.Time) time.Duration {
	if r.State == Completed {
		return r.ExpiresAt.Sub(now)
	}
	return r.LeaseEnd.Sub(now)
}

// Owner is what proves that a write comes from the attempt that owns the key.
type Owner struct {
	Key     Key
	Fence   int64
	Attempt Token
}

// Owner is the attempt that owns or last owned the record.
func (r Record) Owner() Owner {
	return Owner{Key: r.Key, Fence: r.Fence, Attempt: r.Attempt}
}
