package oncehttp

import (
	"fmt"
	"net/http"
	"strings"
)

// The headers of the protocol.
const (
	// HeaderKey carries the key, and its echo in every answer to it.
	HeaderKey = "Idempotency-Key"
	// HeaderReplayed is "true" on replays and absent from everything else.
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderStatus says how the answer came about; see the Status constants.
	HeaderStatus = "Idempotency-Status"
	// HeaderExpires says until when the answer is replayed, as an RFC 9651
	// Date: "@1700000000".
	HeaderExpires = "Idempotency-Expires"
	// HeaderHome says where the key of a misdirected request lives, as an RFC 9651
	// String, and where its requests are to be sent, if that is known:
	// "eu-2";address="https://eu-2.example.com".
	HeaderHome = "Idempotency-Home"
	// HeaderShouldRetry is "true" or "false" on refusals: whether the same
	// request may be sent again under the same key. On stored answers of 400 and
	// more, first sent or replayed, it is "false": they are final.
	HeaderShouldRetry = "X-Should-Retry"
)

// The values of HeaderStatus (rule R1).
const (
	// StatusExecuted: the handler ran for this very request.
	StatusExecuted = "executed"
	// StatusReplayed: the answer of an earlier run.
	StatusReplayed = "replayed"
	// StatusRefused: the guard refused the request.
	StatusRefused = "refused"
	// StatusIgnored: the operation does not honour keys.
	StatusIgnored = "ignored"
	// StatusUnprotected: the handler ran without protection.
	StatusUnprotected = "unprotected"
)

// storedHeaders are the headers that every operation's answers keep (rule O8).
func storedHeaders() []string {
	return []string{
		"Content-Type", "Content-Language", "Location", "Content-Location",
		"Etag", "Last-Modified", "Link",
	}
}

// ownHeaders speak of one answer's way through the guard. A handler that
// copies somebody else's answer must not make ours say what is not so.
func ownHeaders() []string {
	return []string{HeaderKey, HeaderReplayed, HeaderStatus, HeaderExpires, HeaderHome}
}

// keepSet is the allow-list of one operation.
type keepSet map[string]bool

func newKeepSet(more []string) (keepSet, error) {
	keep := keepSet{}
	for _, name := range storedHeaders() {
		keep[name] = true
	}
	for _, name := range more {
		name = http.CanonicalHeaderKey(name)
		if neverStored(name) {
			return nil, configError("Route.KeepHeaders", fmt.Sprintf("%s is of one answer only and is never stored", name))
		}
		keep[name] = true
	}
	return keep, nil
}

// neverStored tells whether a header speaks of one exchange, connection or
// caller, so that it would be wrong in a replay (rule O8).
func neverStored(name string) bool {
	switch name {
	case "", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding",
		"Date", "Set-Cookie", "Www-Authenticate", "Server-Timing", "Traceparent", "Tracestate", "X-Request-Id",
		HeaderKey, HeaderReplayed, HeaderStatus, HeaderExpires, HeaderHome, HeaderShouldRetry, "Retry-After":
		return true
	}
	for _, prefix := range []string{"Access-Control-", "Ratelimit", "X-Ratelimit-", http.TrailerPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// stored is the part of a header that is stored, and replayed.
func (k keepSet) stored(h map[string][]string) http.Header {
	kept := http.Header{}
	for name, values := range h {
		if name = http.CanonicalHeaderKey(name); k[name] && len(values) > 0 {
			kept[name] = append(kept[name], values...)
		}
	}
	return kept
}

// sendable is a handler's header without what the guard decides itself: framing,
// trailers, and the headers of the protocol.
func sendable(h map[string][]string) http.Header {
	out := http.Header{}
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		if strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		out[name] = append(out[name], values...)
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Trailer"} {
		delete(out, name)
	}
	for _, name := range ownHeaders() {
		delete(out, name)
	}
	return out
}
