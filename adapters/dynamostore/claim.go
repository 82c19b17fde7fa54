package dynamostore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// Claim decides by onlyonce.Judge, with the lease as this handle has watched it, and
// by who holds the resource it names. A new key is claimed in one conditional
// write; when one is there, the row that stands decides, and a takeover is
// conditional on it.
//
// The winner's claim is durable when it returns. A crash leaves a claim whose lease
// others must watch for all of its length.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if err := checkClaim(req); err != nil {
		return onlyonce.Claim{}, err
	}
	c := &claiming{store: s, req: req, op: "claim key"}
	defer c.cleanUp(ctx)
	if len(req.Keep) > inline { // a loser need not store it first
		var err error
		if c.old, err = s.load(ctx, c.op, req.Key); err != nil {
			return onlyonce.Claim{}, err
		}
	}
	for try := range maxTries {
		claim, decided, err := c.try(ctx)
		if err != nil || decided {
			return claim, err
		}
		if err := pause(ctx, c.op, try); err != nil {
			return onlyonce.Claim{}, err
		}
	}
	return onlyonce.Claim{}, conflict(c.op, nil)
}

// checkClaim refuses what the store cannot keep.
func checkClaim(req onlyonce.ClaimRequest) error {
	v := req.Fingerprint.Version
	return errors.Join(req.Validate(), checkText("ClaimRequest", req.Operation, v.Secret, v.Policy))
}

// checkText refuses text that DynamoDB would change.
func checkText(field string, texts ...string) error {
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return configError(field, "must be valid UTF-8, got %q", t)
		}
	}
	return nil
}

// claiming is a claim on its way.
type claiming struct {
	store *Store
	req   onlyonce.ClaimRequest
	op    string
	// old is the row as it was last seen, expired the holder of the resource
	// that has expired.
	old     row
	expired *holder
	// keep is what was stored to be kept; used: a row refers to it.
	keep *value
	used bool
}

// cleanUp deletes what was stored for nothing.
func (c *claiming) cleanUp(ctx context.Context) {
	if !c.used {
		c.store.drop(ctx, c.req.Key, c.keep)
	}
}

// try decides once; false: what it was decided by has changed.
func (c *claiming) try(ctx context.Context) (onlyonce.Claim, bool, error) {
	j := c.store.judge(c.old, c.req)
	if !j.write {
		return c.store.told(ctx, c.op, j)
	}
	if taken, err := c.resourceTaken(ctx, j); taken || err != nil {
		if err != nil {
			return onlyonce.Claim{}, false, err
		}
		return c.meetHolder(ctx, j)
	}
	w, claim, err := c.own(ctx, j)
	if err != nil {
		return onlyonce.Claim{}, false, err
	}
	done, current, err := c.store.apply(ctx, w, nil)
	if _, stale := asStale(err); stale {
		return c.meetHolder(ctx, j)
	}
	c.used = done || errors.Is(err, onlyonce.ErrUncertain)
	c.old = current
	return claim, done, err
}

// judged is what a claim comes to by its own key's row.
type judged struct {
	row     row
	verdict onlyonce.Verdict
	// write: the claimer becomes the owner, unless another key holds the
	// resource.
	write    bool
	resource string
	now      time.Time
	left     time.Duration // what has to be watched of a lease
}

// judge decides by a row. Its lease is judged as this handle has watched it.
func (s *Store) judge(old row, req onlyonce.ClaimRequest) judged {
	j := judged{row: old, verdict: onlyonce.Won, write: true, resource: req.Resource, now: s.now()}
	if !old.found {
		return j
	}
	rec := old.Record
	if rec.State == onlyonce.InProgress {
		j.left = s.seen(old)
		rec.LeaseEnd = j.now.Add(j.left)
	}
	j.verdict, j.write = onlyonce.Judge(rec, req, j.now)
	if j.verdict.Owns() && !j.write {
		// It is the claim that this process made earlier: others may have watched
		// it since then, not just since this handle saw it.
		j.left = min(j.left, old.LeaseEnd.Sub(j.now))
	}
	if j.verdict == onlyonce.Resumed && old.Resource != "" {
		j.resource = old.Resource
	}
	return j
}

// remaining is how long the row stands as it is.
func (j judged) remaining() time.Duration {
	if j.row.State == onlyonce.InProgress {
		return j.left
	}
	return j.row.Remaining(j.now)
}

// told is the result of a claim that changes nothing, with the answer there is;
// false if that has gone meanwhile.
func (s *Store) told(ctx context.Context, op string, j judged) (onlyonce.Claim, bool, error) {
	rec, err := s.answered(ctx, j.row)
	if errors.Is(err, errPartMissing) {
		expired := &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Hint: "the answer has just expired", Err: err}
		return onlyonce.Claim{}, false, cmp.Or(s.incomplete(ctx, op, j.row), error(expired))
	}
	if err != nil {
		return onlyonce.Claim{}, false, err
	}
	c := onlyonce.Claim{Verdict: j.verdict, Record: rec, Remaining: j.remaining()}
	if j.verdict == onlyonce.Resumed {
		c.From = j.row.from
	}
	return c, true, nil
}

// own is the write by which the claimer becomes the owner. The steps of a life that
// is over are put aside first.
func (c *claiming) own(ctx context.Context, j judged) (write, onlyonce.Claim, error) {
	next := claimed(c.req, j)
	claim := onlyonce.Claim{Verdict: j.verdict, Remaining: whole(c.req.Lease)}
	switch {
	case j.verdict == onlyonce.Resumed:
		claim.From = j.row.State
	case j.row.found:
		if err := c.store.archive(ctx, c.op, j.row); err != nil {
			return write{}, claim, err
		}
	}
	if next.keep == nil && c.req.Keep != nil {
		if c.keep == nil {
			var err error
			if c.keep, err = c.store.store(ctx, placement{key: c.req.Key, inline: inline}, c.req.Keep); err != nil {
				return write{}, claim, err
			}
		}
		next.keep = c.keep
	}
	claim.Record = next.shared()
	return write{op: c.op, old: j.row, next: next, expired: c.expired}, claim, nil
}

// claimed is the row of a claim that is won.
func claimed(req onlyonce.ClaimRequest, j judged) row {
	lease := whole(req.Lease)
	req.Fingerprint.Parts = bytes.Clone(req.Fingerprint.Parts) // the handle remembers the row
	fence := onlyonce.NextFence(j.row.Fence, j.now)
	next := row{found: true, lease: lease, claimEnd: j.now.Add(lease)}
	next.Record = onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint,
		State: onlyonce.InProgress, Fence: fence, Origin: fence, Attempt: req.Attempt, Attempts: 1,
		Abandon: req.Abandon, Resource: j.resource, Holds: j.resource != "",
		Retention: whole(req.Retention), CreatedAt: j.now, LeaseEnd: next.claimEnd,
	}
	next.due = microsOf(next.claimEnd)
	if j.verdict != onlyonce.Resumed {
		return next
	}
	old := j.row
	next.from = old.State
	next.Origin, next.CreatedAt, next.Attempts = old.Origin, old.CreatedAt, old.Attempts+1
	next.Operation, next.Fingerprint = old.Operation, old.Fingerprint
	next.keep, next.turn, next.steps = old.keep, old.turn, old.steps
	next.due = max(next.due, old.due) // a turn that was given has put the next one off
	return next
}

// resourceTaken looks who holds the resource before the steps of a life that is over are
// put aside for nothing: a sweep would count them twice. Of any other claim the write
// tells.
func (c *claiming) resourceTaken(ctx context.Context, j judged) (bool, error) {
	if j.resource == "" || j.verdict != onlyonce.Won || len(j.row.steps) == 0 {
		return false, nil
	}
	h, held, err := c.store.holderOf(ctx, c.op, c.req.Key.Scope, j.resource)
	return held && h.row.Key != c.req.Key && !c.store.holdsNothing(h), err
}

// meetHolder decides a claim whose resource another key holds. The key's own row is
// read once more: had it changed, that would come first.
func (c *claiming) meetHolder(ctx context.Context, j judged) (onlyonce.Claim, bool, error) {
	s := c.store
	c.expired = nil
	h, held, err := s.holderOf(ctx, c.op, c.req.Key.Scope, j.resource)
	if err != nil || !held {
		return onlyonce.Claim{}, false, err
	}
	current, err := s.load(ctx, c.op, c.req.Key)
	if err != nil {
		return onlyonce.Claim{}, false, err
	}
	if c.old = current; current.found != j.row.found || current.writer != j.row.writer {
		return onlyonce.Claim{}, false, nil
	}
	if s.holdsNothing(h) {
		c.expired = &h
		return onlyonce.Claim{}, false, nil
	}
	return s.resourceBusy(h), true, nil
}

// resourceBusy is the result of a claim whose resource another key holds.
func (s *Store) resourceBusy(h holder) onlyonce.Claim {
	c := onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: h.row.shared(), Remaining: h.row.LeaseEnd.Sub(s.now())}
	if h.row.State == onlyonce.InProgress {
		c.Remaining = s.seen(h.row)
	}
	return c
}

// Get reads a record, with strong consistency; false if there is none or it has
// expired by this process's clock. It takes one round trip, and one more for each
// 384 KB of a large answer.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	const op = "read key"
	for try := range maxTries {
		r, err := s.load(ctx, op, key)
		if err != nil || !r.found || r.Expired(s.now()) {
			return onlyonce.Record{}, false, err
		}
		rec, err := s.answered(ctx, r)
		if !errors.Is(err, errPartMissing) {
			return rec, err == nil, err
		}
		if err := pause(ctx, op, try); err != nil {
			return onlyonce.Record{}, false, err
		}
	}
	return onlyonce.Record{}, false, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: "the stored answer is incomplete", Err: errPartMissing}
}
