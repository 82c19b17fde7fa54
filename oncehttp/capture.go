package oncehttp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

var (
	errAnswered  = errors.New("write answer: the handler has returned")
	errUnstored  = errors.New("write answer: it is over the limit of what may be buffered")
	errSwitching = errors.New("switch protocols: not possible under an idempotency key")
)

// capture is the ResponseWriter of a handler that runs under a key. It buffers
// the whole answer, so that nothing is sent before it is stored. It has no
// Unwrap method on purpose: whoever reached the writer behind it could send
// what is not stored.
//
// It is safe for concurrent use, and harmless after the handler has returned.
type capture struct {
	w     http.ResponseWriter
	limit int64 // bytes of body that may be buffered

	mu     sync.Mutex
	header http.Header
	sent   http.Header // header as it was when the status was written
	status int         // 0: not written yet
	body   []byte
	over   bool // body exceeded limit and is dropped
	closed bool
}

// newCapture starts with what middlewares outside have put into the header, as
// the handler would see it without a capture.
func newCapture(w http.ResponseWriter, limit int64) *capture {
	return &capture{w: w, limit: limit, header: w.Header().Clone()}
}

// Header is the answer's header, as in http.ResponseWriter.
func (c *capture) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return http.Header{} // whatever a late goroutine sets
	}
	if c.header == nil {
		c.header = http.Header{}
	}
	return c.header
}

// WriteHeader takes the answer's status; the first one counts. Informational
// ones are not the answer and are sent at once.
func (c *capture) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		c.inform(status)
		return
	}
	c.begin(status)
}

func (c *capture) begin(status int) {
	c.status = status
	c.sent = c.header.Clone()
}

// inform sends an informational answer with the header as it stands, and gives
// the writer's own header back afterwards.
func (c *capture) inform(status int) {
	h := c.w.Header()
	before := maps.Clone(h)
	clear(h)
	maps.Copy(h, c.header.Clone())
	c.w.WriteHeader(status)
	clear(h)
	maps.Copy(h, before)
}

// Write adds to the answer's body.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, errAnswered
	}
	if c.status == 0 {
		c.begin(http.StatusOK)
	}
	switch {
	case !bodyAllowed(c.status):
		return 0, http.ErrBodyNotAllowed
	case c.over || int64(len(c.body)+len(p)) > c.limit:
		c.over, c.body = true, nil
		return 0, errUnstored
	}
	c.body = append(c.body, p...)
	return len(p), nil
}

// WriteString is Write.
func (c *capture) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

// ReadFrom copies until the end of src.
func (c *capture) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, src)
}

// FlushError ends the header, as a flush does, and sends nothing.
func (c *capture) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.status == 0 {
		c.begin(http.StatusOK)
	}
	return nil
}

// Flush is FlushError.
func (c *capture) Flush() { c.FlushError() } //nolint:errcheck // it returns nil

// SetReadDeadline is passed on to the connection.
func (c *capture) SetReadDeadline(deadline time.Time) error {
	return c.control(func(rc *http.ResponseController) error { return rc.SetReadDeadline(deadline) })
}

// SetWriteDeadline is passed on to the connection.
func (c *capture) SetWriteDeadline(deadline time.Time) error {
	return c.control(func(rc *http.ResponseController) error { return rc.SetWriteDeadline(deadline) })
}

// EnableFullDuplex does nothing: the request's body has been read.
func (c *capture) EnableFullDuplex() error { return nil }

func (c *capture) control(fn func(*http.ResponseController) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errAnswered
	}
	return fn(http.NewResponseController(c.w))
}

// finish ends the capture; whatever is written later goes nowhere.
func (c *capture) finish() (full, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.status == 0 {
		c.begin(http.StatusOK)
	}
	if c.status == http.StatusSwitchingProtocols {
		return full{}, errSwitching
	}
	return full{status: c.status, header: c.sent, body: c.body, lost: c.over, whole: true}, nil
}

// abandon ends the capture of a handler that did not return.
func (c *capture) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// bodyAllowed tells whether an answer of this status may have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
