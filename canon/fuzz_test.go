package canon_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/onlyonce-go/onlyonce/canon"
)

// fuzzPolicies are the policies that inputs are tried under.
var fuzzPolicies = [...]string{
	`{}`,
	hostilePolicy,
	`{"fields":["/a","/b/*/c","/amount"],"decimal":["/amount"],"upper":["/a"],"sensitive":["/b/0"]}`,
	`{"ignore":["/a","/b/0","/c/*/d"],"sets":["/b","/c"],"defaults":{"/amount":10,"/b":[1,"2"]},"headers":["Api-Version"]}`,
}

// fuzzTypes are the content types that inputs are tried under.
var fuzzTypes = [...]string{
	"application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=AaB03x", "text/plain",
	"application/problem+json; charset=UTF-8", "application/json; charset=iso-8859-1",
}

// F2, F3: a body has a canonical text exactly when a strict reader accepts it,
// and that text means the same and is its own canonical text.
func FuzzJSON(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.A.request().Body)
		f.Add(v.B.request().Body)
	}
	for _, body := range hostileBodies(256) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		tree, strict := readTree(body)
		before := bytes.Clone(body)
		text, err := canon.JSON(body, nil)
		if !bytes.Equal(body, before) {
			t.Fatalf("%q was changed to %q", before, body)
		}
		if (err == nil) != (strict == nil) {
			t.Fatalf("canonical: %v, strict reader: %v", err, strict)
		}
		if err != nil {
			return
		}
		again, err := readTree(text)
		if err != nil || treeText(again) != treeText(tree) {
			t.Fatalf("%s does not mean %s (%v)", text, body, err)
		}
		twice, err := canon.JSON(text, nil)
		if err != nil || !bytes.Equal(text, twice) {
			t.Fatalf("%s becomes %s (%v)", text, twice, err)
		}
	})
}

// F2, F3: two bodies are one request exactly when a strict reader accepts both
// and finds the same in them, or when they are the same bytes.
func FuzzPair(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.A.request().Body, v.B.request().Body)
	}
	f.Add([]byte(`{"a":1e3,"a\u0000":[]}`), []byte(`{"a\u0000":[ ],"a":1000.0}`))
	f.Add([]byte(`[1E-7,0e9]`), []byte(`[0.0000001,-0]`))
	c, err := canon.Compile(canon.Policy{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		want := bytes.Equal(a, b)
		x, errX := readTree(a)
		y, errY := readTree(b)
		if errX == nil && errY == nil {
			want = treeText(x) == treeText(y)
		}
		p, q := c.Form(jsonRequest(a)), c.Form(jsonRequest(b))
		if got := p.Sum() == q.Sum(); got != want {
			t.Fatalf("%q and %q: same = %v, want %v", a, b, got, want)
		}
		checkParts(t, p)
		checkNamed(t, p, q)
	})
}

// F3, F5, F6: no body, type, query or policy breaks anything, and something is
// named exactly when two forms differ.
func FuzzForm(f *testing.F) {
	for i, v := range readVectors(f) {
		a, b := v.A.request(), v.B.request()
		f.Add(a.Body, b.Body, a.Query, b.Query, byte(i), byte(i))
		f.Add(a.Body, b.Body, a.Query, b.Query, byte(i), byte(i+len(fuzzTypes)))
	}
	compiled := make([]*canon.Compiled, len(fuzzPolicies))
	for i, policy := range fuzzPolicies {
		compiled[i] = compile(f, policy)
	}
	f.Fuzz(func(t *testing.T, a, b []byte, aQuery, bQuery string, policy, kind byte) {
		c := compiled[int(policy)%len(compiled)]
		n := len(fuzzTypes)
		form := func(body []byte, query string, kind int) *canon.Form {
			return c.Form(canon.Request{
				Method: http.MethodPost, Path: "/", Query: query, Body: body,
				Header: http.Header{"Content-Type": {fuzzTypes[kind%n]}},
			})
		}
		x, y := form(a, aQuery, int(kind)), form(b, bQuery, int(kind)+int(kind)/n)
		if x.Sum() != form(bytes.Clone(a), aQuery, int(kind)).Sum() {
			t.Fatal("one request has two forms")
		}
		checkParts(t, x)
		checkParts(t, y)
		checkNamed(t, x, y)
		if text, err := canon.JSON(a, c); err == nil && !jsontext.Value(text).IsValid() {
			t.Fatalf("%q becomes %q", a, text)
		}
	})
}

// No text of a policy breaks anything, and one that is taken survives its text.
func FuzzPolicy(f *testing.F) {
	for _, policy := range fuzzPolicies {
		f.Add([]byte(policy))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := canon.ParsePolicy(text)
		if err != nil {
			return
		}
		if _, err := canon.Compile(p); err != nil {
			t.Fatal(err)
		}
		again, err := canon.ParsePolicy(p.Marshal())
		if err != nil || !bytes.Equal(p.Marshal(), again.Marshal()) || p.ID() != again.ID() {
			t.Fatalf("%s becomes %s (%v)", p.Marshal(), again.Marshal(), err)
		}
	})
}
