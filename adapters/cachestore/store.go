package cachestore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/onlyonce-go/onlyonce"
)

// Store is a store behind a cache. It has all the optional powers of an
// onlyonce.Store, which count where the store beneath promises them, and panics
// when one is used that the store beneath lacks. It is safe for concurrent use.
type Store struct {
	onlyonce.Store
	cfg      Config
	features onlyonce.Features
	local    *otter.Cache[onlyonce.Key, *entry]
	shared   *shared // nil: there is none
	clock    atomic.Pointer[reading]
	counts   counts
	// forgets rises when Forget begins, and when it is about to end: what was asked
	// for before then is not kept.
	forgets atomic.Int64
}

var (
	_ onlyonce.StepStore     = (*Store)(nil)
	_ onlyonce.SettingStore  = (*Store)(nil)
	_ onlyonce.OperatorStore = (*Store)(nil)
	_ onlyonce.RecoveryStore = (*Store)(nil)
	_ onlyonce.TxStore[int]  = (*TxStore[int])(nil)
)

// New puts a cache before a store. It connects to nothing: a Redis that is not
// there is found out, and left alone, when it is first used. It returns an
// *onlyonce.Error with CodeConfig for a configuration that cannot be.
func New(store onlyonce.Store, cfg Config) (*Store, error) {
	if err := cfg.validateFor(store); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	local, err := otter.New(&otter.Options[onlyonce.Key, *entry]{
		MaximumWeight: uint64(cfg.MaxBytes),
		Weigher:       func(_ onlyonce.Key, e *entry) uint32 { return uint32(min(e.weight, 1<<31)) },
		// Housekeeping is done by whoever writes, so that no goroutine is
		// anybody's to end.
		Executor: func(fn func()) { fn() },
	})
	if err != nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "make cache", Hint: "look at MaxBytes", Err: err}
	}
	s := &Store{Store: store, cfg: cfg, features: store.Features(), local: local}
	s.features.Name = "cached " + s.features.Name
	if cfg.Shared != nil {
		s.shared = newShared(newRedisTier(cfg), store, cfg)
	}
	return s, nil
}

// Features are those of the store beneath, under the name "cached NAME".
func (s *Store) Features() onlyonce.Features { return s.features }

// Close lets go of all that is cached in this process and of the connections to
// Redis. It does not close the store beneath, which goes on answering through this
// one. It may be called twice.
func (s *Store) Close() error {
	s.local.InvalidateAll()
	if s.shared == nil {
		return nil
	}
	return s.shared.close()
}

// Claim answers a replay from the cache, or asks the store. Its verdicts are those
// of the store beneath. On a hit Claim.Remaining is what is left at the least. A
// crash leaves nothing: the cache has nothing that the store does not have.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if claim, ok := s.replay(ctx, req); ok {
		return claim, nil
	}
	asked := s.asking()
	claim, err := s.Store.Claim(ctx, req)
	if err == nil {
		s.learn(ctx, asked, req, claim)
	}
	return claim, err
}

// replay answers the claim if a tier of the cache can.
func (s *Store) replay(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, bool) {
	if ctx.Err() != nil || req.Validate() != nil || (req.Resource != "" && !s.features.Resources) {
		return onlyonce.Claim{}, false // the store says what is wrong with it
	}
	now := s.cfg.Now()
	e, found := s.local.GetIfPresent(req.Key)
	if found && e.remaining(now, s.cfg.MaxAge) > s.cfg.Margin {
		claim, ok := s.hit(e, req, now)
		s.counts.looked(ok, &s.counts.hits)
		return claim, ok
	}
	if e = s.fetch(ctx, req.Key); e == nil {
		s.counts.misses.Add(1)
		return onlyonce.Claim{}, false
	}
	claim, ok := s.hit(e, req, e.at)
	s.counts.looked(ok, &s.counts.sharedHits)
	return claim, ok
}

// hit is the answer to the claim, if the entry is of the same request.
func (s *Store) hit(e *entry, req onlyonce.ClaimRequest, now time.Time) (onlyonce.Claim, bool) {
	if e.rec.Key != req.Key || !e.rec.Fingerprint.Equal(req.Fingerprint) {
		return onlyonce.Claim{}, false
	}
	left := e.remaining(now, s.cfg.MaxAge)
	return onlyonce.Claim{Verdict: onlyonce.Replay, Record: clone(e.rec), Remaining: left}, true
}

// fetch gets a live entry from the shared tier and keeps it here; nil if there is
// none, or if the store's clock is not known well enough to tell.
func (s *Store) fetch(ctx context.Context, key onlyonce.Key) *entry {
	if s.shared == nil {
		return nil
	}
	if _, known := s.clock.Load().latest(s.cfg.Now(), s.cfg.MaxAge); !known {
		return nil
	}
	asked := s.asking()
	rec, found := s.shared.get(ctx, key, &s.counts)
	if !found {
		return nil
	}
	return s.admit(asked, rec)
}

// asked is the moment before a tier or the store was asked.
type asked struct {
	at      time.Time
	forgets int64
}

func (s *Store) asking() asked { return asked{s.cfg.Now(), s.forgets.Load()} }

// admit keeps a record here for as long as the store's clock, as far as it is
// known now, is before its expiry.
func (s *Store) admit(asked asked, rec onlyonce.Record) *entry {
	now := s.cfg.Now()
	latest, known := s.clock.Load().latest(now, s.cfg.MaxAge)
	if !known {
		return nil
	}
	e := newEntry(rec, now, rec.ExpiresAt.Sub(latest))
	if !s.keep(asked, e) {
		return nil
	}
	return e
}

// keep puts an entry into this process's cache; false if it is too big or too near
// its end, or if something was forgotten since it was asked for.
func (s *Store) keep(asked asked, e *entry) bool {
	if e.weight > s.cfg.MaxEntry || e.left <= s.cfg.Margin {
		s.counts.unfit.Add(1)
		return false
	}
	if s.forgets.Load() != asked.forgets {
		return false
	}
	s.local.Set(e.rec.Key, e)
	if s.forgets.Load() != asked.forgets { // meanwhile
		s.local.Invalidate(e.rec.Key)
		return false
	}
	return true
}

// learn takes from the store's reply what it says about the key and about the
// store's clock. asked is a moment before the store was asked.
func (s *Store) learn(ctx context.Context, asked asked, req onlyonce.ClaimRequest, claim onlyonce.Claim) {
	rec := &claim.Record
	switch claim.Verdict {
	case onlyonce.Replay:
		s.clock.Store(&reading{asked.at, rec.ExpiresAt.Add(-claim.Remaining)})
		if whole(rec, req.Key) && rec.Fingerprint.Equal(req.Fingerprint) {
			if e := newEntry(clone(*rec), asked.at, claim.Remaining); s.keep(asked, e) {
				s.share(ctx, e)
			}
		}
		return
	case onlyonce.Mismatch:
		if e, found := s.local.GetIfPresent(req.Key); found && rec.State == onlyonce.Completed && e.rec.Owner() == rec.Owner() {
			return // it stands
		}
	case onlyonce.Won, onlyonce.Resumed:
		// Where there are several clocks, leases are not judged by any of them.
		if !s.features.Observes && rec.State == onlyonce.InProgress {
			s.clock.Store(&reading{asked.at, rec.LeaseEnd.Add(-claim.Remaining)})
		}
	case onlyonce.Busy, onlyonce.Doubtful, onlyonce.Abandoned, onlyonce.ResourceBusy:
	}
	s.local.Invalidate(req.Key) // whatever is here, the store knows better
}

// whole tells whether it is the record of a completed key, in full.
func whole(rec *onlyonce.Record, key onlyonce.Key) bool {
	return rec.State == onlyonce.Completed && rec.Answer != nil && rec.Key == key && rec.Retention > 0
}

// share puts an entry into the shared tier.
func (s *Store) share(ctx context.Context, e *entry) {
	if s.shared == nil {
		return
	}
	left := e.remaining(s.cfg.Now(), s.cfg.MaxAge) - s.cfg.Margin
	s.shared.set(ctx, e.rec, min(left, s.cfg.MaxAge), &s.counts)
}

// Complete stores the answer in the store and, with Config.ReadBack, reads the
// record into the cache.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	settled, err := s.Store.Complete(ctx, owner, answer)
	if err == nil && settled.Held {
		s.readBack(ctx, owner.Key)
	}
	return settled, err
}

// readBack caches a key that has just been completed. What it fails to do, the
// first retry does.
func (s *Store) readBack(ctx context.Context, key onlyonce.Key) {
	if !s.cfg.ReadBack {
		return
	}
	asked := s.asking()
	rec, found, err := s.Store.Get(ctx, key)
	if err != nil || !found || !whole(&rec, key) {
		return
	}
	if e := s.admit(asked, clone(rec)); e != nil {
		s.share(ctx, e)
	}
}

// Sweep has the store do its housekeeping, and lets go of what has expired here.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	now := s.cfg.Now()
	for key, e := range s.local.All() {
		if e.remaining(now, s.cfg.MaxAge) <= s.cfg.Margin {
			s.local.Invalidate(key)
		}
	}
	return s.Store.Sweep(ctx, req)
}

// Forget lets go of a key that somebody has changed in the database by hand: in
// this process and in Redis, unless an error is returned: then it may come back from
// there. What claims that are under way have read before it returns is not kept.
// Other processes answer from their own memory for up to Config.MaxAge.
func (s *Store) Forget(ctx context.Context, key onlyonce.Key) error {
	s.forgets.Add(1)
	var err error
	if s.shared != nil {
		err = s.shared.del(ctx, key) // first: what is there would come back
	}
	s.forgets.Add(1)
	s.local.Invalidate(key)
	return err
}
