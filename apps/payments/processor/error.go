package processor

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Fate says what an error of the [Client] means for the effect that was asked
// for. It speaks of the one call that failed: a second attempt that was not sent
// or was refused says nothing about a first whose fate is unknown.
type Fate int

const (
	// Unknown means that the effect may have happened: a timeout, a broken
	// connection, any 5xx, a conflict, an answer that cannot be read. Only the
	// same bytes with the same key may be sent again, or the processor be asked
	// by reference.
	Unknown Fate = iota
	// NotSent means that no connection was obtained, so that nothing can have
	// left, or that the client refused to send the request.
	NotSent
	// Refused means that the processor answered and, by its documentation, did
	// nothing: 400, 401, 403, 422, 429.
	Refused
)

// String returns the fate in words.
func (f Fate) String() string {
	switch f {
	case NotSent:
		return "not sent"
	case Refused:
		return "refused"
	default:
		return "unknown"
	}
}

// Error is why a call of the [Client] has no answer to give.
type Error struct {
	// Status is the HTTP status, or 0 where none arrived.
	Status int
	// Code and Message are the processor's words, where it had any.
	Code, Message string
	// Err is what went wrong on this side, if anything.
	Err error

	notSent bool
}

// Error returns everything known about the failure on one line.
func (e *Error) Error() string {
	var parts []string
	if e.Status != 0 {
		parts = append(parts, fmt.Sprintf("status %d", e.Status))
	}
	for _, text := range []string{e.Code, e.Message} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	parts = append(parts, "effect "+e.Fate().String())
	return strings.Join(parts, ": ")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fate says what e means for the effect.
func (e *Error) Fate() Fate {
	if e.notSent {
		return NotSent
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		return Refused
	default:
		return Unknown
	}
}

// FateOf says what err, returned by a method of [Client], means for the effect.
// An error from elsewhere proves nothing: [Unknown], and so is nil, which is
// not to be asked about.
func FateOf(err error) Fate {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fate()
	}
	return Unknown
}
