package oncegrpc

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// Names in a server's metadata.
const (
	shouldRetry       = "x-should-retry"
	stripeShouldRetry = "stripe-should-retry"
	idempotencyStatus = "idempotency-status"
	idempotentReplay  = "idempotent-replayed"
	retryAfterName    = "retry-after"
	pushbackName      = "grpc-retry-pushback-ms"
	dateName          = "date"
)

// word is what a server says in its metadata of the key and of retrying.
type word struct{ header, trailer metadata.MD }

// first is the first value of a name, of the trailer rather than of the header.
func (w word) first(name string) string {
	for _, md := range []metadata.MD{w.trailer, w.header} {
		if values := md.Get(name); len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
	}
	return ""
}

// is tells whether the first value of a name is this one.
func (w word) is(name, value string) bool { return strings.EqualFold(w.first(name), value) }

// replayed tells whether the answer is of an earlier attempt.
func (w word) replayed() bool {
	return w.is(idempotencyStatus, "replayed") || w.is(idempotentReplay, "true")
}

// ran tells whether the operation itself has answered, under the key.
func (w word) ran() bool {
	return w.replayed() || w.is(idempotencyStatus, "executed")
}

// directive is what the server says of retrying, if it says anything.
func (w word) directive() (should, said bool) {
	for _, name := range []string{shouldRetry, stripeShouldRetry} {
		if should = w.is(name, "true"); should || w.is(name, "false") {
			return should, true
		}
	}
	if pushed := w.trailer.Get(pushbackName); len(pushed) > 0 && w.pushback() < 0 {
		return false, true
	}
	return false, false
}

// pushback is how long gRPC's own retries are told to wait; negative: for ever.
func (w word) pushback() time.Duration {
	pushed := w.trailer.Get(pushbackName)
	if len(pushed) == 0 {
		return 0
	}
	ms, err := strconv.ParseInt(pushed[0], 10, 32)
	if err != nil || len(pushed) > 1 {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// decide says what a status means (rule L2).
func decide(st *status.Status, w word) (v onceclient.Verdict, beforeKey bool) {
	code := st.Code()
	if code == codes.OK {
		return onceclient.Done, false
	}
	if strings.EqualFold(reason(st), string(onlyonce.CodeKeyExpired)) {
		// The key was used, and what came of it is forgotten.
		return onceclient.Unclear, false
	}
	denied := denies(code)
	// The code of a denial is the server's own, so that its header is whole; a
	// connection that breaks has codes, too, and then only a trailer is its last word.
	ran := w.ran()
	if !denied {
		ran = word{trailer: w.trailer}.ran()
	}
	switch should, said := w.directive(); {
	case said && should:
		return onceclient.Again, false
	case said:
		return final(code, ran)
	case denied:
		return onceclient.Denied, !ran
	default:
		return onceclient.Again, false
	}
}

// final is the verdict on a status that the server wants no retry of.
func final(code codes.Code, ran bool) (v onceclient.Verdict, beforeKey bool) {
	switch {
	case denies(code):
		return onceclient.Denied, !ran
	case ran:
		return onceclient.Done, false // it is the operation's own answer, and stays it
	case code == codes.ResourceExhausted, code == codes.Aborted:
		return onceclient.Denied, true // for others, or for an attempt that is at work
	default:
		return onceclient.Unclear, false
	}
}

// denies tells whether a code says that nothing was done and nothing will be.
func denies(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	default:
		return false
	}
}

// retryAfter is the least time until the next attempt, by the server's word.
func retryAfter(st *status.Status, w word, now time.Time) time.Duration {
	wait := max(w.pushback(), 0)
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait = max(wait, info.GetRetryDelay().AsDuration())
		}
	}
	text := w.first(retryAfterName)
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return max(wait, time.Duration(seconds)*time.Second)
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return wait
	}
	if date, err := http.ParseTime(w.first(dateName)); err == nil {
		now = date // both by the server's own clock
	}
	return max(wait, until.Sub(now))
}

// detail is the part of an error that says why in words for programs.
func detail(st *status.Status) *errdetails.ErrorInfo {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

func reason(st *status.Status) string { return detail(st).GetReason() }

// reference is the server's name for the operation, safe to log.
func reference(st *status.Status) string {
	name := detail(st).GetMetadata()["operation"]
	if len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return name
}
