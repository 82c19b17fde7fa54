package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// States as rows have them.
const (
	inProgress      = 1
	completed       = 2
	failedRetryable = 3
	inDoubt         = 4
)

// States of steps as rows have them.
const (
	stepBegun = iota + 1
	stepDone
	stepNotApplied
)

// stateOf is the name of a state; 0 has none.
func stateOf(number int) onlyonce.State {
	return [...]onlyonce.State{"", onlyonce.InProgress, onlyonce.Completed, onlyonce.FailedRetryable, onlyonce.InDoubt}[number]
}

// numberOf is a state as rows have it; 0: there is none such.
func numberOf(state onlyonce.State) int {
	switch state {
	case onlyonce.InProgress:
		return inProgress
	case onlyonce.Completed:
		return completed
	case onlyonce.FailedRetryable:
		return failedRetryable
	case onlyonce.InDoubt:
		return inDoubt
	default:
		return 0
	}
}

// keyRow is a row of onlyonce_keys, and when it was read.
type keyRow struct {
	onlyonce.Record
	digest onlyonce.Digest
	// from is the state that the present attempt took the key over from.
	from onlyonce.State
	// renewal counts the owner's renewals; lease is what it last asked for.
	renewal int64
	lease   time.Duration
	// kept: there is a row of onlyonce_kept.
	kept bool
	now  time.Time
}

// extras tells whether other tables have rows of this key.
func (r *keyRow) extras() bool { return r.kept || r.Holds }

// scanner is a row of a result.
type scanner interface{ Scan(dest ...any) error }

// scanKey reads keyColumns, and into more what a query selects behind them.
func scanKey(row scanner, more ...any) (*keyRow, error) {
	var (
		r                                  keyRow
		digest, sum, attempt, header, body []byte
		state, from                        int
		status, done, expires              sql.NullInt64
		retention, created, lease, end     int64
		now                                int64
		resource                           sql.NullString
	)
	err := row.Scan(append([]any{
		&digest, &r.Key.Scope, &r.Key.Value, &r.Operation,
		&r.Fingerprint.Version.Form, &r.Fingerprint.Version.Secret, &r.Fingerprint.Version.Policy, &sum, &r.Fingerprint.Parts,
		&state, &r.Fence, &r.Origin, &attempt, &r.Attempts, &r.Abandon, &from, &r.Reason,
		&retention, &created, &lease, &end, &r.renewal, &done, &expires,
		&resource, &r.Holds, &r.kept, &status, &header, &body, &now,
	}, more...)...)
	if err != nil {
		return nil, err
	}
	copy(r.digest[:], digest) // the columns keep the lengths
	copy(r.Fingerprint.Sum[:], sum)
	copy(r.Attempt[:], attempt)
	r.State, r.from, r.Resource = stateOf(state), stateOf(from), resource.String
	r.Retention, r.lease, r.now = duration(retention), duration(lease), instant(now)
	r.CreatedAt, r.LeaseEnd = instant(created), instant(end)
	r.CompletedAt, r.ExpiresAt = optionalTime(done), optionalTime(expires)
	if !status.Valid {
		return &r, nil
	}
	r.Answer = &onlyonce.Answer{Status: int(status.Int64), Body: body, NotRetained: body == nil}
	r.Answer.Header, err = onlyonce.DecodeHeader(header)
	return &r, err
}

func optionalTime(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return instant(us.Int64)
}

// found is what a look at a key has found, as of one moment.
type found struct {
	// key is the key's row; nil: there is none.
	key *keyRow
	// holder is the row of another key that holds the resource; nil: none does.
	// Whether it has expired is not looked at.
	holder *keyRow
	// free: no transaction of Atomic has the key.
	free bool
}

// look reads a key, and who holds the resource if one is named.
func (s *Store) look(ctx context.Context, key onlyonce.Key, resource string) (at found, err error) {
	err = s.single(ctx, "read key", undone, func(q querier) error {
		at, err = s.lookBy(ctx, q, key, resource)
		return err
	})
	return at, err
}

func (s *Store) lookBy(ctx context.Context, q querier, key onlyonce.Key, resource string) (at found, err error) {
	digest := key.Digest()
	ask := query{selectKey, []any{s.lockName(digest), digest[:]}}
	if resource != "" {
		holds := onlyonce.ResourceDigest(key.Scope, resource)
		ask = query{selectBoth, append(ask.args, holds[:])}
	}
	locks := s.at.locks() && !s.at.vitess()
	if !locks {
		ask = query{withoutLocks(ask.sql), ask.args[1:]}
	}
	ask.sql = s.sql(ask.sql)
	at.free = true
	err = each(ctx, q, ask, func(row scanner) error {
		var free sql.NullBool
		r, err := scanKey(row, &free)
		if err != nil {
			return err
		}
		if r.digest != digest {
			at.holder = r
			return nil
		}
		at.key, at.free = r, free.Bool
		return r.belongsTo(key)
	})
	if err == nil && at.key != nil && s.at.vitess() {
		at.free, err = s.isFree(ctx, q, digest)
	}
	return at, err
}

// isFree tells whether no transaction of Atomic has the key.
func (s *Store) isFree(ctx context.Context, q querier, d onlyonce.Digest) (bool, error) {
	var free sql.NullBool
	err := q.QueryRowContext(ctx, isFree, s.lockName(d)).Scan(&free)
	return free.Bool, err
}

// belongsTo refuses a row of another key under the same digest: it must never be
// answered from, nor be written over.
func (r *keyRow) belongsTo(key onlyonce.Key) error {
	if r.Key == key {
		return nil
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: "read key",
		Hint: "the row " + key.Operation() + " belongs to another key: the digests of two keys are equal, or the table was changed by hand",
	}
}

// query is a statement that reads, and its arguments.
type query struct {
	sql  string
	args []any
}

// each reads all rows of a query.
func each(ctx context.Context, q querier, ask query, fn func(scanner) error) error {
	rows, err := q.QueryContext(ctx, ask.sql, ask.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readOwned reads the owner's row; nil when it is not the owner's any more.
func (s *Store) readOwned(ctx context.Context, q querier, query string, o onlyonce.Owner) (*keyRow, error) {
	r, err := scanKey(q.QueryRowContext(ctx, s.sql(query), ownerArgs(o)...))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // as documented
	}
	return r, err
}

// ownerArgs are the arguments that name an owner, behind others.
func ownerArgs(o onlyonce.Owner, before ...any) []any {
	digest := o.Key.Digest()
	return append(before, digest[:], o.Fence, o.Attempt[:])
}

// blob keeps an absent value from becoming NULL: empty is not null.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// optional is b, or NULL when it is not there.
func optional(b []byte, there bool) any {
	if !there {
		return nil
	}
	return blob(b)
}

// bytesOf sends text as bytes, which no character set is asked about.
func bytesOf(text string) []byte { return []byte(text) }
