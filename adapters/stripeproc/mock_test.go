package stripeproc_test

import (
	"bufio"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

// stripeMock starts Stripe's own stand-in, which checks requests against the OpenAPI
// document of the real API and answers with fixtures. It is built from the module
// cache: a test downloads nothing.
func stripeMock(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/stripemock")
	if err != nil {
		t.Fatal(err)
	}
	find := exec.CommandContext(t.Context(), "go", "tool", "-n", "stripe-mock")
	find.Dir, find.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	path, err := find.Output()
	if err != nil {
		text := err.Error()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			text += ": " + strings.TrimSpace(string(e.Stderr))
		}
		missing := t.Skipf
		if os.Getenv("ONLYONCE_TEST_REQUIRE") != "" {
			missing = t.Fatalf
		}
		missing("stripe-mock is not in the module cache: go mod download in adapters/stripeproc/testdata/stripemock puts it there (%s)", text)
	}
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The test's context ends before this, and with it the process.
	t.Cleanup(func() { _ = cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "Listening for HTTP at address: "); ok {
			return "http://" + address
		}
	}
	t.Fatal("stripe-mock ended before it listened")
	return ""
}

// statuses notes what was answered.
type statuses struct {
	base http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (s *statuses) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := s.base.RoundTrip(req)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, req.Method+" "+req.URL.Path+" "+res.Status)
	}
	return res, err
}

// Every request is one that Stripe's OpenAPI document allows, and every answer of
// its shapes can be read. Its fixtures bear no metadata, so no charge is taken for
// ours.
func TestAgainstStripeMock(t *testing.T) {
	t.Parallel()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	seen := &statuses{base: base}
	url := stripeMock(t)
	for _, offSession := range []bool{false, true} {
		p := newProvider(t, stripeproc.Config{BaseURL: url, Transport: seen, OffSession: offSession, Account: "acct_1"})
		body, err := p.EncodeCharge(fullCharge())
		if err != nil {
			t.Fatal(err)
		}
		s := onlyonce.Sending{Key: "b8a2bcf4-aca4-886c-8dff-478fa5436e63", Reference: "oo_1", Request: body}
		if _, err := p.Charge(t.Context(), s); err == nil || onlyonce.IsNotApplied(err) || !strings.Contains(err.Error(), "not about reference oo_1") {
			t.Errorf("charge: %v", err)
		}
		if out, found, err := p.FindCharge(t.Context(), s); found || err != nil {
			t.Errorf("look-up: got %+v, %v, %v", out, found, err)
		}
		s.Request = append(s.Request, "&bogus=1"...)
		_, err = p.Charge(t.Context(), s)
		if _, ok := errors.AsType[*provider.RefusedError](err); !ok || !onlyonce.IsNotApplied(err) {
			t.Errorf("a request with an unknown field: %v", err)
		}
		s.Request, err = p.EncodeRefund(provider.RefundRequest{Charge: "pi_1", Amount: 5, Currency: "EUR", Reference: "oo_1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Refund(t.Context(), s); err == nil || onlyonce.IsNotApplied(err) || !strings.Contains(err.Error(), "not about reference oo_1") {
			t.Errorf("refund: %v", err)
		}
		if out, found, err := p.FindRefund(t.Context(), s); found || err != nil {
			t.Errorf("look-up of a refund: got %+v, %v, %v", out, found, err)
		}
	}
	want := []string{
		"POST /v1/payment_intents 200 OK", "GET /v1/payment_intents/search 200 OK", "POST /v1/payment_intents 400 Bad Request",
		"POST /v1/refunds 200 OK", "GET /v1/refunds 200 OK",
	}
	if diff := cmp.Diff(append(want, want...), seen.seen); diff != "" {
		t.Error(diff)
	}
}
