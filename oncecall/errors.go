package oncecall

import (
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// Codes of this package's refusals, beside onlyonce.CodeInTx and
// onlyonce.CodeConfig.
const (
	// CodeWithoutKey: a request that may have an effect was made in a protected
	// operation, but outside of Effect.Send.
	CodeWithoutKey onlyonce.Code = "call_without_key"
	// CodeOtherKey: the request bears another key than the derived one, or is
	// another than the one that the derived key was used for.
	CodeOtherKey onlyonce.Code = "call_with_other_key"
	// CodeTooLate: the send deadline has passed.
	CodeTooLate onlyonce.Code = "send_deadline_passed"
	// CodeSentBefore: the request may have left already, and must not again.
	CodeSentBefore onlyonce.Code = "call_sent_before"
)

// Sentinels for errors.Is.
var (
	// ErrWithoutKey is a request that belongs into an onlyonce.Call.
	ErrWithoutKey = &onlyonce.Error{Code: CodeWithoutKey}
	// ErrOtherKey is a request that does not go with the derived key.
	ErrOtherKey = &onlyonce.Error{Code: CodeOtherKey}
	// ErrTooLate is a request that was not let out after the send deadline.
	ErrTooLate = &onlyonce.Error{Code: CodeTooLate}
	// ErrSentBefore is a second sending that was stopped.
	ErrSentBefore = &onlyonce.Error{Code: CodeSentBefore}
)

// NotSent tells whether err, of a request made with a [Transport], proves that the
// request was not sent: it was refused here, or no connection was obtained. Of a
// request made inside Effect.Send it says at the time it is asked whether nothing
// of that Send can have left. False proves nothing.
func NotSent(err error) bool {
	e, ok := errors.AsType[*unsentError](err)
	return ok && e.proved()
}

// unsentError is the error of a request that was not sent.
type unsentError struct {
	err error
	// effect: the request was one that may have an effect.
	effect bool
	// send is the Effect.Send it belongs to; nil outside.
	send *send
}

func (e *unsentError) Error() string { return "not sent: " + e.err.Error() }

// Unwrap gives the cause, marked as proof for as long as it is one: the Effect.Send
// is judged by its error when it has ended, and may have sent something else since.
func (e *unsentError) Unwrap() error {
	if e.effect && e.proved() {
		return onlyonce.NotAppliedError(e.err)
	}
	return e.err
}

// Timeout is for url.Error, which asks its cause and no deeper one.
func (e *unsentError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.err, &t) && t.Timeout()
}

func (e *unsentError) proved() bool { return e.send == nil || e.send.none() }
