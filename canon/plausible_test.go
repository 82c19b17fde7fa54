package canon_test

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/canon"
)

const (
	formType      = "application/x-www-form-urlencoded"
	multipartType = "multipart/form-data; boundary=b"
)

// partNames are the names of a form's parts in one text.
func partNames(f *canon.Form) string {
	var b strings.Builder
	for _, p := range f.Parts() {
		b.WriteString(p.Name + "\n")
	}
	return b.String()
}

// F6: what a client calls a name may be a value. It is neither shown nor kept in
// clear; what it is in is named instead.
func TestNamesThatAreValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, kind, a, b string
		secret           string
		want             []string
	}{
		{"JSON sent as a form", formType, `{"card":"4242424242424242"}`, `{"card":"4000056655665556"}`, "4242", []string{"body"}},
		{"JSON with separators sent as a form", formType, `{"a":"b=c&hunter&d"}`, `{"a":"b=c&hunter&e"}`, "hunter", []string{"body"}},
		{"text sent as a form", formType, "hunter", "hunters", "hunter", []string{"body"}},
		{"text with an equals sign sent as a form", formType, "hunter=", "hunters=", "hunter", []string{"body"}},
		{"card number sent as a form", formType, "4242424242424242", "4000056655665556", "4242", []string{"body"}},
		{"card number beside a field", formType, "4242-4242-4242-4242&a=1", "4242-4242-4242-4242&a=2", "4242", []string{"body"}},
		{"white space in a name", formType, "Jane+Doe=1&a=1", "Jane+Doe=2&a=1", "Jane", []string{"body"}},
		{"markup in a name", formType, "<script>=1&a=1", "<script>=2&a=1", "script", []string{"body"}},
		{"one side only", formType, "a=1", "user@example.com=1&a=1", "", []string{"body"}},
		{"part of a multipart form", multipartType, multipartBody("b", `name="4242 4242 4242 4242"`, "1"), multipartBody("b", `name="4242 4242 4242 4242"`, "2"), "4242", []string{"body"}},
		{"map by address", "application/json", `{"to":{"user@example.com":1},"a":1}`, `{"to":{"user@example.com":2},"a":1}`, "example", []string{"/to"}},
		{"map by account", "application/json", `{"to":{"DE89370400440532013000":{"n":1}}}`, `{"to":{"DE89370400440532013000":{"n":2}}}`, "DE89", []string{"/to"}},
		{"map at the top", "application/json", `{"4242424242424242":1,"a":1}`, `{"4242424242424242":1,"a":2}`, "4242", []string{"body"}},
		{"JSON in a name", "application/json", `{"x":{"{\"pin\":1}":1}}`, `{"x":{"{\"pin\":1}":2}}`, "pin", []string{"/x"}},
		{"control character", "application/json", `{"x":{"hunter\n":1}}`, `{"x":{"hunter\n":2}}`, "hunter", []string{"/x"}},
		{"names of APIs", "application/json", `{"$type":1,"line_items":1,"línea":1,"iso4217":1,"soap:Body":1,"@id":1,"x.y-z":1,"a[0][b]":1,"10":1}`, `{}`, "", []string{"/$type", "/10", "/@id", "/a[0][b]", "/iso4217", "/line_items", "/línea", "/soap:Body", "/x.y-z"}},
		{"field without a value", formType, "express&a=1", "a=1", "", []string{"/express"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var c *canon.Compiled
			a, b := c.Form(typed(test.kind, test.a)), c.Form(typed(test.kind, test.b))
			if diff := cmp.Diff(test.want, differs(t, a, b)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			if names := partNames(a); test.secret != "" && strings.Contains(names, test.secret) {
				t.Errorf("kept in clear: %q", names)
			}
		})
	}
}

// F6: the query is no better a place.
func TestNamesThatAreValuesInQuery(t *testing.T) {
	t.Parallel()
	var c *canon.Compiled
	of := func(query string) *canon.Form {
		r := jsonRequest([]byte(`{}`))
		r.Query = query
		return c.Form(r)
	}
	a, b := of("4242424242424242&a=1"), of("4000056655665556&a=1")
	if diff := cmp.Diff([]string{"query"}, differs(t, a, b)); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	if names := partNames(a); strings.Contains(names, "4242") {
		t.Errorf("kept in clear: %q", names)
	}
	if diff := cmp.Diff([]string{"query:dry_run"}, differs(t, of("dry_run"), of(""))); diff != "" {
		t.Errorf("a flag (-want +got):\n%s", diff)
	}
}

// earlier is a record as it was written when every name was kept: the parts of a
// form that are not in its body, and those of the body given by name and value.
func earlier(f *canon.Form, body map[string]string) ([]string, func(int, [32]byte) bool) {
	var names []string
	var sums [][32]byte
	for _, p := range f.Parts() {
		if p.Name[0] != 'J' {
			names, sums = append(names, p.Name), append(sums, p.Sum)
		}
	}
	for name, value := range body {
		text := binary.AppendUvarint([]byte("part\x01"), uint64(len(name)))
		names, sums = append(names, name), append(sums, sha256.Sum256([]byte(string(text)+name+value)))
	}
	return names, func(i int, sum [32]byte) bool { return sums[i] == sum }
}

// F6, F7: records of earlier versions have every name in them. They are compared as
// they were written, and their names are not shown either.
func TestNamesThatAreValuesInEarlierRecords(t *testing.T) {
	t.Parallel()
	var c *canon.Compiled
	for body, want := range map[string][]string{
		`{"to":{"user@example.com":1},"a":1}`:                  nil,
		`{"to":{"user@example.com":2},"a":1}`:                  {"/to"},
		`{"to":{"user@example.com":1},"a":2}`:                  {"/a"},
		`{"to":{},"a":1}`:                                      {"/to"},
		`{"to":{"x":1},"a":1}`:                                 {"/to"},
		`{"to":{"user@example.com":1,"x":1},"a":1}`:            {"/to"},
		`{"to":{"other@example.com":1},"a":1}`:                 {"/to"},
		`{"to":{"user@example.com":{"b":1}},"a":1}`:            {"/to"},
		`{"to":{"user@example.com":1},"4242424242424242":1}`:   {"body"},
		`{"` + strings.Repeat("n", 5000) + `":1,"a":1,"to":1}`: {"body"},
	} {
		f := c.Form(jsonRequest([]byte(body)))
		got := f.Differs(earlier(f, map[string]string{"J=/to/user@example.com": "1", "J=/a": "1"}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.60s: differs (-want +got):\n%s", body, diff)
		}
	}
}
