package onlyonce

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code names a kind of error. The codes that reach callers over the wire are
// the ones of section E of the protocol; the others stay inside a service.
type Code string

// Codes that a transport answers with. Their HTTP status is docs/PROTOCOL.md's
// business, not this package's.
const (
	// CodeKeyRequired: the operation needs an idempotency key and got none.
	CodeKeyRequired Code = "idempotency_key_required"
	// CodeKeyInvalid: the key is malformed, too long or was sent twice.
	CodeKeyInvalid Code = "idempotency_key_invalid"
	// CodeInProgress: another attempt at this key is running now.
	CodeInProgress Code = "request_in_progress"
	// CodeOutcomeUnknown: an effect may or may not have happened; the key is
	// in doubt until that is checked, reconciled or settled.
	CodeOutcomeUnknown Code = "outcome_unknown"
	// CodeResourceBusy: another key holds the resource the operation names.
	CodeResourceBusy Code = "resource_busy"
	// CodeMisdirected: the key lives in another region, or has moved and this
	// process does not know yet. Nothing was run.
	CodeMisdirected Code = "misdirected_request"
	// CodeKeyExpired: the key was used and its answer is gone.
	CodeKeyExpired Code = "idempotency_key_expired"
	// CodeBodyTooLarge: the request's body is over the limit.
	CodeBodyTooLarge Code = "request_body_too_large"
	// CodeKeyReused: the key was used for another request.
	CodeKeyReused Code = "idempotency_key_reused"
	// CodeStoreUnavailable: the store cannot be reached, or holds a record
	// this process cannot judge. Nothing was run that is not recorded.
	CodeStoreUnavailable Code = "idempotency_store_unavailable"
	// CodeHandlerFailed: the handler failed without leaving an effect; the
	// same request may run again under the same key.
	CodeHandlerFailed Code = "handler_failed"
	// CodeUnauthenticated: no principal, so no scope to look the key up in.
	CodeUnauthenticated Code = "unauthenticated"
	// CodeInvalidRequest: the request is not one the operation understands;
	// refused before the key was used.
	CodeInvalidRequest Code = "invalid_request"
)

// Codes that stay inside a service.
const (
	// CodeLeaseLost: the attempt no longer owns its key.
	CodeLeaseLost Code = "lease_lost"
	// CodeConflict: the store refused a statement or transaction because of a
	// concurrent one, and nothing of it happened: repeat all of it.
	CodeConflict Code = "store_conflict"
	// CodeUncertain: the store may or may not have done what it was asked.
	// Repeat it with the same attempt token; never conclude from reading.
	CodeUncertain Code = "store_outcome_unknown"
	// CodeUnreachable: no connection to the store could be had; nothing was
	// sent. It alone lets an operation with FailOpen run. That the store was there
	// and refused is not this.
	CodeUnreachable Code = "store_unreachable"
	// CodeConfig: a setting is wrong; the message names the field.
	CodeConfig Code = "invalid_config"
	// CodeInTx: an outside call was tried while a transaction was open.
	CodeInTx Code = "call_inside_transaction"
	// CodeTxEnded: a handler has ended the store's transaction by itself, so
	// that what it wrote may stand without its answer.
	CodeTxEnded Code = "transaction_ended"
	// CodeStepChanged: a resumed step asks for something else than its
	// recorded intent, or its result cannot be read any more.
	CodeStepChanged Code = "step_changed"
	// CodeNotFound: there is no record for the key.
	CodeNotFound Code = "key_not_found"
	// CodeNotInDoubt: a key that is to be settled is not in doubt.
	CodeNotInDoubt Code = "key_not_in_doubt"
)

// Sentinels for errors.Is. Two errors are the same kind when their codes are.
var (
	// ErrLeaseLost is the cause of a handler's cancelled context when its
	// lease could not be kept, and what a fenced write returns.
	ErrLeaseLost = &Error{Code: CodeLeaseLost}
	// ErrOutcomeUnknown is what Call returns when nobody knows whether the
	// provider acted. A handler returns it as it is: the key is then parked.
	ErrOutcomeUnknown = &Error{Code: CodeOutcomeUnknown}
	// ErrConflict is what a store returns for a serialisation failure.
	ErrConflict = &Error{Code: CodeConflict}
	// ErrUncertain is what a store returns when a commit's reply was lost.
	ErrUncertain = &Error{Code: CodeUncertain}
	// ErrUnreachable is what a store returns when it could not be reached.
	ErrUnreachable = &Error{Code: CodeUnreachable}
	// ErrTxEnded is what a store returns when a handler has ended its
	// transaction; the key then goes in doubt.
	ErrTxEnded = &Error{Code: CodeTxEnded}
	// ErrInTx is returned by Step and Call inside an open transaction.
	ErrInTx = &Error{Code: CodeInTx}
	// ErrResourceBusy: another key of the scope has the resource.
	ErrResourceBusy = &Error{Code: CodeResourceBusy}
	// ErrMisdirected is what a store returns for a key that it does not decide
	// about; the error says in Home and Address where the key lives.
	ErrMisdirected = &Error{Code: CodeMisdirected}
	// ErrStepChanged: a recorded step no longer fits what the handler asks for.
	ErrStepChanged = &Error{Code: CodeStepChanged}
)

// Error is the one error type of this module. Code says what kind it is and is
// what errors.Is compares; Op, Operation and Hint help the person who reads it.
type Error struct {
	Code Code
	// Op is what was being done: "claim key", "complete key".
	Op string
	// Hint says what to do next, for people.
	Hint string
	// RetryAfter is how long to wait before trying again; 0 says nothing.
	RetryAfter time.Duration
	// Differs names what differs from the first request under the key, never
	// values: JSON Pointers, "method", "path", "query:NAME", "header:NAME",
	// "content-type", "body". Only with CodeKeyReused.
	Differs []string
	// Operation is a reference to the key that is safe to log and to show.
	Operation string
	// Home names where the key lives, and Address, if it is known, is the URL that
	// its requests are to be sent to. Only with CodeMisdirected. Callers are told.
	Home, Address string
	// Err is the cause, for logs; it is not shown to callers.
	Err error
}

// Error gives the code, the operation, the hint and the cause, in that order.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	b.WriteString(string(e.Code))
	if len(e.Differs) > 0 {
		fmt.Fprintf(&b, " (differs in %s)", strings.Join(e.Differs, ", "))
	}
	if e.Home != "" {
		fmt.Fprintf(&b, " (home %s)", strings.TrimSpace(e.Home+" "+e.Address))
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is compares codes, so that errors.Is(err, ErrLeaseLost) holds for every
// error of that kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// CodeOf is the code of the first *Error in err's chain; empty if there is
// none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// SafeToRetry tells whether the same request may be sent again under the same
// key: true for everything that left nothing behind or whose outcome the key
// guards, false for a reused, malformed or expired key and a wrong request.
func SafeToRetry(err error) bool {
	switch CodeOf(err) {
	case CodeInProgress, CodeOutcomeUnknown, CodeResourceBusy, CodeStoreUnavailable, CodeMisdirected,
		CodeHandlerFailed, CodeLeaseLost, CodeConflict, CodeUncertain, CodeUnreachable:
		return true
	default:
		return false
	}
}
