package cachestore

import (
	"sync"
	"time"
)

// How long Redis is left alone after a failure: longer after each.
const (
	firstPause = 250 * time.Millisecond
	mostPause  = 15 * time.Second
)

// breaker keeps calls away from what has failed. After each pause one caller finds
// out whether it is back.
type breaker struct {
	mu       sync.Mutex
	failures int
	until    time.Time
}

// allow tells whether a call may be made now.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures == 0 {
		return true
	}
	if now.Before(b.until) {
		return false
	}
	b.until = now.Add(b.pause()) // the others wait for what this call finds
	return true
}

// pause is how long to wait after the present number of failures.
func (b *breaker) pause() time.Duration {
	return min(firstPause<<min(b.failures-1, 10), mostPause)
}

// worked notes a call that came back with an answer.
func (b *breaker) worked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}

// failed notes a call that did not.
func (b *breaker) failed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.until = now.Add(b.pause())
}
