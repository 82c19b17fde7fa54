package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// keyRow is a row of onlyonce_keys.
type keyRow struct {
	onlyonce.Record
	// from is the state the present attempt took the key over from.
	from onlyonce.State
	// keep is what a claim asks to keep, nil for nothing; it is not read with
	// the row.
	keep []byte
}

// scanner is a row of a result.
type scanner interface{ Scan(dest ...any) error }

// scanKey reads keyColumns, and into more what a query selects behind them.
func scanKey(row scanner, more ...any) (keyRow, error) {
	var (
		r                             keyRow
		sum, attempt                  []byte
		status, completed, expires    sql.NullInt64
		header, body                  []byte
		noBody                        bool
		retention, created, leaseEnds int64
	)
	err := row.Scan(append([]any{
		&r.Key.Scope, &r.Key.Value, &r.Operation,
		&r.Fingerprint.Version.Form, &r.Fingerprint.Version.Secret, &r.Fingerprint.Version.Policy, &sum, &r.Fingerprint.Parts,
		&r.State, &r.Fence, &r.Origin, &attempt, &r.Attempts, &r.Abandon, &r.from, &r.Reason,
		&status, &header, &body, &noBody,
		&retention, &created, &leaseEnds, &completed, &expires,
		&r.Resource, &r.Holds,
	}, more...)...)
	if err != nil {
		return keyRow{}, err
	}
	copy(r.Fingerprint.Sum[:], sum) // the table's checks keep the lengths
	copy(r.Attempt[:], attempt)
	r.Retention = fromMicros(retention)
	r.CreatedAt, r.LeaseEnd = time.UnixMicro(created).UTC(), time.UnixMicro(leaseEnds).UTC()
	r.CompletedAt, r.ExpiresAt = optionalTime(completed), optionalTime(expires)
	if !status.Valid {
		return r, nil
	}
	r.Answer = &onlyonce.Answer{Status: int(status.Int64), Body: body, NotRetained: noBody}
	if !noBody && body == nil {
		r.Answer.Body = []byte{}
	}
	r.Answer.Header, err = onlyonce.DecodeHeader(header)
	return r, err
}

func optionalTime(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return time.UnixMicro(us.Int64).UTC()
}

// readKey reads the row of a key; false if there is none. A row of another key
// under the same digest is an error: it must never be answered from, nor be
// written over.
func readKey(ctx context.Context, q querier, key onlyonce.Key) (keyRow, bool, error) {
	digest := key.Digest()
	r, err := scanKey(q.QueryRowContext(ctx, selectKey, digest[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return keyRow{}, false, nil
	}
	if err != nil {
		return keyRow{}, false, err
	}
	if r.Key != key {
		return keyRow{}, false, &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: "read key",
			Hint: "the row " + key.Operation() + " belongs to another key: the digests of two keys are equal, or the table was changed by hand",
		}
	}
	return r, true, nil
}

// claimArgs are the arguments of insertKey and, but for two, of beginNewLife.
func claimArgs(rec keyRow) []any {
	digest := rec.Key.Digest()
	v := rec.Fingerprint.Version
	return []any{
		digest[:], rec.Key.Scope, rec.Key.Value, rec.Operation,
		v.Form, v.Secret, v.Policy, rec.Fingerprint.Sum[:], blob(rec.Fingerprint.Parts),
		rec.Fence, rec.Attempt[:], rec.Abandon,
		micros(rec.Retention), rec.CreatedAt.UnixMicro(), rec.LeaseEnd.UnixMicro(),
		optionalText(rec.Resource), held(rec.Record), optionalBlob(rec.keep, rec.keep != nil),
	}
}

// held is what holds its resource for a record, or NULL.
func held(rec onlyonce.Record) any {
	if !rec.Holds {
		return nil
	}
	digest := onlyonce.ResourceDigest(rec.Key.Scope, rec.Resource)
	return digest[:]
}

// ownerArgs are the arguments that name an owner: ?1, ?2 and ?3 of every
// guarded statement. more follow.
func ownerArgs(o onlyonce.Owner, more ...any) []any {
	digest := o.Key.Digest()
	return append([]any{digest[:], o.Fence, o.Attempt[:]}, more...)
}

// blob keeps an absent value from becoming NULL: empty is not null.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// optionalBlob is b, or NULL when it is not kept.
func optionalBlob(b []byte, kept bool) any {
	if !kept {
		return nil
	}
	return blob(b)
}

// optionalText is s, or NULL when it is empty.
func optionalText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// changedOne makes sure that a write whose row was read in the same
// transaction found it as it was read.
func changedOne(n int, err error) error {
	if err == nil && n != 1 {
		return fmt.Errorf("write key: %d rows were changed in place of one", n)
	}
	return err
}
