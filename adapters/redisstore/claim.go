package redisstore

import (
	"context"
	"strconv"

	"github.com/onlyonce-go/onlyonce"
)

// Claim decides by onlyonce.Judge inside the server, in one round trip for every
// verdict. Once a minute one claim asks first whether the servers evict keys, which
// takes one more for each master; while one does, claims are refused. When the reply is lost the error is ErrUncertain, also where the
// client has tried again by itself; the same attempt then finds its own claim.
//
// A claim that names a resource is refused (Features.Resources), and Keep is not
// kept (Features.Recovery).
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	s.lookAgain(ctx)
	if err := s.checkClaim(req); err != nil {
		return onlyonce.Claim{}, err
	}
	v := req.Fingerprint.Version
	c := call{
		op: "claim key", script: s.scripts.claim, key: s.recordName(req.Key.Digest()), confirm: true,
		args: []any{
			req.Attempt[:], micros(req.Lease), micros(req.Retention), int(req.Abandon), flag(req.Resolve),
			req.Key.Scope, req.Key.Value, req.Operation,
			v.Form, v.Secret, v.Policy, req.Fingerprint.Sum[:], req.Fingerprint.Parts, req.Doubt,
		},
	}
	r, err := s.run(ctx, c)
	if err != nil {
		return onlyonce.Claim{}, err
	}
	claim, err := decodeClaim(r.value)
	if err != nil {
		return onlyonce.Claim{}, &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: c.op, Err: err}
	}
	if claim.Verdict.Owns() && r.unconfirmed != nil {
		return onlyonce.Claim{}, unconfirmed(c.op, r.unconfirmed)
	}
	return claim, nil
}

// checkClaim refuses what this store cannot keep.
func (s *Store) checkClaim(req onlyonce.ClaimRequest) error {
	if err := req.Validate(); err != nil {
		return err
	}
	if req.Resource != "" {
		return configError("ClaimRequest.Resource cannot be kept in Redis: who holds it would be another key, perhaps on another node; use a SQL store")
	}
	if err := checkDuration("ClaimRequest.Lease", req.Lease); err != nil {
		return err
	}
	if err := checkDuration("ClaimRequest.Retention", req.Retention); err != nil {
		return err
	}
	if unfit := s.unfit.Load(); unfit != nil {
		return unfit
	}
	return nil
}

// decodeClaim reads a verdict, the time and the record.
func decodeClaim(value any) (onlyonce.Claim, error) {
	d := decode(value)
	word, now := d.text(), d.time()
	row := decode(d.next())
	rec := row.record()
	if d.err != nil {
		return onlyonce.Claim{}, d.err
	}
	claim := onlyonce.Claim{Record: rec.Record, Remaining: rec.Remaining(now)}
	for v := onlyonce.Won; v <= onlyonce.Abandoned; v++ {
		if v.String() == word {
			claim.Verdict = v
		}
	}
	if claim.Verdict == 0 {
		row.fail("verdict %q", word)
	}
	if claim.Verdict == onlyonce.Resumed {
		claim.From = rec.from
	}
	return claim, row.err
}

// Get reads a record in one round trip; false if there is none or it has
// expired.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	rec, found, err := s.get(ctx, s.recordName(key.Digest()))
	if err == nil && found && rec.Key != key {
		err = &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "read key", Hint: hintFor("COLLISION")}
	}
	if err != nil || !found {
		return onlyonce.Record{}, false, err
	}
	return rec, true, nil
}

// get reads the record under a name.
func (s *Store) get(ctx context.Context, name string) (onlyonce.Record, bool, error) {
	r, err := s.run(ctx, call{op: "read key", script: s.scripts.get, key: name, reads: true})
	if err != nil {
		return onlyonce.Record{}, false, err
	}
	d := decode(r.value)
	d.int()
	if d.err == nil && len(d.values) == 0 {
		return onlyonce.Record{}, false, nil
	}
	row := decode(d.next())
	rec := row.record()
	if row.err != nil {
		return onlyonce.Record{}, false, unreadable("read key", row.err)
	}
	return rec.Record, true, nil
}

// flag is a truth as scripts are told it.
func flag(b bool) string { return strconv.Itoa(map[bool]int{true: 1}[b]) }
