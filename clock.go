package onlyonce

import "time"

// now is the process's clock. Only its monotonic part is used: to stop early,
// never to judge a lease.
func now() time.Time { return time.Now() }
