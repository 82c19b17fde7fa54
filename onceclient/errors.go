package onceclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// Codes of this package's own errors, beside onlyonce.CodeConfig. Where one is returned
// as it is, this call has sent nothing.
const (
	// CodeIntentReused: the intent was used for another request.
	CodeIntentReused onlyonce.Code = "intent_reused"
	// CodeIntentLocked: somebody else works on the intent.
	CodeIntentLocked onlyonce.Code = "intent_locked"
	// CodeJournal: the journal could not be read or written.
	CodeJournal onlyonce.Code = "journal_unavailable"
	// CodeRetentionOver: the server may have forgotten the key, and would take another
	// attempt for a new operation.
	CodeRetentionOver onlyonce.Code = "retention_over"
	// CodeAnswerTooLong: the server's answer is longer than Config.MaxAnswer.
	CodeAnswerTooLong onlyonce.Code = "answer_too_long"
	// CodeRedirect: the server wants the request to go where it must not.
	CodeRedirect onlyonce.Code = "redirect_refused"
	// CodeSentBefore: the transport beneath was about to repeat a request by itself.
	CodeSentBefore onlyonce.Code = "request_sent_before"
)

// RefusedError is a server's final refusal: the operation was not done, and will not be
// unless somebody does the intent again.
type RefusedError struct {
	// Intent and Key are the operation's.
	Intent, Key string
	// Reference is the server's own name for it, safe to log; may be empty.
	Reference string
	// Answer is the refusal.
	Answer *Answer
	// Err says more than the answer does, where there is more to say; may be nil.
	Err error
}

// Error names the intent and the status.
func (e *RefusedError) Error() string {
	return describe(e.Intent, e.Reference, fmt.Sprintf("refused with status %d", statusOf(e.Answer)), e.Err)
}

// Unwrap gives the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// NotSentError is the proof that no attempt of the operation has left this machine, of
// earlier processes neither, and the journal says so. Doing the intent again is safe, and
// sends it; one with CodeRetentionOver is too old for that, and needs another intent.
type NotSentError struct {
	// Intent and Key are the operation's; doing the intent again uses the key.
	Intent, Key string
	// Err is why nothing was sent.
	Err error
}

// Error names the intent and the cause.
func (e *NotSentError) Error() string { return describe(e.Intent, "", "not sent", e.Err) }

// Unwrap gives the cause, marked as onlyonce.NotAppliedError marks.
func (e *NotSentError) Unwrap() error { return onlyonce.NotAppliedError(e.Err) }

// Timeout is for url.Error, which asks its cause and no deeper one.
func (e *NotSentError) Timeout() bool { return timeout(e.Err) }

// UnknownError says that nobody knows whether the operation was done. The journal keeps
// it, and doing the intent again or [Client.Resume] asks again. For errors.Is it is
// onlyonce.ErrOutcomeUnknown.
type UnknownError struct {
	// Intent and Key are the operation's.
	Intent, Key string
	// Reference is the server's own name for it, safe to log; may be empty.
	Reference string
	// Answer is the last one, which does not tell; nil if there was none.
	Answer *Answer
	// Err is why it is not known.
	Err error
}

// Error names the intent and the cause.
func (e *UnknownError) Error() string {
	return describe(e.Intent, e.Reference, "outcome unknown", e.Err)
}

// Unwrap gives the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// Is makes it one of onlyonce.ErrOutcomeUnknown.
func (e *UnknownError) Is(target error) bool {
	t, ok := target.(*onlyonce.Error)
	return ok && t.Code == onlyonce.CodeOutcomeUnknown
}

// Timeout is for url.Error, which asks its cause and no deeper one.
func (e *UnknownError) Timeout() bool { return timeout(e.Err) }

// UnrecordedError says that the server has answered, or refused, but that the journal
// could not keep it. The operation is not to be done under another intent. The entry is
// still open: doing the intent again or [Client.Resume] gets the same answer from the
// server.
type UnrecordedError struct {
	// Intent and Key are the operation's.
	Intent, Key string
	// Reference is the server's own name for it, safe to log; may be empty.
	Reference string
	// Answer is the server's final word.
	Answer *Answer
	// Err is the journal's failure.
	Err error
}

// Error names the intent, the status and the failure.
func (e *UnrecordedError) Error() string {
	return describe(e.Intent, e.Reference, fmt.Sprintf("answered with status %d, which is not recorded", statusOf(e.Answer)), e.Err)
}

// Unwrap gives the cause.
func (e *UnrecordedError) Unwrap() error { return e.Err }

func describe(intent, reference, what string, err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "operation %q", intent)
	if reference != "" {
		fmt.Fprintf(&b, " (%s)", reference)
	}
	b.WriteString(": " + what)
	if err != nil {
		b.WriteString(": " + err.Error())
	}
	return b.String()
}

func statusOf(a *Answer) int {
	if a == nil {
		return 0
	}
	return a.Status
}

func timeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// journalError is a journal's failure before this call has sent anything.
func journalError(op string, err error) error {
	return &onlyonce.Error{
		Code: CodeJournal, Op: op, Err: err,
		Hint: "this call has sent nothing; when the journal works again, do the same intent again",
	}
}

func configError(op, hint string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: op, Hint: hint}
}
