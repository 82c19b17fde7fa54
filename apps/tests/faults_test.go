package tests_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// dice is a random number generator that many goroutines share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

// below is a number from 0 to n-1.
func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// faultyStore fails one call in fifty: before it happened, or losing its reply.
func (d *dice) faultyStore(storefault.Method, onlyonce.Key) storefault.Fault {
	switch d.below(100) {
	case 0:
		return storefault.Fault{Before: storefault.ErrDown}
	case 1:
		return storefault.Fault{After: &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: "test", Hint: "the reply was lost"}}
	default:
		return storefault.Fault{}
	}
}

// faultyWire fails one request in five, in each way a network and a processor
// can: no connection, a reset before or after the effect, and answers that prove
// nothing.
type faultyWire struct {
	*dice
	base http.RoundTripper
	off  bool
}

var errWire = errors.New("connection reset by peer")

// RoundTrip passes the request on, or fails it.
func (f *faultyWire) RoundTrip(r *http.Request) (*http.Response, error) {
	fault := f.below(30)
	if f.off || fault > 5 {
		return f.base.RoundTrip(r)
	}
	switch fault {
	case 0: // read, and not passed on
		_, _ = io.Copy(io.Discard, bodyOf(r))
		return nil, errWire
	case 1:
		return unusual(r, http.StatusTooManyRequests, `{"code":"rate_limited"}`), nil
	}
	resp, err := f.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	switch fault {
	case 2:
		return nil, errWire
	case 3:
		return unusual(r, http.StatusGatewayTimeout, `<html>504</html>`), nil
	case 4:
		return unusual(r, http.StatusConflict, `{"code":"in_progress"}`), nil
	default:
		return unusual(r, http.StatusCreated, `{"id":`), nil // cut off
	}
}

func bodyOf(r *http.Request) io.Reader {
	if r.Body == nil {
		return http.NoBody
	}
	return r.Body
}

// unusual is an answer that somebody on the way has made up.
func unusual(r *http.Request, status int, body string) *http.Response {
	_, _ = io.Copy(io.Discard, bodyOf(r))
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status), Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ProtoMajor: 1, ProtoMinor: 1,
	}
}

// faultsWorld is a service on SQLite whose store and wire fail at random.
type faultsWorld struct {
	*dice
	url       string
	store     string
	db        *db.Database
	service   *payments.Service
	processor *processor.Client
	wire      *faultyWire
}

func newFaultsWorld(t *testing.T, seed uint64) *faultsWorld {
	t.Helper()
	w := &faultsWorld{dice: &dice{r: rand.New(rand.NewPCG(seed, 3))}, store: "sqlite:" + filepath.Join(t.TempDir(), "faults.db")}
	server, err := processor.NewServer(processor.Config{IgnoreKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	remote := httptest.NewServer(server)
	w.url = remote.URL
	t.Cleanup(func() { remote.Close(); _ = server.Close() })
	w.processor = &processor.Client{BaseURL: w.url, Timeout: 20 * time.Second, HTTP: remote.Client()}
	if w.db, err = db.Open(t.Context(), w.store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	w.wire = &faultyWire{dice: w.dice, base: remote.Client().Transport}
	return w
}

// open makes the service. It asks the processor by reference and never re-sends,
// and "not found" proves nothing to it: so that whatever did not arrive stays in
// doubt.
func (w *faultsWorld) open(t *testing.T) {
	t.Helper()
	faulty := w.db.WithKeys(func(k db.Keys) db.Keys { return storefault.NewTx[db.Tx](k, w.faultyStore) })
	var err error
	w.service, err = payments.New(t.Context(), payments.Config{
		DB: faulty, Lease: 10 * time.Second, SettleTimeout: 5 * time.Second,
		Provider: &processor.Provider{
			Client:   &processor.Client{BaseURL: w.url, Timeout: 20 * time.Second, HTTP: &http.Client{Transport: w.wire}},
			Promises: provider.Traits{Name: "processor", Lookup: true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// request sends one attempt of an operation, without a network between.
func (w *faultsWorld) request(ctx context.Context, path, key, body string) answer {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	rec := httptest.NewRecorder()
	w.service.ServeHTTP(rec, r)
	return answer{rec.Code, rec.Header(), rec.Body.String()}
}

// operation sends up to three attempts of the i-th operation, as an impatient
// client would, and refunds a part of some charges. It tells what was wrong.
func (w *faultsWorld) operation(ctx context.Context, i int) error {
	path, body := "/charges", fmt.Sprintf(`{"amount":%d,"currency":"EUR","source":"tok_visa"}`, 100+i%5000)
	if i%10 == 9 {
		path, body = "/checkout", `{"lines":[{"product":"prod_bombilla","quantity":1}],"source":"tok_visa"}`
		if i%20 == 9 {
			body = `{"lines":[{"product":"prod_bombilla","quantity":1}],"source":"tok_chargeDeclined"}`
		}
	}
	var first string
	for range 1 + w.below(3) {
		a := w.request(ctx, path, fmt.Sprintf("op-%d", i), body)
		switch a.status {
		case 201, 402:
			if first != "" && first != a.body {
				return fmt.Errorf("operation %d has two answers: %s and %s", i, first, a.body)
			}
			first = a.body
		case 409, 503, 500:
		case 422:
			if path == "/checkout" && strings.Contains(a.body, "out_of_stock") {
				continue
			}
			fallthrough
		default:
			return fmt.Errorf("operation %d: %d %s", i, a.status, a.body)
		}
	}
	return nil
}

// operations is how many the test makes.
func operations(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("ONLYONCE_TEST_OPERATIONS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("ONLYONCE_TEST_OPERATIONS: %v", err)
		}
		return n
	}
	return 10_000
}

// Ten thousand operations with random faults at every hop: nothing is charged
// twice, and ledger ≤ charges at the processor ≤ ledger + keys in doubt. After
// reconciliation with a complete report they are equal, and nothing is in doubt.
// (D3, D4, O6, X2; cases B52, B74, B75)
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newFaultsWorld(t, seed)
	w.open(t)
	n := operations(t)
	work := make(chan int)
	wrong := make(chan error, 16)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range work {
				if err := w.operation(t.Context(), i); err != nil {
					select {
					case wrong <- err:
					default:
					}
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	close(wrong)
	for err := range wrong {
		t.Error(err)
	}
	if err := w.service.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.judgeBounds(t)
	w.reconcile(t)
	w.judgeEqual(t)
}

// books is what the three parties have.
type books struct {
	ledger, charged, doubt int
	ledgerSum, chargedSum  int64
}

func (w *faultsWorld) books(t *testing.T) books {
	t.Helper()
	var b books
	stats, err := w.processor.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(stats.DuplicateCharges) != 0 {
		t.Errorf("charged twice: %v", stats.DuplicateCharges)
	}
	b.charged = stats.Charges
	for _, sum := range stats.Charged {
		b.chargedSum += sum
	}
	err = w.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(amount), 0) FROM payments_charges WHERE status = 'succeeded'`).Scan(&b.ledger, &b.ledgerSum)
	})
	if err != nil {
		t.Fatal(err)
	}
	for filter := (onlyonce.ListFilter{Limit: 1000}); ; {
		page, err := w.db.Keys().List(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			if rec.State == onlyonce.InDoubt || rec.State == onlyonce.InProgress {
				b.doubt++
			}
		}
		if filter.After = page.Next; page.Next == "" {
			return b
		}
	}
}

func (w *faultsWorld) judgeBounds(t *testing.T) {
	t.Helper()
	b := w.books(t)
	t.Logf("before: %d in the ledger, %d at the processor, %d in doubt", b.ledger, b.charged, b.doubt)
	if b.ledger > b.charged || b.charged > b.ledger+b.doubt {
		t.Errorf("ledger %d ≤ charged %d ≤ ledger + in doubt %d does not hold", b.ledger, b.charged, b.ledger+b.doubt)
	}
	if b.doubt == 0 || b.charged == b.ledger {
		t.Error("the faults left nothing to reconcile: they were not faults")
	}
}

// reconcile runs the program on the processor's report.
func (w *faultsWorld) reconcile(t *testing.T) {
	t.Helper()
	var report bytes.Buffer
	if err := w.processor.Report(t.Context(), &report); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.csv")
	if err := os.WriteFile(path, report.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// What was still on its way has to be out of the question first: until the last
	// send deadline has passed, absence proves nothing.
	for deadline := time.Now().Add(2 * time.Minute); ; {
		complete := time.Now().UTC().Format(time.RFC3339)
		out, errs, code := run(t, "reconcile", "--store", w.store, "--report", path, "--heal",
			"--from", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "--complete-until", complete, "--visible", "1s", "--actor", "test")
		if code == 0 {
			t.Logf("reconciled:\n%s", out)
			return
		}
		if code != 1 || time.Now().After(deadline) {
			t.Fatalf("it still finds something: exit %d\n%s%s", code, out, tail(errs))
		}
		pause(t.Context(), 2*time.Second)
	}
}

func (w *faultsWorld) judgeEqual(t *testing.T) {
	t.Helper()
	b := w.books(t)
	t.Logf("after: %d in the ledger, %d at the processor, %d in doubt", b.ledger, b.charged, b.doubt)
	if b.ledger != b.charged || b.ledgerSum != b.chargedSum || b.doubt != 0 {
		t.Errorf("ledger %d (%d), processor %d (%d), in doubt %d: want them equal, and none in doubt", b.ledger, b.ledgerSum, b.charged, b.chargedSum, b.doubt)
	}
}
