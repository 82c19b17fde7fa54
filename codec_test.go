package onlyonce_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

// headerName and headerValue are what RFC 9110 allows: tokens, and bytes that
// may be of any charset (obs-text), without line breaks.
var (
	headerName  = rapid.StringMatching(`[A-Za-z0-9!#$%&'*+.^_|~-]{1,20}`)
	headerValue = rapid.Custom(func(t *rapid.T) string {
		b := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "bytes")
		return string(slices.DeleteFunc(b, func(c byte) bool { return (c < ' ' && c != '\t') || c == 0x7f }))
	})
	headers = rapid.MapOfN(headerName, rapid.SliceOfN(headerValue, 1, 4), 0, 6)
)

// O8, R2: headers come back byte for byte, in the order of their values.
func TestHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := headers.Draw(t, "header")
		got, err := onlyonce.DecodeHeader(onlyonce.EncodeHeader(header))
		if err != nil {
			t.Fatal(err)
		}
		if len(header) == 0 {
			header = nil
		}
		if diff := cmp.Diff(header, got); diff != "" {
			t.Fatalf("header (-want +got):\n%s", diff)
		}
	})
}

// One header has one text, so that stores can be compared.
func TestEncodeHeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string][]string
		text   string
	}{
		"nil":        {nil, ""},
		"empty":      {map[string][]string{}, ""},
		"no value":   {map[string][]string{"A": nil}, ""},
		"empty text": {map[string][]string{"A": {""}}, "A: \n"},
		"sorted":     {map[string][]string{"C": {"3"}, "A": {"1"}, "B": {"2"}}, "A: 1\nB: 2\nC: 3\n"},
		"values":     {map[string][]string{"Link": {"b", "a", "b"}}, "Link: b\nLink: a\nLink: b\n"},
		"colons":     {map[string][]string{"Location": {"a: b: c"}}, "Location: a: b: c\n"},
		"obs-text":   {map[string][]string{"A": {"caf\xe9 \xff"}}, "A: caf\xe9 \xff\n"},
		"bad names":  {map[string][]string{"A\nB": {"1"}, "A: B": {"2"}, "": {"3"}, "Ok": {"4"}}, "Ok: 4\n"},
		"breaks":     {map[string][]string{"A": {"1\r\nSet-Cookie: x\n2\r"}}, "A: 1  Set-Cookie: x 2 \n"},
	} {
		for range 20 { // a map has no order; the text has
			if got := string(onlyonce.EncodeHeader(c.header)); got != c.text {
				t.Fatalf("%s: %q, want %q", name, got, c.text)
			}
		}
	}
}

// What a damaged row holds is an error, never half a header.
func TestDecodeDamagedHeader(t *testing.T) {
	t.Parallel()
	for _, damaged := range []string{"\n", "A", "A:1\n", "A: 1\nB\n", "A: 1\n\nB: 2\n", "\x00\xff"} {
		if got, err := onlyonce.DecodeHeader([]byte(damaged)); err == nil || got != nil {
			t.Errorf("%q was read as %v, %v", damaged, got, err)
		}
	}
	if got, err := onlyonce.DecodeHeader(nil); got != nil || err != nil {
		t.Errorf("no headers: %v, %v", got, err)
	}
}

// Whatever can be read is written again as the same headers.
func FuzzDecodeHeader(f *testing.F) {
	for _, seed := range []string{"", "A: 1\n", "Link: </a>\nLink: </b>\n", "A: \n", ": \n", "A", "A: 1\nB", "A: \xff\n", "b: 1\na: 2"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		header, err := onlyonce.DecodeHeader(text)
		if err != nil {
			return
		}
		again := onlyonce.EncodeHeader(header)
		got, err := onlyonce.DecodeHeader(again)
		if err != nil {
			t.Fatalf("%q was read, and written as %q, which cannot be: %v", text, again, err)
		}
		if bytes.ContainsFunc(text, func(r rune) bool { return (r < ' ' && r != '\t' && r != '\n') || r == 0x7f }) {
			return // written as spaces
		}
		if diff := cmp.Diff(header, got); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", text, diff)
		}
	})
}
