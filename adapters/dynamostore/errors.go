package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onlyonce-go/onlyonce"
)

// witness sees every attempt that the SDK makes at one call, and remembers what the
// last error alone does not tell: whether an earlier one may have been carried out.
type witness struct {
	reached atomic.Bool // an attempt had a connection
	unknown atomic.Bool // one may have been carried out, and nobody knows
}

// option installs the witness next to the transport.
func (w *witness) option(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("onlyonce.witness", w.attempt), middleware.After)
	})
}

// attempt watches one attempt. Only a refusal by the server, or that no connection
// was had, proves that it did nothing.
func (w *witness) attempt(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	var asked, got atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	})
	out, meta, err := next.HandleDeserialize(ctx, in)
	if err != nil && (isDial(err) || (asked.Load() && !got.Load())) {
		return out, meta, err
	}
	w.reached.Store(true)
	response, ok := out.RawResponse.(*smithyhttp.Response)
	refused := err == nil && ok && response.StatusCode >= http.StatusBadRequest && response.StatusCode < http.StatusInternalServerError
	if !refused {
		w.unknown.Store(true)
	}
	return out, meta, err
}

// isDial tells whether no connection could be made.
func isDial(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// operation is what a call to the server is for.
type operation struct {
	name   string
	writes bool
}

func reading(name string) operation { return operation{name: name} }

func writing(name string) operation { return operation{name: name, writes: true} }

// call makes one call, with the SDK's repeats, and classifies its error. What a
// condition refused, and why a transaction was cancelled, comes back as it is, to be
// judged.
func call[In, Out any](ctx context.Context, op operation, send func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in *In) (*Out, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", op.name, err)
	}
	var w witness
	out, err := send(ctx, in, w.option)
	if err == nil {
		return out, nil
	}
	return nil, w.classify(ctx, op, err)
}

// codes that the server answers with, in which case it has done nothing.
const (
	codeRefused      = "ConditionalCheckFailedException"
	codeCancelled    = "TransactionCanceledException"
	codeTxConflict   = "TransactionConflictException"
	codeTxInProgress = "TransactionInProgressException"
	codeMismatch     = "IdempotentParameterMismatchException"
	codeNoTable      = "ResourceNotFoundException"
	codeInvalid      = "ValidationException"
)

// codeOf is the server's code of an error; empty if it gave none.
func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// classify says how far a call got that failed.
func (w *witness) classify(ctx context.Context, op operation, err error) error {
	code := codeOf(err)
	switch {
	case code == codeRefused, code == codeCancelled, code == codeMismatch:
		return err
	case op.writes && (w.unknown.Load() || code == codeTxInProgress):
		return &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: op.name, Err: err}
	case code == codeTxConflict:
		return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op.name, Hint: "a transaction is at the item", Err: err}
	case code != "":
		return refusal(op.name, code, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op.name, errors.Join(ctx.Err(), err))
	case !w.reached.Load() && isDial(err):
		return &onlyonce.Error{Code: onlyonce.CodeUnreachable, Op: op.name, Hint: "there is no connection to DynamoDB: check endpoint, region and network", Err: err}
	default:
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op.name, Err: err}
	}
}

// refusal is a store error for a code with which the server does nothing.
func refusal(op, code string, err error) *onlyonce.Error {
	e := &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err}
	switch code {
	case codeNoTable:
		e.Hint = "the table, or its index, is not there: create it with Migrate, and check region and name"
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "LimitExceededException":
		e.Hint, e.RetryAfter = "DynamoDB throttles: raise the table's and the index's capacity, or bill it on demand", time.Second
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException", "ExpiredTokenException", "IncompleteSignatureException":
		e.Hint = "DynamoDB does not let this process in: check its credentials, its role's rights and its clock"
	case codeInvalid:
		e.Hint = "DynamoDB refuses the request as it is: sending it again changes nothing"
	}
	return e
}

// conflict is a write that has lost to others as often as it is tried; nothing of it
// has happened.
func conflict(op string, err error) error {
	return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Hint: "others write the same key at once", Err: err}
}
