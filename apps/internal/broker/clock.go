package broker

import "time"

// soon is the end of a time that begins now, for deadlines of sockets.
func soon(in time.Duration) time.Time { return time.Now().Add(in) }
