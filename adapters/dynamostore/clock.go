package dynamostore

import (
	"math"
	"time"
)

// now is the process's time in microseconds, which is what an item holds. It judges
// retention and turns, never a lease.
func (s *Store) now() time.Time { return time.UnixMicro(s.clock().UnixMicro()).UTC() }

// maxMicros is the longest time.Duration, 292 years. What is longer is cut to it.
const maxMicros = math.MaxInt64 / int64(time.Microsecond)

// micros is a duration in microseconds, rounded up: a lease or a retention is
// never shorter than it was asked for.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if us < maxMicros && fromMicros(us) < d {
		us++
	}
	return us
}

func fromMicros(us int64) time.Duration {
	return time.Duration(min(max(us, -maxMicros), maxMicros)) * time.Microsecond
}

// whole is the duration as an item has it.
func whole(d time.Duration) time.Duration { return fromMicros(micros(d)) }

// timeOf is the time of microseconds; 0 is the zero time.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// microsOf is the opposite of timeOf.
func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
