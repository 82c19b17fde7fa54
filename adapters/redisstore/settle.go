package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// Renew makes the lease end that long from now, also when it was over, as long
// as nobody has taken the key.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	if lease <= 0 {
		return false, configError("lease must be positive, got %v", lease)
	}
	if err := checkDuration("lease", lease); err != nil {
		return false, err
	}
	return s.write(ctx, s.ownerCall("renew lease", s.scripts.renew, owner, micros(lease)))
}

// ownerCall is a script that only an owner may run.
func (s *Store) ownerCall(op string, script *redis.Script, owner onlyonce.Owner, args ...any) call {
	return call{op: op, script: script, key: s.recordName(owner.Key.Digest()), args: ownerArgs(owner, args...)}
}

// Complete stores the answer, also when the server's memory is full: what has
// been begun can be ended. Repeating it gives the expiry of the answer that
// stands.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	args := []any{micros(s.cfg.StepRetention), answer.Status, onlyonce.EncodeHeader(answer.Header)}
	if !answer.NotRetained {
		args = append(args, answer.Body)
	}
	c := s.ownerCall("complete key", s.scripts.complete, owner, args...)
	c.confirm = true
	r, err := s.run(ctx, c)
	if err != nil || r.value == "" {
		return onlyonce.Settled{}, err
	}
	d := &decoder{values: []any{r.value}}
	settled := onlyonce.Settled{Held: true, ExpiresAt: d.time()}
	switch {
	case d.err != nil:
		return onlyonce.Settled{}, &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: c.op, Err: d.err}
	case r.unconfirmed != nil:
		return onlyonce.Settled{}, unconfirmed(c.op, r.unconfirmed)
	}
	return settled, nil
}

// Release frees the key, also when the server's memory is full.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return s.write(ctx, s.ownerCall("release key", s.scripts.release, owner,
		micros(s.cfg.StepRetention), micros(onlyonce.FreedStepRetention), reason))
}

// Park puts the key in doubt, also when the server's memory is full.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return s.write(ctx, s.ownerCall("park key", s.scripts.park, park.Owner, flag(park.LeaseOver), park.Reason))
}
