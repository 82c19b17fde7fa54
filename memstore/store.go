package memstore

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Config configures a Store.
type Config struct {
	// SingleProcess must be true: it says that no other process serves the
	// same callers.
	SingleProcess bool
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
}

// Validate names what is wrong with the configuration.
func (c Config) Validate() error {
	if !c.SingleProcess {
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "open memory store",
			Hint: "SingleProcess must be true: records in memory are not seen by other processes, which would run an operation again",
		}
	}
	return nil
}

// Store is an onlyonce.Store in memory. It is safe for concurrent use.
type Store struct {
	now func() time.Time

	mu       sync.Mutex
	records  map[onlyonce.Digest]*row
	holders  map[onlyonce.Digest]onlyonce.Digest // resource → the key that last held it
	steps    map[onlyonce.Digest][]*keptStep
	open     map[onlyonce.Digest]openClaim // claims of transactions under way
	settings map[[2]string][]byte
	audit    []onlyonce.AuditEntry
}

// row is a record and what else is kept of its key. A claim makes a new one.
type row struct {
	onlyonce.Record
	// from is the state that the present attempt resumed from, if it did.
	from onlyonce.State
	// keep is nil when nothing is kept; turn counts the turns that were given,
	// due is when the next one comes.
	keep []byte
	turn int
	due  time.Time
}

// openClaim is a claim that is not committed yet, and the record it was judged
// by: the zero Record where there was none.
type openClaim struct {
	record onlyonce.Record
	old    onlyonce.Record
}

var (
	_ onlyonce.TxStore[*Tx]  = (*Store)(nil)
	_ onlyonce.StepStore     = (*Store)(nil)
	_ onlyonce.SettingStore  = (*Store)(nil)
	_ onlyonce.OperatorStore = (*Store)(nil)
	_ onlyonce.RecoveryStore = (*Store)(nil)
)

// New makes an empty Store.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	return &Store{
		// Microseconds, as the databases have them.
		now:      func() time.Time { return now().Round(0).Truncate(time.Microsecond) },
		records:  map[onlyonce.Digest]*row{},
		holders:  map[onlyonce.Digest]onlyonce.Digest{},
		steps:    map[onlyonce.Digest][]*keptStep{},
		open:     map[onlyonce.Digest]openClaim{},
		settings: map[[2]string][]byte{},
	}, nil
}

// Features says that nothing here is durable or shared.
func (s *Store) Features() onlyonce.Features {
	return onlyonce.Features{Name: "memory", SingleProcess: true, Transactions: true, Steps: true, SeesUncommitted: true, Resources: true, Recovery: true, Settings: true, Operators: true}
}

// Claim decides by onlyonce.Judge under the store's mutex.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if err := checkClaim(ctx, req); err != nil {
		return onlyonce.Claim{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if claim, busy := s.underWay(req); busy {
		return claim, nil
	}
	claim, next := s.judge(req)
	if next != nil {
		s.records[req.Key.Digest()] = next
		s.hold(next)
	}
	return claim, nil
}

// hold notes who has the row's resource.
func (s *Store) hold(r *row) {
	if r.Holds {
		s.holders[onlyonce.ResourceDigest(r.Key.Scope, r.Resource)] = r.Key.Digest()
	}
}

// letGo frees the record's resource.
func (s *Store) letGo(rec *onlyonce.Record) {
	resource := onlyonce.ResourceDigest(rec.Key.Scope, rec.Resource)
	if rec.Holds && s.holders[resource] == rec.Key.Digest() {
		delete(s.holders, resource)
	}
	rec.Holds = false
}

// heldBy is another key's row that holds the resource; nil if none does.
func (s *Store) heldBy(key onlyonce.Key, resource string) *row {
	if resource == "" {
		return nil
	}
	r := s.records[s.holders[onlyonce.ResourceDigest(key.Scope, resource)]]
	if r == nil || r.Key == key || !r.Holds || r.Resource != resource || r.Expired(s.now()) {
		return nil
	}
	return r
}

func checkClaim(ctx context.Context, req onlyonce.ClaimRequest) error {
	return errors.Join(ctx.Err(), req.Validate())
}

// underWay answers a claim on a key that a transaction has claimed and not
// committed.
func (s *Store) underWay(req onlyonce.ClaimRequest) (onlyonce.Claim, bool) {
	open, ok := s.open[req.Key.Digest()]
	if !ok {
		return onlyonce.Claim{}, false
	}
	c := onlyonce.Claim{Verdict: onlyonce.Busy, Record: clone(open.record), Remaining: open.record.LeaseEnd.Sub(s.now())}
	if !open.record.Fingerprint.Equal(req.Fingerprint) {
		c.Verdict = onlyonce.Mismatch
	}
	return c, true
}

// judge decides a claim and gives the row to be written, if any.
func (s *Store) judge(req onlyonce.ClaimRequest) (onlyonce.Claim, *row) {
	now := s.now()
	old, found := s.records[req.Key.Digest()]
	verdict, write := onlyonce.Won, true
	if found {
		verdict, write = onlyonce.Judge(old.Record, req, now)
	}
	if !write {
		claim := onlyonce.Claim{Verdict: verdict, Record: clone(old.Record), Remaining: old.Remaining(now)}
		if verdict.Owns() {
			claim.From = old.from
		}
		return claim, nil
	}
	resource := req.Resource
	if verdict == onlyonce.Resumed && old.Resource != "" {
		resource = old.Resource
	}
	if holder := s.heldBy(req.Key, resource); holder != nil {
		return onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: clone(holder.Record), Remaining: holder.LeaseEnd.Sub(now)}, nil
	}
	return s.claimed(req, old, claimAs{verdict, resource, now})
}

// claimAs is how a claim comes to be written.
type claimAs struct {
	verdict  onlyonce.Verdict
	resource string
	now      time.Time
}

// claimed makes the row of a claim that is won over what was there, which may be
// nil.
func (s *Store) claimed(req onlyonce.ClaimRequest, old *row, as claimAs) (onlyonce.Claim, *row) {
	now, verdict := as.now, as.verdict
	rec := onlyonce.Record{
		Resource: as.resource, Holds: as.resource != "",
		Key: req.Key, Operation: req.Operation, Fingerprint: cloneFingerprint(req.Fingerprint),
		State: onlyonce.InProgress, Attempt: req.Attempt, Attempts: 1, Abandon: req.Abandon,
		Retention: req.Retention, CreatedAt: now, LeaseEnd: now.Add(req.Lease),
	}
	claim := onlyonce.Claim{Verdict: verdict, Remaining: req.Lease}
	rec.Fence = onlyonce.NextFence(0, now)
	if old != nil {
		rec.Fence = onlyonce.NextFence(old.Fence, now)
	}
	rec.Origin = rec.Fence
	next := &row{keep: bytes.Clone(req.Keep), due: rec.LeaseEnd}
	if verdict == onlyonce.Resumed {
		claim.From = old.State
		rec.Origin, rec.CreatedAt, rec.Attempts = old.Origin, old.CreatedAt, old.Attempts+1
		rec.Operation = old.Operation
		next.turn = old.turn
		if old.due.After(next.due) {
			next.due = old.due // a turn that was given has put the next one off
		}
		if old.keep != nil {
			next.keep = old.keep
		}
	}
	claim.Record = clone(rec)
	next.Record, next.from = rec, claim.From
	return claim, next
}

// owned is the row if the owner still holds it, whatever its state.
func (s *Store) owned(o onlyonce.Owner) *row {
	rec := s.records[o.Key.Digest()]
	if rec == nil || rec.Fence != o.Fence || rec.Attempt != o.Attempt {
		return nil
	}
	return rec
}

// Renew extends the lease.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	return s.write(ctx, owner, func(rec *row) bool {
		if rec.State != onlyonce.InProgress {
			return false
		}
		rec.LeaseEnd = s.now().Add(lease)
		return true
	})
}

// write runs fn on the owner's record, if it is still the owner's.
func (s *Store) write(ctx context.Context, owner onlyonce.Owner, fn func(*row) bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.owned(owner)
	return rec != nil && fn(rec), nil
}

// Complete stores a copy of the answer.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	_, err := s.write(ctx, owner, func(rec *row) bool {
		settled = s.complete(rec, answer)
		return settled.Held
	})
	return settled, err
}

func (s *Store) complete(rec *row, answer onlyonce.Answer) onlyonce.Settled {
	switch rec.State {
	case onlyonce.Completed:
	case onlyonce.InProgress, onlyonce.InDoubt:
		rec.State, rec.Answer, rec.Reason = onlyonce.Completed, stored(answer), ""
		rec.CompletedAt = s.now()
		rec.ExpiresAt = rec.CompletedAt.Add(rec.Retention)
		rec.keep = nil
		s.letGo(&rec.Record)
	case onlyonce.FailedRetryable:
		return onlyonce.Settled{}
	}
	return onlyonce.Settled{Held: true, ExpiresAt: rec.ExpiresAt}
}

// Release frees the key.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return s.write(ctx, owner, func(rec *row) bool {
		if rec.State == onlyonce.InProgress {
			s.free(rec, reason)
		}
		return rec.State == onlyonce.FailedRetryable
	})
}

func (s *Store) free(rec *row, reason string) {
	rec.State, rec.Reason = onlyonce.FailedRetryable, reason
	rec.ExpiresAt = s.now().Add(rec.Retention)
	if s.hasStep(&rec.Record) {
		rec.ExpiresAt = s.now().Add(max(rec.Retention, onlyonce.FreedStepRetention))
		return
	}
	rec.keep = nil
	s.letGo(&rec.Record)
}

// Park puts the key in doubt.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return s.write(ctx, park.Owner, func(rec *row) bool {
		if rec.State == onlyonce.InProgress && !(park.LeaseOver && s.now().Before(rec.LeaseEnd)) {
			rec.State, rec.Reason = onlyonce.InDoubt, park.Reason
		}
		return rec.State == onlyonce.InDoubt
	})
}

// Get reads a copy of the record.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return onlyonce.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key.Digest()]
	if rec == nil || rec.Expired(s.now()) {
		return onlyonce.Record{}, false, nil
	}
	return clone(rec.Record), true, nil
}

// Setting reads a value.
func (s *Store) Setting(_ context.Context, kind, id string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.settings[[2]string{kind, id}]
	return bytes.Clone(v), ok, nil
}

// AddSetting inserts the value unless one is there.
func (s *Store) AddSetting(_ context.Context, kind, id string, value []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := [2]string{kind, id}
	if v, ok := s.settings[at]; ok {
		return bytes.Clone(v), nil
	}
	s.settings[at] = append([]byte{}, value...)
	return bytes.Clone(s.settings[at]), nil
}
