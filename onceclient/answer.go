package onceclient

import (
	"net/http"
	"time"
)

// Answer is what a server has answered.
type Answer struct {
	// Status is the HTTP status, or the one that goes with a gRPC code.
	Status int
	// Header is as it was received, or as the transport beneath has left it: see
	// Config.Base. Set-Cookie is not in a recorded one.
	Header http.Header
	// Body is whole, byte for byte. Only of a server that gives neither a length nor
	// chunks, and breaks off, it cannot be told that it is not.
	Body []byte
}

// Request is an operation that is to be done once.
type Request struct {
	// Intent names the operation for its caller: "order-42/charge". Doing the same
	// intent again goes on with it, or gives its recorded answer; with another
	// request it is refused. Empty: one is made, and only Resume finds it again.
	Intent string
	// Key is the idempotency key. Empty: one is made from crypto/rand when the intent
	// is new. An intent that has one keeps it.
	Key string
	// Method and URL are where it goes.
	Method, URL string
	// Header is sent with it. What looks like a credential ([IsCredential]) is
	// sent, but not kept in the journal: after a crash Config.Authorize has to supply it.
	Header http.Header
	// Body is sent as it is.
	Body []byte
}

// Outcome is how an operation stands.
type Outcome struct {
	// Intent and Key are the operation's.
	Intent, Key string
	// Reference is the server's own name for it, safe to log; empty if it gave none.
	Reference string
	// Answer is the server's, nil if there is none.
	Answer *Answer
	// Attempts counts all attempts so far, those of earlier processes included.
	Attempts int
	// Replayed: the server says that the answer is of an earlier attempt.
	Replayed bool
	// Recorded: the answer is from the journal; nothing was sent.
	Recorded bool
}

// Reply is what became of one attempt.
type Reply struct {
	// Verdict says what it means for the operation.
	Verdict Verdict
	// Answer is the server's, nil if none came.
	Answer *Answer
	// RetryAfter is the least time until the next attempt, by the server's word.
	RetryAfter time.Duration
	// Reference is the server's name for the operation.
	Reference string
	// Replayed: the server says that the answer is of an earlier attempt.
	Replayed bool
	// BeforeKey: the answer may have been given by somebody who never looked at the
	// key (a proxy, an authentication), or because of an earlier attempt, so that it
	// proves nothing of those.
	BeforeKey bool
	// AtWork: a denial that may have been given because an attempt before is at work. If
	// there was one, it is asked again.
	AtWork bool
	// Err is why there is no final answer.
	Err error
}

// Verdict is what one attempt means for its operation.
type Verdict uint8

// The verdicts.
const (
	// Again: it may have had an effect, or will; ask again with the same key.
	Again Verdict = iota
	// Done: the server's answer of the operation.
	Done
	// Denied: the server refuses for good.
	Denied
	// Unsent: it is proved that nothing of this attempt has left.
	Unsent
	// Unclear: the server wants no retry, and its answer does not tell what happened.
	Unclear
)
