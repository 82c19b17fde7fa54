package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// readHolder reads the row of another key that holds the resource, also when it
// has expired; false if there is none. A row is a holder by the digest of scope
// and resource: should two have the same one, they exclude each other.
func readHolder(ctx context.Context, q querier, key onlyonce.Key, resource string) (keyRow, bool, error) {
	if resource == "" {
		return keyRow{}, false, nil
	}
	digest, own := onlyonce.ResourceDigest(key.Scope, resource), key.Digest()
	r, err := scanKey(q.QueryRowContext(ctx, selectHolder, digest[:], own[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return keyRow{}, false, nil
	}
	return r, err == nil, err
}

// resourceBusy is the result of a claim whose resource another key holds.
func (j judged) resourceBusy(holder keyRow) onlyonce.Claim {
	return onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: holder.Record, Remaining: holder.LeaseEnd.Sub(j.now)}
}

// lookForHolder decides a claim by its key's record and its resource's holder,
// both as of one moment: read one after the other they could be of two, between
// which the key was claimed and settled.
func (s *Store) lookForHolder(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, bool, error) {
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return onlyonce.Claim{}, false, err
	}
	defer tx.Rollback() // nothing to commit
	q := preparedTx{tx, s.reads}
	j, err := s.judge(ctx, q, req)
	if err != nil || !j.write {
		return j.standing(), err == nil, err
	}
	holder, held, err := readHolder(ctx, q, req.Key, j.resource)
	if err != nil || !held || holder.Expired(j.now) {
		return onlyonce.Claim{}, false, err
	}
	return j.resourceBusy(holder), true, nil
}
