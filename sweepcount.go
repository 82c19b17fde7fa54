package onlyonce

import (
	"context"
	"sync"
	"time"
)

// SweepTotals is what a Sweeper has done so far, for metrics.
type SweepTotals struct {
	// Batches counts those that ended well, Busy the ones of them that found
	// another sweeper at work, Errors those that failed.
	Batches, Busy, Errors int64
	// Deleted, Freed, Parked and Steps are as in SweepResult.
	Deleted, Freed, Parked, Steps int64
	// Failures counts the batches that failed in a row up to now; 0: the last
	// one ended well.
	Failures int
	// Lag is that of the last batch: how long there has been something left to
	// do. An alarm belongs here, at several times Sweeper.Every.
	Lag time.Duration
	// Took is how long the last batch took, Longest the longest so far.
	Took, Longest time.Duration
}

// SweepCounter adds up what a Sweeper tells its Observe. Its zero value is
// ready; it is safe for concurrent use, by several Sweepers too, and is lost
// with the process.
type SweepCounter struct {
	mu     sync.Mutex
	totals SweepTotals
}

// Observe counts one batch: it is a Sweeper's Observe.
func (c *SweepCounter) Observe(_ context.Context, e SweepEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.totals
	if e.Err != nil {
		t.Errors++
	} else {
		t.Batches++
	}
	if e.Result.Busy {
		t.Busy++
	}
	t.Deleted += int64(e.Result.Deleted)
	t.Freed += int64(e.Result.Freed)
	t.Parked += int64(e.Result.Parked)
	t.Steps += int64(e.Result.Steps)
	t.Failures, t.Lag = e.Failures, e.Lag
	t.Took, t.Longest = e.Took, max(t.Longest, e.Took)
}

// Totals is what was counted so far.
func (c *SweepCounter) Totals() SweepTotals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.totals
}
