package onceclient

import (
	"net/http"
	"slices"
	"strings"
)

// decide says what a server's answer means, from its status and header alone: a body
// may never come, and proxies write others than servers do (rule L2). What the server
// says of retrying wins over the status.
func decide(status int, h http.Header) (v Verdict, beforeKey bool) {
	ours := mark(h)
	beforeKey = !ours.looked() && mayPrecedeKey(status, ours)
	if status < http.StatusOK {
		return Again, false
	}
	if isAnswer(status, ours) {
		return Done, beforeKey
	}
	if status == http.StatusGone && ours == markRefused {
		// The key was used, and what came of it is forgotten.
		return Unclear, false
	}
	switch should, said := directive(h); {
	case said && should:
		return Again, false
	case said:
		return final(status, ours), beforeKey
	case again(status, h, ours):
		return Again, false
	default:
		return Denied, beforeKey
	}
}

// final is the verdict on an answer that the server wants no retry of.
func final(status int, ours keyMark) Verdict {
	switch {
	case status >= http.StatusInternalServerError && ours.looked():
		return Done // it is the operation's own answer, and stays it
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout && !ours.looked():
		return Unclear
	default:
		return Denied
	}
}

// again tells whether an answer without a directive is to be asked for again.
func again(status int, h http.Header, ours keyMark) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusConflict:
		// In progress, in doubt, or the resource is busy; else the operation's own.
		return ours == markRefused || h.Get("Retry-After") != ""
	default:
		return status >= http.StatusInternalServerError
	}
}

// follows tells whether a status asks for the same request elsewhere.
func follows(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

func redirects(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest
}

// isAnswer tells what needs no other word. Of redirects that is 303, by which operations
// show what they have made; the others are mostly of who is in front, and lead to https
// or to a form, unless they are marked as the operation's.
func isAnswer(status int, ours keyMark) bool {
	if !redirects(status) {
		return status < http.StatusMultipleChoices
	}
	return status == http.StatusSeeOther || ours.looked() && !follows(status)
}

// mayPrecedeKey tells whether an answer that is not marked as the operation's may be of
// somebody who never looked at the key (a proxy, an authentication that leads to its form,
// a rate limit, a router), or of a guard of keys that has met an earlier attempt: still
// running, forgotten, or taken for another request.
func mayPrecedeKey(status int, ours keyMark) bool {
	switch status {
	case http.StatusPaymentRequired:
		return false
	case http.StatusUnprocessableEntity:
		return ours == markRefused
	default:
		return status >= http.StatusMultipleChoices && status < http.StatusInternalServerError
	}
}

// atWork tells whether a refusal is what servers say, that mark nothing, while an earlier
// attempt is at work; without one, it is the operation's.
func atWork(status int, h http.Header) bool {
	_, said := directive(h)
	return status == http.StatusConflict && !said && mark(h) == markNone
}

// keyMark is what a server says of the key's part in its answer.
type keyMark uint8

const (
	markNone     keyMark = iota // nothing that is known here
	markRefused                 // the guard of keys refused the request
	markExecuted                // the operation ran for this request
	markReplayed                // the answer of an earlier one
)

// looked tells whether the operation itself has answered, under the key.
func (m keyMark) looked() bool { return m == markExecuted || m == markReplayed }

func mark(h http.Header) keyMark {
	status := strings.ToLower(strings.TrimSpace(h.Get("Idempotency-Status")))
	switch {
	case status == "replayed", isTrue(h.Get("Idempotent-Replayed")):
		return markReplayed
	case status == "executed":
		return markExecuted
	case status == "refused":
		return markRefused
	default:
		return markNone
	}
}

// directive is what the server says of retrying, if it says anything.
func directive(h http.Header) (should, said bool) {
	for _, name := range []string{"X-Should-Retry", "Stripe-Should-Retry"} {
		value := strings.TrimSpace(h.Get(name))
		if slices.ContainsFunc([]string{"true", "false"}, func(s string) bool { return strings.EqualFold(s, value) }) {
			return isTrue(value), true
		}
	}
	return false, false
}

func isTrue(value string) bool { return strings.EqualFold(strings.TrimSpace(value), "true") }
