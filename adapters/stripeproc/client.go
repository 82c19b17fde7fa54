package stripeproc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/stripe/stripe-go/v85"

	"github.com/onlyonce-go/onlyonce/oncecall"
)

// maxAnswer bounds what is read of an answer: a page of a hundred payment intents
// is well below. What is longer is an answer that cannot be read.
const maxAnswer = 8 << 20

// client makes single requests. It has a backend of its own: none of stripe-go's
// package variables are read or set.
type client struct {
	cfg     Config
	backend stripe.Backend
	http    *http.Client
}

func newClient(cfg Config) *client {
	hc := oncecall.NewClient(&oncecall.Transport{Base: cfg.Transport})
	hc.Transport = &recorder{next: hc.Transport}
	hc.Timeout = cfg.Timeout
	return &client{cfg: cfg, http: hc, backend: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:        stripe.String(cfg.BaseURL),
		HTTPClient: hc,
		// A retry is the engine's to decide, and it decides after asking.
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   new(false),
		// Its lines would show answers, and go to the process's own stderr.
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})}
}

// request is one request to Stripe.
type request struct {
	op, method, path string
	// form is sent byte for byte: as the body of a POST, in the URL of a GET.
	form []byte
	// key is the idempotency key; only for POST.
	key string
}

// do makes the request, and reads its answer into v. All errors are *Error, with
// the transport's mark of what never left still on them.
func (c *client) do(ctx context.Context, r request, v stripe.LastResponseSetter) error {
	ex := &exchange{}
	params := &stripe.Params{Context: context.WithValue(ctx, exchangeKey{}, ex)}
	if r.key != "" {
		params.IdempotencyKey = stripe.String(r.key)
	}
	if c.cfg.Account != "" {
		params.SetStripeAccount(c.cfg.Account)
	}
	err := c.backend.CallRaw(r.method, r.path, c.cfg.Key, r.form, params, v)
	if err == nil && ex.status == http.StatusOK {
		return nil
	}
	return c.failure(r.op, ex, err)
}

// failure says what went wrong. Of stripe-go's errors only the parsed ones are
// looked at: the others hold the beginning of an answer, which may be a secret.
func (c *client) failure(op string, ex *exchange, err error) *Error {
	e := &Error{Op: op, Status: ex.status, RequestID: ex.requestID, Replayed: ex.replayed}
	if answer, ok := errors.AsType[*stripe.Error](err); ok && answer.Type != "" {
		e.answer = answer
		e.Type, e.Code = string(answer.Type), string(answer.Code)
		e.DeclineCode = string(answer.DeclineCode)
		e.Message = c.redact(answer.Msg)
		e.Hint = hint(e)
		return e
	}
	switch {
	case ex.status == 0:
		e.Err = err
		e.Hint = "no answer; whether the request arrived is not known unless the error is marked as not applied"
		if oncecall.NotSent(err) {
			e.Hint = "nothing was sent; check that the API can be reached"
		}
	case ex.readErr != nil:
		e.Err = ex.readErr
		e.Hint = "the answer broke off; ask again with the same key"
	default:
		e.Hint = "the answer is not one of Stripe's (" + ex.contentType + "); look at what stands between, and ask again with the same key"
	}
	return e
}

// redact takes the API key out of a text that somebody else has written.
func (c *client) redact(text string) string {
	return strings.ReplaceAll(text, c.cfg.Key, redacted(c.cfg.Key))
}

// exchange is what is seen of a request's answer on the way to stripe-go, which
// keeps it to itself where the answer cannot be parsed.
type exchange struct {
	status      int // 0: no answer
	requestID   string
	contentType string
	replayed    bool
	readErr     error
}

type exchangeKey struct{}

// recorder notes what came back, and bounds it.
type recorder struct{ next http.RoundTripper }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.next.RoundTrip(req)
	ex, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if err != nil || !ok {
		return res, err
	}
	ex.status = res.StatusCode
	ex.requestID = res.Header.Get("Request-Id")
	ex.contentType = res.Header.Get("Content-Type")
	ex.replayed = res.Header.Get("Idempotent-Replayed") == "true"
	res.Body = &answer{ReadCloser: res.Body, ex: ex, left: maxAnswer}
	return res, nil
}

// CloseIdleConnections closes the connections that are not in use.
func (r *recorder) CloseIdleConnections() {
	if c, ok := r.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

var errTooLong = errors.New("the answer is too long")

// answer is a body that notes how reading it failed.
type answer struct {
	io.ReadCloser
	ex   *exchange
	left int
}

func (a *answer) Read(p []byte) (int, error) {
	if a.left <= 0 {
		a.ex.readErr = errTooLong
		return 0, errTooLong
	}
	n, err := a.ReadCloser.Read(p[:min(len(p), a.left)])
	a.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		a.ex.readErr = err
	}
	return n, err
}
