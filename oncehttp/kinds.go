package oncehttp

import (
	"net/http"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Codes that only this package answers with.
const (
	// CodeNotRetained: the request was carried out, and its answer was too
	// large to keep. The answer's status and Location are the first one's.
	CodeNotRetained onlyonce.Code = "answer_not_retained"
	// CodeForbidden: the Route's Authorize function refused the stored answer.
	CodeForbidden onlyonce.Code = "replay_forbidden"
	// CodeMethod: the method is not one of the operation's.
	CodeMethod onlyonce.Code = "method_not_allowed"
	// CodeEncoding: the body's Content-Encoding is not known.
	CodeEncoding onlyonce.Code = "unsupported_content_encoding"
)

// kind is what is the same for all problems of one code (section E).
type kind struct {
	code   onlyonce.Code
	status int
	title  string
	with   RetryWith
	// later is the Retry-After where the error names none; 0: none.
	later time.Duration
	// text is the kind's documentation.
	text string
}

// kinds is the table of all problems this package answers with.
func kinds() []kind {
	return []kind{
		{
			onlyonce.CodeKeyRequired, http.StatusBadRequest, "Idempotency key required", NewKey, 0,
			"The operation needs an Idempotency-Key header, and there was none. Make a random value for each operation, keep it before the first byte is sent, and send the same value with every retry.",
		},
		{
			onlyonce.CodeKeyInvalid, http.StatusBadRequest, "Idempotency key invalid", NewKey, 0,
			"The key is malformed, too long or was sent more than once. A key has 1 to 255 characters of printable ASCII, quoted (RFC 9651) or bare, in one header line. Nothing was stored and nothing was run.",
		},
		{
			onlyonce.CodeInvalidRequest, http.StatusBadRequest, "Invalid request", NoRetry, 0,
			"The request is not one the operation understands. It was refused before its key was used: a corrected request may use the same key.",
		},
		{
			onlyonce.CodeUnauthenticated, http.StatusUnauthorized, "Unauthenticated", NoRetry, 0,
			"The request bears no credential that names an account. Its key was not used: after authenticating, send it again with the same key.",
		},
		{
			CodeForbidden, http.StatusForbidden, "Replay forbidden", NoRetry, 0,
			"The caller may not see the stored answer of this key.",
		},
		{
			onlyonce.CodeNotFound, http.StatusNotFound, "Key not found", NoRetry, 0,
			"There is no record of this key in the caller's account. It was never claimed, was refused before it was claimed, or has expired. That says nothing about an operation that was sent long ago.",
		},
		{
			CodeMethod, http.StatusMethodNotAllowed, "Method not allowed", NoRetry, 0,
			"The operation is not offered under this method. Nothing was run.",
		},
		{
			onlyonce.CodeInProgress, http.StatusConflict, "Request in progress", SameKey, time.Second,
			"The first request with this key is still running. Send the same request again, with the same key, after the time in Retry-After; never with a new key.",
		},
		{
			onlyonce.CodeOutcomeUnknown, http.StatusConflict, "Outcome unknown", SameKey, 5 * time.Second,
			"Whether the operation took effect is not known yet, and nobody runs it again before it is. Ask again later with the same key; a new key could have the effect a second time.",
		},
		{
			onlyonce.CodeResourceBusy, http.StatusConflict, "Resource busy", SameKey, time.Second,
			"Another operation on the same resource is running, or its outcome is not known yet. Send the same request again later with the same key.",
		},
		{
			onlyonce.CodeKeyExpired, http.StatusGone, "Idempotency key expired", NoRetry, 0,
			"The key was used and its answer is no longer kept. Look up what became of the operation; do not repeat it blindly.",
		},
		{
			onlyonce.CodeBodyTooLarge, http.StatusRequestEntityTooLarge, "Request body too large", NoRetry, 0,
			"The body is over the operation's limit. The key was not used.",
		},
		{
			CodeEncoding, http.StatusUnsupportedMediaType, "Unsupported content encoding", NoRetry, 0,
			"The body's Content-Encoding is not known here; gzip, deflate and identity are. The key was not used.",
		},
		{
			onlyonce.CodeMisdirected, http.StatusMisdirectedRequest, "Misdirected request", SameKey, time.Second,
			"The key lives in another region or on another shard; nothing was run here, and nothing was stored. The members home and address, and the header Idempotency-Home, say where: send the same request there, with the same key. Without an address it has just moved, and the same request to this one finds it a little later.",
		},
		{
			onlyonce.CodeKeyReused, http.StatusUnprocessableEntity, "Idempotency key reused", NewKey, 0,
			"The key was used for another request. The member differs names what is not the same, never its values. If this is another operation, send it with a key of its own; if it is a retry, send what was sent first.",
		},
		{
			onlyonce.CodeHandlerFailed, http.StatusInternalServerError, "Operation failed", SameKey, 0,
			"The operation failed and left no effect. The same request may be sent again with the same key.",
		},
		{
			onlyonce.CodeConfig, http.StatusInternalServerError, "Service misconfigured", NoRetry, 0,
			"The service is not set up right; its operators find the reason in its log.",
		},
		{
			onlyonce.CodeStoreUnavailable, http.StatusServiceUnavailable, "Idempotency store unavailable", SameKey, 2 * time.Second,
			"The store of keys cannot be reached, or cannot judge this key now. Send the same request again later with the same key.",
		},
		{
			CodeNotRetained, http.StatusOK, "Answer not retained", NoRetry, 0,
			"The request was carried out, once, and its answer was too large to be kept. Status and headers are those of the first answer: follow Location, or look the result up.",
		},
	}
}

// kindOf finds what is answered for a code. Codes that stay inside a service
// are answered as what they mean to a caller.
func kindOf(code onlyonce.Code) kind {
	switch code {
	case onlyonce.CodeLeaseLost:
		code = onlyonce.CodeInProgress
	case onlyonce.CodeConflict, onlyonce.CodeUncertain, onlyonce.CodeUnreachable:
		code = onlyonce.CodeStoreUnavailable
	default:
	}
	all := kinds()
	if i := slices.IndexFunc(all, func(k kind) bool { return k.code == code }); i >= 0 {
		return all[i]
	}
	return kindOf(onlyonce.CodeConfig)
}
