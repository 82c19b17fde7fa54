package stripeproc_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "sk_test_4eC39HqLyjWDarjtT1zdp7dc"

// clock is the store's and the server's. It moves when it is told to.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// world is an engine, a store, a provider and the server it talks to.
type world struct {
	*server
	clock  *clock
	mem    *memstore.Store
	engine *onlyonce.Engine
	stripe *stripeproc.Provider
}

func newWorld(t *testing.T, cfg stripeproc.Config) *world {
	t.Helper()
	w, done, err := makeWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return w
}

// makeWorld is newWorld for those who have no *testing.T.
func makeWorld(cfg stripeproc.Config) (*world, func(), error) {
	w := &world{clock: newClock()}
	w.server = newServer(w.clock.now)
	cfg.Key = testKey
	if cfg.BaseURL == "" {
		cfg.BaseURL = w.http.URL
	}
	var err, err2, err3 error
	w.stripe, err = stripeproc.New(cfg)
	w.mem, err2 = memstore.New(memstore.Config{SingleProcess: true, Now: w.clock.now})
	if err := errors.Join(err, err2); err != nil {
		w.http.Close()
		return nil, nil, err
	}
	w.engine, err3 = onlyonce.New(w.mem, onlyonce.Config{})
	return w, func() {
		_ = w.engine.Close(context.Background())
		w.stripe.CloseIdleConnections()
		w.http.Close()
	}, err3
}

// text is a request that is just a text.
type text string

func (t text) Version() int                            { return 1 }
func (t text) Form(int, []byte) (onlyonce.Form, error) { return textForm(t), nil }

type textForm string

func (f textForm) Sum() [32]byte          { return sha256.Sum256([]byte(f)) }
func (f textForm) Parts() []onlyonce.Part { return []onlyonce.Part{{Name: "body", Sum: f.Sum()}} }
func (f textForm) Differs(_ []string, same func(int, [32]byte) bool) []string {
	if same(0, f.Sum()) {
		return nil
	}
	return []string{"body"}
}

func keyOf(value string) onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: value} }

// euros is a charge of 12.34 EUR.
func euros(source string) provider.ChargeRequest {
	return provider.ChargeRequest{Amount: 1234, Currency: "EUR", Source: source, Description: "order 7"}
}

// charge is one attempt at a protected operation that charges.
func (w *world) charge(ctx context.Context, key string, req provider.ChargeRequest) (provider.Outcome, onlyonce.Result, error) {
	return w.run(ctx, key, "charge "+req.Source, func(ctx context.Context) (provider.Outcome, error) {
		return provider.Charge(ctx, w.stripe, "charge", req)
	})
}

// refund is one attempt at a protected operation that refunds.
func (w *world) refund(ctx context.Context, key string, req provider.RefundRequest) (provider.Outcome, onlyonce.Result, error) {
	return w.run(ctx, key, "refund "+req.Charge, func(ctx context.Context) (provider.Outcome, error) {
		return provider.Refund(ctx, w.stripe, "refund", req)
	})
}

// run answers as an API would: 201, 402 for a decline, 422 for a refused request,
// and whatever is unknown as the error it is.
func (w *world) run(ctx context.Context, key, body string, step func(ctx context.Context) (provider.Outcome, error)) (provider.Outcome, onlyonce.Result, error) {
	req := onlyonce.Request{Key: keyOf(key), Canonical: text(body)}
	res, err := w.engine.Steps(ctx, onlyonce.Op{Name: "POST /payments", Retention: 30 * 24 * time.Hour}, req, func(ctx context.Context) (onlyonce.Answer, error) {
		out, err := step(ctx)
		if err != nil {
			return onlyonce.Answer{}, err
		}
		status := map[provider.Status]int{
			provider.Succeeded: http.StatusCreated, provider.Declined: http.StatusPaymentRequired, provider.Refused: http.StatusUnprocessableEntity,
		}[out.Status]
		body, err := json.Marshal(out)
		return onlyonce.Answer{Status: status, Body: body}, err
	})
	var out provider.Outcome
	if err == nil {
		err = json.Unmarshal(res.Answer.Body, &out)
	}
	return out, res, err
}

func (w *world) state(t *testing.T, key string) onlyonce.State {
	t.Helper()
	rec, _, err := w.mem.Get(t.Context(), keyOf(key))
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

func (w *world) wantState(t *testing.T, key string, want onlyonce.State) {
	t.Helper()
	if got := w.state(t, key); got != want {
		t.Errorf("key %s is %q, want %q", key, got, want)
	}
}

// reference is what the step of a key is looked up by.
func reference(key, step string) string {
	return onlyonce.Derivation{Key: keyOf(key), Step: step, Provider: "stripe"}.Reference()
}
