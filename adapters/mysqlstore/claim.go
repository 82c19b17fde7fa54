package mysqlstore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// claimRounds bounds how often a claim looks again after it lost a race.
const claimRounds = 4

// Claim makes the attempt the owner of the key, or says why not. The winner of a
// fresh key needs one round trip: the INSERT decides. Others read the row, without a
// lock, and write only when Judge says so. A key that this process has met before is
// read first, and so is one with a resource, together with its holder.
//
// A key that a transaction of Atomic has claimed and not committed is busy at once;
// one that is being completed in a transaction of the caller's own (CompleteTx) is
// waited for, and a wait that times out is told busy. A crash before the reply leaves
// either nothing or a claim that this token finds again.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.Claim{}, err
	}
	if err := s.refuse(req); err != nil {
		return onlyonce.Claim{}, err
	}
	if s.open.Has(req.Key.Digest()) {
		return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
	}
	return s.contend(ctx, req, alone{s})
}

// refuse refuses what the store does not promise.
func (s *Store) refuse(req onlyonce.ClaimRequest) error {
	if req.Resource != "" && s.at.vitess() {
		return configError("resources are not kept on Vitess: two keys of one resource may be on two shards, where nothing is unique")
	}
	return nil
}

// contender is how a claim reaches the database: by writes that commit, or in a
// transaction that stays open behind its last one.
type contender interface {
	// read looks at a key, outside of any snapshot that is older than the last
	// write.
	read(ctx context.Context, key onlyonce.Key, resource string) (found, error)
	// write makes a claim. false: it has lost a race, and nothing is left of it.
	write(ctx context.Context, c *claiming) (bool, error)
}

// alone contends by writes that commit.
type alone struct{ s *Store }

func (a alone) read(ctx context.Context, key onlyonce.Key, resource string) (found, error) {
	return a.s.look(ctx, key, resource)
}

func (a alone) write(ctx context.Context, c *claiming) (won bool, err error) {
	c.unlocked = a.s.at.locks()
	run := func(q querier) error {
		won, err = c.run(ctx, q)
		return err
	}
	if c.extras() {
		err = a.s.inTx(ctx, "claim key", run)
	} else {
		err = a.s.single(ctx, "claim key", committing, run)
	}
	return won && err == nil, lost(err)
}

// lost makes nothing of the errors by which a claim learns that another one was
// faster.
func lost(err error) error {
	if duplicate(err) {
		return nil
	}
	return err
}

// contend claims. Of any number of simultaneous claims of a free key one goes
// through: a write fails only if the row has changed or another one has made it, if
// a transaction has the key, or if the resource is held.
func (s *Store) contend(ctx context.Context, req onlyonce.ClaimRequest, by contender) (onlyonce.Claim, error) {
	d := req.Key.Digest()
	known := req.Resource != "" || s.seen.Has(d)
	locked := false
	var waited error
	for range claimRounds {
		c := &claiming{s: s, req: req, verdict: onlyonce.Won, resource: req.Resource}
		if known {
			claim, err := c.consider(ctx, by)
			if err != nil || claim.Verdict != 0 {
				return claim, err
			}
			if waited != nil {
				return onlyonce.Claim{}, waited
			}
			if locked {
				break
			}
		}
		won, err := by.write(ctx, c)
		switch {
		case lockTimeout(err) && s.watch != nil:
			// It may have waited for its node, and the key be nobody's.
			known, waited = true, err
			continue
		case lockTimeout(err):
			return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
		case err != nil:
			return onlyonce.Claim{}, err
		case won:
			s.seen.Add(d)
			s.note(&c.made)
			return c.claim(), nil
		}
		known, locked = true, c.locked
	}
	// A transaction that is still open has it, or others were faster every time.
	return onlyonce.Claim{Verdict: onlyonce.Busy}, nil
}

// claiming is a claim under way.
type claiming struct {
	s   *Store
	req onlyonce.ClaimRequest
	// old is the row it was judged by; nil: there was none.
	old *keyRow
	// expired is another key's record that has expired and still holds the resource.
	expired  *keyRow
	verdict  onlyonce.Verdict
	resource string
	// unlocked: the key's lock must be free; locked: it was not.
	unlocked, locked bool
	// made is the row that was written.
	made keyRow
}

// consider reads the key and decides. Without a verdict the claim may be written.
func (c *claiming) consider(ctx context.Context, by contender) (onlyonce.Claim, error) {
	at, err := by.read(ctx, c.req.Key, c.resource)
	if err != nil {
		return onlyonce.Claim{}, err
	}
	if at.key != nil {
		c.s.seen.Add(at.key.digest)
		claim, decided := c.judge(at)
		if decided {
			return claim, nil
		}
		if c.resource != c.req.Resource && !at.key.Holds { // it let go of it, so another may have it
			again, err := by.read(ctx, c.req.Key, c.resource)
			if err != nil {
				return onlyonce.Claim{}, err
			}
			at.holder = again.holder
		}
	}
	return c.heldBy(at), nil
}

// judge decides by the key's own row.
func (c *claiming) judge(at found) (onlyonce.Claim, bool) {
	c.old = at.key
	rec, left := c.s.observed(at.key)
	verdict, write := onlyonce.Judge(rec, c.req, at.key.now)
	switch {
	case !write:
		claim := onlyonce.Claim{Verdict: verdict, Record: at.key.Record, Remaining: left}
		if verdict.Owns() {
			claim.From = at.key.from
		}
		return claim, true
	case !at.free:
		return onlyonce.Claim{Verdict: onlyonce.Busy}, true
	}
	c.verdict = verdict
	if verdict == onlyonce.Resumed && at.key.Resource != "" {
		c.resource = at.key.Resource
	}
	return onlyonce.Claim{}, false
}

// heldBy answers a claim whose resource another key holds.
func (c *claiming) heldBy(at found) onlyonce.Claim {
	h := at.holder
	switch {
	case h == nil || c.resource == "" || h.Resource != c.resource:
		return onlyonce.Claim{}
	case h.Expired(h.now):
		c.expired = h
		return onlyonce.Claim{}
	default:
		return onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: h.Record, Remaining: h.LeaseEnd.Sub(h.now)}
	}
}

// extras tells whether the claim writes to more than one table.
func (c *claiming) extras() bool {
	return c.resource != "" || c.req.Keep != nil || (c.old != nil && c.old.extras())
}

// keeps tells whether there is a row of onlyonce_kept behind the claim.
func (c *claiming) keeps() bool {
	return c.req.Keep != nil || (c.verdict == onlyonce.Resumed && c.old.kept)
}

// run writes the claim. It is one statement unless there are extras; then q must be
// a transaction.
func (c *claiming) run(ctx context.Context, q querier) (bool, error) {
	now, err := c.writeKey(ctx, q)
	if err != nil || now == 0 {
		c.locked = err == nil && c.old == nil // nothing else keeps a row from being inserted
		return false, err
	}
	c.fill(now)
	if !c.extras() {
		return true, nil
	}
	if err := c.writeHold(ctx, q); err != nil {
		return false, err
	}
	return true, c.writeKept(ctx, q)
}

// writeKey writes the key's row and gives the time of the claim; 0: it has lost.
func (c *claiming) writeKey(ctx context.Context, q querier) (int64, error) {
	s, req, fp, d := c.s, c.req, c.req.Fingerprint, c.req.Key.Digest()
	same := []any{req.Attempt[:], req.Abandon, micros(req.Retention), micros(req.Lease), optional(bytesOf(c.resource), c.resource != ""), c.resource != "", c.keeps()}
	life := []any{bytesOf(req.Operation), fp.Version.Form, bytesOf(fp.Version.Secret), bytesOf(fp.Version.Policy), fp.Sum[:], blob(fp.Parts)}
	lease := micros(req.Lease)
	if c.old == nil {
		args := []any{d[:], bytesOf(req.Key.Scope), bytesOf(req.Key.Value)}
		args = append(append(append(args, life...), same...), lease, lease)
		return c.insert(ctx, q, args)
	}
	old, fence := c.old, c.old.Fence+1
	guard := []any{d[:], old.Fence, old.Attempt[:], numberOf(old.State), old.renewal}
	if c.verdict == onlyonce.Resumed {
		args := append(append(same, fence, numberOf(old.State), lease, lease), guard...)
		return told(ctx, q, s.sql(resumeKey), args...)
	}
	args := append(append(append(life, same...), fence, fence, lease, lease), guard...)
	return told(ctx, q, s.sql(beginNewLife), args...)
}

// insert makes the key's first row. On Vitess the lock is looked at before: a
// transaction that takes it in between is waited for.
func (c *claiming) insert(ctx context.Context, q querier, args []any) (int64, error) {
	s, query, d := c.s, insertKey, c.req.Key.Digest()
	switch {
	case c.unlocked && s.at.vitess():
		if free, err := s.isFree(ctx, q, d); err != nil || !free {
			return 0, err
		}
	case c.unlocked:
		query, args = insertFree, append(args, s.lockName(d))
	}
	return told(ctx, q, s.sql(query), args...)
}

// fill notes what was written at that time.
func (c *claiming) fill(us int64) {
	req, now := c.req, instant(us)
	rec := onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint, State: onlyonce.InProgress,
		Fence: onlyonce.NextFence(0, now), Attempt: req.Attempt, Attempts: 1, Abandon: req.Abandon,
		Resource: c.resource, Holds: c.resource != "", Retention: duration(micros(req.Retention)),
		CreatedAt: now, LeaseEnd: now.Add(duration(micros(req.Lease))),
	}
	if c.old != nil {
		rec.Fence = onlyonce.NextFence(c.old.Fence, now)
	}
	rec.Origin = rec.Fence
	if c.verdict == onlyonce.Resumed {
		rec.Origin, rec.CreatedAt, rec.Attempts = c.old.Origin, c.old.CreatedAt, c.old.Attempts+1
		rec.Operation, rec.Fingerprint = c.old.Operation, c.old.Fingerprint
	}
	c.made = keyRow{Record: rec, digest: req.Key.Digest(), lease: req.Lease, kept: c.keeps(), now: now}
}

// claim is the result of a claim that was written.
func (c *claiming) claim() onlyonce.Claim {
	claim := onlyonce.Claim{Verdict: c.verdict, Record: c.made.Record, Remaining: duration(micros(c.req.Lease))}
	if c.verdict == onlyonce.Resumed {
		claim.From = c.old.State
	}
	return claim
}

// writeHold takes hold of the resource, and lets go of the one that an expired row
// had. Uniqueness refuses a second holder: an error, 1062.
func (c *claiming) writeHold(ctx context.Context, q querier) error {
	d := c.req.Key.Digest()
	if c.old != nil && c.old.Holds {
		if c.old.Resource == c.resource {
			return nil
		}
		if err := letGo(ctx, q, c.old); err != nil {
			return err
		}
	}
	if c.resource == "" {
		return nil
	}
	if e := c.expired; e != nil {
		n, err := told(ctx, q, c.s.sql(letExpiredGo), ownerArgs(e.Owner())...)
		if err != nil {
			return err
		}
		if n > 0 {
			if err := letGo(ctx, q, e); err != nil {
				return err
			}
		}
	}
	holds := onlyonce.ResourceDigest(c.req.Key.Scope, c.resource)
	return exec(ctx, q, insertHold, holds[:], d[:])
}

// letGo frees the resource that a row holds.
func letGo(ctx context.Context, q querier, r *keyRow) error {
	holds := onlyonce.ResourceDigest(r.Key.Scope, r.Resource)
	return exec(ctx, q, deleteHold, holds[:], r.digest[:])
}

// writeKept keeps the request, or what a life has kept before.
func (c *claiming) writeKept(ctx context.Context, q querier) error {
	d, end := c.req.Key.Digest(), c.made.LeaseEnd.UnixMicro()
	keep := optional(c.req.Keep, c.req.Keep != nil)
	if c.old != nil && c.old.kept {
		if c.verdict == onlyonce.Resumed {
			return exec(ctx, q, keepOn, keep, end, keep, end, d[:])
		}
		if err := exec(ctx, q, deleteKept, d[:]); err != nil {
			return err
		}
	}
	if c.req.Keep == nil {
		return nil
	}
	return exec(ctx, q, insertKept, d[:], end, end, keep)
}
