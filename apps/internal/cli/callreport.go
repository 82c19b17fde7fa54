package cli

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// How an operation ended, in words for programs.
const (
	outcomeAnswered = "answered"
	outcomeRefused  = "refused"
	outcomeUnknown  = "unknown"
	outcomeUnsent   = "not_sent"
)

// callView is what became of an operation, as it is printed.
type callView struct {
	Outcome   string `json:"outcome"` // answered, refused, unknown or not_sent
	Intent    string `json:"intent"`
	Key       string `json:"key,omitempty"`
	Reference string `json:"reference,omitempty"` // the server's
	Attempts  int    `json:"attempts"`
	Replayed  bool   `json:"replayed"` // the server says that the answer is an earlier attempt's
	Recorded  bool   `json:"recorded"` // the answer is the journal's; nothing was sent
	// Status, Headers and Body are the server's answer; of an outcome that is unknown
	// what it said last. A body that is no text is in BodyBase64.
	Status     int         `json:"status,omitempty"`
	Headers    http.Header `json:"headers,omitempty"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 string      `json:"body_base64,omitempty"`
	Error      string      `json:"error,omitempty"`
	Again      string      `json:"again,omitempty"` // the command that goes on with it, if it can be
}

// judged is the outcome as one word, and its exit code; empty if the operation was not
// begun by this run.
func judged(err error) (outcome string, code int) {
	var (
		refused    *onceclient.RefusedError
		unsent     *onceclient.NotSentError
		unknown    *onceclient.UnknownError
		unrecorded *onceclient.UnrecordedError
	)
	switch {
	case err == nil:
		return outcomeAnswered, exitDone
	case errors.As(err, &refused):
		return outcomeRefused, exitWrong
	case errors.As(err, &unsent):
		return outcomeUnsent, exitUnsent
	case errors.As(err, &unknown), errors.As(err, &unrecorded), errors.Is(err, onceclient.ErrLocked):
		return outcomeUnknown, exitUnknown
	default:
		return "", exitUsage
	}
}

// view is what became of an operation.
func (r *callRun) view(out onceclient.Outcome, err error) callView {
	v := callView{
		Intent: out.Intent, Key: out.Key, Reference: out.Reference, Attempts: out.Attempts, Replayed: out.Replayed, Recorded: out.Recorded,
	}
	v.Outcome, _ = judged(err)
	if err != nil {
		v.Error = r.std.safe(oneLine(err.Error()))
	}
	if v.Outcome == outcomeUnknown || v.Outcome == outcomeUnsent && !tooLate(err) {
		v.Again = r.again(out.Intent)
	}
	if a := out.Answer; a != nil {
		v.Status, v.Headers = a.Status, a.Header
		if utf8.Valid(a.Body) {
			v.Body = string(a.Body)
		} else {
			v.BodyBase64 = base64.StdEncoding.EncodeToString(a.Body)
		}
	}
	return v
}

// report prints an answer and says what it is. An answer that cannot be written is
// not known to the caller, and can be had again.
func (r *callRun) report(to callOutput, out onceclient.Outcome, failed error) error {
	outcome, code := judged(failed)
	var err error
	switch {
	case outcome == "":
		return failed
	case r.JSON:
		err = printJSON(r.std.Out, r.view(out, failed))
	case out.Answer != nil && (outcome == outcomeAnswered || outcome == outcomeRefused):
		err = to.write(func(w io.Writer) error { return r.write(w, out.Answer) })
	}
	if err != nil {
		return &callError{"write the answer: " + err.Error(), "the journal has it: " + r.again(out.Intent), exitUnknown}
	}
	return r.conclude(out, failed, code)
}

// write writes an answer as curl does.
func (r *callRun) write(to io.Writer, a *onceclient.Answer) error {
	w := bufio.NewWriter(to)
	if r.Include {
		fmt.Fprintf(w, "HTTP/1.1 %s\r\n", statusText(a.Status))
		for _, name := range slices.Sorted(maps.Keys(a.Header)) {
			for _, value := range a.Header[name] {
				fmt.Fprintf(w, "%s: %s\r\n", name, value)
			}
		}
		fmt.Fprint(w, "\r\n")
	}
	_, _ = w.Write(a.Body) // Flush says what failed
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// conclude says how it ended, and what to do next.
func (r *callRun) conclude(out onceclient.Outcome, failed error, code int) error {
	switch code {
	case exitDone:
		r.praise(out)
		return nil
	case exitWrong:
		return &callError{text: oneLine(failed.Error()), code: code}
	case exitUnsent:
		if tooLate(failed) {
			return &callError{oneLine(failed.Error()), "nothing has happened; begin it under another --intent", code}
		}
		return &callError{oneLine(failed.Error()), "nothing has happened; once that is mended: " + r.again(out.Intent), code}
	}
	text := oneLine(failed.Error())
	if out.Key != "" {
		text += "\nonlyonce: its key is " + strconv.Quote(out.Key)
	}
	if out.Reference != "" {
		text += ", the server calls it " + out.Reference
	}
	return &callError{text, "ask again; it is done once however often you ask: " + r.again(out.Intent), code}
}

// tooLate tells whether an operation can be sent no more, since its key is too old.
func tooLate(err error) bool {
	return errors.Is(err, &onlyonce.Error{Code: onceclient.CodeRetentionOver})
}

// praise says what is not plain from the answer.
func (r *callRun) praise(out onceclient.Outcome) {
	status := ""
	if out.Answer != nil {
		status = statusText(out.Answer.Status) + ", "
	}
	switch {
	case out.Recorded:
		r.say("%sthe recorded answer of %s; nothing was sent", status, out.Intent)
	case out.Replayed:
		r.say("%sthe answer of an earlier attempt", status)
	case out.Attempts > 1:
		r.say("%sby attempt %d", status, out.Attempts)
	}
}

// statusText is a status with its name.
func statusText(status int) string {
	if name := http.StatusText(status); name != "" {
		return strconv.Itoa(status) + " " + name
	}
	return strconv.Itoa(status)
}

// veiled hides secrets in what an error says. What is no outcome of an operation
// has kept it from being begun.
func (s Streams) veiled(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*callError](err); ok {
		return &callError{s.safe(e.text), s.safe(e.hint), e.code}
	}
	if e, ok := errors.AsType[*usageError](err); ok {
		return &usageError{s.safe(e.text), s.safe(e.hint)}
	}
	text, hint := oneLine(err.Error()), ""
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Hint != "" && strings.Contains(text, ": "+e.Hint) {
		text, hint = strings.Replace(text, ": "+e.Hint, "", 1), e.Hint
	}
	return &usageError{s.safe(text), s.safe(hint)}
}

// safe is a text without secrets.
func (s Streams) safe(text string) string {
	return string(bytes.ToValidUTF8([]byte(masked(text, s.secrets)), []byte("?")))
}
