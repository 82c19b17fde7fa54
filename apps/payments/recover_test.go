package payments_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// keyState is what the API says of a key.
func (b *bundle) keyState(t *testing.T, key string) string {
	t.Helper()
	return b.get(t, "/idempotency-keys/"+key).want(t, 200, "").text(t, "state")
}

// running runs the service's housekeeping until the test has seen what it wants.
func (b *bundle) running(t *testing.T, seen func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() { b.service.Run(ctx) })
	for !seen() && ctx.Err() == nil {
	}
	if ctx.Err() != nil {
		t.Error("it did not come to it")
	}
	stop()
	wg.Wait()
}

// quick makes a recoverer that does not wait for clients.
func quick() payments.Config {
	return payments.Config{Lease: lease, RecoverEvery: 20 * time.Millisecond, RecoverGrace: time.Nanosecond}
}

// A client that hangs up while the processor is silent leaves nothing behind: the
// service finds out by itself, and a late retry gets the answer. (C8, D6, X1, B74)
func TestClientIsGone(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: quick(), timeout: time.Second})
			pay := b.ordered(t)
			arrived := make(chan struct{}, 2)
			f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					arrived <- struct{}{}
				}
				b.processor.ServeHTTP(w, r)
			})
			b.fault.Store(&f)
			bodies := map[string]string{"/charges": strings.ReplaceAll(pay, "tok_visa", "tok_timeout"), "/checkout": cartBody("prod_mate", 1, "tok_timeout")}
			for path, body := range bodies {
				ctx, hangUp := context.WithCancel(t.Context())
				hung := make(chan struct{})
				go func() {
					defer close(hung)
					if r, err := b.try(ctx, http.MethodPost, path, body, "Idempotency-Key", path[1:]); err == nil {
						t.Errorf("it was answered: %d %s", r.status, r.body)
					}
				}()
				select {
				case <-arrived:
					hangUp()
					<-hung
				case <-hung:
					hangUp()
					t.Fatal("it did not get to the processor")
				}
			}
			b.running(t, func() bool {
				return b.keyState(t, "charges") == "completed" && b.keyState(t, "checkout") == "completed"
			})
			b.once(t, 2, 0)
			b.checkLedger(t)
			if got := b.available(t); got != "3000" {
				t.Errorf("balance is %s, want 3000", got)
			}
			if got := b.get(t, "/orders/o1").text(t, "status"); got != "paid" {
				t.Errorf("the order is %s", got)
			}
			for path, body := range bodies {
				first := b.post(t, path, path[1:], body).want(t, 201, "")
				if again := b.post(t, path, path[1:], body); !first.replayed() || again.body != first.body {
					t.Errorf("%s: %v %s, then %s", path, first.header, first.body, again.body)
				}
			}
			if !strings.Contains(b.log.String(), "operation recovered") {
				t.Error("the log does not say so")
			}
		})
	}
}

// catchUp gives all that is due its turn at once.
func (b *bundle) catchUp(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if kept, err := b.db.Keys().Requeue(t.Context(), dev(key)); err != nil || !kept {
			t.Fatalf("requeue %s: %t, %v", key, kept, err)
		}
	}
	if err := b.service.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What a crash has left is finished before new work is taken. (X1)
func TestCatchUp(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c0", 1000)
			pay := b.ordered(t)
			b.loseAnswers()
			b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			b.post(t, "/refunds", "r1", refundBody(id, 400)).want(t, 409, "outcome_unknown")
			b.post(t, "/checkout", "b1", cartBody("prod_mate", 1, "tok_chargeDeclined")).want(t, 409, "outcome_unknown")
			b.mend()
			b.catchUp(t, "c1", "r1", "b1")
			for _, key := range []string{"c1", "r1", "b1"} {
				if state := b.keyState(t, key); state != "completed" {
					t.Errorf("%s is %s", key, state)
				}
			}
			b.post(t, "/charges", "c2", pay).want(t, 409, "order_paid")
			b.once(t, 2, 1)
			b.checkLedger(t)
			if got := b.available(t); got != "2100" {
				t.Errorf("balance is %s, want 2100", got)
			}
		})
	}
}

// What a person has to find out is said so, after the tries it gets. (X1)
func TestGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{
		config:    payments.Config{RecoverAttempts: 1, RecoverEvery: time.Hour},
		processor: processor.Config{IgnoreKeys: true, NoLookup: true}, promises: &provider.Traits{},
	})
	b.post(t, "/charges", "k1", chargeBody(1500, "tok_error_after")).want(t, 409, "outcome_unknown")
	b.catchUp(t, "k1")
	if strings.Contains(b.log.String(), "operation given up") {
		t.Error("it is given up at once")
	}
	b.exec(t, "UPDATE onlyonce_keys SET due_us = 0")
	if err := b.service.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log := b.log.String(); !strings.Contains(log, "operation given up") || !strings.Contains(log, "keys settle") || !strings.Contains(log, dev("k1").Operation()) {
		t.Errorf("nobody is told what to do:\n%s", log)
	}
	out, err := json.Marshal(provider.Outcome{Status: provider.Succeeded, ID: "pc_seen"})
	if err != nil {
		t.Fatal(err)
	}
	b.settle(t, "k1", onlyonce.StepResult{Name: "charge", Result: out})
	res, err := b.service.Recover(t.Context(), dev("k1"))
	if err != nil || res.State != onlyonce.Completed || res.Answer.Status != 201 {
		t.Errorf("recovered %+v, %v", res, err)
	}
	b.once(t, 1, 0)
	if got := b.available(t); got != "1500" {
		t.Errorf("balance is %s, want 1500", got)
	}
}

// Two services on one database that recover at once share the work: each operation
// is finished once. (C1, X1, B75)
func TestTwoRecoverAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			b := setup(t, store, options{})
			two := b.beside(t, store, nil)
			const n = 12
			b.loseAnswers()
			for i := range n {
				b.post(t, "/charges", string(rune('a'+i)), chargeBody(100, "tok_visa")).want(t, 409, "outcome_unknown")
			}
			b.mend()
			for i := range n {
				if _, err := b.db.Keys().Requeue(t.Context(), dev(string(rune('a'+i)))); err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			for _, s := range []*payments.Service{b.service, two, b.service, two} {
				wg.Go(func() {
					if err := s.CatchUp(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			for i := range n { // and clients come back meanwhile
				wg.Go(func() {
					for {
						r, err := b.try(t.Context(), http.MethodPost, "/charges", chargeBody(100, "tok_visa"), "Idempotency-Key", string(rune('a'+i)))
						if err != nil || r.status == 201 {
							break
						}
					}
				})
			}
			wg.Wait()
			for i := range n {
				if state := b.state(t, string(rune('a'+i))); state != onlyonce.Completed {
					t.Errorf("key %d is %s", i, state)
				}
			}
			b.once(t, n, 0)
			b.checkLedger(t)
			if got := b.available(t); got != "1200" {
				t.Errorf("balance is %s, want 1200", got)
			}
		})
	}
}

// beside makes another service on the same database and processor, with faults of
// its store; nil: none.
func (b *bundle) beside(t *testing.T, store string, faults storefault.Injector) *payments.Service {
	t.Helper()
	d, err := db.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	cfg := quick()
	cfg.DB, cfg.Provider, cfg.Logger = d, options{}.remoteAt(t, b.remoteURL), slog.New(slog.DiscardHandler)
	if faults != nil {
		cfg.DB = d.WithKeys(func(k db.Keys) db.Keys { return storefault.NewTx[db.Tx](k, faults) })
	}
	s, err := payments.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if err := errors.Join(s.Close(ctx), d.Close()); err != nil && faults == nil {
			t.Error(err)
		}
	})
	return s
}

// A service that dies behind its charge, before anything is written of it, is
// gone on with by another one. (C7, X1, B14)
func TestCrashBehindTheCharge(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			b := setup(t, store, options{config: quick()})
			var once sync.Once
			died, gone := make(chan struct{}), make(chan struct{})
			dying := b.beside(t, store, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
				if m != storefault.Finish && m != storefault.Renew {
					return storefault.Fault{}
				}
				return storefault.Fault{Hold: func(context.Context) {
					if m == storefault.Finish {
						once.Do(func() { close(died) })
					}
					<-gone
				}}
			})
			answered := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/checkout", strings.NewReader(cartBody("prod_mate", 1, "tok_visa")))
				r.Header.Set("Idempotency-Key", "k1")
				r.Header.Set("Content-Type", "application/json")
				dying.ServeHTTP(w, r)
				answered <- w
			}()
			<-died
			b.running(t, func() bool { return b.keyState(t, "k1") == "completed" })
			close(gone)
			late := <-answered
			done := b.post(t, "/checkout", "k1", cartBody("prod_mate", 1, "tok_visa")).want(t, 201, "")
			if !done.replayed() || (late.Code < 400 && late.Body.String() != done.body) {
				t.Errorf("the dead one answered %d %s, the record has %s", late.Code, late.Body, done.body)
			}
			b.once(t, 1, 0)
			b.checkLedger(t)
			if n := b.stock(t, "prod_mate"); n != 99 {
				t.Errorf("%d of 100 are left, want 99", n)
			}
		})
	}
}

// What an operator has seen at the processor becomes the operation's own answer,
// with its rows and its ledger entry. (X2, X3)
func TestSettledWithAResult(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			pay := b.ordered(t)
			id := b.charged(t, "c0", 1000)
			b.loseAnswers()
			b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 409, "outcome_unknown")
			b.post(t, "/checkout", "b1", cartBody("prod_mate", 1, "tok_visa")).want(t, 409, "outcome_unknown")
			b.mend()
			b.settle(t, "c1", result(t, "charge", provider.Outcome{Status: provider.Succeeded, ID: "pc_c1"}))
			b.settle(t, "r1", result(t, "refund", provider.Outcome{Status: provider.Succeeded, ID: "pr_r1"}))
			b.settle(t, "b1", result(t, "charge", provider.Outcome{Status: provider.Declined, ID: "pc_b1", Code: "lost_card"}))
			b.post(t, "/charges", "c2", pay).want(t, 409, "resource_busy") // as long as nothing is written down
			for key, status := range map[string]int{"c1": 201, "r1": 201, "b1": 402} {
				res, err := b.service.Recover(t.Context(), dev(key))
				if err != nil || res.Answer.Status != status {
					t.Errorf("%s: %d %s, %v", key, res.Answer.Status, res.Answer.Body, err)
				}
			}
			b.post(t, "/charges", "c2", pay).want(t, 409, "order_paid")
			if r := b.get(t, "/charges/"+id); r.text(t, "refunded") != "700" {
				t.Errorf("the refund is not written down: %s", r.body)
			}
			if n := b.stock(t, "prod_mate"); n != 99 { // o1's; the checkout has given its own back
				t.Errorf("%d of 100 are left, want 99", n)
			}
			if got := b.available(t); got != "1800" {
				t.Errorf("balance is %s, want 1800", got)
			}
			b.checkLedger(t)
		})
	}
}

func result(t *testing.T, step string, out provider.Outcome) onlyonce.StepResult {
	t.Helper()
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return onlyonce.StepResult{Name: step, Result: text}
}

// A result that an earlier version of the program has recorded is read as what it
// was; one that says nothing is never taken for money.
func TestResultsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	for recorded, want := range map[string]struct {
		status int
		code   string
	}{
		`{"id":"pc_1"}`: {201, ""},
		`{"id":"pc_1","declined":"insufficient_funds","message":"the card has insufficient funds"}`: {402, "card_declined"},
		`{"message":"?"}`:                  {409, "outcome_unknown"},
		`{"status":"pending","id":"pc_1"}`: {409, "outcome_unknown"},
	} {
		t.Run(recorded, func(t *testing.T) {
			t.Parallel()
			b := setup(t, apptest.SQLite(t), options{})
			b.lose()
			body := chargeBody(1500, "tok_visa")
			b.post(t, "/charges", "k1", body).want(t, 409, "outcome_unknown")
			b.mend()
			b.settle(t, "k1", onlyonce.StepResult{Name: "charge", Result: []byte(recorded)})
			b.post(t, "/charges", "k1", body).want(t, want.status, want.code)
			b.once(t, 0, 0)
		})
	}
}
