package payments_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// crashing is a service of the same store whose database is cut off in the
// middle of a request, as if its machine had gone.
type crashing struct {
	*bundle
	// arrived yields when a request has come to the processor; what it does
	// there, before or after the effect, it does on resume.
	arrived, resume chan struct{}
}

// newCrashing makes one beside b, which shares its processor. after says
// whether the processor acts before the request is held up.
func newCrashing(t *testing.T, b *bundle, store string, after bool) *crashing {
	t.Helper()
	c := &crashing{bundle: &bundle{client: b.client, processor: b.processor}, arrived: make(chan struct{}, 1), resume: make(chan struct{})}
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		if after {
			b.processor.ServeHTTP(rec, r)
		}
		c.arrived <- struct{}{}
		<-c.resume
		if !after {
			panic(http.ErrAbortHandler) // the bytes were lost with the machine
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	}))
	t.Cleanup(remote.Close)
	var err error
	if c.db, err = db.Open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	c.service, err = payments.New(t.Context(), payments.Config{
		DB: c.db, Lease: lease, SettleTimeout: lease, Logger: slog.New(slog.DiscardHandler),
		Provider: options{}.remoteAt(t, remote.URL),
	})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(c.service)
	c.url = api.URL
	t.Cleanup(func() {
		api.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Millisecond)
		defer cancel()
		_ = c.service.Close(ctx) // there is nowhere to store anything
	})
	return c
}

// lease is that of attempts that crash: short, so that a takeover comes soon, and
// long enough for a slow machine to get to the crash.
const lease = time.Second

// crash sends a request and cuts the service's database off while the processor
// has it. It returns a function that lets the old attempt go on and ends it.
func (c *crashing) crash(t *testing.T, path, key, body string) (wake func() reply) {
	t.Helper()
	answered := make(chan reply, 1)
	go func() {
		r, err := c.try(t.Context(), http.MethodPost, path, body, "Idempotency-Key", key)
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	select {
	case <-c.arrived:
	case r := <-answered:
		t.Fatalf("it did not get to the processor: %d %s", r.status, r.body)
	}
	if err := c.db.Close(); err != nil {
		t.Fatal(err)
	}
	return func() reply {
		close(c.resume)
		return <-answered
	}
}

// patiently sends the request until it is answered, as a client would.
func (b *bundle) patiently(t *testing.T, path, key, body string) reply {
	t.Helper()
	for {
		r := b.post(t, path, key, body)
		if r.status != http.StatusConflict {
			return r
		}
		if code := r.text(t, "error"); code != "request_in_progress" && code != "outcome_unknown" {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
}

// A service that dies while its charge or refund is at the processor is taken
// over: the effect happens once, and what the dead one wakes up with changes
// nothing and reaches nobody as a success. (C5, C6, C7, C12, O6, B14, B53, B54)
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		for point, after := range map[string]bool{"before the effect": false, "after the effect": true} {
			t.Run(name+" "+point, func(t *testing.T) {
				t.Parallel()
				store := open(t)
				b := setup(t, store, options{})
				id := b.charged(t, "c0", 1000)

				body := refundBody(id, 600)
				wake := newCrashing(t, b, store, after).crash(t, "/refunds", "r1", body)
				b.post(t, "/refunds", "r2", refundBody(id, 400)).want(t, 409, "resource_busy")
				done := b.patiently(t, "/refunds", "r1", body).want(t, 201, "")
				if late := wake(); late.status < 400 {
					t.Errorf("the dead attempt answered %d %s", late.status, late.body)
				}
				if again := b.post(t, "/refunds", "r1", body); !again.replayed() || again.body != done.body {
					t.Errorf("the answer changed: %s, was %s", again.body, done.body)
				}

				b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1)).want(t, 201, "")
				pay := payBody("o1", "tok_visa", 1500)
				wake = newCrashing(t, b, store, after).crash(t, "/charges", "c1", pay)
				b.post(t, "/charges", "c2", pay).want(t, 409, "resource_busy")
				b.patiently(t, "/charges", "c1", pay).want(t, 201, "")
				if late := wake(); late.status < 400 {
					t.Errorf("the dead attempt answered %d %s", late.status, late.body)
				}
				b.once(t, 2, 1)
				b.checkLedger(t)
				if got := b.available(t); got != "1900" {
					t.Errorf("balance is %s, want 1900", got)
				}
			})
		}
	}
}

// The service works with a single connection to PostgreSQL: none is held while
// the processor is asked. (C9)
func TestOneConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.Stores()["postgres"](t)+"&pool_max_conns=1", options{})
	done := make(chan reply)
	for i := range 8 {
		go func() {
			r, err := b.try(t.Context(), http.MethodPost, "/charges", chargeBody(100+i, "tok_visa"), "Idempotency-Key", string(rune('a'+i)))
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
	}
	for range 8 {
		if r := <-done; r.status != 201 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	b.once(t, 8, 0)
}
