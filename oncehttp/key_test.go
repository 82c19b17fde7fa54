package oncehttp_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	const uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	for _, tt := range []struct {
		rule   string
		values []string
		want   string // "": refused
		strict bool
	}{
		{rule: "K1 quoted", values: key(`"abc"`), want: "abc"},
		{rule: "K1 bare", values: key(`abc`), want: "abc"},
		{rule: "K1 bare UUID with a leading digit", values: key(uuid), want: uuid},
		{rule: "K1 quoted UUID", values: key(`"` + uuid + `"`), want: uuid},
		{rule: "K1 parameters are ignored", values: key(`"abc";a=1;b`), want: "abc"},
		{rule: "K1 space around", values: key("  abc\t"), want: "abc"},
		{rule: "K1 escapes", values: key(`"a\"b\\c"`), want: `a"b\c`},
		{rule: "K1 strict takes quoted", values: key(`"abc"`), want: "abc", strict: true},
		{rule: "K1 strict refuses bare", values: key(`abc`), strict: true},
		{rule: "K2 two lines", values: key("a", "b")},
		{rule: "K2 two equal lines", values: key("a", "a")},
		{rule: "K2 bare list", values: key("a, b")},
		{rule: "K2 bare list without space", values: key("a,b")},
		{rule: "K2 quoted list", values: key(`"a", "b"`)},
		{rule: "K2 unterminated quote", values: key(`"abc`)},
		{rule: "K2 lone quote", values: key(`"`)},
		{rule: "K2 bad escape", values: key(`"a\bc"`)},
		{rule: "K2 inner list", values: key(`("a" "b")`)},
		{rule: "K2 inner list of a token", values: key(`(abc)`)},
		{rule: "K2 text after the string", values: key(`"abc"def`)},
		{rule: "K2 bad parameter", values: key(`"abc";A`)},
		{rule: "K3 empty", values: key("")},
		{rule: "K3 empty string", values: key(`""`)},
		{rule: "K3 255 characters", values: key(strings.Repeat("k", 255)), want: strings.Repeat("k", 255)},
		{rule: "K3 256 characters", values: key(strings.Repeat("k", 256))},
		{rule: "K3 255 after decoding", values: key(`"` + strings.Repeat(`\"`, 255) + `"`), want: strings.Repeat(`"`, 255)},
		{rule: "K3 bare quote", values: key(`a"b`)},
		{rule: "K3 bare backslash", values: key(`a\b`)},
		{rule: "K3 bare semicolon", values: key(`abc;x=1`)},
		{rule: "K3 bare space", values: key(`a b`)},
		{rule: "K3 quoted space", values: key(`"a b"`), want: "a b"},
		{rule: "K3 not ASCII", values: key("schlüssel")},
		{rule: "K3 not ASCII, quoted", values: key(`"schlüssel"`)},
		{rule: "K3 control character", values: key("a\x01b")},
		{rule: "K3 delete character", values: key("a\x7fb")},
		{rule: "K3 case counts", values: key("Request-A"), want: "Request-A"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			got, err := oncehttp.ParseKey(tt.values, tt.strict)
			if got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
			if (err == nil) != (tt.want != "") {
				t.Errorf("error is %v", err)
			}
			if err != nil && onlyonce.CodeOf(err) != onlyonce.CodeKeyInvalid {
				t.Errorf("code is %s", onlyonce.CodeOf(err))
			}
		})
	}
	if _, err := oncehttp.ParseKey(nil, false); !errors.Is(err, &onlyonce.Error{Code: onlyonce.CodeKeyRequired}) {
		t.Errorf("no value: %v", err)
	}
}

// Whatever is accepted is a valid key, and is the same key in either form. K1 K3
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`abc`, `"abc"`, `"a\"b"`, `"abc";x=1`, `"abc`, `a,b`, `("a")`, "\"\x7f\"", "ключ", `""`} {
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, value string, strict bool) {
		got, err := oncehttp.ParseKey([]string{value}, strict)
		if err != nil {
			if onlyonce.CodeOf(err) != onlyonce.CodeKeyInvalid || got != "" {
				t.Fatalf("%q: %q, %v", value, got, err)
			}
			return
		}
		if err := onlyonce.ValidateKeyValue(got); err != nil {
			t.Fatalf("%q gave %q: %v", value, got, err)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(got) + `"`
		if again, err := oncehttp.ParseKey([]string{quoted}, true); err != nil || again != got {
			t.Fatalf("%q gave %q, which quoted gives %q, %v", value, got, again, err)
		}
		if strict && !strings.HasPrefix(strings.Trim(value, " \t"), `"`) {
			t.Fatalf("strict took %q", value)
		}
		if _, err := oncehttp.ParseKey([]string{value, value}, strict); err == nil {
			t.Fatalf("%q twice was taken", value)
		}
	})
}

// K1, B32: the quoted and the bare form are one key, over the wire.
func TestKeyForms(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	first := s.do(ask{keys: key(`"abc"`)}).expect(t, 201, "executed")
	if got := first.header.Get("Idempotency-Key"); got != `"abc"` {
		t.Errorf("echo of the quoted key is %s", got) // R1
	}
	again := s.do(ask{keys: key(`abc`)}).expect(t, 201, "replayed")
	if got := again.header.Get("Idempotency-Key"); got != `abc` {
		t.Errorf("echo of the bare key is %s", got) // R1
	}
	again = s.do(ask{keys: key(`"abc";x=1`)}).expect(t, 201, "replayed")
	if got := again.header.Get("Idempotency-Key"); got != `"abc"` {
		t.Errorf("echo of the key with a parameter is %s", got)
	}
	s.do(ask{keys: key(`ABC`)}).expect(t, 201, "executed") // K3, B33
	s.ran(2)
}

// K1: strict mode.
func TestStrictKeys(t *testing.T) {
	t.Parallel()
	s := newService(t, oncehttp.StrictKeys())
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.do(ask{keys: key("abc")}).problem(t, 400, "idempotency_key_invalid")
	s.do(ask{keys: key(`"abc"`)}).expect(t, 201, "executed")
	s.ran(1)
}

// K2, K3, B31, B32: malformed keys are refused, on both protocols, and nothing
// is stored.
func TestMalformedKeys(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := newService(t)
		s.wrap("POST /charges", oncehttp.Route{}, created)
		s.start(http2)
		for _, keys := range [][]string{
			{"k1", "k1"}, {"k1", "k2"}, {"k1, k1"}, {`"k1`}, {`"k\1"`}, {`("k1")`}, {strings.Repeat("k", 256)}, {""}, {"ключ"},
		} {
			got := s.do(ask{keys: keys})
			m := got.expect(t, 400, "refused").problem(t, 400, "idempotency_key_invalid")
			if m["retry_with"] != "new_key" || m["retryable"] != false || got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("%q: %s", keys, got.body)
			}
			if !strings.Contains(m["detail"].(string), "255") {
				t.Errorf("%q: the limit is not stated: %s", keys, m["detail"])
			}
			if http2 != (got.proto == "HTTP/2.0") {
				t.Errorf("protocol is %s", got.proto)
			}
		}
		s.ran(0)
		s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
		s.ran(1)
	}
}

// K4: missing where required, and optional.
func TestMissingKey(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.wrap("POST /notes", oncehttp.Route{Key: oncehttp.Optional}, created)
	got := s.do(ask{})
	got.problem(t, 400, "idempotency_key_required")
	if link := got.header.Get("Link"); link != `</docs/>; rel="describedby"` {
		t.Errorf("Link is %q", link)
	}
	s.ran(0)
	got = s.do(ask{path: "/notes"}).expect(t, 201, "unprotected")
	// K7, B105: the server makes up no key.
	if got.header.Get("Idempotency-Key") != "" {
		t.Errorf("a key was made up: %v", got.header)
	}
	s.do(ask{path: "/notes"}).expect(t, 201, "unprotected")
	s.ran(2)
	s.do(ask{path: "/notes", keys: key("k1")}).expect(t, 201, "executed")
	s.do(ask{path: "/notes", keys: key("k1")}).expect(t, 201, "replayed")
	s.do(ask{path: "/notes", keys: key("k1", "k1")}).problem(t, 400, "idempotency_key_invalid")
	s.ran(3)
}

// K5: which methods honour keys.
func TestMethods(t *testing.T) {
	t.Parallel()
	s := newService(t)
	echo := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200) }
	s.wrap("PUT /opted", oncehttp.Route{}, echo)
	s.wrap("/any", oncehttp.Route{}, echo)
	s.wrap("/all", oncehttp.Route{Methods: []string{"POST", "DELETE"}}, echo)
	s.wrap("POST /off", oncehttp.Route{Key: oncehttp.Off}, echo)
	for _, tt := range []struct{ method, path, first string }{
		{"PUT", "/opted", "executed"},
		{"POST", "/any", "executed"},
		{"PATCH", "/any", "executed"},
		{"PUT", "/any", "ignored"},
		{"DELETE", "/any", "ignored"},
		{"DELETE", "/all", "executed"},
		{"PATCH", "/all", "ignored"},
		{"GET", "/any", "ignored"},
		{"HEAD", "/any", "ignored"},
		{"OPTIONS", "/any", "ignored"},
		{"POST", "/off", "ignored"},
	} {
		a := ask{method: tt.method, path: tt.path, keys: key(tt.method + tt.path)}
		got := s.do(a).expect(t, 200, tt.first)
		if got.header.Get("Idempotency-Key") != a.keys[0] {
			t.Errorf("%s %s: no echo", tt.method, tt.path)
		}
		second := "replayed"
		if tt.first == "ignored" {
			second = "ignored"
		}
		s.do(a).expect(t, 200, second)
	}
	// On GET even a malformed key is no error, and no key no matter.
	s.do(ask{method: "GET", path: "/any", keys: key("a", "b")}).expect(t, 200, "ignored")
	s.do(ask{method: "GET", path: "/any"}).expect(t, 200, "")
}

// K6: other carriers.
func TestCarriers(t *testing.T) {
	t.Parallel()
	s := newService(t, oncehttp.KeyHeaders("X-Idempotency-Key", "PayPal-Request-Id"))
	s.wrap("POST /charges", oncehttp.Route{KeyPointer: "/meta/request~1id"}, created)
	s.wrap("POST /notes", oncehttp.Route{KeyPointer: "/id", Key: oncehttp.Optional}, created)
	by := func(name, value string) http.Header { return http.Header{name: {value}} }
	s.do(ask{header: by("X-Idempotency-Key", "k1")}).expect(t, 201, "executed")
	s.do(ask{header: by("Paypal-Request-Id", "k1")}).expect(t, 201, "replayed")
	s.do(ask{keys: key("k1"), header: by("X-Idempotency-Key", "k1")}).expect(t, 201, "replayed")
	s.do(ask{keys: key("k1"), header: by("X-Idempotency-Key", "k2")}).problem(t, 400, "idempotency_key_invalid")
	s.ran(1)
	body := `{"meta":{"request/id":"k 3"}}`
	got := s.do(ask{body: body}).expect(t, 201, "executed")
	if got.header.Get("Idempotency-Key") != `"k 3"` {
		t.Errorf("echo is %q", got.header.Get("Idempotency-Key"))
	}
	s.do(ask{body: body}).expect(t, 201, "replayed")
	s.do(ask{body: body, keys: key(`"k 3"`)}).expect(t, 201, "replayed")
	s.do(ask{body: body, keys: key("k4")}).problem(t, 400, "idempotency_key_invalid")
	s.do(ask{body: `{"meta":{"request/id":7}}`}).problem(t, 400, "idempotency_key_invalid")
	s.do(ask{body: `{"meta":[]}`}).problem(t, 400, "idempotency_key_required")
	s.do(ask{body: `not JSON`}).problem(t, 400, "idempotency_key_required")
	s.ran(2)
	s.do(ask{path: "/notes", body: `{}`}).expect(t, 201, "unprotected")
	s.do(ask{path: "/notes", body: `{"id":"n"}`}).expect(t, 201, "executed")
}

// K7: what a client says of replays is not believed, nor passed on.
func TestClientSentStatus(t *testing.T) {
	t.Parallel()
	s := newService(t)
	seen := make(chan http.Header, 3)
	look := func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.Header().Set("Idempotent-Replayed", "true") // a careless proxy
		w.Header().Set("Idempotency-Key", "other")
	}
	s.wrap("POST /charges", oncehttp.Route{}, look)
	s.wrap("POST /off", oncehttp.Route{Key: oncehttp.Off}, look)
	lies := http.Header{"Idempotent-Replayed": {"true"}, "Idempotency-Status": {"replayed"}}
	got := s.do(ask{keys: key("k1"), header: lies}).expect(t, 200, "executed")
	if got.header.Get("Idempotent-Replayed") != "" || got.header.Get("Idempotency-Key") != "k1" {
		t.Errorf("the handler's word was passed on: %v", got.header)
	}
	s.do(ask{path: "/off", header: lies})
	for range 2 {
		h := <-seen
		if h.Get("Idempotent-Replayed") != "" || h.Get("Idempotency-Status") != "" {
			t.Errorf("the handler saw %v", h)
		}
	}
}

// O1, F8: leaving an optional key out lifts no limit and skips no check.
func TestOptionalKeyLeftOutLiftsNoLimit(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /notes", oncehttp.Route{
		Key: oncehttp.Optional, MaxBody: 40,
		CheckSyntax: func(_ *http.Request, body []byte) error {
			if !json.Valid(body) {
				return errors.New("not JSON")
			}
			return nil
		},
	}, created)
	for _, keys := range [][]string{nil, key("k1")} {
		s.do(ask{path: "/notes", keys: keys, body: "{"}).problem(t, 400, "invalid_request")
		s.do(ask{path: "/notes", keys: keys, body: `"` + strings.Repeat("x", 50) + `"`}).problem(t, 413, "request_body_too_large")
	}
	s.ran(0)
	s.do(ask{path: "/notes"}).expect(t, 201, "unprotected")
	s.ran(1)
}
