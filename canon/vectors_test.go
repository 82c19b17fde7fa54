package canon_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

var _ onlyonce.Form = (*canon.Form)(nil)

// vector is a pair of requests under one policy.
type vector struct {
	ID      string          `json:"id"`
	Why     string          `json:"why"`
	Policy  json.RawMessage `json:"policy"`
	A       vectorRequest   `json:"a"`
	B       vectorRequest   `json:"b"`
	Same    bool            `json:"same"`
	Differs []string        `json:"differs"`
}

type vectorRequest struct {
	Method     string            `json:"method"`
	Target     string            `json:"target"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
	BodyBase64 []byte            `json:"body_base64"`
}

func (r vectorRequest) request() canon.Request {
	path, query, _ := strings.Cut(r.Target, "?")
	h := http.Header{}
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	body := []byte(r.Body)
	if r.BodyBase64 != nil {
		body = r.BodyBase64
	}
	return canon.Request{Method: r.Method, Path: path, Query: query, Header: h, Body: body}
}

func readVectors(tb testing.TB) []vector {
	tb.Helper()
	text, err := os.ReadFile("testdata/fingerprint.json")
	if err != nil {
		tb.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		tb.Fatal(err)
	}
	return vectors
}

// compile is a policy ready for use, given its text.
func compile(tb testing.TB, policy string) *canon.Compiled {
	tb.Helper()
	p, err := canon.ParsePolicy([]byte(policy))
	if err != nil {
		tb.Fatal(err)
	}
	c, err := canon.Compile(p)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// record keeps of a form what a store keeps: names, and hashes cut to 8 bytes.
func record(f *canon.Form) ([]string, func(i int, sum [32]byte) bool) {
	mac := func(sum [32]byte) []byte {
		h := hmac.New(sha256.New, []byte("record key"))
		h.Write(sum[:])
		return h.Sum(nil)[:8]
	}
	var names []string
	var sums [][]byte
	for _, p := range f.Parts() {
		names = append(names, p.Name)
		sums = append(sums, mac(p.Sum))
	}
	return names, func(i int, sum [32]byte) bool { return bytes.Equal(sums[i], mac(sum)) }
}

// differs compares two forms both ways and checks what holds for any two.
func differs(tb rapid.TB, a, b *canon.Form) []string {
	tb.Helper()
	names, same := record(a)
	forth := b.Differs(names, same)
	names, same = record(b)
	back := a.Differs(names, same)
	if (a.Sum() == b.Sum()) != (len(forth) == 0) || len(forth) == 0 != (len(back) == 0) {
		tb.Errorf("same sum: %v, but differs %q forth and %q back", a.Sum() == b.Sum(), forth, back)
	}
	if diff := cmp.Diff(forth, back); diff != "" {
		tb.Errorf("forth and back differ (-forth +back):\n%s", diff)
	}
	if !slices.IsSorted(forth) {
		tb.Errorf("names are not sorted: %q", forth)
	}
	return forth
}

// F1, F2, F3, F4, F5, F6; B39, B41, B42, B44, B45.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			c := compile(t, string(v.Policy))
			a, b := c.Form(v.A.request()), c.Form(v.B.request())
			if same := a.Sum() == b.Sum(); same != v.Same {
				t.Errorf("%s: same = %v, want %v", v.Why, same, v.Same)
			}
			got := differs(t, a, b)
			if diff := cmp.Diff(v.Differs, got); diff != "" {
				t.Errorf("%s: differs (-want +got):\n%s", v.Why, diff)
			}
			if got := differs(t, a, a); got != nil {
				t.Errorf("differs from itself in %q", got)
			}
		})
	}
}
