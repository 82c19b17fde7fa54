package canon_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce/canon"
)

// F4: every fault is told, with the field and the pointer.
func TestValidate(t *testing.T) {
	t.Parallel()
	p := canon.Policy{
		Fields:    []string{"amount"},
		Ignore:    []string{"/a~2", "/b~", ""},
		Defaults:  map[string]jsontext.Value{"/n": jsontext.Value("null"), "/x": jsontext.Value("{"), "": jsontext.Value("1"), "/a/*": jsontext.Value("1"), "c": jsontext.Value("1")},
		Decimal:   []string{"/" + strings.Repeat("x", 2000)},
		Upper:     []string{"/\xff"},
		Headers:   []string{"", "a b", "authorization", "Cookie"},
		Sensitive: []string{""},
	}
	err := p.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`fields: "amount": pointer does not start`, `ignore: "/a~2": pointer has a ~`, `ignore: "/b~"`, `ignore: "": the whole body`,
		`fields, ignore: exclude each other`, `defaults: "/n": default is null`, `defaults: "/x": default is not JSON`,
		`defaults: "": the whole body`, `defaults: "/a/*": an array item`, `defaults: "c": pointer does not`,
		`decimal: "/xxx`, `upper: "/\xff": pointer is not UTF-8`, `headers: "": header name is empty`, `headers: "a b"`,
		`headers: "authorization": credentials`, `headers: "Cookie": credentials`, `sensitive: "": the whole body`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %s", want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 17 {
		t.Errorf("%d faults:\n%v", n, err)
	}
	if _, err := canon.Compile(p); err == nil {
		t.Error("compile takes it")
	}
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``: "EOF", `[]`: "want an object", `{} {}`: "text after the policy", `{"field":[]}`: `member "field" is not known`,
		`{"Fields":[]}`: `"Fields" is not known`, `{"fields":"/a"}`: "fields: want an array of strings", `{"upper":[1]}`: "upper: want an array",
		`{"fields":[],"fields":[]}`: "duplicate", `{"defaults":{"/a":1,"/a":2}}`: "duplicate", `{"defaults":[]}`: "want an object",
		`{"defaults":{"/a":null}}`: "default is null", `{"sets":["a"]}`: "does not start with /", `{"a`: "EOF", `{"sets":["/a"`: "EOF", `{"defaults":{"/a":}}`: "invalid character",
	} {
		if _, err := canon.ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", text, err, want)
		}
	}
	p, err := canon.ParsePolicy([]byte(`{"fields":null,"defaults":null,"headers":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(canon.Policy{}, p); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

// F7: a policy has one text and one name, however it was written.
func TestMarshal(t *testing.T) {
	t.Parallel()
	a := canon.Policy{
		Decimal: []string{"/b", "/a", "/a"}, Headers: []string{"api-version", "Accept", "API-Version"},
		Defaults: map[string]jsontext.Value{"/z": jsontext.Value(` { "b" : 1.0, "a" : "\u0041" } `), "/a": jsontext.Value("true")},
	}
	const want = `{"decimal":["/a","/b"],"headers":["Accept","Api-Version"],"defaults":{"/a":true,"/z":{"a":"A","b":1}}}`
	if got := string(a.Marshal()); got != want {
		t.Errorf("text is %s, want %s", got, want)
	}
	b, err := canon.ParsePolicy([]byte(want))
	if err != nil || a.ID() != b.ID() || len(a.ID()) != 16 {
		t.Errorf("IDs are %s and %s (%v)", a.ID(), b.ID(), err)
	}
	var zero canon.Policy
	if string(zero.Marshal()) != `{}` || zero.ID() != "44136fa355b3678a" {
		t.Errorf("zero policy is %s, %s", zero.Marshal(), zero.ID())
	}
	if a.ID() == zero.ID() {
		t.Error("two policies have one ID")
	}
}

// A policy can be read by other means, too: the tags are those of its text.
func TestPolicyTags(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var q canon.Policy
		if err := json.Unmarshal(text, &q); err != nil {
			t.Fatal(err)
		}
		r, err := canon.ParsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		s, err := canon.ParsePolicy(p.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []canon.Policy{q, r, s} {
			if string(other.Marshal()) != string(p.Marshal()) {
				t.Fatalf("%s becomes %s", p.Marshal(), other.Marshal())
			}
		}
	})
}

// F7; B45: a policy that comes back from the store makes the same forms, in a
// process that has made no other.
func TestPolicyRoundTrip(t *testing.T) {
	t.Parallel()
	const text = `{"defaults":{"/n":10.0,"/s":"\u0061"},"sets":["/t"],"headers":["api-version"]}`
	p, err := canon.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a, b := compile(t, text), compile(t, string(p.Marshal()))
	for _, r := range []canon.Request{
		typed("application/x-www-form-urlencoded", "t=2&t=1"), typed("application/json", `{"t":[2,1]}`),
	} {
		if a.Form(r).Sum() != b.Form(r).Sum() {
			t.Errorf("%s has two forms", r.Body)
		}
	}
}

// One compiled policy and one form serve many goroutines.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	c := compile(t, hostilePolicy)
	bodies := hostileBodies(1 << 10)
	want := map[string]*canon.Form{}
	for name, body := range bodies {
		want[name] = c.Form(jsonRequest(body))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for name, body := range bodies {
				f := c.Form(jsonRequest(body))
				if f.Sum() != want[name].Sum() {
					t.Errorf("%s has two forms", name)
				}
				if diff := cmp.Diff(want[name].Parts(), f.Parts()); diff != "" {
					t.Errorf("%s has other parts:\n%s", name, diff)
				}
				checkNamed(t, want[name], f)
			}
		})
	}
	wg.Wait()
}
