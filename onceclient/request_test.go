package onceclient_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// What cannot be sent is refused before it is journaled, and the text says what to do
// and no secret.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	j := newFaulty(failing(""))
	c := newClient(t, quick(j))
	for name, tt := range map[string]struct {
		change func(*onceclient.Request)
		code   onlyonce.Code
	}{
		"no method":          {func(r *onceclient.Request) { r.Method = "" }, onlyonce.CodeConfig},
		"odd method":         {func(r *onceclient.Request) { r.Method = "PO ST" }, onlyonce.CodeConfig},
		"no URL":             {func(r *onceclient.Request) { r.URL = "" }, onlyonce.CodeConfig},
		"relative URL":       {func(r *onceclient.Request) { r.URL = "/charges" }, onlyonce.CodeConfig},
		"other scheme":       {func(r *onceclient.Request) { r.URL = "ftp://acme.invalid" }, onlyonce.CodeConfig},
		"no host":            {func(r *onceclient.Request) { r.URL = "https://:443/" }, onlyonce.CodeConfig},
		"secret in odd URL":  {func(r *onceclient.Request) { r.URL = "https://u:s3cret@acme.invalid:port/" }, onlyonce.CodeConfig},
		"long intent":        {func(r *onceclient.Request) { r.Intent = strings.Repeat("x", 256) }, onlyonce.CodeConfig},
		"intent of lines":    {func(r *onceclient.Request) { r.Intent = "a\nb" }, onlyonce.CodeConfig},
		"intent of no UTF-8": {func(r *onceclient.Request) { r.Intent = "a\xff" }, onlyonce.CodeConfig},
		"odd header":         {func(r *onceclient.Request) { r.Header["A B"] = []string{"1"} }, onlyonce.CodeConfig},
		"header of lines":    {func(r *onceclient.Request) { r.Header["A"] = []string{"s3cret\r\nB: 1"} }, onlyonce.CodeConfig},
		"two keys":           {func(r *onceclient.Request) { r.Header["Idempotency-Key"] = []string{"a", "a"} }, onlyonce.CodeConfig},
		"two spellings": {func(r *onceclient.Request) {
			r.Header["Idempotency-Key"], r.Header["idempotency-key"] = []string{"a"}, []string{"a"}
		}, onlyonce.CodeConfig},
		"another key":        {func(r *onceclient.Request) { r.Key = "b"; r.Header.Set("Idempotency-Key", "a") }, onlyonce.CodeConfig},
		"long key":           {func(r *onceclient.Request) { r.Key = strings.Repeat("x", 256) }, onlyonce.CodeKeyInvalid},
		"empty key header":   {func(r *onceclient.Request) { r.Header["Idempotency-Key"] = []string{"a\x00"} }, onlyonce.CodeConfig},
		"key of two":         {func(r *onceclient.Request) { r.Key = "a,b" }, onlyonce.CodeKeyInvalid},
		"key with space":     {func(r *onceclient.Request) { r.Key = "a b" }, onlyonce.CodeKeyInvalid},
		"key in half quotes": {func(r *onceclient.Request) { r.Key = `"a` }, onlyonce.CodeKeyInvalid},
		"empty quoted key":   {func(r *onceclient.Request) { r.Key = `""` }, onlyonce.CodeKeyInvalid},
		"one quote":          {func(r *onceclient.Request) { r.Key = `"` }, onlyonce.CodeKeyInvalid},
		"key with escapes":   {func(r *onceclient.Request) { r.Key = `"a\"b"` }, onlyonce.CodeKeyInvalid},
		"key with letters":   {func(r *onceclient.Request) { r.Key = "schlüssel" }, onlyonce.CodeKeyInvalid},
		"key with parameter": {func(r *onceclient.Request) { r.Key = "a;b=1" }, onlyonce.CodeKeyInvalid},
	} {
		r := charge("order-1", "https://acme.invalid")
		tt.change(&r)
		_, err := c.Do(t.Context(), r)
		if onlyonce.CodeOf(err) != tt.code || strings.Contains(err.Error(), "s3cret") || strings.Count(err.Error(), ":") < 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := j.calls["begin"]; n != 0 {
		t.Errorf("%d were journaled", n)
	}
	cfg := quick(j)
	cfg.Sender = replies(done(200))
	_, err := newClient(t, cfg).Do(t.Context(), onceclient.Request{Method: "GRPC"})
	wantKind(t, err, string(onlyonce.CodeConfig))
}

// What is kept of a URL, and of a request that is used again and changed.
func TestRequestIsKept(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, http.ResponseWriter, *http.Request) {})
	j := memjournal.New()
	c := newClient(t, quick(j))
	r := charge("order-1", s.URL+"/a%2Fb?q=1&q=2#part")
	r.Header = http.Header{"x-lower": {"1"}, "X-Lower": {"2"}, "Connection": {"close"}, "Content-Length": {"7"}}
	if _, err := c.Do(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	e := stands(t, j, "order-1")
	if e.Target != s.URL+"/a%2Fb?q=1&q=2" || len(e.Header) != 1 || len(e.Header["X-Lower"]) != 2 {
		t.Errorf("%+v", e)
	}
	if len(r.Header) != 4 || len(r.Header["X-Lower"]) != 1 {
		t.Errorf("the caller's header was changed: %v", r.Header)
	}
}

// Which headers are never kept; the key is none of them, under no name.
func TestIsCredential(t *testing.T) {
	t.Parallel()
	for _, name := range append(onceclient.Credentials(),
		"authorization", "X-Authorization", "X-Authenticated-User", "X-Auth", "X-Vendor-Token", "x-client-secret", "X-Password", "X-Session-Id", "Signature",
		"Signature-Input", "X-Hub-Signature-256", "X-Partner-Key", "X-APIKEY-2", "My-Credentials", "Set-Cookie",
	) {
		if !onceclient.IsCredential(name) {
			t.Errorf("%s is kept", name)
		}
	}
	for _, name := range []string{
		"Idempotency-Key", "idempotency-key", "X-Idempotency-Key", "X-Idempotency-Token", "Content-Type", "Key", "X-Key-Id", "Accept", "Traceparent", "X-Request-Id", "Host", "",
	} {
		if onceclient.IsCredential(name) {
			t.Errorf("%s is taken for a credential", name)
		}
	}
}

// The key is sent, also elsewhere, when its header's name looks like a credential's.
func TestKeyHeaderLikeCredential(t *testing.T) {
	t.Parallel()
	there := serve(t, func(int, http.ResponseWriter, *http.Request) {})
	here := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { redirect(w, 308, there.URL) })
	cfg := quick(memjournal.New())
	cfg.KeyHeader = "X-Request-Token"
	r := charge("order-1", here.URL)
	r.Header.Set("X-Request-Token", "k1")
	out, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "answered")
	if got := there.got(); out.Key != "k1" || len(got) != 1 || got[0].header.Get("X-Request-Token") != "k1" {
		t.Errorf("%+v, %+v", out, got)
	}
}

// A wrong configuration is refused, all that is wrong at once.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := onceclient.New(onceclient.Config{
		KeyHeader: "Idempotency Key", Credentials: []string{"a:b"}, MaxAnswer: -1, Timeout: -1, Attempts: -1, BackoffCap: -1, Retention: -1,
	})
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Fatalf("%v", err)
	}
	for _, field := range []string{"Journal", "KeyHeader", "Credentials", "MaxAnswer", "Timeout", "Attempts", "BackoffCap", "Retention"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	for _, name := range []string{"host", "content-length", "Connection"} {
		if err := (onceclient.Config{Journal: memjournal.New(), KeyHeader: name}).Validate(); err == nil {
			t.Errorf("%s may carry the key", name)
		}
	}
	cfg := onceclient.Config{Journal: memjournal.New(), KeyHeader: "x-key", MaxAnswer: 7}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	full := cfg.WithDefaults()
	if full.KeyHeader != "X-Key" || full.MaxAnswer != 7 || full.Attempts != 12 || full.Now == nil || full.Observe == nil || cfg.Attempts != 0 {
		t.Errorf("%+v", full)
	}
	if err := full.Validate(); err != nil {
		t.Error(err)
	}
}

// Two clients share a budget.
func TestSharedBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, sharedBudget)
}

func sharedBudget(t *testing.T) {
	t.Helper()
	b, err := onceclient.NewBudget(onceclient.BudgetConfig{Least: 3})
	if err != nil {
		t.Fatal(err)
	}
	var scripts []*script
	for _, intent := range []string{"order-1", "order-2"} {
		s := replies(lost())
		scripts = append(scripts, s)
		cfg := onceclient.Config{Journal: memjournal.New()}
		cfg.Sender, cfg.Budget, cfg.Attempts, cfg.Timeout = s, b, 4, 5*time.Second
		_, err := newClient(t, cfg).Do(t.Context(), charge(intent, "somewhere"))
		wantKind(t, err, "unknown")
	}
	scripts[0].want(t, 4)
	scripts[1].want(t, 1)
}
