package onlyonce

import (
	"sync"
	"time"
)

// Naming what differs tells a caller which fields it guessed right. So it is
// done this often per scope, and after that the refusal names nothing.
const (
	mismatchesNamed  = 30
	mismatchesWindow = time.Minute
)

// mismatchLimit counts mismatches per scope in windows of a minute. Its memory
// is bounded by what one window brings.
type mismatchLimit struct {
	mu    sync.Mutex
	began time.Time
	seen  map[string]int
}

// allow tells whether one more mismatch of the scope may be explained.
func (l *mismatchLimit) allow(scope string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := now(); l.seen == nil || t.Sub(l.began) >= mismatchesWindow {
		l.began, l.seen = t, map[string]int{}
	}
	l.seen[scope]++
	return l.seen[scope] <= mismatchesNamed
}
