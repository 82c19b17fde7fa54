package canon_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/canon"
)

// encode wraps a body in one encoding.
func encode(tb testing.TB, body []byte, encoding string) []byte {
	tb.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	default:
		w, _ = flate.NewWriter(&b, flate.BestSpeed)
	}
	if _, err := w.Write(body); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// F5, F8: the content encoding is undone, with a limit.
func TestDecode(t *testing.T) {
	t.Parallel()
	plain := []byte(strings.Repeat(`{"amount":1500}`, 100))
	size := int64(len(plain))
	zipped := encode(t, plain, "gzip")
	bad := bytes.Clone(zipped)
	bad[len(bad)-1] ^= 1
	for _, test := range []struct {
		name, encoding string
		body           []byte
		limit          int64
		want           error
	}{
		{"none", "", plain, size, nil},
		{"identity", "Identity, identity", plain, size, nil},
		{"gzip", "gzip", zipped, size, nil},
		{"x-gzip", " X-GZIP ", zipped, math.MaxInt64, nil},
		{"zlib", "deflate", encode(t, plain, "zlib"), size, nil},
		{"raw deflate", "deflate", encode(t, plain, "flate"), size, nil},
		{"two", "deflate, identity, gzip", encode(t, encode(t, plain, "zlib"), "gzip"), size, nil},
		{"too large", "", plain, size - 1, canon.ErrTooLarge},
		{"too large decoded", "gzip", zipped, size - 1, canon.ErrTooLarge},
		{"nothing allowed", "gzip", zipped, 0, canon.ErrTooLarge},
		{"negative", "", plain, -1, canon.ErrTooLarge},
		{"too large on the way", "gzip, gzip", encode(t, bytes.Repeat([]byte{0}, 5000), "gzip"), 100, canon.ErrTooLarge},
		{"unknown", "br", plain, size, canon.ErrEncoding},
		{"wrong order", "gzip, deflate", encode(t, encode(t, plain, "zlib"), "gzip"), size, canon.ErrEncoding},
		{"not encoded", "gzip", plain, size, canon.ErrEncoding},
		{"not deflated", "deflate", plain, size, canon.ErrEncoding},
		{"cut", "gzip", zipped[:len(zipped)-1], size, canon.ErrEncoding},
		{"wrong checksum", "gzip", bad, size, canon.ErrEncoding},
		{"text after gzip", "gzip", append(bytes.Clone(zipped), 'x'), size, canon.ErrEncoding},
		{"text after zlib", "deflate", append(encode(t, plain, "zlib"), 'x'), size, canon.ErrEncoding},
		{"text after raw deflate", "deflate", append(encode(t, plain, "flate"), 'x'), size, canon.ErrEncoding},
		{"many", strings.Repeat("gzip,", 5), zipped, size, canon.ErrEncoding},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := canon.Decode(test.body, test.encoding, test.limit)
			if !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Fatalf("error is %v, want %v", err, test.want)
			}
			if err == nil && !bytes.Equal(got, plain) {
				t.Errorf("body is %q", got)
			}
		})
	}
	if got, err := canon.Decode(nil, "gzip", 0); err != nil || len(got) > 0 {
		t.Errorf("empty body is %q, %v", got, err)
	}
	if _, err := canon.Decode(nil, "br", 0); !errors.Is(err, canon.ErrEncoding) {
		t.Errorf("empty body of an unknown encoding: %v", err)
	}
}

// A small body that decodes to a huge one costs what the limit allows.
func TestDecodeBomb(t *testing.T) { // not parallel, see allocated
	bomb := encode(t, make([]byte, 16<<20), "gzip")
	got := allocated(func() {
		if _, err := canon.Decode(bomb, "gzip", 1<<17); !errors.Is(err, canon.ErrTooLarge) {
			t.Error(err)
		}
	})
	if got > 2<<20 {
		t.Errorf("%d bytes allocated", got)
	}
}
