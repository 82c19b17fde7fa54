package cachestore

import (
	"testing"
	"time"
	"unsafe"
)

// ticked is the time after the monotonic clock alone has gone on by d, as if the
// wall clock had been set back meanwhile. It knows how a time.Time is laid out.
func ticked(at time.Time, d time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&at)).ext += int64(d)
	return at
}

// T2: what has passed is the most that either clock says: the monotonic clock stands
// still while a machine sleeps, the wall clock may be set back.
func TestElapsed(t *testing.T) {
	t.Parallel()
	at := time.Now()
	if d := ticked(at, time.Hour).Sub(at); d != time.Hour {
		t.Fatalf("the monotonic clock was moved by %v", d)
	}
	tests := map[string]struct {
		to   time.Time
		want time.Duration
	}{
		"both":                                 {at.Add(time.Minute), time.Minute},
		"the wall clock stands still":          {ticked(at, time.Minute), time.Minute},
		"the wall clock was set back":          {ticked(at.Add(-time.Hour), time.Hour+time.Minute), time.Minute},
		"the monotonic clock stood still":      {ticked(at.Add(time.Hour), -time.Hour), time.Hour},
		"the machine slept for half of it":     {ticked(at.Add(time.Hour), -30*time.Minute), time.Hour},
		"without a monotonic reading":          {at.Add(time.Minute).Round(0), time.Minute},
		"both back, which only a fake can say": {at.Add(-time.Minute), -time.Minute},
	}
	for name, tt := range tests {
		if got := elapsed(at, tt.to); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		e := entry{at: at, left: 2 * time.Hour}
		if left := e.remaining(tt.to, 3*time.Hour); tt.want >= 0 && left != 2*time.Hour-tt.want || tt.want < 0 && left != 0 {
			t.Errorf("%s: %v remain", name, left)
		}
		r := reading{at: at, shows: at}
		if latest, known := r.latest(tt.to, 30*time.Minute); known != (tt.want >= 0 && tt.want <= 30*time.Minute) || known && !latest.Equal(at.Add(tt.want)) {
			t.Errorf("%s: the store's clock shows %v at the latest, %v", name, latest, known)
		}
	}
	if _, known := (*reading)(nil).latest(at, time.Hour); known {
		t.Error("a clock that nobody has read is known")
	}
}

// After each failure in a row the pause is longer; one call at a time tries.
func TestBreaker(t *testing.T) {
	t.Parallel()
	var b breaker
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 2 {
		if !b.allow(now) {
			t.Fatal("nothing has failed yet")
		}
	}
	b.failed(now)
	pause := firstPause
	for range 12 {
		if b.allow(now.Add(pause - 1)) {
			t.Fatalf("allowed within a pause of %v", pause)
		}
		if now = now.Add(pause); !b.allow(now) || b.allow(now) {
			t.Fatalf("after %v one call finds out, and one only", pause)
		}
		b.failed(now)
		pause = min(2*pause, mostPause)
	}
	b.allow(now.Add(pause))
	if b.allow(now.Add(2*pause - 1)) {
		t.Error("a call that never came back was not waited for")
	}
	if !b.allow(now.Add(2 * pause)) {
		t.Error("a call that never came back is waited for, for ever")
	}
	b.worked()
	for range 2 {
		if !b.allow(now) {
			t.Error("it has worked")
		}
	}
}
