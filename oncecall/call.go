package oncecall

import (
	"context"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/singlesend"
)

// call is one request on its way, and where it is made.
type call struct {
	t       *Transport
	req     *http.Request
	attempt *onlyonce.Attempt // nil outside of an operation
	sending onlyonce.Sending
	// mutating: its method may have an effect; free: the caller says that it has none.
	mutating, free bool
	// send is the Effect.Send that a request with an effect is made in; else nil.
	send *send
}

func (t *Transport) callOf(req *http.Request) *call {
	ctx := req.Context()
	c := &call{t: t, req: req, attempt: onlyonce.AttemptFrom(ctx), mutating: mutating(req.Method)}
	c.free, _ = ctx.Value(withoutKey{}).(bool)
	sending, ok := onlyonce.SendingFrom(ctx)
	if ok && c.attempt != nil && c.effect() {
		c.sending, c.send = sending, sendOf(ctx)
	}
	return c
}

func mutating(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	default:
		return true
	}
}

func (c *call) effect() bool { return c.mutating && !c.free }

// name is the request without what may be secret in it, for errors.
func (c *call) name() string {
	if c.req.URL == nil {
		return c.req.Method
	}
	return c.req.Method + " " + c.req.URL.Host + c.req.URL.Path
}

// admit lets the request go on to Base, or says why it must not.
func (c *call) admit() error {
	if c.attempt != nil && c.attempt.InTx() {
		return c.refusal(onlyonce.CodeInTx, "a transaction is open; make the call before it, or after it has ended")
	}
	if ctx := c.req.Context(); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case !c.effect():
		return nil
	case c.send != nil:
		return c.admitSend()
	case c.attempt != nil:
		return c.refusal(CodeWithoutKey,
			"it may have an effect, which a retry would repeat: put it in the Send of an onlyonce.Call, or mark its context with oncecall.WithoutKey if it has none")
	default:
		return nil
	}
}

// admitSend is admit for a request with an effect inside Effect.Send.
func (c *call) admitSend() error {
	if err := c.late(); err != nil {
		return err
	}
	if !c.t.Keyless {
		if err := c.checkHeader(); err != nil {
			return err
		}
	}
	return c.send.begin(c)
}

// late is not nil when nothing with an effect may leave any more.
func (c *call) late() error {
	if c.send == nil || c.sending.Deadline.IsZero() || c.t.clock().Before(c.sending.Deadline) {
		return nil
	}
	return c.refusal(CodeTooLate,
		"the process slept, or waited for too long, after the intent was recorded; return this error, and a retry goes on from there")
}

func (c *call) refusal(code onlyonce.Code, hint string) error {
	e := &onlyonce.Error{Code: code, Op: "call " + c.name(), Hint: hint}
	if c.attempt != nil {
		e.Operation = c.attempt.Operation()
	}
	return e
}

func (c *call) header() string {
	if c.t.Header == "" {
		return DefaultHeader
	}
	return http.CanonicalHeaderKey(c.t.Header)
}

// checkHeader refuses a key that somebody else has chosen, under any spelling of
// the header's name.
func (c *call) checkHeader() error {
	name := c.header()
	if strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	}) {
		return c.refusal(onlyonce.CodeConfig, "Transport.Header is no name of a header; use what the provider's documentation says")
	}
	for spelling, values := range c.req.Header {
		if http.CanonicalHeaderKey(spelling) != name {
			continue
		}
		for _, v := range values {
			if v != c.sending.Key {
				return c.refusal(CodeOtherKey,
					"it bears another "+name+" than the derived key; leave the header to the transport, or set it to Sending.Key")
			}
		}
	}
	return nil
}

// prepare makes the request that Base gets: watched, with the derived key, and with
// nothing by which it could be sent again.
func (c *call) prepare() (*http.Request, *singlesend.Guard) {
	out, guard := singlesend.Prepare(c.req, singlesend.Rules{
		Effect: c.mutating,
		Late:   c.late,
		Reconnected: func() error {
			return c.refusal(CodeSentBefore,
				"the transport beneath was about to send it once more; switch its retries off, onlyonce.Call knows when a retry is safe")
		},
		Reread: func() error {
			return c.refusal(CodeSentBefore, "its body was handed over before, and must not be again")
		},
		// The context ends with the Effect.Send, whose context is above it.
		Cancel: c.send != nil,
	})
	if c.send != nil && !c.t.Keyless {
		if out.Header == nil {
			out.Header = make(http.Header)
		}
		for spelling := range out.Header {
			if http.CanonicalHeaderKey(spelling) == c.header() {
				delete(out.Header, spelling)
			}
		}
		out.Header[c.header()] = []string{c.sending.Key}
	}
	return out, guard
}

// unsent is the error of a request that did not leave.
func (c *call) unsent(err error) error {
	return &unsentError{err: err, effect: c.effect(), send: c.send}
}
