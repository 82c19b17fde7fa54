package onceclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// Transport is the client as an http.RoundTripper, for libraries that let their
// http.Client be set. A POST or PATCH is done as by Do, and so is a PUT or DELETE that
// has an intent ([WithIntent]) or a key in its header. Other requests pass as they are.
//
// The operation's intent is that of the request's context; without one it is made up,
// and the errors say it. Whoever tries again around this transport has to give an intent or
// a key: else each try is another operation. A refusal of 4xx comes as a response, like any answer; the other
// errors of Do come as errors, which errors.As finds behind http.Client's. Redirects
// of 307 and 308 are followed within, and one of 301 or 302 is a RefusedError: http.Client
// would take its GET for the operation.
// Leave http.Client.Timeout unset: when it fires, http.Client makes a text of the error,
// and its type is lost. A context's deadline and Config.Timeout do not.
// The request's body is read whole, up to Config.MaxRequest, before anything is sent; one
// that is shorter than its ContentLength is refused. Trailers are not sent.
func (c *Client) Transport() http.RoundTripper { return transport{c} }

type transport struct{ c *Client }

// RoundTrip follows http.RoundTripper: the request is not changed and its body closed.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.keyed(req) {
		return t.c.base.RoundTrip(req)
	}
	body, err := t.body(req)
	if err != nil {
		return nil, err
	}
	header := req.Header
	if req.Host != "" && req.URL != nil && req.Host != req.URL.Host {
		header = header.Clone()
		header.Set("Host", req.Host)
	}
	var target string
	if req.URL != nil {
		target = req.URL.String()
	}
	out, err := t.c.Do(req.Context(), Request{
		Intent: IntentOf(req.Context()), Method: req.Method, URL: target, Header: header, Body: body,
	})
	refused, ok := errors.AsType[*RefusedError](err)
	if err != nil && (!ok || refused.Answer == nil || refused.Answer.Status < http.StatusBadRequest) {
		return nil, err
	}
	return response(req, out.Answer), nil
}

// CloseIdleConnections is for http.Client's method of this name.
func (t transport) CloseIdleConnections() { t.c.CloseIdleConnections() }

func (t transport) keyed(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost, http.MethodPatch:
		return true
	case http.MethodPut, http.MethodDelete:
		if IntentOf(req.Context()) != "" {
			return true
		}
		for name := range req.Header {
			if http.CanonicalHeaderKey(name) == t.c.cfg.KeyHeader {
				return true
			}
		}
	}
	return false
}

func (t transport) body(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		if req.ContentLength > 0 {
			return nil, cutOff(req, 0)
		}
		return nil, nil
	}
	limit := t.c.cfg.MaxRequest
	body, long, err := readWithin(req.Context(), req.Body, limit)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read body of request, of which nothing was sent: %w", err)
	case long:
		return nil, &onlyonce.Error{
			Code: onlyonce.CodeBodyTooLarge, Op: "read body of request",
			Hint: fmt.Sprintf("it has more than %d bytes, and nothing was sent; raise Config.MaxRequest", limit),
		}
	case req.ContentLength > 0 && req.ContentLength != int64(len(body)):
		return nil, cutOff(req, len(body))
	default:
		return body, nil
	}
}

// cutOff is the error of a body that is not what its request says: a part of an operation
// is another operation.
func cutOff(req *http.Request, length int) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeInvalidRequest, Op: "read body of request",
		Hint: fmt.Sprintf("it has %d bytes, its ContentLength is %d, and nothing was sent; find out what has cut it off", length, req.ContentLength),
	}
}

// readWithin reads and closes a body, but waits for it no longer than ctx. One that does
// not end even when it is closed keeps its goroutine, as it does with net/http.
func readWithin(ctx context.Context, body io.ReadCloser, limit int64) (all []byte, long bool, err error) {
	type result struct {
		all  []byte
		long bool
		err  error
	}
	got := make(chan result, 1)
	go func() {
		var r result
		r.all, r.long, r.err = readUpTo(body, limit)
		_ = body.Close() // it is read
		got <- r
	}()
	select {
	case r := <-got:
		return r.all, r.long, r.err
	case <-ctx.Done():
		go body.Close() // it may wait for the reader
		return nil, false, context.Cause(ctx)
	}
}

// response is an answer as http.Client wants it.
func response(req *http.Request, a *Answer) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header.Clone(), Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)),
		Request: req,
	}
}
