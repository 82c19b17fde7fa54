//go:build race

package canon_test

// raceEnabled tells that the race detector is on, under which a sync.Pool drops
// some of what is put into it.
const raceEnabled = true
