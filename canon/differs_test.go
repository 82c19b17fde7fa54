package canon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/canon"
)

// members is an object of n members, with one of them changed.
func members(n int, head string, changed int) string {
	var b strings.Builder
	for i := range n {
		value := i
		if i == changed {
			value = -1
		}
		fmt.Fprintf(&b, `,"%s%d":%d`, head, i, value)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// F6: what differs is named, as finely as 64 parts and 2 KiB allow.
func TestDiffers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 3000)
	for _, test := range []struct {
		name, policy, a, b string
		want               []string
	}{
		{"same", `{}`, `{"a":1}`, `{"a":1.0}`, nil},
		{"several", `{}`, `{"a":1,"b":{"c":2,"d":3}}`, `{"a":2,"b":{"c":2,"d":4},"e":5}`, []string{"/a", "/b/d", "/e"}},
		{"object for array", `{}`, `{"x":{"0":1}}`, `{"x":[1]}`, []string{"/x"}},
		{"object for array, deep", `{}`, `{"x":{"y":{"0":{"z":1}}}}`, `{"x":{"y":[{"z":1}]}}`, []string{"/x/y"}},
		{"scalar for object", `{}`, `{"x":{"y":1}}`, `{"x":"y"}`, []string{"/x"}},
		{"null for object", `{}`, `{"x":{"y":1}}`, `{"x":null}`, []string{"/x"}},
		{"missing object", `{}`, `{"options":{"capture":1,"other":2}}`, `{}`, []string{"/options"}},
		{"missing empty object", `{}`, `{"options":{}}`, `{}`, []string{"/options"}},
		{"empty object", `{}`, `{"options":{"capture":1}}`, `{"options":{}}`, []string{"/options/capture"}},
		{"empty array", `{}`, `{"items":[1,2]}`, `{"items":[]}`, []string{"/items/0", "/items/1"}},
		{"empty of another type", `{}`, `{"items":[]}`, `{"items":{}}`, []string{"/items"}},
		{"longer array", `{}`, `[1,2]`, `[1,2,3]`, []string{"/2"}},
		{"top-level type", `{}`, `{}`, `[]`, []string{"body"}},
		{"top-level scalar", `{}`, `1`, `2`, []string{"body"}},
		{"top-level scalar and object", `{}`, `1`, `{"a":1}`, []string{"body"}},
		{"not JSON", `{}`, `{"a":1}`, `{"a":1`, []string{"body"}},
		{"names that need escapes", `{}`, `{"a/b":1,"m~n":1,"[0":1,"]":1,"":1}`, `{"a/b":2,"m~n":2,"[0":2,"]":2,"":2}`, []string{"/", "/[0", "/]", "/a~1b", "/m~0n"}},
		{"names that look like paths", `{}`, `{"x/y":1,"x":{"y":1},"z[0":[1]}`, `{"x/y":1,"x":{"y":2},"z[0":[2]}`, []string{"/x/y", "/z[0/0"}},
		{"set", `{"sets":["/tags"]}`, `{"tags":["a"]}`, `{"tags":["b"]}`, []string{"/tags"}},
		{"set that is no array", `{"sets":["/tags"]}`, `{"tags":{"a":1}}`, `{"tags":{"a":2}}`, []string{"/tags/a"}},
		{"ignored item keeps the others' names", `{"ignore":["/items/0"]}`, `{"items":[1,2,3]}`, `{"items":[0,2,4]}`, []string{"/items/2"}},
		{"chosen item keeps its name", `{"fields":["/items/1/n"]}`, `{"items":[0,{"n":1}]}`, `{"items":[9,{"n":2,"m":1}]}`, []string{"/items/1/n"}},
		{"sensitive", `{"sensitive":["/card/number"]}`, `{"card":{"number":"1","brand":"v"},"a":1}`, `{"card":{"number":"2","brand":"v"},"a":2}`, []string{"/a", "/card"}},
		{"sensitive in items", `{"sensitive":["/cards/*/number"]}`, `{"cards":[{"number":1},{"number":2}]}`, `{"cards":[{"number":1},{"number":3}]}`, []string{"/cards/1"}},
		{"sensitive at the top", `{"sensitive":["/pin"]}`, `{"pin":"1","a":1}`, `{"pin":"2","a":1}`, []string{"body"}},
		{"sensitive that is missing", `{"sensitive":["/card/number"]}`, `{"card":{"brand":"v"}}`, `{"card":{"number":"2","brand":"v"}}`, []string{"/card"}},
		{"added by default", `{"defaults":{"/o":{},"/o/c":1}}`, `{}`, `{"o":{"c":2}}`, []string{"/o/c"}},
		{"60 members", `{}`, members(55, "m", -1), members(55, "m", 17), []string{"/m17"}},
		{"100 members", `{}`, members(100, "m", -1), members(100, "m", 17), []string{"body"}},
		{"100 members within", `{}`, `{"a":1,"b":{"c":1},"big":` + members(100, "m", -1) + `}`, `{"a":1,"b":{"c":2},"big":` + members(100, "m", 17) + `}`, []string{"/b/c", "/big"}},
		{"long name", `{}`, `{"` + long + `":1}`, `{"` + long + `":2}`, []string{"body"}},
		{"long name on one side", `{}`, `{"x":{"` + long + `":1}}`, `{"x":{}}`, []string{"/x"}},
		{"many on one side", `{}`, `{"x":` + members(90, "m", -1) + `}`, `{"x":{"m1":1}}`, []string{"/x"}},
		{"long names", `{}`, members(40, strings.Repeat("n", 100), -1), members(40, strings.Repeat("n", 100), 3), []string{"body"}},
		{"deeper than parts", `{}`, strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), strings.Repeat(`{"a":`, 40) + "2" + strings.Repeat("}", 40), []string{strings.Repeat("/a", 32)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := compile(t, test.policy)
			got := differs(t, c.Form(jsonRequest([]byte(test.a))), c.Form(jsonRequest([]byte(test.b))))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

// F1, F6: what is not in the body is named, too.
func TestDiffersOutsideBody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, policy string
		change       func(r *canon.Request)
		want         []string
	}{
		{"path", `{}`, func(r *canon.Request) { r.Path = "/refunds" }, []string{"path"}},
		{"method and query", `{}`, func(r *canon.Request) { r.Method, r.Query = "PUT", "a=1&b=3&c%2f=" }, []string{"method", "query:b", "query:c/"}},
		{"query order", `{}`, func(r *canon.Request) { r.Query = "&b=2&&a=%31" }, nil},
		{"query order within a name", `{}`, func(r *canon.Request) { r.Query = "a=1&b=2&b=1" }, []string{"query:b"}},
		{"no query", `{}`, func(r *canon.Request) { r.Query = "" }, []string{"query:a", "query:b"}},
		{"query that cannot be decoded", `{}`, func(r *canon.Request) { r.Query = "a=1&b=%2" }, []string{"query"}},
		{"query that is not UTF-8", `{}`, func(r *canon.Request) { r.Query = "a=1&b=%ff" }, []string{"query"}},
		{"large query", `{}`, func(r *canon.Request) { r.Query = "a=" + strings.Repeat("1&q=", 100) }, []string{"query:b", "query:q"}},
		{"wide query", `{}`, func(r *canon.Request) { r.Query = strings.ReplaceAll(members(200, "&", -1), `"`, "") }, []string{"query"}},
		{"media type", `{}`, func(r *canon.Request) { r.Header.Set("Content-Type", "application/vnd.api+json") }, []string{"content-type"}},
		{"media type of other content", `{}`, func(r *canon.Request) { r.Header.Set("Content-Type", "text/plain") }, []string{"content-type"}},
		{"media type and body", `{}`, func(r *canon.Request) {
			r.Header.Set("Content-Type", "application/vnd.api+json")
			r.Body = []byte(`{"a":2}`)
		}, []string{"/a", "content-type"}},
		{"two media types", `{}`, func(r *canon.Request) { r.Header.Add("Content-Type", "application/json") }, []string{"content-type"}},
		{"other parameters", `{}`, func(r *canon.Request) { r.Header.Set("Content-Type", "Application/JSON; Charset=\"UTF-8\"; v=1") }, nil},
		{"headers", `{"headers":["api-version","X-Region","X-Other"]}`, func(r *canon.Request) {
			r.Header.Set("Api-Version", "2")
			r.Header.Set("X-Region", "")
		}, []string{"header:Api-Version", "header:X-Region"}},
		{"header lines", `{"headers":["X-Region"]}`, func(r *canon.Request) { r.Header["X-Region"] = []string{"a", "b"} }, []string{"header:X-Region"}},
		{"many headers", `{"headers":` + headerList(100) + `}`, func(r *canon.Request) { r.Header.Set("H-7", "1") }, []string{"header"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := compile(t, test.policy)
			a, b := jsonRequest([]byte(`{"a":1}`)), jsonRequest([]byte(`{"a":1}`))
			a.Query, b.Query = "a=1&b=2", "a=1&b=2"
			test.change(&b)
			x, y := c.Form(a), c.Form(b)
			checkParts(t, x)
			checkParts(t, y)
			if diff := cmp.Diff(test.want, differs(t, x, y)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

func headerList(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"H-%d"`, i))
	}
	return "[" + strings.Join(names, ",") + "]"
}

// F6: names that no form makes, or none at all, do not hide that forms differ.
func TestDiffersBrokenRecord(t *testing.T) {
	t.Parallel()
	f := compile(t, `{}`).Form(jsonRequest([]byte(`{"a":1}`)))
	for _, names := range [][]string{
		nil, {""}, {"J"}, {"J=x", "J=/a/b", "J=/a"}, {"J=/a", "J=[0"}, {"m", "p", "c", "Q{", "J=/a", "J=/a"}, {"B", "J="}, {"Z=/a"},
	} {
		if got := f.Differs(names, func(int, [32]byte) bool { return true }); len(got) == 0 {
			t.Errorf("%q: nothing is named", names)
		}
	}
}
