package tests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// The boundaries of POST /checkout: its claim, its three steps (stock reserved
// in a transaction, card charged by a call, books and answer in a transaction),
// and the one send.
func boundaries() []point {
	var points []point
	for _, call := range []string{"claim", "step_tx", "begin_step", send, "end_step", "finish"} {
		points = append(points, point{call, false}, point{call, true})
	}
	return points
}

// kind is a kind of provider.
type kind struct {
	name   string
	traits provider.Traits
	server processor.Config
	// doubt are the points after which nobody can find out what happened.
	doubt []string
}

// kinds of provider: one that honours keys, one that only answers queries, one
// that does neither.
func kinds() []kind {
	const visible = 200 * time.Millisecond
	return []kind{
		{name: "keys", traits: provider.Traits{Name: "processor", Memory: time.Hour}, server: processor.Config{NoLookup: true}},
		{
			name:   "queries",
			traits: provider.Traits{Name: "processor", Lookup: true, Visible: visible},
			server: processor.Config{IgnoreKeys: true, VisibleAfter: visible / 2},
		},
		{
			name: "neither", traits: provider.Traits{Name: "processor"}, server: processor.Config{IgnoreKeys: true, NoLookup: true},
			doubt: []string{"after begin_step", "before send", "after send", "before end_step"},
		},
	}
}

// cell is one crash: where, on which store, with which provider.
type cell struct {
	store string
	kind  kind
	at    point
}

// wants is what must come of it.
func (c cell) wants() string {
	for _, p := range c.kind.doubt {
		if p == c.at.String() {
			return doubtful
		}
	}
	return charged
}

const (
	charged  = "201, one charge"
	doubtful = "in doubt"
)

// A worker is killed with SIGKILL at every boundary of a charge in three steps,
// on each store, with each kind of provider. After a restart and retries there is
// at most one charge; the answer is right, or the key is in doubt, never a wrong
// failure; and nothing is sent again to a provider that neither honours keys nor
// can be asked. (C7, D2, D4, O2–O5; cases B14, B24, B53, B54, B69, B74, B108, B112)
func TestCrashMatrix(t *testing.T) {
	var mu sync.Mutex
	outcomes := map[string]string{}
	t.Run("cells", func(t *testing.T) {
		for store, open := range apptest.Stores() {
			for _, k := range kinds() {
				for _, at := range boundaries() {
					c := cell{store, k, at}
					t.Run(fmt.Sprintf("%s/%s/%s", store, k.name, strings.ReplaceAll(at.String(), " ", "_")), func(t *testing.T) {
						t.Parallel()
						got := c.crash(t, open(t))
						mu.Lock()
						outcomes[store+k.name+at.String()] = got
						mu.Unlock()
					})
				}
			}
		}
	})
	t.Log("\n" + table(outcomes))
}

// table prints what came of each crash.
func table(outcomes map[string]string) string {
	stores := slices.Sorted(maps.Keys(apptest.Stores()))
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s", "killed")
	for _, store := range stores {
		for _, k := range kinds() {
			fmt.Fprintf(&b, "  %-18s", store+", "+k.name)
		}
	}
	for _, at := range boundaries() {
		fmt.Fprintf(&b, "\n%-18s", at)
		for _, store := range stores {
			for _, k := range kinds() {
				fmt.Fprintf(&b, "  %-18s", outcomes[store+k.name+at.String()])
			}
		}
	}
	return b.String()
}

// crash runs the cell and gives what came of it.
func (c cell) crash(t *testing.T, store string) string {
	t.Helper()
	s := c.newShop(t, store)
	first := startWorker(t, s.config(c.at, syscall.SIGKILL))
	if a, err := s.buy(t.Context(), first); err == nil {
		t.Fatalf("the worker was not killed: %d %s", a.status, a.body)
	}
	<-first.ended
	second := startWorker(t, s.config(point{}, 0))
	got := s.insist(t, second)
	if want := c.wants(); got != want {
		t.Errorf("killed %v: %s, want %s", c.at, got, want)
	}
	s.judge(t, second, got)
	return got
}

// shop is one customer's checkout on a store, and a processor that counts.
type shop struct {
	store  string
	kind   kind
	key    onlyonce.Key
	client *http.Client
	url    string // the processor's

	mu    sync.Mutex
	posts int
}

func (c cell) newShop(t *testing.T, store string) *shop {
	t.Helper()
	server, err := processor.NewServer(c.kind.server)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{store: store, kind: c.kind, key: onlyonce.Key{Scope: "dev", Value: "checkout-1"}, client: newClient(t)}
	counted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.mu.Lock()
			s.posts++
			s.mu.Unlock()
		}
		server.ServeHTTP(w, r)
	}))
	s.url = counted.URL
	t.Cleanup(func() {
		counted.CloseClientConnections()
		counted.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shop) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posts
}

// shopLease is short, because every cell waits for it, and long enough for a
// machine that runs a dozen cells.
const shopLease = 3 * time.Second

func (s *shop) config(at point, sig syscall.Signal) workerConfig {
	return workerConfig{Store: s.store, Processor: s.url, Traits: s.kind.traits, Lease: shopLease, At: at, Signal: sig}
}

const order = `{"lines":[{"product":"prod_mate","quantity":2}],"source":"tok_visa"}`

// buy sends the checkout once.
func (s *shop) buy(ctx context.Context, w *worker) (answer, error) {
	return post(ctx, s.client, w.url+"/checkout", s.key.Value, order)
}

// insist sends it until it is answered, or has been in doubt for longer than
// anybody needs to find out.
func (s *shop) insist(t *testing.T, w *worker) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	doubts := 0
	for ctx.Err() == nil {
		a, err := s.buy(ctx, w)
		if err != nil {
			t.Fatalf("%v\n%s", err, w.log)
		}
		switch {
		case a.status == http.StatusCreated:
			return charged
		case a.header.Get("X-Should-Retry") != "true":
			t.Fatalf("a wrong failure: %d %s", a.status, a.body)
		case strings.Contains(a.body, "outcome_unknown"):
			doubts++
		}
		if doubts > 70 {
			return doubtful
		}
		pause(ctx, 100*time.Millisecond)
	}
	return "no answer"
}

// judge compares the processor, the ledger, the stock and the key.
func (s *shop) judge(t *testing.T, w *worker, got string) {
	t.Helper()
	var stats processorStats
	s.get(t, s.url+"/v1/stats", &stats)
	if stats.Charges > 1 || len(stats.DuplicateCharges) != 0 {
		t.Errorf("%d charges at the processor, duplicates %v", stats.Charges, stats.DuplicateCharges)
	}
	if s.kind.traits.Memory == 0 && !s.kind.traits.Lookup && s.sent() > 1 {
		t.Errorf("%d sends to a provider that neither honours keys nor can be asked", s.sent())
	}
	var ledger struct {
		Data []transfer `json:"data"`
	}
	s.get(t, w.url+"/ledger", &ledger)
	booked := 0
	if got == charged {
		booked = 1
	}
	if len(ledger.Data) != booked || (got == charged && stats.Charges != 1) {
		t.Errorf("%d transfers in the ledger and %d charges at the processor: %s", len(ledger.Data), stats.Charges, got)
	}
	s.judgeStock(t, w)
	s.judgeReplay(t, w, got)
}

// judgeStock: two are gone, whatever happened: sold, or kept for who is in doubt.
func (s *shop) judgeStock(t *testing.T, w *worker) {
	t.Helper()
	var products struct {
		Data []struct {
			ID    string `json:"id"`
			Stock int    `json:"stock"`
		} `json:"data"`
	}
	s.get(t, w.url+"/products", &products)
	for _, p := range products.Data {
		if p.ID == "prod_mate" && p.Stock != 98 {
			t.Errorf("%d in stock, want 98", p.Stock)
		}
	}
}

// judgeReplay: the answer stays the same, byte for byte.
func (s *shop) judgeReplay(t *testing.T, w *worker, got string) {
	t.Helper()
	if got != charged {
		return
	}
	one, err := s.buy(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.buy(t.Context(), w)
	if err != nil || one.body != two.body || one.status != 201 || one.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replays differ: %d %s, %d %s, %v", one.status, one.body, two.status, two.body, err)
	}
}

func (s *shop) get(t *testing.T, url string, into any) {
	t.Helper()
	a, err := get(t.Context(), s.client, url)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("get %s: %d, %v: %s", url, a.status, err, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("get %s: %v: %s", url, err, a.body)
	}
}
