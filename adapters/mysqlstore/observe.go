package mysqlstore

import (
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
