package tests_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// The code of docs/INBOX.md works as it stands: a message that comes twice is added once,
// one that was parked is when a person says so, and so is a webhook's event.
func TestInboxDocs(t *testing.T) {
	t.Parallel()
	pool := balancesTable(t)
	check, report := failing(t), func(err error) { t.Error(err) }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const id, secret = "evt_1", webhookSecret
	body := []byte(`{"id":"evt_1","amount":5}`)
	var running sync.WaitGroup
	mux := http.NewServeMux()
	deliverAgain := report

	store, err := pgstore.New(pool, pgstore.Config{})
	check(err)
	engine, err := onlyonce.NewTx[pgx.Tx](store, onlyonce.Config{})
	check(err)
	balances, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances"})
	check(err)

	handler := func(ctx context.Context, tx pgx.Tx, msg inbox.Message) error {
		_, err := tx.Exec(ctx, `UPDATE balances SET amount = amount + ($1::jsonb->>'amount')::bigint`, string(msg.Payload))
		return err
	}
	verdict, err := balances.Process(ctx, inbox.Message{ID: id, Payload: body}, handler)
	if !verdict.Ack() {
		deliverAgain(err) // its RetryAfter says when
	}

	check(err)
	verdict, err = balances.Process(ctx, inbox.Message{ID: id, Payload: body}, handler)
	if verdict != inbox.Duplicate || err != nil {
		t.Errorf("again it is %v, %v", verdict, err)
	}
	parkAndRetry(t, balances, store)
	running.Go(func() { balances.Recoverer(handler).Run(ctx, report) }) // running is a sync.WaitGroup
	awaitAmount(t, pool, 5+70)

	verify, err := inbox.StripeSignature(inbox.StripeConfig{Secrets: []string{secret}})
	check(err)
	eventID, err := inbox.IDFromJSON("/id")
	check(err)
	hook, err := balances.Webhook(inbox.WebhookConfig{Verify: verify, EventID: eventID}, handler)
	check(err)
	mux.Handle("POST /hooks/stripe", hook)

	for range 2 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, stripeRequest(ctx, t, "/hooks/stripe", `{"id":"evt_2","amount":900}`))
		if w.Code != http.StatusOK {
			t.Errorf("the webhook answers %d", w.Code)
		}
	}
	stop()
	running.Wait()
	ctx = context.WithoutCancel(ctx)
	check(errors.Join(hook.Close(ctx), engine.Close(ctx), store.Close()))
	awaitAmount(t, pool, 5+70+900)
}

// failing ends a test with an error.
func failing(t *testing.T) func(error) {
	t.Helper()
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// balancesTable is a database with keys and a balance of nothing.
func balancesTable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgstore.New(pool, pgstore.Config{})
	if err == nil {
		err = errors.Join(store.Migrate(t.Context()), store.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "CREATE TABLE balances (amount bigint); INSERT INTO balances VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	return pool
}

// parkAndRetry has a message of 70 fail until it is parked, and asks for another try.
func parkAndRetry(t *testing.T, in *inbox.TxInbox[pgx.Tx], store onlyonce.Store) {
	t.Helper()
	msg := inbox.Message{ID: "evt_0", Payload: []byte(`{"amount":70}`)}
	for try := 1; ; try++ {
		verdict, _ := in.Process(t.Context(), msg, func(context.Context, pgx.Tx, inbox.Message) error { return errAccount })
		if verdict == inbox.Parked {
			break
		}
		if try == inbox.DefaultMaxTries {
			t.Fatalf("after %d tries it is %v", try, verdict)
		}
	}
	if _, err := inbox.Retry(t.Context(), store, inbox.Act{Consumer: in.Consumer(), ID: msg.ID, Actor: "ana"}); err != nil {
		t.Fatal(err)
	}
}

// awaitAmount waits until the balance is what it should be.
func awaitAmount(t *testing.T, pool *pgxpool.Pool, want int64) {
	t.Helper()
	for {
		var got int64
		if err := pool.QueryRow(t.Context(), "SELECT amount FROM balances").Scan(&got); err != nil {
			t.Fatalf("the balance is %d, want %d: %v", got, want, err)
		}
		if got == want {
			return
		}
		pause(t.Context(), 50*time.Millisecond)
	}
}

// stripeRequest is an event as Stripe sends and signs it.
func stripeRequest(ctx context.Context, t *testing.T, url, body string) *http.Request {
	t.Helper()
	at := time.Now().Unix()
	mac := hmac.New(sha256.New, []byte(webhookSecret))
	fmt.Fprintf(mac, "%d.%s", at, body)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%s", at, hex.EncodeToString(mac.Sum(nil))))
	return r
}

// webhookSecret is what the tests' senders of events sign with.
const webhookSecret = "whsec_test"

// The Go code of docs/INBOX.md is this file's, block by block.
func TestInboxDocsAreCompiled(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "INBOX.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("inbox_docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	var code *strings.Builder // of the block that the line is in
	for line := range strings.Lines(string(page)) {
		text := strings.TrimSpace(line)
		switch {
		case code == nil && text == "```go":
			code = &strings.Builder{}
			blocks++
		case code != nil && text == "```":
			if !strings.Contains(string(source), code.String()) {
				t.Errorf("this code of docs/INBOX.md is not in the test that runs:\n%s", code)
			}
			code = nil
		case code != nil && text == "":
			code.WriteString("\n")
		case code != nil:
			code.WriteString("\t" + strings.TrimLeft(line, " "))
		}
	}
	if blocks != 3 || code != nil {
		t.Errorf("docs/INBOX.md has %d blocks of Go code, or one without an end", blocks)
	}
}
