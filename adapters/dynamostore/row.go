package dynamostore

import (
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// row is all that is kept of a key, in one item: its record, how its lease is
// watched, what the recoverer needs, and the steps of its life. The answer's bytes
// and what is kept may be in items of their own; the record's Answer is set only
// where somebody asked for it.
type row struct {
	onlyonce.Record
	found bool
	// from is the state the present attempt took the key over from.
	from onlyonce.State
	// lease is how long the owner may trust its lease from when it asked;
	// renewal changes with each.
	lease   time.Duration
	renewal int64
	// claimEnd is when the lease ends with which the key was claimed, for the
	// index: renewals do not write there.
	claimEnd time.Time
	// rev rises with every write of the item, and writer is drawn for each, so
	// that a write that was repeated is recognised.
	rev    int64
	writer string
	// keep is nil when nothing is kept; turn counts the turns given, due is when
	// the next one comes, 0: since ever.
	keep *value
	turn int
	due  int64
	// answer is what is stored of a completed key.
	answer *storedAnswer
	steps  []step
}

// storedAnswer is an answer as an item has it.
type storedAnswer struct {
	Status int    `dynamodbav:"status"`
	Header *value `dynamodbav:"header,omitempty"`
	Body   *value `dynamodbav:"body,omitempty"` // nil: not retained
}

// Names of the table's own items. A key's partition has the record, its audit, the
// steps of dead lives and what is too large for the record.
const (
	recordName  = "record"
	holderName  = "holder"
	auditPrefix = "audit#"
	lifePrefix  = "life#"
	valuePrefix = "value#"
)

// keyPartition is the partition of a key.
func keyPartition(d onlyonce.Digest) string { return "key#" + hex.EncodeToString(d[:]) }

// resourcePartition is that of a scope's resource.
func resourcePartition(scope, resource string) string {
	d := onlyonce.ResourceDigest(scope, resource)
	return "resource#" + hex.EncodeToString(d[:])
}

// sight is what this handle sees of a key in progress.
func (r row) sight() watch.Sight {
	return watch.Sight{Digest: r.Key.Digest(), Fence: r.Fence, Renewal: r.renewal, Lease: r.lease}
}

// owned tells whether the row is still the owner's.
func (r row) owned(o onlyonce.Owner) bool {
	return r.found && r.Fence == o.Fence && r.Attempt == o.Attempt
}

// holdsInProgress tells whether the owner holds the key in progress.
func (r row) holdsInProgress(o onlyonce.Owner) bool {
	return r.owned(o) && r.State == onlyonce.InProgress
}

// completable tells whether there is something for the owner to complete.
func (r row) completable(o onlyonce.Owner) bool {
	return r.owned(o) && (r.State == onlyonce.InProgress || r.State == onlyonce.InDoubt)
}

// hasStep tells whether a step of the row's life is begun or done.
func (r row) hasStep() bool { return slices.ContainsFunc(r.steps, step.counts) }

// hasCall tells whether one outside the store is.
func (r row) hasCall() bool {
	return slices.ContainsFunc(r.steps, func(s step) bool { return s.counts() && s.Provider != onlyonce.ProviderStore })
}

// never is the place in the index of what waits for a person.
const never = math.MaxInt64

// attention is when somebody may have to look at the key, for the index of what is
// open; false: it is not open. It may be early, never late.
func (r row) attention() (at int64, open bool) {
	switch r.State {
	case onlyonce.InProgress:
		if r.keep != nil {
			return min(microsOf(r.claimEnd), r.due), true
		}
		return microsOf(r.claimEnd), true
	case onlyonce.InDoubt:
		if r.keep != nil {
			return r.due, true
		}
		return never, true
	case onlyonce.FailedRetryable:
		return r.due, r.keep != nil && r.hasCall()
	default:
		return 0, false
	}
}

// ttlSlack is how much later than nobody looks at it an item may be deleted: more
// than clocks differ.
const ttlSlack = time.Hour

// ttl is when DynamoDB may delete the item, in seconds; 0: never. What is not
// settled stays, and steps stay for as long as they are kept by default.
func (r row) ttl() int64 {
	if r.State != onlyonce.Completed && r.State != onlyonce.FailedRetryable {
		return 0
	}
	end := r.ExpiresAt.Add(ttlSlack)
	if len(r.steps) > 0 {
		end = end.Add(onlyonce.FreedStepRetention)
	}
	return end.Unix() + 1
}

// values are all that is kept of the row in items of its own.
func (r row) values() []*value {
	all := []*value{r.keep}
	if r.answer != nil {
		all = append(all, r.answer.Header, r.answer.Body)
	}
	return append(apart(all), r.stepValues()...)
}

// stepValues are those of its steps.
func (r row) stepValues() []*value {
	var all []*value
	for _, s := range r.steps {
		all = append(all, s.Request, s.Result)
	}
	return apart(all)
}

// apart are the values that are in items of their own.
func apart(all []*value) []*value {
	return slices.DeleteFunc(all, func(v *value) bool { return v == nil || v.ID == "" })
}
