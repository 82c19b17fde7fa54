package oncehttp

import (
	"sync"
	"time"
)

// maxScopes bounds what a limiter remembers.
const maxScopes = 10_000

// limiter counts events by scope in windows of fixed length. All counts begin
// anew with each window, so that it never grows with the number of scopes seen.
type limiter struct {
	most   int
	window time.Duration

	mu     sync.Mutex
	begun  time.Time
	counts map[string]int
}

func newLimiter(most int, window time.Duration) *limiter {
	return &limiter{most: most, window: window, counts: map[string]int{}}
}

// allow counts one event and tells whether it is within the limit.
func (l *limiter) allow(scope string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := now(); t.Sub(l.begun) >= l.window {
		l.begun = t
		clear(l.counts)
	}
	n, known := l.counts[scope]
	if !known && len(l.counts) >= maxScopes {
		return false
	}
	l.counts[scope] = n + 1
	return n < l.most
}
