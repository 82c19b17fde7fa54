package canon

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

var (
	// ErrTooLarge is in the error of [Decode] when a body, or what it decodes
	// to, is over the limit.
	ErrTooLarge = errors.New("body is too large")
	// ErrEncoding is in the error of [Decode] when the content encoding is not
	// known or the body is not encoded as it says.
	ErrEncoding = errors.New("content encoding cannot be undone")
)

const (
	// maxEncodings bounds how many encodings one body may be wrapped in.
	maxEncodings = 4
	// maxLimit keeps sums of limits from overflowing.
	maxLimit = 1 << 48
)

// Decode undoes the content encoding of a body: gzip, x-gzip, deflate (with or
// without its zlib wrapper), identity, and lists of them in the order in which
// they were applied. The result is never longer than limit bytes, and no stage
// on the way longer than twice that. A limit of zero or less allows an empty
// body only. An empty body is empty under every encoding that is known.
//
// The error is [ErrTooLarge] or [ErrEncoding] to [errors.Is]. Bytes after the
// end of the encoded data are an error, for another reader might see them. A
// body that is not encoded is returned as it is and not copied. Decode is safe
// for concurrent use.
func Decode(body []byte, contentEncoding string, limit int64) ([]byte, error) {
	var encodings []string
	for name := range strings.SplitSeq(contentEncoding, ",") {
		name = strings.ToLower(strings.Trim(name, " \t"))
		if name != "" && name != "identity" {
			encodings = append(encodings, name)
		}
	}
	if len(encodings) > maxEncodings {
		return nil, fmt.Errorf("decode body: %d encodings: %w", len(encodings), ErrEncoding)
	}
	limit = min(max(limit, 0), maxLimit)
	for i, name := range slices.Backward(encodings) {
		stage := limit
		if i > 0 {
			// What is still encoded may be longer than what it stands for.
			stage *= 2
		}
		decoded, err := undo(body, name, stage)
		if err != nil {
			return nil, err
		}
		body = decoded
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("decode body: over %d bytes: %w", limit, ErrTooLarge)
	}
	return body, nil
}

// undo undoes one encoding.
func undo(body []byte, encoding string, limit int64) ([]byte, error) {
	src := bytes.NewReader(body)
	r, err := decoder(src, body, encoding)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return body, nil
	}
	decoded, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("decode body: %s: %w: %w", encoding, ErrEncoding, err)
	}
	if int64(len(decoded)) > limit {
		return nil, fmt.Errorf("decode body: %s over %d bytes: %w", encoding, limit, ErrTooLarge)
	}
	if src.Len() > 0 {
		return nil, fmt.Errorf("decode body: %s: %d bytes after its end: %w", encoding, src.Len(), ErrEncoding)
	}
	return decoded, nil
}

// decoder opens a reader for one encoding. The decompressors read bytes.Reader
// byte by byte, so that what they leave over can be seen.
// It is nil for an empty body, which has no encoded data to read.
func decoder(src *bytes.Reader, body []byte, encoding string) (io.Reader, error) {
	switch encoding {
	case "gzip", "x-gzip", "deflate":
		if len(body) == 0 {
			return nil, nil
		}
	default:
		return nil, fmt.Errorf("decode body: encoding %q is not known: %w", encoding, ErrEncoding)
	}
	switch encoding {
	case "deflate":
		// RFC 9110 means zlib by deflate; some clients send it raw.
		if len(body) < 2 || body[0]&0x0f != 8 || (int(body[0])<<8|int(body[1]))%31 != 0 {
			return flate.NewReader(src), nil
		}
		r, err := zlib.NewReader(src)
		if err != nil {
			return nil, fmt.Errorf("decode body: %s: %w: %w", encoding, ErrEncoding, err)
		}
		return r, nil
	default:
		r, err := gzip.NewReader(src)
		if err != nil {
			return nil, fmt.Errorf("decode body: %s: %w: %w", encoding, ErrEncoding, err)
		}
		return r, nil
	}
}
