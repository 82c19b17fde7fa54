package processor_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a processor behind a real socket and a client for it.
type bundle struct {
	server *processor.Server
	http   *httptest.Server
	client *processor.Client
}

func setup(t *testing.T, config processor.Config) *bundle {
	t.Helper()
	server, err := processor.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{server: server, http: httptest.NewServer(server)}
	b.client = newClient(t, b.http.URL)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		b.http.Close()
	})
	return b
}

// newClient returns a client with connections of its own.
func newClient(t *testing.T, url string) *processor.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &processor.Client{BaseURL: url, HTTP: &http.Client{Transport: transport}}
}

// charge is a valid request for the source.
func charge(source, reference string) processor.ChargeRequest {
	return processor.ChargeRequest{Amount: 1500, Currency: "ARS", Source: source, Reference: reference}
}

func mustCharge(t *testing.T, b *bundle, key string, r processor.ChargeRequest) processor.Charge {
	t.Helper()
	got, err := b.client.Charge(t.Context(), key, r.Encode())
	if err != nil {
		t.Fatalf("Charge(%s): %v", key, err)
	}
	return got
}

// clock is a clock that a test sets.
type clock struct{ now chan time.Time }

func newClock() *clock {
	c := &clock{now: make(chan time.Time, 1)}
	c.now <- time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return c
}

func (c *clock) Now() time.Time {
	now := <-c.now
	c.now <- now
	return now
}

func (c *clock) advance(d time.Duration) { c.now <- (<-c.now).Add(d) }
