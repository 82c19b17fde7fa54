package sqlitestore

import "time"

// hostClock is the clock of the one host that a SQLite file lives on: all
// processes that use the file write and judge leases by it. So no two of them
// can differ (B20), but when somebody sets the host's clock, every lease moves
// with it: what keeps a slow owner out then is its fence, not its lease.
func hostClock() time.Time { return time.Now() }

// now is the store's time in microseconds, which is what a row can hold.
func (s *Store) now() time.Time { return time.UnixMicro(s.clock().UnixMicro()).UTC() }

// micros is a duration in microseconds, rounded up: a lease or a retention is
// never shorter than it was asked for.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

func fromMicros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
