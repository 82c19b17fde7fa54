package onceclient

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter is the least time until the next attempt, by the server's word, in either
// form of the header. What cannot be read, or has passed, is no time. A date is taken
// against the server's own clock, where it says what that shows.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64 // more than a number holds
		}
		return time.Duration(seconds) * time.Second
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(until.Sub(now), 0)
}

// backoff is a random time up to base doubled with each try, counted from 0, at most
// limit: full jitter (rule L3).
func backoff(try int, base, limit time.Duration) time.Duration {
	most := limit
	if shift := min(try, 30); base <= limit>>shift {
		most = base << shift
	}
	return time.Duration(rand.Int64N(int64(max(most, 1))) + 1)
}

// sum adds durations that are not negative, without overflow.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// sleep returns false at once when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
