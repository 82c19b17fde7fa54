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
		for preference := range strings.SplitSeq(unquoted(line), ",") {
			preference, _, _ = strings.Cut(preference, ";") // its parameters
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
			if err != nil {
				return 0
			}
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}

// unquoted is a field's value with its quoted strings bare, and without what would read
// as a preference in one of them, or in one that does not end.
func unquoted(line string) string {
	var b strings.Builder
	quoted, escaped := false, false
	for _, c := range []byte(line) {
		switch {
		case escaped:
			escaped = false
			c = '_'
		case quoted && c == '\\':
			escaped = true
			continue
		case c == '"':
			quoted = !quoted
			continue
		case quoted && strings.IndexByte(",;=", c) >= 0:
			c = '_'
		}
		b.WriteByte(c)
	}
	if quoted {
		return b.String() + "_"
	}
	return b.String()
}
