package portable

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// row is a key's row: its record and what else is kept of it.
type row struct {
	onlyonce.Record
	// from is the state the present attempt took the key over from.
	from onlyonce.State
	// lease is how long it was last granted for, renewal how often.
	lease   time.Duration
	renewal int64
	// kept: something is kept. What it is is read where it is needed.
	kept bool
	// turns were given, the next one comes at turnAt.
	turns  int64
	turnAt int64
	// steps were begun in this life.
	steps   int64
	version int64
}

// states gives states their numbers, beginning with 1; 0 is none.
func states() []onlyonce.State {
	return []onlyonce.State{"", onlyonce.InProgress, onlyonce.Completed, onlyonce.FailedRetryable, onlyonce.InDoubt}
}

func numberOf(state onlyonce.State) int64 { return int64(slices.Index(states(), state)) }

func stateOf(number int64) (onlyonce.State, error) {
	if all := states(); number >= 0 && number < int64(len(all)) {
		return all[number], nil
	}
	return "", fmt.Errorf("decode record: state %d is none", number)
}

// scanRow reads keyColumns.
func scanRow(rows pgx.Rows) (*row, error) {
	var (
		r                            row
		sum, attempt, header, body   []byte
		state, from, abandon         int64
		status, completed, expires   *int64
		retention, lease, begun, end int64
	)
	v := &r.Fingerprint.Version
	err := rows.Scan(&r.Key.Scope, &r.Key.Value, &r.Operation, &v.Form, &v.Secret, &v.Policy, &sum, &r.Fingerprint.Parts,
		&state, &r.Fence, &r.Origin, &attempt, &r.Attempts, &abandon, &from, &r.Reason, &status, &header, &body,
		&retention, &lease, &r.renewal, &begun, &end, &completed, &expires,
		&r.Resource, &r.Holds, &r.kept, &r.turns, &r.turnAt, &r.steps, &r.version)
	if err != nil {
		return nil, err
	}
	if len(sum) != len(r.Fingerprint.Sum) || len(attempt) != len(r.Attempt) {
		return nil, fmt.Errorf("decode record: fingerprint of %d and token of %d bytes", len(sum), len(attempt))
	}
	copy(r.Fingerprint.Sum[:], sum)
	copy(r.Attempt[:], attempt)
	r.Abandon = onlyonce.Abandon(abandon)
	r.Retention, r.lease = duration(retention), duration(lease)
	r.CreatedAt, r.LeaseEnd = *timeOf(&begun), *timeOf(&end)
	if completed != nil {
		r.CompletedAt = *timeOf(completed)
	}
	if expires != nil {
		r.ExpiresAt = *timeOf(expires)
	}
	if r.State, err = stateOf(state); err != nil {
		return nil, err
	}
	if r.from, err = stateOf(from); err != nil || status == nil {
		return &r, err
	}
	r.Answer = &onlyonce.Answer{Status: int(*status), Body: body, NotRetained: body == nil}
	r.Answer.Header, err = onlyonce.DecodeHeader(header)
	return &r, err
}

func timeOf(us *int64) *time.Time {
	t := time.UnixMicro(*us).UTC()
	return &t
}

// optionalTime is NULL for no time.
func optionalTime(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// guard is what a write names of the row that it was decided by: the first six
// parameters of every statement that changes a key.
func (r *row) guard(more ...any) []any {
	return append([]any{r.Key.Scope, r.Key.Value, r.Fence, r.Attempt[:], numberOf(r.State), r.version}, more...)
}

// due is when a recoverer is to look at the row: at its turn, while it is in progress
// not before its lease is over. NULL where nothing is kept, and of a freed key where
// nothing has left the store (call tells that something has).
func (r *row) due(call bool) *int64 {
	due := r.turnAt
	switch {
	case !r.kept, r.State == onlyonce.Completed, r.State == onlyonce.FailedRetryable && !call:
		return nil
	case r.State == onlyonce.InProgress:
		due = max(due, r.LeaseEnd.UnixMicro())
	}
	return &due
}

// change gives the parameters of changeKey that make next of the row.
func (r *row) change(next *row, call bool) []any {
	return r.guard(numberOf(next.State), next.Fence, next.Attempt[:], int64(next.Attempts), int64(next.Abandon), numberOf(next.from), next.Reason,
		micros(next.Retention), micros(next.lease), next.renewal, next.LeaseEnd.UnixMicro(), optionalTime(next.ExpiresAt),
		next.Resource, next.Holds, next.turns, next.turnAt, next.due(call), next.steps)
}

// insert gives the parameters of insertKey.
func (r *row) insert(keep []byte) []any {
	v := r.Fingerprint.Version
	return []any{
		r.Key.Scope, r.Key.Value, r.Operation, int64(v.Form), v.Secret, v.Policy, r.Fingerprint.Sum[:], notNil(r.Fingerprint.Parts),
		r.Fence, r.Attempt[:], int64(r.Abandon), micros(r.Retention), micros(r.lease),
		r.CreatedAt.UnixMicro(), r.LeaseEnd.UnixMicro(), r.Resource, r.Holds, keep, r.due(false),
	}
}

// sight is what a watch sees of the row.
func (r *row) sight() watch.Sight {
	return watch.Sight{Digest: r.Key.Digest(), Fence: r.Fence, Renewal: r.renewal, Lease: r.lease}
}

// remaining is how much is left of the lease of a row in progress: by the clock, or by
// how long this handle has watched it. Looking is watching.
func (s *Store) remaining(r *row, now time.Time) time.Duration {
	if s.watch == nil {
		return r.LeaseEnd.Sub(now)
	}
	return s.watch.Remaining(r.sight())
}

// leased notes that the row has just been written with a new lease, in progress.
func (s *Store) leased(r *row) {
	if s.watch != nil {
		s.watch.Remaining(r.sight())
	}
}

// ended notes that nobody has to watch the key any more.
func (s *Store) ended(key onlyonce.Key) {
	if s.watch != nil {
		s.watch.Forget(key.Digest())
	}
}

// notNil keeps nil bytes from becoming NULL: empty is not null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// printable makes any text one that databases take: reasons come from errors, which
// may hold anything.
func printable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
