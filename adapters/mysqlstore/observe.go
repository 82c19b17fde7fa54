package mysqlstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// observed gives a record to judge, and how much of it is left. Where there is one
// clock that is what the row says. In a Galera cluster the lease of a key in progress
// ends when this Store has watched it for all of it (rule C4).
func (s *Store) observed(r *keyRow) (onlyonce.Record, time.Duration) {
	rec := r.Record
	if s.watch != nil && rec.State == onlyonce.InProgress {
		rec.LeaseEnd = r.now.Add(s.left(r))
	}
	return rec, rec.Remaining(r.now)
}

// left is how much of a lease this Store has yet to watch, or by how much it is over.
func (s *Store) left(r *keyRow) time.Duration {
	return s.watch.Remaining(watch.Sight{Digest: r.digest, Fence: r.Fence, Renewal: r.renewal, Lease: r.lease})
}

// leaseOver tells whether a lease has been over for that long.
func (s *Store) leaseOver(r *keyRow, grace time.Duration) bool {
	if s.watch != nil {
		return s.left(r) <= -grace
	}
	return !r.LeaseEnd.After(r.now.Add(-grace))
}

// note begins the watch over a key that this Store has claimed or renewed itself.
func (s *Store) note(r *keyRow) {
	if s.watch != nil {
		s.left(r)
	}
}

// forget ends the watch over a key that is not in progress any more.
func (s *Store) forget(d onlyonce.Digest) {
	if s.watch != nil {
		s.watch.Forget(d)
	}
}

// send is the last send of a step, as far as it is told from others.
type send struct {
	digest     onlyonce.Digest
	name       string
	occurrence int
	origin     int64
	epoch      int
	sends      int
}

// idle is how long this Store has known of a send, by its own monotonic clock; 0 when
// it is told of it for the first time. In a Galera cluster the clock of the node that
// recorded it may be ahead or behind, and says nothing.
func (s *Store) idle(last send) time.Duration {
	if s.watch == nil {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(last.digest[:], "%d %d %s", last.occurrence, last.epoch, last.name))
	return -s.sends.Remaining(watch.Sight{Digest: onlyonce.Digest(sum[:len(onlyonce.Digest{})]), Fence: last.origin, Renewal: int64(last.sends)})
}

// readSend reads the last send of a step of the owner's key.
func readSend(ctx context.Context, q querier, owner onlyonce.Owner, in onlyonce.Intent) (send, error) {
	last := send{digest: owner.Key.Digest(), name: in.Name, occurrence: in.Occurrence}
	err := q.QueryRowContext(ctx, lookSend, ownerArgs(owner, bytesOf(in.Name), in.Occurrence)...).Scan(&last.origin, &last.epoch, &last.sends)
	return last, err
}
