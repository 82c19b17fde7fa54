package cachestore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// B89: the first retry is answered by the store, the next from memory, and both
// are told the same.
func TestReplaysComeFromMemory(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{}), request("k")
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if _, err := s.Complete(t.Context(), owner, created()); err != nil {
		t.Fatal(err)
	}
	c.clock.Advance(time.Minute)
	first := want(t, s, again(req), onlyonce.Replay)
	c.clock.Advance(time.Minute)
	asked := c.asked(storefault.Claim)
	second := want(t, s, again(req), onlyonce.Replay)
	third, _, err := s.Atomic(t.Context(), again(req), answers("never"))
	if err != nil || c.asked(storefault.Claim) != asked || c.asked(storefault.Atomic) != 0 {
		t.Fatalf("the store was asked for an answer that was there: %v", err)
	}
	if first.Remaining -= time.Minute; first.Remaining != retention-2*time.Minute {
		t.Errorf("the store said that %v remain", first.Remaining)
	}
	if diff := cmp.Diff([]onlyonce.Claim{first, first}, []onlyonce.Claim{second, third}); diff != "" {
		t.Errorf("the cache (-store +cache):\n%s", diff)
	}
	if n := s.Stats(); n.Hits != 2 || n.Misses != 2 || n.Entries != 1 || n.Bytes == 0 {
		t.Errorf("stats: %+v", n)
	}
}

// B89, B88: with the store down the cache knows what is final and nothing else.
func TestTheStoreDecidesAllElse(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s := c.cache(t, cachestore.Config{})
	complete(t, s, request("done"), "done")
	replays(t, c, s, request("done"), "done")
	want(t, s, request("busy"), onlyonce.Won)
	for value, end := range map[string]func(onlyonce.Owner) (bool, error){
		"doubt": func(o onlyonce.Owner) (bool, error) {
			return s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "?"})
		},
		"freed": func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "free") },
	} {
		if held, err := end(want(t, s, request(value), onlyonce.Won).Record.Owner()); !held || err != nil {
			t.Fatalf("%s: %v, %v", value, held, err)
		}
	}
	c.failing(func(storefault.Method, onlyonce.Key) storefault.Fault {
		return storefault.Fault{Before: storefault.ErrDown}
	})
	if !replays(t, c, s, request("done"), "done") {
		t.Error("the store was asked")
	}
	for _, value := range []string{"busy", "doubt", "freed", "fresh"} {
		ran := false
		claim, err := s.Claim(t.Context(), request(value))
		_, _, atomicErr := s.Atomic(t.Context(), request(value), func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) {
			ran = true
			return &onlyonce.Answer{}, nil
		})
		if ran || !errors.Is(err, onlyonce.ErrUnreachable) || !errors.Is(atomicErr, onlyonce.ErrUnreachable) {
			t.Errorf("%s with the store down: %v, %v, %v, ran %v", value, claim.Verdict, err, atomicErr, ran)
		}
	}
	if _, _, err := s.Get(t.Context(), request("done").Key); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("get is the store's: %v", err)
	}
}

// F6: the store says what differs; the answer stays.
func TestAnotherRequestIsTheStoresAffair(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{}), request("k")
	complete(t, s, req, "a")
	replays(t, c, s, req, "a")
	other := again(req)
	other.Fingerprint.Sum[0] ^= 1
	want(t, s, other, onlyonce.Mismatch)
	other = again(req)
	other.Fingerprint.Version.Policy = "another"
	want(t, s, other, onlyonce.Mismatch)
	if !replays(t, c, s, req, "a") {
		t.Error("a request that was refused has emptied the cache")
	}
}

// B89: the database was put back to before the key was completed; whatever it says
// now is the truth, and the answer that was cached goes.
func TestTheDatabaseWins(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]onlyonce.Verdict{"the same request": onlyonce.Busy, "another request": onlyonce.Mismatch} {
		c := newCounting(t)
		restored := &restoredStore{TxStore: c}
		s := before(t, restored, cachestore.Config{Now: c.clock.Now, MaxAge: 10 * time.Second, Margin: margin})
		req := request("k")
		complete(t, s, req, "a")
		replays(t, c, s, req, "a")
		restored.TxStore = newMemory(t, c.clock.Now)
		want(t, restored, again(req), onlyonce.Won)
		ask := again(req)
		if verdict == onlyonce.Mismatch {
			ask.Fingerprint.Sum[0] ^= 1
		} else {
			c.clock.Advance(10*time.Second + 1)
		}
		want(t, s, ask, verdict)
		if n := s.Stats(); n.Entries != 0 {
			t.Errorf("%s: %+v", name, n)
		}
		want(t, s, again(req), onlyonce.Busy)
	}
}

// restoredStore is a store whose data can be put back.
type restoredStore struct {
	onlyonce.TxStore[*memstore.Tx]
}

// What the store would refuse it refuses, though the answer is there.
func TestWrongRequestsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{}), request("k")
	complete(t, s, req, "a")
	replays(t, c, s, req, "a")
	wrong := map[string]func(*onlyonce.ClaimRequest){
		"no lease":      func(r *onlyonce.ClaimRequest) { r.Lease = 0 },
		"no retention":  func(r *onlyonce.ClaimRequest) { r.Retention = -1 },
		"a resource":    func(r *onlyonce.ClaimRequest) { r.Resource = "\n" },
		"in a way only": func(r *onlyonce.ClaimRequest) { r.Resource = strings.Repeat("r", 300) },
	}
	for name, change := range wrong {
		bad := again(req)
		change(&bad)
		if claim, err := s.Claim(t.Context(), bad); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v, %v", name, claim.Verdict, err)
		}
	}
	keeps := again(req)
	keeps.Keep = []byte("kept")
	if claim, _, err := s.Atomic(t.Context(), keeps, answers("b")); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("an atomic claim that keeps its request: %v, %v", claim.Verdict, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if claim, err := s.Claim(ended, again(req)); !errors.Is(err, context.Canceled) {
		t.Errorf("a claim whose caller has gone: %v, %v", claim.Verdict, err)
	}
}

// C12: a store that guards no resources refuses them, hit or not.
func TestResourcesAreTheStores(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s := before(t, noResources{c}, cachestore.Config{Now: c.clock.Now})
	req := request("k")
	complete(t, s, req, "a")
	replays(t, c, s, req, "a")
	req.Resource = "order_1"
	if hit := replays(t, c, s, req, "a"); hit {
		t.Error("a claim that names a resource was not shown to the store")
	}
}

// noResources is a store that guards no resources.
type noResources struct{ *counting }

func (n noResources) Features() onlyonce.Features {
	f := n.counting.Features()
	f.Resources = false
	return f
}

// T1: with ReadBack the first retry is a hit, whichever way the key was completed.
func TestReadBack(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s := c.cache(t, cachestore.Config{ReadBack: true})
	complete(t, s, request("complete"), "a")
	if claim, settled, err := s.Atomic(t.Context(), request("atomic"), answers("a")); err != nil || !settled.Held {
		t.Fatalf("atomic: %v, %v", claim.Verdict, err)
	}
	owner := want(t, s, request("finish"), onlyonce.Won).Record.Owner()
	if settled, err := s.Finish(t.Context(), owner, answers("a")); err != nil || !settled.Held {
		t.Fatalf("finish: %v", err)
	}
	for _, value := range []string{"complete", "atomic", "finish"} {
		got, plain := want(t, s, request(value), onlyonce.Replay), want(t, c.mem, request(value), onlyonce.Replay)
		if diff := cmp.Diff(plain, got); diff != "" || !replays(t, c, s, request(value), "a") {
			t.Errorf("%s (-store +cache):\n%s", value, diff)
		}
	}
	if n := s.Stats(); n.Hits != 6 {
		t.Errorf("%d hits, want 6: %+v", n.Hits, n)
	}
}

// X3: who has changed the database by hand has the key forgotten.
func TestForget(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{}), request("k")
	complete(t, s, req, "a")
	replays(t, c, s, req, "a")
	if err := s.Forget(t.Context(), req.Key); err != nil {
		t.Fatal(err)
	}
	if hit := replays(t, c, s, req, "a"); hit {
		t.Error("a key that was to be forgotten was answered from memory")
	}
}

// The cache takes no more memory than it was given, and no record that is too big.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s := c.cache(t, cachestore.Config{MaxBytes: 1 << 20, MaxEntry: 20 << 10})
	body := strings.Repeat("x", 10<<10)
	for i := range 500 {
		req := request(fmt.Sprint(i))
		complete(t, s, req, body)
		replays(t, c, s, req, body)
	}
	if n := s.Stats(); n.Bytes > 1<<20 || n.Bytes < 1<<19 || n.Entries > 100 {
		t.Errorf("stats: %+v", n)
	}
	big := request("big")
	complete(t, s, big, body+body)
	for range 2 {
		if hit := replays(t, c, s, big, body+body); hit {
			t.Error("an answer over the limit was cached")
		}
	}
	if n := s.Stats(); n.Unfit != 2 {
		t.Errorf("stats: %+v", n)
	}
}

// A store is as it says it is, and is not the cache's to close.
func TestFeaturesAndClose(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{}), request("k")
	features := c.mem.Features()
	features.Name = "cached memory"
	if diff := cmp.Diff(features, s.Features()); diff != "" {
		t.Error(diff)
	}
	if _, ok := onlyonce.TransactionsOf[*memstore.Tx](onlyonce.Store(s)); !ok {
		t.Error("the store's transactions do not count")
	}
	complete(t, s, req, "a")
	replays(t, c, s, req, "a")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if hit := replays(t, c, s, req, "a"); hit {
		t.Error("a closed cache has kept an answer")
	}
}

// A store without optional powers has none behind the cache either.
func TestPowersAreTheStores(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, err := cachestore.New(bare{c}, cachestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, steps := onlyonce.StepsOf(s)
	_, settings := onlyonce.SettingsOf(s)
	_, operators := onlyonce.OperatorsOf(s)
	_, recovery := onlyonce.RecoveryOf(s)
	_, tx := onlyonce.TransactionsOf[*memstore.Tx](s)
	if steps || settings || operators || recovery || tx {
		t.Error("the cache promises what its store does not")
	}
}

// bare is a store without optional powers.
type bare struct{ onlyonce.Store }

func (bare) Features() onlyonce.Features { return onlyonce.Features{Name: "bare"} }
