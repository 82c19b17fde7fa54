package pgstore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// claimRounds bounds how often a claim looks again after it lost a race.
const claimRounds = 4

// Claim makes the attempt the owner of the key, or says why not. The winner of
// a fresh key needs one round trip: the insert decides. Others read the row,
// without a lock, and write only when Judge says so. A key that this process
// has met before is read first.
//
// Where a resource is named, its holder is read together with the key, as of one
// moment, so that being told ResourceBusy takes two round trips at most. Of any
// number that claim a free resource at once one gets it, whichever their keys. A
// holder that completes in a transaction of its own holds until that commits, and
// is not waited for.
//
// A crash before the reply leaves either nothing or a claim that this token
// finds again.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.Claim{}, err
	}
	if s.open.Has(req.Key.Digest()) {
		return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
	}
	return s.contend(ctx, req, alone{s})
}

// contender is how a claim reaches the database: by single statements, or in a
// transaction.
type contender interface {
	// sql gives the statements that try makes claims with.
	sql() claimStatements
	// fresh claims a key that has no row; nil when it has, or is locked.
	fresh(ctx context.Context, req onlyonce.ClaimRequest) (*onlyonce.Claim, error)
	// try runs a statement that takes a row over, or finds no row.
	try(ctx context.Context, st *stmt) error
	// read runs a statement that reads, outside of any snapshot that is older
	// than the last try.
	read(ctx context.Context, st *stmt) error
	// takesHold: a claim takes hold of the resource that it names. One in a
	// transaction only keeps what the row has, as nobody would see it do more.
	takesHold() bool
}

// alone contends by single statements.
type alone struct{ s *Store }

func (a alone) sql() claimStatements { return a.s.sql.single }

func (a alone) fresh(ctx context.Context, req onlyonce.ClaimRequest) (*onlyonce.Claim, error) {
	return a.s.insert(ctx, req, a)
}

// try finds no row as well when another key was faster to take hold of the
// resource.
func (a alone) try(ctx context.Context, st *stmt) error {
	err := a.s.write(ctx, "claim key", st)
	if lostResource(err) {
		return nil
	}
	return err
}

func (a alone) read(ctx context.Context, st *stmt) error { return a.s.query(ctx, "read key", st) }

func (a alone) takesHold() bool { return true }

// contend claims. Of any number of simultaneous claims of a free key one goes
// through: a try fails only if the row has changed, if a transaction holds the
// key's lock, or if the resource is held, and the last one to try changes the row.
func (s *Store) contend(ctx context.Context, req onlyonce.ClaimRequest, c contender) (onlyonce.Claim, error) {
	d := req.Key.Digest()
	known, inserted := s.seen.Has(d), false
	for range claimRounds {
		if known {
			claim, found, err := s.consider(ctx, req, c)
			if err != nil || claim.Verdict != 0 {
				return claim, err
			}
			if found {
				continue // it has just changed, or a transaction holds its lock
			}
			if inserted && req.Resource == "" {
				break
			}
		}
		claim, err := c.fresh(ctx, req)
		if err != nil {
			return onlyonce.Claim{}, err
		}
		if claim != nil {
			s.seen.Add(d)
			return owning(claim), nil
		}
		known, inserted = true, true
	}
	// A transaction that is still open has claimed it, or others were faster
	// every time.
	return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
}

// consider reads the key and claims it if it may be claimed. Without a verdict
// there was no row, or the claim has lost a race.
func (s *Store) consider(ctx context.Context, req onlyonce.ClaimRequest, c contender) (claim onlyonce.Claim, found bool, err error) {
	at, err := s.see(ctx, c, req.Key, req.Resource)
	if err != nil {
		return claim, false, err
	}
	old := at.key
	if old == nil {
		claim, err = s.heldBy(ctx, c, at.holder)
		return claim, false, err
	}
	s.seen.Add(req.Key.Digest())
	verdict, write := onlyonce.Judge(old.Record, req, old.now)
	if !write {
		claim = onlyonce.Claim{Verdict: verdict, Record: old.Record, Remaining: old.Remaining(old.now)}
		if verdict.Owns() {
			claim.From = old.from
		}
		return claim, true, nil
	}
	if verdict == onlyonce.Resumed && old.Resource != "" && req.Resource != old.Resource {
		req.Resource, at.holder = old.Resource, nil
		if !old.Holds { // it let go of it, so another may have it
			again, err := s.see(ctx, c, req.Key, req.Resource)
			if err != nil {
				return claim, true, err
			}
			at.holder = again.holder
		}
	}
	if claim, err = s.heldBy(ctx, c, at.holder); err != nil || claim.Verdict != 0 {
		return claim, true, err
	}
	next, st := s.takeover(req, old.Record, taking{verdict, c.takesHold() || old.Holds})
	st.sql = c.sql().takeKey
	if req.Keep != nil {
		st.sql = c.sql().takeKept
	}
	if err := c.try(ctx, st); err != nil || !st.found {
		return claim, true, err
	}
	return owning(next), true, nil
}

// owning finishes a claim whose times the database has made.
func owning(c *onlyonce.Claim) onlyonce.Claim {
	c.Record.CreatedAt, c.Record.LeaseEnd = c.Record.CreatedAt.UTC(), c.Record.LeaseEnd.UTC()
	return *c
}

// claimed is the record that a claim makes, but for what the database adds.
func claimed(req onlyonce.ClaimRequest, resource string, holds bool) onlyonce.Record {
	return onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint, State: onlyonce.InProgress,
		Attempt: req.Attempt, Abandon: req.Abandon, Retention: duration(micros(req.Retention)),
		Resource: resource, Holds: holds && resource != "",
	}
}

// claimDest is where the columns go that a claim's statement returns.
func claimDest(rec *onlyonce.Record) []any {
	return []any{&rec.Fence, &rec.Origin, &rec.CreatedAt, &rec.Attempts, &rec.LeaseEnd}
}

// rowArgs are the first parameters of the statements that make a row.
func (s *Store) rowArgs(req onlyonce.ClaimRequest, more ...any) []any {
	d, fp := req.Key.Digest(), req.Fingerprint
	return append([]any{
		d[:], micros(req.Retention), fp.Version.Form, int16(req.Abandon), req.Key.Scope, req.Key.Value, req.Operation,
		fp.Version.Secret, fp.Version.Policy, fp.Sum[:], notNil(fp.Parts), req.Attempt[:], micros(req.Lease), s.now(),
	}, more...)
}

// insert claims a fresh key by inserting its row.
func (s *Store) insert(ctx context.Context, req onlyonce.ClaimRequest, c contender) (*onlyonce.Claim, error) {
	claim := &onlyonce.Claim{Verdict: onlyonce.Won, Record: claimed(req, req.Resource, true), Remaining: req.Lease}
	st := &stmt{
		sql:  c.sql().insertKey,
		args: s.rowArgs(req, s.lock(req.Key.Digest()), req.Resource, digestOf(claim.Record), req.Keep),
		dest: claimDest(&claim.Record),
	}
	if req.Keep != nil {
		st.sql = c.sql().insertKept
	}
	if err := c.try(ctx, st); err != nil || !st.found {
		return nil, err
	}
	return claim, nil
}

// taking is how a row that was judged is taken over.
type taking struct {
	verdict onlyonce.Verdict
	// holds: the resource that the claim names is held.
	holds bool
}

// takeover makes the claimer the owner of a row that was judged. Its statement
// is takeKey in one of its forms.
func (s *Store) takeover(req onlyonce.ClaimRequest, old onlyonce.Record, as taking) (*onlyonce.Claim, *stmt) {
	claim := &onlyonce.Claim{Verdict: as.verdict, Record: claimed(req, req.Resource, as.holds), Remaining: req.Lease}
	if as.verdict == onlyonce.Resumed {
		req.Operation = old.Operation
		claim.From, claim.Record.Operation = old.State, old.Operation
	}
	d, fp := req.Key.Digest(), req.Fingerprint
	return claim, &stmt{dest: claimDest(&claim.Record), args: []any{
		d[:], s.lock(d), micros(req.Retention), fp.Version.Form, int16(req.Abandon),
		req.Operation, fp.Version.Secret, fp.Version.Policy, fp.Sum[:], notNil(fp.Parts),
		s.now(), micros(req.Lease), req.Attempt[:],
		old.Fence, old.Attempt[:], numberOf(old.State), old.LeaseEnd, as.verdict == onlyonce.Won,
		req.Resource, digestOf(claim.Record), req.Keep,
	}}
}

// notNil keeps nil bytes from becoming NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
