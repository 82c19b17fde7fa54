package tests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// fleet is some servers on one store, and a processor of their own.
type fleet struct {
	store     string
	processor *process
	mu        sync.Mutex
	servers   []*process
	client    *http.Client
	keys      int // how many there are; grows during a storm with kills
	// source gives each key's card.
	source func(key int) string
}

// newFleet starts a processor and servers.
func newFleet(t *testing.T, store string, servers, keys int) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{store: store, keys: keys, source: func(int) string { return "tok_visa" }}
	f.client = newClient(t)
	f.processor = start(t, dir, "processor", "--listen", "127.0.0.1:0", "--journal", dir+"/processor.journal")
	for range servers {
		f.servers = append(f.servers, f.serve(t, "127.0.0.1:0"))
	}
	return f
}

// serve starts one more server at an address.
func (f *fleet) serve(t *testing.T, listen string) *process {
	t.Helper()
	return start(t, t.TempDir(), "serve", "--listen", listen, "--store", f.store,
		"--processor", f.processor.URL, "--lease", "3s", "--processor-timeout", "500ms")
}

// restart kills server i and starts it again where it was.
func (f *fleet) restart(t *testing.T, i int) {
	t.Helper()
	f.mu.Lock()
	old := f.servers[i]
	f.mu.Unlock()
	old.kill()
	next := f.serve(t, old.URL[len("http://"):])
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[i] = next
}

// body is the request of a key, the same on every attempt.
func (f *fleet) body(key int) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"ARS","source":%q}`, 1000+key, f.source(key))
}

// attempt sends a key's request to one of the servers.
func (f *fleet) attempt(ctx context.Context, key, server int) (answer, error) {
	f.mu.Lock()
	url := f.servers[server%len(f.servers)].URL
	f.mu.Unlock()
	return post(ctx, f.client, url+"/charges", fmt.Sprintf("key-%d", key), f.body(key))
}

// seen collects every final answer by key, and checks what else was said.
type seen struct {
	mu      sync.Mutex
	answers map[int]map[string]int
	other   map[string]int
}

func newSeen() *seen { return &seen{answers: map[int]map[string]int{}, other: map[string]int{}} }

// final tells whether the answer is the operation's own, and notes it.
func (s *seen) final(key int, a answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.status != http.StatusCreated && a.status != http.StatusPaymentRequired {
		var p struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal([]byte(a.body), &p)
		s.other[fmt.Sprintf("%d %s", a.status, p.Error)]++
		return false
	}
	if s.answers[key] == nil {
		s.answers[key] = map[string]int{}
	}
	s.answers[key][fmt.Sprintf("%d %s", a.status, a.body)]++
	return true
}

// check reports keys that got no answer or several, and refusals that a
// retrying client must not see.
func (s *seen) check(t *testing.T, keys int) {
	t.Helper()
	for key := range keys {
		if len(s.answers[key]) != 1 {
			t.Errorf("key %d got %d different answers: %v", key, len(s.answers[key]), s.answers[key])
		}
	}
	for what, n := range s.other {
		switch what {
		case "409 request_in_progress", "409 outcome_unknown", "503 idempotency_store_unavailable", "500 handler_failed":
		default:
			t.Errorf("%d answers were %q", n, what)
		}
	}
	t.Logf("besides final answers: %v", s.other)
}

// storm sends requests × clients attempts over all keys.
func (f *fleet) storm(ctx context.Context, s *seen, clients, requests int) {
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 42))
			for i := range requests {
				f.random(ctx, s, r, c+i)
			}
		})
	}
	wg.Wait()
}

// window is how many keys are under way at a time.
const window = 100

// random sends one attempt of a random key of the latest ones.
func (f *fleet) random(ctx context.Context, s *seen, r *rand.Rand, server int) {
	f.mu.Lock()
	key := f.keys - 1 - r.IntN(min(f.keys, window))
	f.mu.Unlock()
	a, err := f.attempt(ctx, key, server)
	if err != nil {
		pause(ctx, 20*time.Millisecond) // nobody is there
		return
	}
	s.final(key, a)
}

// settle retries every key until it has its answer, as patient clients would.
func (f *fleet) settle(ctx context.Context, t *testing.T, s *seen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	const clients = 48
	for c := range clients {
		wg.Go(func() {
			for key := c; key < f.keys; key += clients {
				f.patient(ctx, t, s, key)
			}
		})
	}
	wg.Wait()
}

// patient retries one key until it has its answer.
func (f *fleet) patient(ctx context.Context, t *testing.T, s *seen, key int) {
	t.Helper()
	for ctx.Err() == nil {
		if a, err := f.attempt(ctx, key, key); err == nil && s.final(key, a) {
			return
		}
		pause(ctx, time.Second)
	}
	t.Errorf("key %d was never answered", key)
}

// processorStats is what the processor counted.
type processorStats struct {
	Charges            int            `json:"charges"`
	ChargesByReference map[string]int `json:"charges_by_reference"`
	DuplicateCharges   []string       `json:"duplicate_charges"`
}

func (f *fleet) fetch(t *testing.T, url string, into any) {
	t.Helper()
	resp, err := f.client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %d, %v: %s", url, resp.StatusCode, err, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("get %s: %v: %s", url, err, b)
	}
}

// judge compares the processor, the ledger and the answers.
func (f *fleet) judge(t *testing.T, succeeded int) {
	t.Helper()
	var stats processorStats
	f.fetch(t, f.processor.URL+"/v1/stats", &stats)
	if stats.Charges != succeeded || len(stats.ChargesByReference) != succeeded || len(stats.DuplicateCharges) != 0 {
		t.Errorf("the processor has %d charges for %d references, duplicates %v; want %d and none",
			stats.Charges, len(stats.ChargesByReference), stats.DuplicateCharges, succeeded)
	}
	f.judgeLedger(t, succeeded)
	f.judgeKeys(t)
}

// judgeKeys: every key is completed; none is left in doubt, since the
// processor can be asked.
func (f *fleet) judgeKeys(t *testing.T) {
	t.Helper()
	for state, want := range map[string]int{"completed": f.keys, "in_doubt": 0, "in_progress": 0, "failed_retryable": 0} {
		out, errs, code := run(t, "keys", "list", "--store", f.store, "--state", state, "--limit", "0", "--json")
		if code != 0 {
			t.Fatalf("keys list: exit %d: %s", code, errs)
		}
		if got := countKeys(t, out); got != want {
			t.Errorf("%d keys are %s, want %d", got, state, want)
		}
	}
}

// 64 clients × 200 attempts each over 100 keys, two servers on one PostgreSQL:
// one charge a key at the processor and in the ledger, one answer a key.
func TestLoad(t *testing.T) {
	f := newFleet(t, testserver.Postgres(t), 2, 100)
	s := newSeen()
	f.storm(t.Context(), s, 64, 200)
	f.settle(t.Context(), t, s)
	s.check(t, f.keys)
	f.judge(t, f.keys)
}
