package tests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/outbox"
)

// teller is a payments service that publishes its events.
type teller struct {
	*events
	store     string // the service's own
	books     *db.Database
	keys      map[string]string
	processor *process
	client    *http.Client

	mu    sync.Mutex
	serve *process
	// taken is what clients were told, by merchant.
	taken map[string]int64
}

// Charges and refunds over HTTP, sent again until they are answered and once more, on a
// service that is killed meanwhile, and told of through its outbox to a consumer that is
// killed too, and that is not there at first: the balances are those of the ledger, and
// of what clients were told. (R4; B114)
func TestEventsOfService(t *testing.T) {
	t.Parallel()
	cells := eventsCells()
	if os.Getenv("ONLYONCE_SOAK") == "" {
		cells = cells[:2] // the flood has been on all
	}
	eachEvents(t, cells, func(t *testing.T, e *events) {
		s := newTeller(t, e)
		r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
		const operations = 40
		var done atomic.Int64
		var clients sync.WaitGroup
		for c := range 4 {
			clients.Go(func() {
				for n := c; n < operations; n += 4 {
					s.trade(t, n)
					done.Add(1)
				}
			})
		}
		for i, moment := range []int64{operations/6 + r.Int64N(operations/6), operations/2 + r.Int64N(operations/4)} {
			e.await(t, "the moment of a kill", func() bool { return done.Load() >= moment })
			s.restart(t)
			if i == 0 {
				e.fill(t, 1) // what was published before has waited
			} else {
				e.restart(t, 0)
			}
		}
		clients.Wait()
		e.await(t, "the outbox is empty", func() bool { return s.waiting(t) == 0 })
		e.finish(t, 1)
		s.stop(t)
		s.judge(t)
	})
}

// newTeller starts a processor and the service, with two merchants.
func newTeller(t *testing.T, e *events) *teller {
	t.Helper()
	s := &teller{events: e, keys: map[string]string{}, taken: map[string]int64{}, client: newClient(t)}
	// The service has a store of its own, and once the same as the consumer.
	s.store, s.books = e.store, e.db
	if !strings.HasPrefix(e.store, "sqlite:") {
		s.store = emptyStore(t, "sqlite")
		s.books = openStore(t, s.store)
	}
	dir := t.TempDir()
	s.processor = start(t, dir, "processor", "--listen", "127.0.0.1:0", "--journal", dir+"/processor.journal")
	s.serve = s.begin(t, "127.0.0.1:0")
	return s
}

// begin starts the service.
func (s *teller) begin(t *testing.T, listen string) *process {
	t.Helper()
	args := []string{
		"serve", "--listen", listen, "--store", s.store, "--events", s.events.broker,
		"--processor", s.processor.URL, "--lease", "3s", "--processor-timeout", "500ms",
	}
	for _, merchant := range []string{"acme", "globex"} {
		if s.keys[merchant] == "" {
			key, hash := payments.NewAPIKey()
			s.keys[merchant], s.keys[merchant+" hash"] = key, hash
		}
		args = append(args, "--merchant", merchant+"="+s.keys[merchant+" hash"])
	}
	return start(t, t.TempDir(), args...)
}

// restart kills the service and starts it again where it was.
func (s *teller) restart(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve.kill()
	s.serve = s.begin(t, s.serve.URL[len("http://"):])
}

// stop ends the service in order.
func (s *teller) stop(t *testing.T) {
	t.Helper()
	if err := s.serve.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-s.serve.done
	if code := s.serve.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the service ended with %d:\n%s", code, tail(s.serve.log.String()))
	}
}

// trade makes the nth charge, and gives a part of every third back.
func (s *teller) trade(t *testing.T, n int) {
	merchant := []string{"acme", "globex"}[n%2]
	amount := int64(1000 + n)
	a := s.post(t, merchant, "/charges", fmt.Sprintf("charge-%d", n), fmt.Sprintf(`{"amount":%d,"currency":"EUR","source":%q}`, amount, sources(n)))
	if a.status != http.StatusCreated {
		return // declined
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(a.body), &made); err != nil {
		t.Errorf("a charge is answered %s", a.body)
	}
	if n%3 == 0 {
		back := s.post(t, merchant, "/refunds", fmt.Sprintf("refund-%d", n), fmt.Sprintf(`{"charge":%q,"amount":%d}`, made.ID, 100+n))
		if back.status == http.StatusCreated {
			amount -= int64(100 + n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[merchant] += amount
}

// post sends a request until it is answered for good, and once more.
func (s *teller) post(t *testing.T, merchant, path, key, body string) answer {
	final := func(a answer, err error) bool {
		return err == nil && (a.status == http.StatusCreated || a.status == http.StatusPaymentRequired)
	}
	for {
		a, err := s.attempt(t.Context(), merchant, path, key, body)
		if final(a, err) {
			again, err := s.attempt(t.Context(), merchant, path, key, body)
			if final(again, err) && again.body != a.body {
				t.Errorf("%s %s was answered %s and %s", path, key, a.body, again.body)
			}
			return a
		}
		pause(t.Context(), 200*time.Millisecond)
		if t.Context().Err() != nil {
			t.Errorf("%s %s was never answered: %d, %v", path, key, a.status, err)
			return a
		}
	}
}

func (s *teller) attempt(ctx context.Context, merchant, path, key, body string) (answer, error) {
	s.mu.Lock()
	url := s.serve.URL
	s.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.GetBody = nil // net/http must not send again by itself
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Authorization", "Bearer "+s.keys[merchant])
	return do(s.client, req)
}

// waiting is how many events were not published yet.
func (s *teller) waiting(t *testing.T) int {
	t.Helper()
	w, err := outbox.Look(t.Context(), s.books)
	if err != nil {
		t.Fatal(err)
	}
	return w.Events
}

// judge compares the balances with the ledger, and that with what clients were told.
func (s *teller) judge(t *testing.T) {
	t.Helper()
	var sums []balances.Balance
	transfers := 0
	if err := s.books.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM payments_transfers").Scan(&transfers); err != nil {
			return err
		}
		return tx.Each(ctx, `SELECT merchant, currency, CAST(sum(CASE kind WHEN 'charge' THEN amount ELSE -amount END) AS BIGINT)
			FROM payments_transfers GROUP BY merchant, currency ORDER BY merchant`, nil, func(row db.Row) error {
			var b balances.Balance
			err := row.Scan(&b.Merchant, &b.Currency, &b.Amount)
			sums = append(sums, b)
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	s.events.judge(t, sums, transfers)
	told := map[string]int64{}
	for _, b := range sums {
		told[b.Merchant] = b.Amount
	}
	if diff := cmp.Diff(s.taken, told); diff != "" {
		t.Errorf("the ledger is not what clients were told:\n%s", diff)
	}
	t.Logf("%d transfers, %v", transfers, s.taken)
}
