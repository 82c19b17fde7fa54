package oncehttp

import "time"

// now is the process's clock. Only intervals of it are used.
func now() time.Time { return time.Now() }
