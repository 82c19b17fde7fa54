package canon_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/canon"
)

// typed is a request with a content type and a body.
func typed(contentType, body string) canon.Request {
	return canon.Request{
		Method: http.MethodPost, Path: "/charges",
		Header: http.Header{"Content-Type": {contentType}}, Body: []byte(body),
	}
}

// F5: forms are compared by their decoded pairs.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, policy, a, b string
		want               []string
	}{
		{"order and escapes", `{}`, "b=%32+3&a=1", "a=%31&b=2%203", nil},
		{"no value", `{}`, "a&b=1", "a=&&b=1&", nil},
		{"value with an equals sign", `{}`, "a=b=c", "a=b%3Dc", nil},
		{"separator in a value", `{}`, "a=1%26b=2", "a=1&b=2", []string{"/a", "/b"}},
		{"semicolon is no separator", `{}`, "a=1;b=2", "a=1%3bb=2", nil},
		{"repeated", `{}`, "i=1&x=0&i=2", "i=2&x=0&i=1", []string{"/i"}},
		{"one and two", `{}`, "i=1", "i=1&i=1", []string{"/i"}},
		{"missing", `{}`, "a=1", "a=1&b=", []string{"/b"}},
		{"no pairs", `{}`, "", "a=1", []string{"/a"}},
		{"name that needs escapes", `{}`, "a/b~=1&=1", "a/b~=2&=2", []string{"/", "/a~1b~0"}},
		{"bad escape", `{}`, "a=%zz", "a=%zy", []string{"body"}},
		{"cut escape", `{}`, "a=1", "a=1%", []string{"body"}},
		{"not UTF-8", `{}`, "a=%ff", "a=%fe", []string{"body"}},
		{"bad in an ignored field", `{"ignore":["/t"]}`, "a=1&t=%ff", "a=1&t=%fe", []string{"body"}},
		{"string and not number", `{}`, "a=10", "a=10.0", []string{"/a"}},
		{"decimal", `{"decimal":["/a"]}`, "a=10", "a=1e1", nil},
		{"upper", `{"upper":["/c"]}`, "c=usd", "c=USD", nil},
		{"ignore", `{"ignore":["/t"]}`, "a=1&t=1", "t=2&t=3&a=1", nil},
		{"fields", `{"fields":["/a"]}`, "a=1&t=1", "t=2&a=1&u=1", nil},
		{"sets", `{"sets":["/a"]}`, "a=1&a=2&a=1", "a=2&a=1&a=1", nil},
		{"sets keep counts", `{"sets":["/a"]}`, "a=1&a=2&a=1", "a=2&a=1&a=2", []string{"/a"}},
		{"defaults", `{"defaults":{"/capture":true,"/n":10,"/tags":["a",1],"/o":{}}}`, "", "tags=a&n=10&tags=1&capture=true", nil},
		{"default and decimal", `{"defaults":{"/n":10},"decimal":["/n"]}`, "", "n=10.0", nil},
		{"default, then ignore", `{"defaults":{"/n":10},"ignore":["/n"]}`, "", "n=11", nil},
		{"default is not the empty value", `{"defaults":{"/n":10}}`, "", "n=", []string{"/n"}},
		{"sensitive", `{"sensitive":["/pin"]}`, "a=1&pin=1", "a=1&pin=2", []string{"body"}},
		{"many", `{}`, "z=0" + strings.Repeat("&a=1", 200), "z=1" + strings.Repeat("&a=1", 200), []string{"/z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := compile(t, test.policy)
			kind := "application/x-www-form-urlencoded"
			a, b := c.Form(typed(kind, test.a)), c.Form(typed(kind, test.b))
			if diff := cmp.Diff(test.want, differs(t, a, b)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			checkParts(t, b)
		})
	}
}

// multipartBody is a body of parts, each a header and a content.
func multipartBody(boundary string, parts ...string) string {
	var b strings.Builder
	for i := 0; i < len(parts); i += 2 {
		b.WriteString("--" + boundary + "\r\nContent-Disposition: form-data; " + parts[i] + "\r\n\r\n" + parts[i+1] + "\r\n")
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// F5; B41: multipart forms are compared by their parts.
func TestMultipart(t *testing.T) {
	t.Parallel()
	const boundary = "AaB03x"
	body := func(parts ...string) string { return multipartBody(boundary, parts...) }
	for _, test := range []struct {
		name, policy, a, b string
		want               []string
	}{
		{"order between names", `{}`, body(`name=a`, "1", `name=b`, "2"), body(`name="b"`, "2", `name="a"`, "1"), nil},
		{"order within a name", `{}`, body(`name=a`, "1", `name=a`, "2"), body(`name=a`, "2", `name=a`, "1"), []string{"/a"}},
		{"file or not", `{}`, body(`name=a`, "1"), body(`name=a; filename=""`, "1"), []string{"/a"}},
		{"directory of a file", `{}`, body(`name=a; filename="x/f"`, "1"), body(`name=a; filename="y/f"`, "1"), []string{"/a"}},
		{"two file names", `{}`, body(`name=a; filename="f"; filename*=UTF-8''g`, "1"), body(`name=a; filename="h"; filename*=UTF-8''g`, "1"), []string{"/a"}},
		{"type", `{}`, body("name=a\r\nContent-Type: text/csv", "1"), body("name=a\r\nContent-Type: text/plain", "1"), []string{"/a"}},
		{"spelling of the type", `{}`, body("name=a\r\nContent-Type: Text/CSV; charset=UTF-8", "1"), body("name=a\r\ncontent-type: text/csv", "1"), nil},
		{"transfer encoding", `{}`, body("name=a\r\nContent-Transfer-Encoding: base64", "MQ=="), body("name=a\r\nContent-Transfer-Encoding: binary", "MQ=="), []string{"/a"}},
		{"missing part", `{}`, body(`name=a`, "1"), body(`name=a`, "1", `name=b`, ""), []string{"/b"}},
		{"decimal", `{"decimal":["/a"]}`, body(`name=a`, "10"), body(`name=a`, "10.0"), nil},
		{"number and text that looks like its digest", `{"decimal":["/a"]}`, body(`name=a`, "10"), body(`name=a`, "ten"), []string{"/a"}},
		{"decimal in a file", `{"decimal":["/a"]}`, body(`name=a; filename=f`, "10"), body(`name=a; filename=f`, "10.0"), []string{"/a"}},
		{"upper", `{"upper":["/a"]}`, body(`name=a`, "usd"), body(`name=a`, "USD"), nil},
		{"upper of bytes", `{"upper":["/a"]}`, body(`name=a`, "\xffa"), body(`name=a`, "\xffA"), []string{"/a"}},
		{"ignore", `{"ignore":["/t"]}`, body(`name=a`, "1", `name=t`, "1"), body(`name=t; filename=f`, "2", `name=a`, "1"), nil},
		{"sets", `{"sets":["/a"]}`, body(`name=a`, "1", `name=a`, "2"), body(`name=a`, "2", `name=a`, "1"), nil},
		{"defaults", `{"defaults":{"/c":true}}`, body(`name=a`, "1"), body(`name=a`, "1", `name=c`, "true"), nil},
		{"cut", `{}`, body(`name=a`, "1"), strings.TrimSuffix(body(`name=a`, "1"), "--\r\n"), []string{"body"}},
		{"no name", `{}`, body(`filename=a`, "1"), body(`filename=a`, "2"), []string{"body"}},
		{"two dispositions", `{}`, body("name=a\r\nContent-Disposition: form-data; name=b", "1"), body(`name=a`, "1"), []string{"body"}},
		{"another boundary inside", `{}`, multipartBody("Other", `name=a`, "1"), multipartBody("Other", `name=a`, "2"), []string{"body"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := compile(t, test.policy)
			kind := "multipart/form-data; boundary=" + boundary
			a, b := c.Form(typed(kind, test.a)), c.Form(typed(kind, test.b))
			if diff := cmp.Diff(test.want, differs(t, a, b)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			checkParts(t, b)
		})
	}
}

// F5; B41: a megabyte under another boundary is the same file.
func TestMultipartBoundary(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789abcdef", 1<<16)
	form := func(boundary string) *canon.Form {
		var c *canon.Compiled
		return c.Form(typed(`multipart/form-data; boundary="`+boundary+`"`,
			multipartBody(boundary, `name=amount`, "1500", `name=receipt; filename="r.txt"`, content)))
	}
	if form("AaB03x").Sum() != form("XyZ99").Sum() {
		t.Error("the boundary counts")
	}
}

// F3, F5: what is compared by its bytes.
func TestBytes(t *testing.T) {
	t.Parallel()
	c := compile(t, `{}`)
	for _, kind := range []string{
		"text/plain", "application/octet-stream", "multipart/mixed; boundary=x", "multipart/form-data", "json", "application/",
		"application/json; charset=iso-8859-1", "application/json; charset=utf-8; charset=UTF-8", "application/jsonx", "",
	} {
		a, b := c.Form(typed(kind, `{"a":1}`)), c.Form(typed(kind, `{"a": 1}`))
		if diff := cmp.Diff([]string{"body"}, differs(t, a, b)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", kind, diff)
		}
	}
	none := canon.Request{Method: http.MethodPost, Path: "/"}
	if first, second := c.Form(none), c.Form(none); first.Sum() != second.Sum() {
		t.Error("an empty request is not itself")
	}
}

// The digest is unambiguous: moving bytes from one field to the next changes it.
func TestUnambiguous(t *testing.T) {
	t.Parallel()
	c := compile(t, `{"headers":["A","B"]}`)
	seen := map[[32]byte]int{}
	for i, r := range []canon.Request{
		{Method: "P", Path: "/ab"},
		{Method: "P/", Path: "ab"},
		{Method: "P", Path: "/a", Query: "b"},
		{Method: "P", Path: "/a", Body: []byte("b")},
		{Method: "P", Path: "/a", Header: http.Header{"A": {"b"}}},
		{Method: "P", Path: "/a", Header: http.Header{"B": {"b"}}},
		{Method: "P", Path: "/a", Header: http.Header{"A": {"b", ""}}},
		{Method: "P", Path: "/a", Header: http.Header{"A": {"b"}, "B": {""}}},
		{Method: "P", Path: "/a", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte("1")},
		{Method: "P", Path: "/a", Header: http.Header{"Content-Type": {"application/json"}}, Query: "1", Body: []byte("1")},
		{Method: "P", Path: "/a", Query: "%", Body: []byte("b")},
		{Method: "P", Path: "/a", Query: "a=%22%5D%7D", Body: []byte("b")},
	} {
		sum := c.Form(r).Sum()
		if j, ok := seen[sum]; ok {
			t.Errorf("requests %d and %d have one digest", i, j)
		}
		seen[sum] = i
	}
}
