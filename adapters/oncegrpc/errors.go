package oncegrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// statusError gives an error of the client's a status, for callers that know gRPC only.
type statusError struct {
	err    error
	status *status.Status
}

// Error is that of the client.
func (e *statusError) Error() string { return e.err.Error() }

// Unwrap is the client's error.
func (e *statusError) Unwrap() error { return e.err }

// GRPCStatus is for package status.
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// failed is an error of the client's with the status that goes with it.
func failed(err error) error { return &statusError{err, statusFor(err)} }

func statusFor(err error) *status.Status {
	if refused, ok := errors.AsType[*onceclient.RefusedError](err); ok {
		if st, none := StatusOf(refused.Answer); none == nil && st.Code() != codes.OK {
			return st
		}
		return status.New(codes.FailedPrecondition, err.Error())
	}
	_, unknown := errors.AsType[*onceclient.UnknownError](err)
	_, unrecorded := errors.AsType[*onceclient.UnrecordedError](err)
	if unknown || unrecorded {
		// Not the code of the last attempt: whoever retries by codes would begin
		// another operation.
		return status.New(codes.Unknown, err.Error())
	}
	_, notSent := errors.AsType[*onceclient.NotSentError](err)
	switch code := onlyonce.CodeOf(err); {
	case errors.Is(err, context.Canceled):
		return status.New(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.New(codes.DeadlineExceeded, err.Error())
	case notSent, code == onceclient.CodeJournal:
		return status.New(codes.Unavailable, err.Error())
	case code == onceclient.CodeIntentReused:
		return status.New(codes.FailedPrecondition, err.Error())
	default:
		return status.New(codes.InvalidArgument, err.Error())
	}
}
