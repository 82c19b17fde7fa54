package oncehttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// preferredWait is how long a caller would rather wait than be told that its first
// request still runs: "Prefer: wait=10", in seconds (RFC 7240, 4.3). 0: it did not say,
// or not in a way that is understood; a preference is never an error. Of several the
// first counts.
func preferredWait(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";") // its parameters
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0
			}
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}
