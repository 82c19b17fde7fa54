package oncehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// readBody reads the whole body, so that one that is too large or cut off is
// refused before anything is claimed (rule F8). c.raw is the body as it was
// sent, c.body the one with its content encoding undone.
func (c *call) readBody() error {
	most := c.door.route.MaxBody
	if consumed(c.r) {
		return configError("middleware", "outside the guard has read the request's body; the guard must see it first")
	}
	if c.r.ContentLength > most {
		return tooLarge(most, nil)
	}
	sent := c.r.Body
	if sent == nil {
		sent = http.NoBody // a request that no server made
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, sent, most))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge(most, err)
	}
	if err == nil && int64(len(raw)) < c.r.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &onlyonce.Error{
			Code: onlyonce.CodeInvalidRequest, Op: "read body", Err: err,
			Hint: "The body did not arrive whole. The key was not used.",
		}
	}
	c.raw = raw
	return c.decodeBody(most)
}

func (c *call) decodeBody(most int64) error {
	encoding := strings.Join(c.r.Header.Values("Content-Encoding"), ", ")
	var err error
	c.body, err = canon.Decode(c.raw, encoding, most)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, canon.ErrTooLarge):
		return tooLarge(most, err)
	case !knownEncoding(encoding):
		return &onlyonce.Error{
			Code: CodeEncoding, Op: "decode body", Err: err,
			Hint: "The body's Content-Encoding is not known here; gzip, deflate and identity are.",
		}
	default:
		return &onlyonce.Error{
			Code: onlyonce.CodeInvalidRequest, Op: "decode body", Err: err,
			Hint: "The body is not encoded as its Content-Encoding says.",
		}
	}
}

// knownEncoding tells whether all of a list of encodings can be undone.
func knownEncoding(list string) bool {
	for name := range strings.SplitSeq(list, ",") {
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "", "gzip", "x-gzip", "deflate", "identity":
		default:
			return false
		}
	}
	return true
}

func tooLarge(most int64, err error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeBodyTooLarge, Op: "read body", Err: err,
		Hint: fmt.Sprintf("The body is over the limit of %d bytes. The key was not used.", most),
	}
}

// consumed tells whether something outside the guard has already parsed the
// body: a fingerprint over what is left would take different requests for one.
func consumed(r *http.Request) bool { return r.MultipartForm != nil || len(r.PostForm) > 0 }

// request is the request for code of the service: its own copy of the buffered
// body, as it was sent.
func (c *call) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(c.raw))
	r.ContentLength = int64(len(c.raw))
	r.TransferEncoding = nil
	return r
}
