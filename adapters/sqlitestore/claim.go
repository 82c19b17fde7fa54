package sqlitestore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Claim decides by onlyonce.Judge. It reads first: a claim that changes
// nothing, a replay above all, takes no lock. The winner's claim is on the
// disk when it returns.
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

// look decides a claim by a read alone; false if it needs to write. The clock
// is read before the row, so that a lease is not taken for over which was
// renewed in between.
func (s *Store) look(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, bool, error) {
	now := s.now()
	row, found, err := readKey(ctx, s.readPool(), req.Key)
	if err != nil {
		return onlyonce.Claim{}, false, s.fail("claim key", err)
	}
	if !found {
		return onlyonce.Claim{}, false, nil
	}
	verdict, write := onlyonce.Judge(row.Record, req, now)
	if write {
		return onlyonce.Claim{}, false, nil
	}
	return standing(row, verdict, now), true, nil
}

// beside answers a claim on a key that a transaction of this process is at: the
// record, if that decides, and only then the transaction, which may just be
// about to find out the same.
func (s *Store) beside(ctx context.Context, req onlyonce.ClaimRequest, open onlyonce.Claim) onlyonce.Claim {
	claim, decided, err := s.look(ctx, req)
	if err != nil || !decided || claim.Verdict.Owns() {
		return open
	}
	return claim
}

// standing is the result of a claim that changes nothing. An attempt that
// finds its own takeover again is told again what it took over from.
func standing(row keyRow, verdict onlyonce.Verdict, now time.Time) onlyonce.Claim {
	c := onlyonce.Claim{Verdict: verdict, Record: row.Record, Remaining: row.LeaseEnd.Sub(now)}
	if verdict == onlyonce.Resumed {
		c.From = row.from
	}
	return c
}

// claim decides and writes inside a write transaction. The clock is read when
// the lock is held: a lease does not begin while its claim is waiting.
func (s *Store) claim(ctx context.Context, q querier, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	now := s.now()
	row, found, err := readKey(ctx, q, req.Key)
	if err != nil {
		return onlyonce.Claim{}, err
	}
	verdict, write := onlyonce.Won, true
	if found {
		verdict, write = onlyonce.Judge(row.Record, req, now)
	}
	if !write {
		return standing(row, verdict, now), nil
	}
	claim := onlyonce.Claim{Verdict: verdict, Record: claimed(req, row.Fence, now), Remaining: fromMicros(micros(req.Lease))}
	if verdict == onlyonce.Resumed {
		claim.From = row.State
		claim.Record.Origin, claim.Record.CreatedAt, claim.Record.Attempts = row.Origin, row.CreatedAt, row.Attempts+1
		claim.Record.Operation, claim.Record.Fingerprint = row.Operation, row.Fingerprint
		return claim, resume(ctx, q, row, claim.Record)
	}
	if found {
		return claim, newLife(ctx, q, row, claim.Record)
	}
	return claim, changedOne(exec(ctx, q, insertKey, claimArgs(claim.Record)...))
}

// claimed is the record of a new life.
func claimed(req onlyonce.ClaimRequest, oldFence int64, now time.Time) onlyonce.Record {
	fence := onlyonce.NextFence(oldFence, now)
	return onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint,
		State: onlyonce.InProgress, Fence: fence, Origin: fence, Attempt: req.Attempt, Attempts: 1,
		Abandon: req.Abandon, Retention: fromMicros(micros(req.Retention)),
		CreatedAt: now, LeaseEnd: now.Add(fromMicros(micros(req.Lease))),
	}
}

// newLife writes a new life over an expired row. The steps of the old one stay
// until a sweep.
func newLife(ctx context.Context, q querier, old keyRow, rec onlyonce.Record) error {
	args := append(claimArgs(rec), old.Fence, old.Attempt[:])
	return changedOne(exec(ctx, q, beginNewLife, args...))
}

// resume writes a takeover.
func resume(ctx context.Context, q querier, old keyRow, rec onlyonce.Record) error {
	args := ownerArgs(old.Owner(), old.State, rec.Fence, rec.Attempt[:], rec.Abandon, micros(rec.Retention), rec.LeaseEnd.UnixMicro())
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
