package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Backend opens stores.
type Backend struct {
	// Open returns a store on fresh, empty data, and closes it with the test.
	// The store's clock must be now; where it has none (Features.Observes), so must
	// the one that it watches leases by.
	Open func(t *testing.T, now func() time.Time) Instance
}

// Instance is an open store.
type Instance struct {
	Store onlyonce.Store
	// Another is a second, independent handle on the same data, as another
	// process would have it; nil where there cannot be one.
	Another onlyonce.Store
}

// Clock is a clock that stands still until it is moved.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock makes a clock that shows an arbitrary, fixed moment.
func NewClock() *Clock {
	return &Clock{t: time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)}
}

// Now is the time the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// rule is one promise of the contract.
type rule struct {
	name string
	// broken is printed when the rule does not hold.
	broken string
	check  func(t *testing.T, b *bench)
}

// bench is what a rule is checked with.
type bench struct {
	Instance
	ctx   context.Context //nolint:containedctx // lives as long as one subtest
	clock *Clock
	store onlyonce.Store
}

// Run checks the rules that every store must keep.
func Run(t *testing.T, backend Backend) {
	t.Helper()
	var rules []rule
	rules = append(rules, claimRules()...)
	rules = append(rules, doubtRules()...)
	rules = append(rules, watchRules()...)
	rules = append(rules, ownerRules()...)
	rules = append(rules, expiryRules()...)
	rules = append(rules, identityRules()...)
	rules = append(rules, stepRules()...)
	rules = append(rules, resourceRules()...)
	rules = append(rules, recoveryRules()...)
	rules = append(rules, heldRules()...)
	rules = append(rules, optionalRules()...)
	ran := newReport(t, "contract")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			ran.count(t)
			check(t, backend, r)
		})
	}
	t.Run("transitions", func(t *testing.T) { runTransitions(t, backend) })
}

func check(t *testing.T, backend Backend, r rule) {
	t.Helper()
	explain(t, r.broken)
	clock := NewClock()
	in := backend.Open(t, clock.Now)
	r.check(t, &bench{Instance: in, ctx: t.Context(), clock: clock, store: in.Store})
}

// explain prints what a failure of the test means.
func explain(t *testing.T, broken string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("BROKEN RULE: %s", broken)
		}
	})
}

const (
	lease     = 30 * time.Second
	retention = 24 * time.Hour
)

// request is a claim for the value under scope "acct", with a fingerprint that
// stands for one request.
func request(value string) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{
		Key:         onlyonce.Key{Scope: "acct", Value: value},
		Operation:   "POST /charges",
		Fingerprint: fingerprintOf("a"),
		Attempt:     onlyonce.NewToken(),
		Lease:       lease,
		Retention:   retention,
		Abandon:     onlyonce.AbandonRerun,
	}
}

// fingerprintOf makes a fingerprint.
func fingerprintOf(of string) onlyonce.Fingerprint {
	f := onlyonce.Fingerprint{
		Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s1", Policy: "0011223344556677"},
		Parts:   []byte("parts of " + of),
	}
	copy(f.Sum[:], "sum of "+of)
	return f
}

func (b *bench) claim(t *testing.T, req onlyonce.ClaimRequest) onlyonce.Claim {
	t.Helper()
	c, err := b.store.Claim(b.ctx, req)
	if err != nil {
		t.Fatalf("claim %q: %v", req.Key.Value, err)
	}
	return c
}

// want claims and checks the verdict.
func (b *bench) want(t *testing.T, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c := b.claim(t, req)
	if c.Verdict != verdict {
		t.Fatalf("claim %q: verdict %v, want %v (state %q)", req.Key.Value, c.Verdict, verdict, c.Record.State)
	}
	return c
}

// again is the same request by another attempt.
func again(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

func (b *bench) get(t *testing.T, key onlyonce.Key) onlyonce.Record {
	t.Helper()
	rec, found, err := b.store.Get(b.ctx, key)
	if err != nil || !found {
		t.Fatalf("get %q: found %v, %v", key.Value, found, err)
	}
	return rec
}

func (b *bench) complete(t *testing.T, owner onlyonce.Owner, answer onlyonce.Answer) onlyonce.Settled {
	t.Helper()
	s, err := b.store.Complete(b.ctx, owner, answer)
	if err != nil {
		t.Fatalf("complete %q: %v", owner.Key.Value, err)
	}
	return s
}

func (b *bench) release(t *testing.T, owner onlyonce.Owner) bool {
	t.Helper()
	held, err := b.store.Release(b.ctx, owner, "test")
	if err != nil {
		t.Fatalf("release %q: %v", owner.Key.Value, err)
	}
	return held
}

func (b *bench) park(t *testing.T, owner onlyonce.Owner, leaseOver bool) bool {
	t.Helper()
	held, err := b.store.Park(b.ctx, onlyonce.ParkRequest{Owner: owner, Reason: "test", LeaseOver: leaseOver})
	if err != nil {
		t.Fatalf("park %q: %v", owner.Key.Value, err)
	}
	return held
}

func (b *bench) renew(t *testing.T, owner onlyonce.Owner) bool {
	t.Helper()
	held, err := b.store.Renew(b.ctx, owner, lease)
	if err != nil {
		t.Fatalf("renew %q: %v", owner.Key.Value, err)
	}
	return held
}

// created is an answer with something in every field.
func created() onlyonce.Answer {
	return onlyonce.Answer{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Link": {"<a>; rel=\"x\"", "<b>"}},
		Body:   []byte("{\"id\":\"ch_1\"}\x00\xff\xfe"),
	}
}
