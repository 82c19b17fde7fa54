package oncecall

import "time"

// clock is the process's clock. Only its monotonic part is used, to stop early.
func (t *Transport) clock() time.Time {
	if t.now != nil {
		return t.now()
	}
	return time.Now()
}
