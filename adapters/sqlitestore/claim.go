package sqlitestore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Claim decides by onlyonce.Judge, and by who holds the resource it names. It
// reads first: a claim that changes nothing, a replay above all, takes no lock.
// The winner's claim is on the disk when it returns.
//
// A key that a transaction of this process has claimed and not committed is
// busy, or a mismatch, at once; one of another process is waited for.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.Claim{}, err
	}
	if claim, busy := s.open.find(req, s.now()); busy {
		return s.beside(ctx, req, claim), nil
	}
	claim, decided, err := s.look(ctx, req)
	if err != nil || decided {
		return claim, err
	}
	err = s.write(ctx, "claim key", func(ctx context.Context, q querier) error {
		var err error
		claim, err = s.claim(ctx, q, req)
		return err
	})
	if err != nil {
		return onlyonce.Claim{}, err
	}
	return claim, nil
}

// look decides a claim by reads alone; false if it needs to write.
func (s *Store) look(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, bool, error) {
	j, err := s.judge(ctx, s.readPool(), req)
	switch {
	case err != nil:
		return onlyonce.Claim{}, false, s.fail("claim key", err)
	case !j.write:
		return j.standing(), true, nil
	case j.resource == "":
		return onlyonce.Claim{}, false, nil
	}
	claim, decided, err := s.lookForHolder(ctx, req)
	if err != nil {
		return onlyonce.Claim{}, false, s.fail("claim key", err)
	}
	return claim, decided, nil
}

// beside answers a claim on a key that a transaction of this process is at: the
// record, if that decides, and only then the transaction, which may just be
// about to find out the same.
func (s *Store) beside(ctx context.Context, req onlyonce.ClaimRequest, open onlyonce.Claim) onlyonce.Claim {
	j, err := s.judge(ctx, s.readPool(), req)
	if err != nil || j.verdict.Owns() {
		return open
	}
	return j.standing()
}

// judged is what a claim comes to by its own key's record.
type judged struct {
	row     keyRow
	found   bool
	verdict onlyonce.Verdict
	// write: the claimer becomes the owner, unless another key holds the
	// resource.
	write    bool
	resource string
	now      time.Time
}

// judge reads the record and decides. The clock is read before the row, so that
// a lease is not taken for over which was renewed in between; in a write
// transaction when the lock is held, so that a lease does not begin while its
// claim is waiting.
func (s *Store) judge(ctx context.Context, q querier, req onlyonce.ClaimRequest) (judged, error) {
	j := judged{verdict: onlyonce.Won, write: true, resource: req.Resource, now: s.now()}
	var err error
	j.row, j.found, err = readKey(ctx, q, req.Key)
	if err != nil || !j.found {
		return j, err
	}
	j.verdict, j.write = onlyonce.Judge(j.row.Record, req, j.now)
	if j.verdict == onlyonce.Resumed && j.row.Resource != "" {
		j.resource = j.row.Resource
	}
	return j, nil
}

// standing is the result of a claim that changes nothing. An attempt that
// finds its own takeover again is told again what it took over from.
func (j judged) standing() onlyonce.Claim {
	c := onlyonce.Claim{Verdict: j.verdict, Record: j.row.Record, Remaining: j.row.Remaining(j.now)}
	if j.verdict == onlyonce.Resumed {
		c.From = j.row.from
	}
	return c
}

// claim decides and writes inside a write transaction.
func (s *Store) claim(ctx context.Context, q querier, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	j, err := s.judge(ctx, q, req)
	if err != nil {
		return onlyonce.Claim{}, err
	}
	if !j.write {
		return j.standing(), nil
	}
	holder, held, err := readHolder(ctx, q, req.Key, j.resource)
	switch {
	case err != nil:
		return onlyonce.Claim{}, err
	case held && !holder.Expired(j.now):
		return j.resourceBusy(holder), nil
	case held:
		if err := changedOne(exec(ctx, q, letExpiredGo, ownerArgs(holder.Owner(), j.now.UnixMicro())...)); err != nil {
			return onlyonce.Claim{}, err
		}
	}
	return j.own(ctx, q, req)
}

// own writes the claim.
func (j judged) own(ctx context.Context, q querier, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	claim := onlyonce.Claim{Verdict: j.verdict, Record: claimed(req, j.row.Fence, j.now), Remaining: fromMicros(micros(req.Lease))}
	old, rec := j.row, &claim.Record
	if j.verdict == onlyonce.Resumed {
		claim.From = old.State
		rec.Origin, rec.CreatedAt, rec.Attempts = old.Origin, old.CreatedAt, old.Attempts+1
		rec.Operation, rec.Fingerprint = old.Operation, old.Fingerprint
		rec.Resource, rec.Holds = j.resource, j.resource != ""
		return claim, resume(ctx, q, old, keyRow{Record: *rec, keep: req.Keep})
	}
	next := keyRow{Record: *rec, keep: req.Keep}
	if j.found {
		return claim, newLife(ctx, q, old, next)
	}
	return claim, changedOne(exec(ctx, q, insertKey, claimArgs(next)...))
}

// claimed is the record of a new life.
func claimed(req onlyonce.ClaimRequest, oldFence int64, now time.Time) onlyonce.Record {
	fence := onlyonce.NextFence(oldFence, now)
	return onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint,
		State: onlyonce.InProgress, Fence: fence, Origin: fence, Attempt: req.Attempt, Attempts: 1,
		Abandon: req.Abandon, Resource: req.Resource, Holds: req.Resource != "",
		Retention: fromMicros(micros(req.Retention)),
		CreatedAt: now, LeaseEnd: now.Add(fromMicros(micros(req.Lease))),
	}
}

// newLife writes a new life over an expired row. The steps of the old one stay
// until a sweep.
func newLife(ctx context.Context, q querier, old, next keyRow) error {
	args := append(claimArgs(next), old.Fence, old.Attempt[:])
	return changedOne(exec(ctx, q, beginNewLife, args...))
}

// resume writes a takeover.
func resume(ctx context.Context, q querier, old, next keyRow) error {
	args := ownerArgs(old.Owner(), old.State, next.Fence, next.Attempt[:], next.Abandon, micros(next.Retention), next.LeaseEnd.UnixMicro(),
		optionalText(next.Resource), held(next.Record), optionalBlob(next.keep, next.keep != nil))
	return changedOne(exec(ctx, q, resumeKey, args...))
}

// Get reads a record; false if there is none or it has expired. It takes no
// lock and does not see what is not committed.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	row, found, err := readKey(ctx, s.readPool(), key)
	if err != nil {
		return onlyonce.Record{}, false, s.fail("read key", err)
	}
	if !found || row.Expired(s.now()) {
		return onlyonce.Record{}, false, nil
	}
	return row.Record, true, nil
}
