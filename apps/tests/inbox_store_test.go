package tests_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// What an inbox promises holds on every store with transactions, in the driver's own.
func TestInbox(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		inboxOn[*sql.Tx](t, sqliteFiles())
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		inboxOn[pgx.Tx](t, postgresPlaces(t, plainPostgres(pgstore.Partition{})))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		inboxOn[*sql.Tx](t, mysqlDatabases(t))
	})
}

func inboxOn[Tx any](t *testing.T, db database[Tx]) {
	for name, test := range map[string]func(t *testing.T, c *consumers[Tx]){
		"once": inboxOnce[Tx], "failures leave nothing": inboxFailures[Tx], "at once": inboxAtOnce[Tx], "parked": inboxParked[Tx],
		"other payload": inboxOtherPayload[Tx], "crashes": inboxCrashes[Tx], "webhook": inboxWebhook[Tx], "forgotten": inboxForgotten[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newConsumers(t, db))
		})
	}
}

// consumers are two processes with the same inboxes on one store.
type consumers[Tx any] struct {
	db    database[Tx]
	store onlyonce.TxStore[Tx]
	both  [2]*consumer[Tx]
	ahead atomic.Int64 // of the store's clock
	fails atomic.Int32 // so many runs of handlers will fail
	sent  atomic.Int32 // by handlers with steps
}

// consumer is one of them.
type consumer[Tx any] struct {
	engine *onlyonce.TxEngine[Tx]
	tx     *inbox.TxInbox[Tx]
	leased *inbox.Inbox
	dead   atomic.Bool // nothing arrives at the store any more
}

var errAccount = errors.New("the account is closed")

func newConsumers[Tx any](t *testing.T, db database[Tx]) *consumers[Tx] {
	c := &consumers[Tx]{db: db}
	one, two := db.open(t, func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) })
	c.store = one
	for i, store := range []onlyonce.TxStore[Tx]{one, two} {
		c.both[i] = c.process(t, store, 10*time.Second)
	}
	return c
}

// dying is a process that is going to die: it soon gives up telling the store.
func (c *consumers[Tx]) dying(t *testing.T) *consumer[Tx] {
	return c.process(t, c.store, 10*time.Millisecond)
}

// process is a process on the store.
func (c *consumers[Tx]) process(t *testing.T, store onlyonce.TxStore[Tx], settle time.Duration) *consumer[Tx] {
	p := &consumer[Tx]{}
	inject := func(storefault.Method, onlyonce.Key) storefault.Fault {
		if p.dead.Load() {
			return storefault.Fault{Before: storefault.ErrDown}
		}
		return storefault.Fault{}
	}
	var err error
	if p.engine, err = onlyonce.NewTx(storefault.NewTx(store, inject), onlyonce.Config{SettleTimeout: settle}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	if p.tx, err = inbox.NewTx(p.engine, inbox.Config{Consumer: "tx", MaxTries: 3}); err != nil {
		t.Fatal(err)
	}
	if p.leased, err = inbox.New(p.engine.Engine, inbox.Config{Consumer: "leased", MaxTries: 3}); err != nil {
		t.Fatal(err)
	}
	return p
}

// end closes the engine; of a dead process nothing is waited for.
func (p *consumer[Tx]) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	if p.dead.Load() {
		cancel()
	}
	defer cancel()
	_ = p.engine.Close(ctx)
}

// pass lets time pass for the store.
func (c *consumers[Tx]) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// write is the handler of a TxInbox: it fails behind its effect, if it is to fail.
func (c *consumers[Tx]) write(ctx context.Context, tx Tx, msg inbox.Message) error {
	if err := c.db.write(ctx, tx, string(msg.Payload)); err != nil {
		return err
	}
	if n := c.fails.Add(-1); n >= 0 {
		if n%2 == 1 {
			panic(errAccount)
		}
		return errAccount
	}
	return nil
}

// send is the handler of an Inbox.
func (c *consumers[Tx]) send(ctx context.Context, msg inbox.Message) error {
	_, err := onlyonce.Call(ctx, onlyonce.Effect{
		Name: "notify", Provider: "mailer", Request: msg.Payload,
		Send: func(context.Context, onlyonce.Sending) ([]byte, error) { c.sent.Add(1); return []byte("ok"), nil },
	})
	if err == nil && c.fails.Add(-1) >= 0 {
		err = errAccount
	}
	return err
}

// deliver processes a message with the inbox of a consumer, and checks the verdict.
func (c *consumers[Tx]) deliver(t *testing.T, name string, msg inbox.Message, want inbox.Verdict) error {
	t.Helper()
	var verdict inbox.Verdict
	var err error
	if name == "tx" {
		verdict, err = c.both[0].tx.Process(t.Context(), msg, c.write)
	} else {
		verdict, err = c.both[0].leased.Process(t.Context(), msg, c.send)
	}
	if verdict != want {
		t.Fatalf("%s: %v (%v), want %v", name, verdict, err, want)
	}
	return err
}

func (c *consumers[Tx]) recoverer(name string, p *consumer[Tx]) onlyonce.Recoverer {
	if name == "tx" {
		return p.tx.Recoverer(c.write)
	}
	return p.leased.Recoverer(c.send)
}

// look gives parked messages their turns.
func (c *consumers[Tx]) look(t *testing.T, name string) onlyonce.RecoverySum {
	t.Helper()
	sum, err := c.recoverer(name, c.both[0]).Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func (c *consumers[Tx]) entry(t *testing.T, name, id string) inbox.Entry {
	t.Helper()
	e, err := inbox.Show(t.Context(), c.store, name, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (c *consumers[Tx]) wantRows(t *testing.T, name string, want int) {
	t.Helper()
	if got := c.db.count(t, c.store, name); got != want {
		t.Errorf("%d effects of %s, want %d", got, name, want)
	}
}

func delivery(id, payload string, n int) inbox.Message {
	return inbox.Message{ID: id, Payload: []byte(payload), Attributes: map[string]string{"topic": "charges"}, Deliveries: n}
}

// I1: the ack comes after the commit; a redelivery is a duplicate.
func inboxOnce[Tx any](t *testing.T, c *consumers[Tx]) {
	for _, name := range []string{"tx", "leased"} {
		_ = c.deliver(t, name, delivery("m1", "5 EUR", 1), inbox.Handled)
		for n := range 4 {
			_ = c.deliver(t, name, delivery("m1", "5 EUR", n), inbox.Duplicate)
		}
	}
	c.wantRows(t, "5 EUR", 1)
	if n := c.sent.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// I2, B113: what fails, by an error or a panic, is rolled back, and the redelivery runs;
// by each of the two ways into a transaction.
func inboxFailures[Tx any](t *testing.T, c *consumers[Tx]) {
	for id, first := range map[string]int{"m1": 1, "m2": 2} {
		c.fails.Store(2) // a panic and an error
		for try := range 2 {
			_ = c.deliver(t, "tx", delivery(id, id, first+try), inbox.Again)
			c.wantRows(t, id, 0)
		}
		_ = c.deliver(t, "tx", delivery(id, id, first+2), inbox.Handled)
		c.wantRows(t, id, 1)
	}
	c.fails.Store(1)
	_ = c.deliver(t, "leased", delivery("m1", "5 EUR", 1), inbox.Again)
	_ = c.deliver(t, "leased", delivery("m1", "5 EUR", 2), inbox.Handled)
	if n := c.sent.Load(); n != 1 {
		t.Errorf("%d calls: a retry goes on behind the finished step", n) // B117
	}
}

// B114: several deliveries of one message at once, to two processes.
func inboxAtOnce[Tx any](t *testing.T, c *consumers[Tx]) {
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := 1; ; n++ {
				p := c.both[i%2]
				one, err := p.tx.Process(t.Context(), delivery("m1", "5 EUR", n), c.write)
				other, err2 := p.leased.Process(t.Context(), delivery("m1", "5 EUR", n), c.send)
				if one.Ack() && other.Ack() {
					if err != nil || err2 != nil {
						t.Error(err, err2)
					}
					return
				}
			}
		})
	}
	group.Wait()
	c.wantRows(t, "5 EUR", 1)
	if n := c.sent.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// I2, X3: poison is parked with its payload; it is tried again, or dropped, as a person
// says, and only then.
func inboxParked[Tx any](t *testing.T, c *consumers[Tx]) {
	for _, name := range []string{"tx", "leased"} {
		for _, id := range []string{"retried", "dropped"} {
			c.fails.Store(3)
			for n := range 3 {
				want := inbox.Again
				if n == 2 {
					want = inbox.Parked
				}
				if err := c.deliver(t, name, delivery(id, name+id, n+1), want); !errors.Is(err, errAccount) {
					t.Errorf("%v", err)
				}
			}
			if err := c.deliver(t, name, delivery(id, name+id, 9), inbox.Parked); err != nil {
				t.Error(err)
			}
			e := c.entry(t, name, id)
			if !e.Kept || string(e.Message.Payload) != name+id || e.Message.Attributes["topic"] != "charges" || !strings.Contains(e.Record.Reason, errAccount.Error()) {
				t.Errorf("%+v", e)
			}
		}
		c.pass(time.Hour)
		c.look(t, name)
		act := inbox.Act{Consumer: name, ID: "retried", Actor: "ana", Reason: "open again"}
		if e, err := inbox.Retry(t.Context(), c.store, act); err != nil || !e.RetryAsked {
			t.Fatalf("%+v, %v", e, err)
		}
		if sum := c.look(t, name); sum.Completed != 1 {
			t.Errorf("%+v", sum)
		}
		act.ID = "dropped"
		if e, err := inbox.Drop(t.Context(), c.both[1].engine.Engine, act); err != nil || !e.Dropped || e.Kept || len(e.Audit) != 1 {
			t.Errorf("%+v, %v", e, err)
		}
		c.look(t, name)
		for _, id := range []string{"retried", "dropped"} {
			_ = c.deliver(t, name, delivery(id, name+id, 9), inbox.Duplicate)
		}
		if page, err := inbox.List(t.Context(), c.store, name, ""); err != nil || len(page.Entries) != 0 {
			t.Errorf("%+v, %v", page, err)
		}
	}
	c.wantRows(t, "txretried", 1)
	c.wantRows(t, "txdropped", 0)
}

// I3: the same id with another payload is parked, once, and reported; other consumers are
// not concerned (B85).
func inboxOtherPayload[Tx any](t *testing.T, c *consumers[Tx]) {
	for _, name := range []string{"tx", "leased"} {
		_ = c.deliver(t, name, delivery("m1", name, 1), inbox.Handled)
		if err := c.deliver(t, name, delivery("m1", "other", 1), inbox.Parked); onlyonce.CodeOf(err) != onlyonce.CodeKeyReused {
			t.Errorf("reported as %v", err)
		}
		_ = c.deliver(t, name, delivery("m1", "other", 2), inbox.Parked)
		_ = c.deliver(t, name, delivery("m1", name, 2), inbox.Duplicate)
	}
	page, err := inbox.List(t.Context(), c.store, "", "")
	if err != nil || len(page.Entries) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, e := range page.Entries {
		if !e.OtherPayload || string(e.Message.Payload) != "other" || e.Record.Attempts != 1 {
			t.Errorf("%+v", e)
		}
	}
	c.wantRows(t, "other", 0)
}

// I2, D6: crashes at every turn, with sweeps between: a consumer's, one in parking's
// place, one in a retry; the message is parked in the end, with its payload.
func inboxCrashes[Tx any](t *testing.T, c *consumers[Tx]) {
	sweep := func() {
		c.pass(time.Hour)
		if _, err := c.store.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 100, Grace: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tx", "leased"} {
		verdict := inbox.Again
		for n := 1; verdict == inbox.Again && n < 9; n++ {
			dying := c.dying(t)
			if name == "tx" {
				verdict, _ = dying.tx.Process(t.Context(), delivery("m1", name, n), func(context.Context, Tx, inbox.Message) error {
					dying.dead.Store(true)
					return errAccount
				})
			} else {
				verdict, _ = dying.leased.Process(t.Context(), delivery("m1", name, n), func(context.Context, inbox.Message) error {
					dying.dead.Store(true)
					return errAccount
				})
			}
			dying.end()
			if n%2 == 0 {
				sweep()
			}
			c.pass(time.Minute)
		}
		if verdict != inbox.Parked {
			t.Fatalf("%s: %v", name, verdict)
		}
		if _, err := inbox.Retry(t.Context(), c.store, inbox.Act{Consumer: name, ID: "m1", Actor: "ana"}); err != nil {
			t.Fatal(err)
		}
		dying := c.dying(t)
		r := dying.leased.Recoverer(func(context.Context, inbox.Message) error { dying.dead.Store(true); return errAccount })
		if name == "tx" {
			r = dying.tx.Recoverer(func(context.Context, Tx, inbox.Message) error { dying.dead.Store(true); return errAccount })
		}
		_, _ = r.Once(t.Context())
		dying.end()
		sweep()
		c.look(t, name)
		_ = c.deliver(t, name, delivery("m1", name, 9), inbox.Parked)
		if e := c.entry(t, name, "m1"); !e.Kept || string(e.Message.Payload) != name || e.RetryAsked {
			t.Errorf("%+v", e)
		}
		if _, err := inbox.Retry(t.Context(), c.store, inbox.Act{Consumer: name, ID: "m1", Actor: "ana"}); err != nil {
			t.Fatal(err)
		}
		if sum := c.look(t, name); sum.Completed != 1 {
			t.Errorf("%+v", sum)
		}
	}
	c.wantRows(t, "tx", 1)
	if n := c.sent.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// I2: an event whose process died behind the answer is handled by the next one's life.
func inboxWebhook[Tx any](t *testing.T, c *consumers[Tx]) {
	id, err := inbox.IDFromJSON("/id")
	if err != nil {
		t.Fatal(err)
	}
	tries := make(chan inbox.Verdict, 10)
	cfg := inbox.WebhookConfig{
		Verify: func(http.Header, []byte) error { return nil }, EventID: id,
		Report: func(_ context.Context, r inbox.WebhookReport) {
			if r.Status == 0 {
				tries <- r.Verdict
			}
		},
	}
	post := func(h http.Handler) int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"id":"evt_1"}`)))
		return rec.Code
	}
	dying := c.dying(t)
	hook, err := dying.tx.Webhook(cfg, func(context.Context, Tx, inbox.Message) error { dying.dead.Store(true); return errAccount })
	if err != nil {
		t.Fatal(err)
	}
	if code := post(hook); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	<-tries
	dying.end()
	if err := hook.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Minute)
	hook, err = c.both[1].tx.Webhook(cfg, c.write)
	if err != nil {
		t.Fatal(err)
	}
	for verdict := range tries {
		if verdict == inbox.Handled {
			break
		}
	}
	if code := post(hook); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	if err := hook.Close(t.Context()); err != nil {
		t.Error(err)
	}
	c.wantRows(t, `{"id":"evt_1"}`, 1)
}

// I4: a handled message is forgotten after its retention, and swept; a parked one never.
func inboxForgotten[Tx any](t *testing.T, c *consumers[Tx]) {
	_ = c.deliver(t, "tx", delivery("m1", "5 EUR", 1), inbox.Handled)
	_ = c.deliver(t, "tx", delivery("m1", "6 EUR", 1), inbox.Parked)
	c.pass(inbox.DefaultRetention - time.Minute)
	_ = c.deliver(t, "tx", delivery("m1", "5 EUR", 1), inbox.Duplicate)
	c.pass(time.Hour)
	if res, err := c.store.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 100}); err != nil || res.Deleted != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	_ = c.deliver(t, "tx", delivery("m1", "5 EUR", 1), inbox.Handled)
	_ = c.deliver(t, "tx", delivery("m1", "6 EUR", 1), inbox.Parked)
	c.wantRows(t, "5 EUR", 2)
}
