package portable

import "time"

// clock is a time that was read, and goes on from there. It shows less than the
// server's own from then on, never more: the reply was on its way meanwhile.
type clock struct {
	read time.Time
	at   time.Time
	// fixed takes its place; nil: it does not.
	fixed func() time.Time
}

func (c clock) now() time.Time {
	if c.fixed != nil {
		return c.fixed().Round(0).Truncate(time.Microsecond)
	}
	return c.read.Add(time.Since(c.at)).Truncate(time.Microsecond).UTC()
}

// clock makes a clock that shows a time that has just been read.
func (s *Store) clock(read time.Time) clock {
	return clock{read: read, at: time.Now(), fixed: s.cfg.Now}
}
