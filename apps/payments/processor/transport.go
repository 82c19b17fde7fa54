package processor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/oncecall"
)

// maxAnswer is the longest answer that the client reads.
const maxAnswer = 16 << 20

// message is one HTTP request to make.
type message struct {
	method, path, key string
	accept            string // default JSON
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
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	response, err := c.open(ctx, m)
	if err != nil {
		return received{}, err
	}
	defer response.Body.Close()
	return read(response)
}

// open makes one request, once. The answer's body ends with ctx.
func (c *Client) open(ctx context.Context, m message) (*http.Response, error) {
	request, err := c.request(ctx, m)
	if err != nil {
		return nil, unsent(err)
	}
	response, err := c.via(m).Do(request)
	if err != nil {
		return nil, &Error{Err: err, notSent: oncecall.NotSent(err)}
	}
	return response, nil
}

// read reads an answer of a few lines.
func read(response *http.Response) (received, error) {
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

func (c *Client) request(ctx context.Context, m message) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, m.method, strings.TrimSuffix(c.BaseURL, "/")+m.path, bytes.NewReader(m.body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Accept", cmp.Or(m.accept, "application/json"))
	if m.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if m.key != "" {
		r.Header.Set(HeaderKey, m.key)
	}
	return r, nil
}

// via returns the HTTP client for m. Within an operation's Effect.Send its
// transport sees to it that the key is the derived one, or that there is none where
// the caller wants none.
func (c *Client) via(m message) *http.Client {
	c.once.Do(func() {
		c.keyed, c.keyless = c.over(&oncecall.Transport{Header: HeaderKey}), c.over(&oncecall.Transport{Keyless: true})
	})
	if m.key == "" {
		return c.keyless
	}
	return c.keyed
}

// over returns HTTP with t above its transport, and without redirects.
func (c *Client) over(t *oncecall.Transport) *http.Client {
	if c.HTTP == nil {
		t.Base = http.DefaultTransport
		return oncecall.NewClient(t)
	}
	own, ok := c.HTTP.Transport.(*oncecall.Transport)
	if ok {
		t = own
	} else if t.Base = c.HTTP.Transport; t.Base == nil {
		t.Base = http.DefaultTransport
	}
	client := oncecall.NewClient(t)
	client.Jar, client.Timeout = c.HTTP.Jar, c.HTTP.Timeout
	return client
}

func (c *Client) timeout() time.Duration { return cmp.Or(c.Timeout, DefaultTimeout) }
