package cachestore

import "sync/atomic"

// Stats counts since the Store was made.
type Stats struct {
	// Hits are claims answered from this process's memory, SharedHits from Redis,
	// Misses those that went to the store.
	Hits, SharedHits, Misses int64
	// SharedErrors are calls to Redis that failed, SharedSkipped those that were
	// not made because it had failed before.
	SharedErrors, SharedSkipped int64
	// Rejected are values in Redis that were not what a Store of this database had
	// written under that name. If it rises, somebody else writes there.
	Rejected int64
	// Unfit are records that were too big to be cached, or too near their expiry.
	Unfit int64
	// Entries is how many answers are in this process's memory, Bytes about how
	// much they take.
	Entries int
	Bytes   uint64
}

// counts is what Stats reports of.
type counts struct {
	hits, sharedHits, misses, sharedErrors, sharedSkipped, rejected, unfit atomic.Int64
}

// looked counts a look-up as a hit of a tier, or as a miss.
func (c *counts) looked(hit bool, as *atomic.Int64) {
	if !hit {
		as = &c.misses
	}
	as.Add(1)
}

// Stats reads the counters. They are read one after the other, not as of one
// moment.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{
		Hits: c.hits.Load(), SharedHits: c.sharedHits.Load(), Misses: c.misses.Load(),
		SharedErrors: c.sharedErrors.Load(), SharedSkipped: c.sharedSkipped.Load(),
		Rejected: c.rejected.Load(), Unfit: c.unfit.Load(),
		Entries: s.local.EstimatedSize(), Bytes: s.local.WeightedSize(),
	}
}
