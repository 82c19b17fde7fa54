package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// maxAnswer is the longest answer that the client reads.
const maxAnswer = 16 << 20

// message is one HTTP request to make.
type message struct {
	method, path, key string
	body              []byte
}

// received is what came back, whatever its status.
type received struct {
	status   int
	replayed bool
	body     []byte
}

// refusal turns an answer that is none into an error.
func (a received) refusal() *Error {
	e := &Error{Status: a.status}
	var said refusal
	if json.Unmarshal(a.body, &said) == nil {
		e.Code, e.Message = said.Code, said.Message
	}
	if e.Code == "" {
		e.Err = errors.New("answer is not one of a processor")
	}
	return e
}

func unsent(err error) *Error { return &Error{Err: err, notSent: true} }

// send makes one request, once, and reads the answer. Its errors are *Error.
func (c *Client) send(ctx context.Context, m message) (received, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return received{}, unsent(err)
	}
	var seen connections
	request, err := c.request(httptrace.WithClientTrace(ctx, seen.trace()), m)
	if err != nil {
		return received{}, unsent(err)
	}
	response, err := c.once().Do(request)
	if err != nil {
		return received{}, &Error{Err: err, notSent: seen.none()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("answer is longer than %d bytes", maxAnswer)
	}
	if err != nil {
		return received{}, &Error{Status: response.StatusCode, Err: fmt.Errorf("read answer: %w", err)}
	}
	return received{
		status:   response.StatusCode,
		replayed: response.Header.Get(HeaderReplayed) == "true",
		body:     body,
	}, nil
}

// request builds a request that net/http cannot send twice. It would, by
// itself, when a kept connection turns out to be dead, because a request with an
// Idempotency-Key counts as repeatable there; without GetBody, and with a body
// whose type it does not know how to rewind, it has nothing to repeat.
func (c *Client) request(ctx context.Context, m message) (*http.Request, error) {
	var body io.Reader
	if m.body != nil {
		body = io.NopCloser(bytes.NewReader(m.body))
	}
	r, err := http.NewRequestWithContext(ctx, m.method, strings.TrimSuffix(c.BaseURL, "/")+m.path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.GetBody = nil
	r.Header.Set("Accept", "application/json")
	if m.body != nil {
		r.ContentLength = int64(len(m.body))
		r.Header.Set("Content-Type", "application/json")
	}
	if m.key != "" {
		r.Header.Set(HeaderKey, m.key)
	}
	return r, nil
}

// once returns the HTTP client, made to follow no redirect.
func (c *Client) once() *http.Client {
	var once http.Client
	if c.HTTP != nil {
		once = *c.HTTP
	}
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &once
}

// connections watches whether a request got a connection. The transport may
// call it from other goroutines, also after the call.
type connections struct {
	asked, got atomic.Bool
}

func (s *connections) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { s.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { s.got.Store(true) },
	}
}

// none reports whether it is proved that nothing was sent: the transport looked
// for a connection, so it does tell, and got none.
func (s *connections) none() bool { return s.asked.Load() && !s.got.Load() }
