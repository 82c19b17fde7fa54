package cachestore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
	"github.com/onlyonce-go/onlyonce/storetest"
)

type cached = cachestore.TxStore[*memstore.Tx]

func newMemory(t *testing.T, now func() time.Time) *memstore.Store {
	t.Helper()
	m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// before puts a cache before a store.
func before(t *testing.T, store onlyonce.TxStore[*memstore.Tx], cfg cachestore.Config) *cached {
	t.Helper()
	s, err := cachestore.NewTx(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// counting is a store that counts the calls it gets.
type counting struct {
	*storefault.TxStore[*memstore.Tx]
	mem   *memstore.Store
	clock *storetest.Clock

	mu    sync.Mutex
	calls map[storefault.Method]int
	// fail, unless nil, makes calls fail.
	fail atomic.Pointer[storefault.Injector]
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{clock: storetest.NewClock(), calls: map[storefault.Method]int{}}
	c.mem = newMemory(t, c.clock.Now)
	c.TxStore = storefault.NewTx(c.mem, func(m storefault.Method, key onlyonce.Key) storefault.Fault {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[m]++
		if fail := c.fail.Load(); fail != nil {
			return (*fail)(m, key)
		}
		return storefault.Fault{}
	})
	return c
}

// failing makes calls fail from now on.
func (c *counting) failing(fail storefault.Injector) { c.fail.Store(&fail) }

func (c *counting) asked(m storefault.Method) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[m]
}

// cache puts a cache before it, with its clock.
func (c *counting) cache(t *testing.T, cfg cachestore.Config) *cached {
	t.Helper()
	cfg.Now = c.clock.Now
	if cfg.Margin == 0 {
		cfg.Margin = margin
	}
	return before(t, c, cfg)
}

const (
	retention = 24 * time.Hour
	margin    = 5 * time.Second
)

// request is a claim by a new attempt.
func request(value string) onlyonce.ClaimRequest {
	fp := onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s1", Policy: "0011223344556677"}, Parts: make([]byte, 96)}
	copy(fp.Sum[:], "sum of "+value)
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct_1", Value: value}, Operation: "POST /charges", Fingerprint: fp,
		Attempt: onlyonce.NewToken(), Lease: 30 * time.Second, Retention: retention, Abandon: onlyonce.AbandonRerun,
	}
}

// again is the same request by another attempt.
func again(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

func created() onlyonce.Answer {
	return onlyonce.Answer{
		Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/charges/ch_1"}},
		Body: []byte(`{"id":"ch_3PqRs7Tu9VwX","object":"charge","amount":1999,"currency":"eur","status":"succeeded"}`),
	}
}

// want claims and checks the verdict.
func want(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), req)
	if err != nil || c.Verdict != verdict {
		t.Fatalf("claim %s: %v, %v; want %v", req.Key.Value, c.Verdict, err, verdict)
	}
	return c
}

// complete claims a key and completes it with the body.
func complete(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, body string) {
	t.Helper()
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	settled, err := s.Complete(t.Context(), owner, onlyonce.Answer{Status: 201, Body: []byte(body)})
	if err != nil || !settled.Held {
		t.Fatalf("complete %s: %+v, %v", req.Key.Value, settled, err)
	}
}

// replays claims, wants the body and tells whether the store was not asked.
func replays(t *testing.T, c *counting, s onlyonce.Store, req onlyonce.ClaimRequest, body string) (hit bool) {
	t.Helper()
	asked := c.asked(storefault.Claim)
	claim := want(t, s, again(req), onlyonce.Replay)
	if string(claim.Record.Answer.Body) != body {
		t.Fatalf("replay of %s: %q, want %q", req.Key.Value, claim.Record.Answer.Body, body)
	}
	return c.asked(storefault.Claim) == asked
}

// answers is a handler that writes nothing.
func answers(body string) onlyonce.TxFunc[*memstore.Tx] {
	return func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) {
		return &onlyonce.Answer{Status: 201, Body: []byte(body)}, nil
	}
}
