package cachestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// The setting of the store that holds the secret of its values.
const (
	settingSecret = "cache-secret"
	secretID      = "1"
	minSecret     = 16
)

// tier is a place for values that other processes see, and that may fail, be slow
// or give anything at all.
type tier interface {
	// get gives the value, or more than nothing of it if it is too long; empty if
	// there is none.
	get(ctx context.Context, name string) ([]byte, error)
	set(ctx context.Context, name string, value []byte, ttl time.Duration) error
	del(ctx context.Context, name string) error
	close() error
}

// shared keeps records in a tier.
type shared struct {
	tier     tier
	store    onlyonce.Store
	prefix   string
	timeout  time.Duration
	maxEntry int64
	now      func() time.Time
	breaker  breaker

	secret  atomic.Pointer[[]byte]
	asking  sync.Mutex // for the secret
	closing sync.Once
	closed  error
}

func newShared(t tier, store onlyonce.Store, cfg Config) *shared {
	s := &shared{
		tier: t, store: store, prefix: cfg.Shared.Namespace + ":answer:", timeout: cfg.Shared.Timeout,
		maxEntry: cfg.MaxEntry, now: cfg.Now,
	}
	if cfg.Shared.Secret != nil {
		secret := append([]byte{}, cfg.Shared.Secret...)
		s.secret.Store(&secret)
	}
	return s
}

func (s *shared) close() error {
	s.closing.Do(func() { s.closed = s.tier.close() })
	return s.closed
}

// name is a value's name: nothing in it is of the caller's choice, so that no key
// can pass for another or choose its place in a cluster.
func (s *shared) name(key onlyonce.Key) string {
	d := key.Digest()
	return s.prefix + hex.EncodeToString(d[:])
}

// secretTimeout is how long the store may take for the secret behind a reply of its
// own. Before that a claim waits for it no longer than for the tier.
const secretTimeout = time.Second

// key is the secret of the store's values; nil while it cannot be had in time. The
// store is asked once, by one caller at a time; the others go without.
func (s *shared) key(ctx context.Context, within time.Duration) []byte {
	if secret := s.secret.Load(); secret != nil {
		return *secret
	}
	settings, ok := onlyonce.SettingsOf(s.store)
	if !ok || !s.asking.TryLock() {
		return nil
	}
	defer s.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	fresh := make([]byte, 32)
	rand.Read(fresh)
	secret, err := settings.AddSetting(ctx, settingSecret, secretID, fresh)
	if err != nil || len(secret) < minSecret {
		return nil
	}
	s.secret.Store(&secret)
	return secret
}

// get reads a record, of which all is verified but that it is still alive.
func (s *shared) get(ctx context.Context, key onlyonce.Key, c *counts) (rec onlyonce.Record, found bool) {
	secret := s.key(ctx, s.timeout)
	if secret == nil {
		return rec, false
	}
	var value []byte
	err := s.call(ctx, c, func(ctx context.Context) (err error) {
		value, err = s.tier.get(ctx, s.name(key))
		return err
	})
	if err != nil || len(value) == 0 {
		return rec, false
	}
	rec, err = decode(secret, value)
	if err != nil || !whole(&rec, key) {
		c.rejected.Add(1)
		return onlyonce.Record{}, false
	}
	return rec, true
}

// set writes a record. It may arrive at any time later: what makes it true is the
// expiry in it, not the time to live.
func (s *shared) set(ctx context.Context, rec onlyonce.Record, ttl time.Duration, c *counts) {
	secret := s.key(ctx, secretTimeout)
	if secret == nil || ttl < time.Millisecond {
		return
	}
	value, ok := encode(secret, &rec)
	if !ok || int64(len(value)) > s.maxEntry {
		c.unfit.Add(1)
		return
	}
	_ = s.call(ctx, c, func(ctx context.Context) error { return s.tier.set(ctx, s.name(rec.Key), value, ttl) }) // counted
}

// del deletes a record, if need be of a Redis that was left alone.
func (s *shared) del(ctx context.Context, key onlyonce.Key) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.tier.del(ctx, s.name(key)); err != nil {
		return &onlyonce.Error{
			Code: onlyonce.CodeUncertain, Op: "forget cached answer", Operation: key.Operation(), Err: err,
			Hint: "it may still be in the shared tier; forget it again",
		}
	}
	return nil
}

var errLeftAlone = errors.New("the shared tier has failed and is left alone")

// call makes one call with a time limit, unless the tier is left alone.
func (s *shared) call(ctx context.Context, c *counts, fn func(context.Context) error) error {
	if !s.breaker.allow(s.now()) {
		c.sharedSkipped.Add(1)
		return errLeftAlone
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := fn(limited)
	switch {
	case err == nil:
		s.breaker.worked()
		return nil
	case answered(err):
		s.breaker.worked() // it said no at once, which costs a round trip and no more
	case ctx.Err() == nil && !(soonerOver(ctx, limited) && timedOut(err)):
		s.breaker.failed(s.now())
	}
	c.sharedErrors.Add(1)
	return err
}

// soonerOver tells whether the caller's own time was shorter than the tier's, so
// that running out of it says nothing about the tier.
func soonerOver(ctx, limited context.Context) bool {
	callers, ok := ctx.Deadline()
	ours, _ := limited.Deadline()
	return ok && !callers.After(ours)
}

func timedOut(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || (ok && network.Timeout())
}

// answered tells whether the error is a reply of Redis.
func answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}
