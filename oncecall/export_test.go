package oncecall

import "time"

// SetNow puts a clock in place of the process's.
func (t *Transport) SetNow(now func() time.Time) { t.now = now }

// Remembered is how many sends the transport knows of.
func (t *Transport) Remembered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sends)
}
