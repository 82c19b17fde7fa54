package pgstore

import (
	"context"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Renew makes the lease end that long from now, unless the owner has lost the
// key. Repeating it is harmless.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	st := s.owned(s.sql.renewKey, owner, micros(lease), s.now())
	err := s.write(ctx, "renew lease", st)
	return st.found, err
}

// owned makes a statement about an owner's key: digest, fence and token are its
// first parameters.
func (s *Store) owned(sql text, owner onlyonce.Owner, args ...any) *stmt {
	d := owner.Key.Digest()
	var ok bool
	return &stmt{sql: sql, args: append([]any{d[:], owner.Fence, owner.Attempt[:]}, args...), dest: []any{&ok}}
}

// completion is completeKey on its way.
type completion struct {
	*stmt
	completedAt, expiresAt time.Time
}

func (s *Store) completion(owner onlyonce.Owner, answer onlyonce.Answer) *completion {
	status, header, body := columnsOf(answer)
	c := &completion{stmt: s.owned(s.sql.completeKey, owner, status, header, body, s.now())}
	c.dest = []any{&c.completedAt, &c.expiresAt}
	return c
}

// finishing is a completion that a COMMIT is sent with: it fails when there is
// nothing to complete.
func (s *Store) finishing(owner onlyonce.Owner, answer onlyonce.Answer) *completion {
	c := s.completion(owner, answer)
	c.sql = s.sql.finishKey
	c.dest = append(c.dest, new(int64))
	return c
}

// columnsOf are an answer's columns.
func columnsOf(a onlyonce.Answer) (status int16, header, body []byte) {
	if !a.NotRetained {
		body = notNil(a.Body)
	}
	return int16(a.Status), notNil(onlyonce.EncodeHeader(a.Header)), body
}

func (c *completion) settled() onlyonce.Settled {
	return onlyonce.Settled{Held: true, ExpiresAt: c.expiresAt.UTC()}
}

// Complete stores the answer, unless the owner has lost the key. Repeated, the
// first answer stands. After ErrUncertain it is to be repeated. With the answer
// the resource is free and the kept request gone.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	c := s.completion(owner, answer)
	if err := s.write(ctx, "complete key", c.stmt); err != nil {
		return onlyonce.Settled{}, err
	}
	if c.found {
		return c.settled(), nil
	}
	rec, err := s.read(ctx, alone{s}, owner.Key)
	return settledBefore(rec, owner), err
}

// settledBefore tells whether a completion that changed nothing had been made
// before by the same owner.
func settledBefore(rec *reading, owner onlyonce.Owner) onlyonce.Settled {
	if rec == nil || rec.State != onlyonce.Completed || rec.Owner() != owner {
		return onlyonce.Settled{}
	}
	return onlyonce.Settled{Held: true, ExpiresAt: rec.ExpiresAt}
}

// Release frees the key, unless the owner has lost it or is done with it, and with
// it the resource; the kept request goes. Behind a step that is begun or done all
// of it stays. Repeating it is harmless.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	st := s.owned(s.sql.releaseKey, owner, printable(reason), s.now(), micros(onlyonce.FreedStepRetention))
	if err := s.writeAll(ctx, "release key", s.owned(s.sql.ownKey, owner), st); err != nil || st.found {
		return st.found, err
	}
	return s.isIn(ctx, owner, onlyonce.FailedRetryable)
}

// Park puts the key in doubt, unless the owner has lost it or is done with it. It
// keeps its resource and its request. Repeating it is harmless.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	st := s.owned(s.sql.parkKey, park.Owner, printable(park.Reason), park.LeaseOver, s.now())
	if err := s.write(ctx, "park key", st); err != nil || st.found {
		return st.found, err
	}
	return s.isIn(ctx, park.Owner, onlyonce.InDoubt)
}

// isIn tells whether the owner's key is in a state already: a write that
// changed nothing was then a repeated one.
func (s *Store) isIn(ctx context.Context, owner onlyonce.Owner, state onlyonce.State) (bool, error) {
	rec, err := s.read(ctx, alone{s}, owner.Key)
	return rec != nil && rec.State == state && rec.Owner() == owner, err
}

// printable makes any text one that the database takes: reasons come from
// errors, which may hold anything.
func printable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
