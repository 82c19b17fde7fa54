package oncecall

import "time"

// SetNow puts a clock in place of the process's.
func (t *Transport) SetNow(now func() time.Time) { t.now = now }
