package portable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// Claim decides by onlyonce.Judge and by who holds the resource that is named: one
// look, and one conditional write if it is to be written. Of any number at once one
// is written: the others find the row inserted or changed, or are rolled back by the
// engine, and look again. Three round trips where nothing is written, a replay above
// all; four for a winner, one more for a resource.
//
// A key that an open transaction has claimed is busy: at once in this process,
// elsewhere on engines whose writers wait when Config.LockTimeout has passed.
//
// Where leases are watched, a handle that meets a key for the first time is told that
// it is busy, however old its claim. A crash before the reply leaves either nothing or
// a claim that this token finds again.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	const op = "claim key"
	if err := errors.Join(req.Validate(), claimText(req)); err != nil {
		return onlyonce.Claim{}, err
	}
	if s.open.Has(req.Key.Digest()) {
		return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
	}
	var made *claiming
	err := unlocked(s.transact(ctx, op, func(ctx context.Context, t *txn) (err error) {
		made, err = t.claim(ctx, req)
		return stopWaiting(err)
	}))
	if errors.Is(err, errLocked) {
		return s.locked(ctx, req)
	}
	if err != nil {
		return onlyonce.Claim{}, err
	}
	if made.write {
		s.leased(made.next)
	}
	return made.Claim, nil
}

// errLocked says that another transaction is at the key, and stays there.
var errLocked = errors.New("another transaction is at it")

// stopWaiting tells a wait that was cut short from other conflicts: whoever waits
// again waits for as long again.
func stopWaiting(err error) error {
	if pgerr.HasState(err, pgerr.LockTimeout) {
		return errLocked
	}
	return err
}

// unlocked keeps errLocked apart from the errors that callers get.
func unlocked(err error) error {
	if errors.Is(err, errLocked) {
		return errLocked
	}
	return err
}

// locked answers a claim that another transaction is in the way of: what has been
// committed decides if it can, else the key is busy. Where readers wait for writers,
// that wait is cut short as well.
func (s *Store) locked(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	var found claiming
	err := unlocked(s.transact(ctx, "claim key", func(ctx context.Context, t *txn) error {
		at, err := t.see(ctx, req.Key, "")
		if err == nil {
			found = s.judge(at.key, req, t.now())
		}
		return stopWaiting(err)
	}))
	switch {
	case err != nil && !errors.Is(err, errLocked):
		return onlyonce.Claim{}, err
	case err != nil || found.write:
		return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
	}
	return found.Claim, nil
}

// sight is what a claim finds, as of one moment.
type sight struct {
	// key is the key's row; nil: there is none.
	key *row
	// holder is the row that holds the resource; nil: none does, or none was named.
	holder *row
}

// readKey reads the key's row. A row of another key is an error, never a match: a
// collation that takes different texts for equal must not let one tenant's request be
// answered with another's.
func (at *sight) readKey(key onlyonce.Key) question {
	return question{
		sql: selectKey, args: []any{key.Scope, key.Value}, first: func() { at.key = nil },
		row: func(rows pgx.Rows) (err error) {
			at.key, err = scanRow(rows)
			if err == nil && at.key.Key != key {
				err = fmt.Errorf("read key %s: the row that was found belongs to another key: the database does not compare text by its bytes", key.Operation())
			}
			return err
		},
	}
}

// readHolder reads the row of the key that holds a resource.
func (at *sight) readHolder(scope, resource string) question {
	return question{
		sql: selectHolder, args: []any{scope, resource}, first: func() { at.holder = nil },
		row: func(rows pgx.Rows) (err error) {
			at.holder, err = scanRow(rows)
			return err
		},
	}
}

// claiming is what a claim comes to.
type claiming struct {
	onlyonce.Claim
	// write: next is to be written over old, which is nil if there is none.
	write     bool
	old, next *row
}

// judge decides by the key's own row. A lease that is watched is judged by how long
// this handle has seen it, and told as it is in the row.
func (s *Store) judge(old *row, req onlyonce.ClaimRequest, now time.Time) claiming {
	c := claiming{old: old, write: true}
	if c.Verdict = onlyonce.Won; old == nil {
		return c
	}
	rec, left := old.Record, old.Remaining(now)
	if old.State == onlyonce.InProgress {
		left = s.remaining(old, now)
		rec.LeaseEnd = now.Add(left)
	}
	c.Verdict, c.write = onlyonce.Judge(rec, req, now)
	if c.Verdict.Owns() && !c.write {
		// The claim that this attempt made before: others may have watched it since
		// then, and not only since this handle sees it.
		left = min(left, old.Remaining(now))
		if c.Verdict == onlyonce.Resumed {
			c.From = old.from
		}
	}
	c.Record, c.Remaining = old.Record, left
	return c
}

// claim decides and writes.
func (t *txn) claim(ctx context.Context, req onlyonce.ClaimRequest) (*claiming, error) {
	at, err := t.see(ctx, req.Key, req.Resource)
	if err != nil {
		return nil, err
	}
	c := t.s.judge(at.key, req, t.now())
	if !c.write {
		return &c, nil
	}
	resource := req.Resource
	if c.Verdict == onlyonce.Resumed && at.key.Resource != "" && at.key.Resource != resource {
		resource = at.key.Resource
		if at, err = t.seeAgain(ctx, at, resource); err != nil {
			return nil, err
		}
	}
	if busy := resourceBusy(at, t.now()); busy != nil {
		return &claiming{Claim: *busy}, nil
	}
	c.take(req, resource, t.now())
	if err := t.writeClaim(ctx, &c, req.Keep); err != nil {
		return nil, err
	}
	return &c, t.hold(ctx, &c, at.holder)
}

// take makes the row that the claimer will own.
func (c *claiming) take(req onlyonce.ClaimRequest, resource string, now time.Time) {
	var was int64
	if c.old != nil {
		was = c.old.Fence
	}
	fence := onlyonce.NextFence(was, now)
	next := &row{lease: whole(req.Lease), kept: req.Keep != nil, version: 1, Record: onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint, State: onlyonce.InProgress,
		Fence: fence, Origin: fence, Attempt: req.Attempt, Attempts: 1, Abandon: req.Abandon,
		Resource: resource, Holds: resource != "", Retention: whole(req.Retention),
		CreatedAt: now, LeaseEnd: now.Add(whole(req.Lease)),
	}}
	next.turnAt = next.LeaseEnd.UnixMicro()
	if old := c.old; c.Verdict == onlyonce.Resumed {
		next.Operation, next.Fingerprint = old.Operation, old.Fingerprint
		next.Origin, next.CreatedAt, next.Attempts = old.Origin, old.CreatedAt, old.Attempts+1
		next.from, next.steps, next.turns, next.version = old.State, old.steps, old.turns, old.version+1
		next.kept = old.kept || next.kept
		next.turnAt = max(old.turnAt, next.turnAt) // a claim brings no turn nearer
		c.From = old.State
	}
	c.next, c.Record, c.Remaining = next, next.Record, next.lease
}

// writeClaim writes the row: over an old life's, within a life, or as the first.
func (t *txn) writeClaim(ctx context.Context, c *claiming, keep []byte) error {
	if c.Verdict == onlyonce.Resumed {
		if err := t.must(ctx, changeKey, c.old.change(c.next, false)...); err != nil {
			return err
		}
		if c.old.kept || keep == nil {
			return nil
		}
		return t.keep(ctx, c.next, keep)
	}
	if c.old != nil {
		if err := t.forget(ctx, c.old); err != nil {
			return err
		}
	}
	return t.must(ctx, insertKey, c.next.insert(keep)...)
}

// keep changes what is kept of a key whose row has just been written.
func (t *txn) keep(ctx context.Context, r *row, keep []byte) error {
	return t.must(ctx, keepRequest, r.Key.Scope, r.Key.Value, r.Fence, r.Attempt[:], keep)
}

// forget deletes an expired row, and with it what it still holds. Its steps stay until
// a sweep.
func (t *txn) forget(ctx context.Context, r *row) error {
	if err := t.must(ctx, deleteKey, r.guard(t.now().UnixMicro())...); err != nil {
		return err
	}
	return t.letGo(ctx, r)
}
