package balances_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { apptest.Exit(testserver.Run(m)) }

// keeper is a Keeper with its database.
type keeper struct {
	*balances.Keeper
	db *db.Database
}

// each runs a test on a database of either kind, which has no tables but the keys'.
func each(t *testing.T, test func(t *testing.T, k keeper)) {
	t.Helper()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, store(t)))
		})
	}
}

func open(t *testing.T, url string) keeper {
	t.Helper()
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	k, err := balances.NewKeeper(t.Context(), balances.Config{DB: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(k.Close(context.WithoutCancel(t.Context())), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return keeper{k, d}
}

// told is the message of an event of the nth operation.
func told(t *testing.T, n int, kind event.Kind, b balances.Balance) inbox.Message {
	t.Helper()
	op := fmt.Sprintf("op_%d", n)
	msg, err := event.Event{
		ID: event.IDOf(kind, op), Kind: kind, Merchant: b.Merchant, Amount: b.Amount, Currency: b.Currency,
		Subject: "x", Operation: op, OccurredAt: time.Unix(1_700_000_000, 0),
	}.Message()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// of is an amount of acme's in euros.
func of(amount int64) balances.Balance {
	return balances.Balance{Merchant: "acme", Currency: "EUR", Amount: amount}
}

func (k keeper) handle(t *testing.T, msg inbox.Message, want inbox.Verdict) {
	t.Helper()
	if got, err := k.Process(t.Context(), msg); got != want || err != nil {
		t.Errorf("%s: %v, %v; want %v", msg.Payload, got, err, want)
	}
}

func (k keeper) has(t *testing.T, want ...balances.Balance) {
	t.Helper()
	got, err := balances.List(t.Context(), k.db, "")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("balances: %v\n%s", err, diff)
	}
}

// Charges less refunds, by merchant and currency; what comes twice counts once. (I1)
func TestBalance(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k keeper) {
		t.Helper()
		k.has(t)
		other := balances.Balance{Merchant: "Über & Söhne", Currency: "JPY", Amount: 7}
		for range 2 {
			want := inbox.Handled
			if list, err := balances.List(t.Context(), k.db, "acme"); err != nil || len(list) > 0 {
				want = inbox.Duplicate
			}
			k.handle(t, told(t, 1, event.RefundSucceeded, of(300)), want) // before its charge
			k.handle(t, told(t, 1, event.ChargeSucceeded, of(1000)), want)
			k.handle(t, told(t, 2, event.ChargeSucceeded, of(5)), want)
			k.handle(t, told(t, 3, event.ChargeSucceeded, other), want)
			k.handle(t, told(t, 4, event.ChargeSucceeded, balances.Balance{Merchant: "acme", Currency: "BHD", Amount: 1}), want)
			k.has(t, balances.Balance{Merchant: "acme", Currency: "BHD", Amount: 1}, of(705), other)
		}
		if got, err := balances.List(t.Context(), k.db, other.Merchant); err != nil || len(got) != 1 || got[0] != other {
			t.Errorf("of one merchant: %v, %v", got, err)
		}
	})
}

// A sum of 64 bits is kept whole, up to its last unit on both sides; beyond it the event
// fails, and the balance stays.
func TestOverflow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k keeper) {
		t.Helper()
		charge, refund := event.ChargeSucceeded, event.RefundSucceeded
		beyond := func(n int, kind event.Kind, b balances.Balance) {
			t.Helper()
			if v, err := k.Process(t.Context(), told(t, n, kind, b)); v != inbox.Again || !errors.Is(err, balances.ErrOverflow) {
				t.Errorf("%v, %v", v, err)
			}
		}
		k.handle(t, told(t, 1, charge, of(math.MaxInt64-1)), inbox.Handled)
		beyond(2, charge, of(2))
		beyond(3, charge, of(math.MaxInt64))
		k.has(t, of(math.MaxInt64-1))
		k.handle(t, told(t, 4, charge, of(1)), inbox.Handled)
		k.has(t, of(math.MaxInt64))
		k.handle(t, told(t, 5, refund, of(math.MaxInt64)), inbox.Handled)
		k.handle(t, told(t, 6, refund, of(math.MaxInt64)), inbox.Handled)
		k.handle(t, told(t, 7, refund, of(1)), inbox.Handled)
		k.has(t, of(math.MinInt64))
		beyond(8, refund, of(1))
		k.has(t, of(math.MinInt64))
		k.handle(t, told(t, 9, charge, of(1)), inbox.Handled)
		k.has(t, of(math.MinInt64+1))
	})
}

// What cannot be read fails, and in the end waits for a person; it moves nothing.
func TestPoison(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k keeper) {
		t.Helper()
		msg := told(t, 1, event.ChargeSucceeded, of(10))
		msg.Payload = []byte(strings.Replace(string(msg.Payload), "10", "1e400", 1))
		for try := 1; try < balances.MaxTries; try++ {
			if v, err := k.Process(t.Context(), msg); v != inbox.Again || onlyonce.CodeOf(err) != onlyonce.CodeHandlerFailed {
				t.Errorf("try %d: %v, %v", try, v, err)
			}
		}
		if v, err := k.Process(t.Context(), msg); v != inbox.Parked || err == nil {
			t.Errorf("the last try: %v, %v", v, err)
		}
		k.handle(t, msg, inbox.Parked)
		k.has(t)
	})
}

// One id, another amount: neither passed over nor added. (I3)
func TestOtherPayload(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k keeper) {
		t.Helper()
		k.handle(t, told(t, 1, event.ChargeSucceeded, of(10)), inbox.Handled)
		if v, err := k.Process(t.Context(), told(t, 1, event.ChargeSucceeded, of(11))); v != inbox.Parked || onlyonce.CodeOf(err) != onlyonce.CodeKeyReused {
			t.Errorf("%v, %v", v, err)
		}
		k.has(t, of(10))
	})
}

// Events that meet, each twice and in any order, are all added, each once.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k keeper) {
		t.Helper()
		const events = 60
		var queue []inbox.Message
		want := []balances.Balance{{Merchant: "a", Currency: "EUR"}, {Merchant: "b", Currency: "EUR"}}
		for n := range events {
			kind, at := event.ChargeSucceeded, n%2
			if n%3 == 0 {
				kind = event.RefundSucceeded
			}
			want[at].Amount += kind.Sign() * int64(n+1)
			msg := told(t, n, kind, balances.Balance{Merchant: want[at].Merchant, Currency: money.Currency("EUR"), Amount: int64(n + 1)})
			queue = append(queue, msg, msg)
		}
		rand.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		var mu sync.Mutex
		verdicts := map[inbox.Verdict]int{}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < len(queue); i += 4 {
					v, err := k.Process(t.Context(), queue[i])
					for ; v == inbox.Again && t.Context().Err() == nil; v, err = k.Process(t.Context(), queue[i]) {
						if code := onlyonce.CodeOf(err); code != onlyonce.CodeInProgress && code != onlyonce.CodeStoreUnavailable {
							t.Error(err)
						}
					}
					mu.Lock()
					verdicts[v]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		k.has(t, want...)
		if diff := cmp.Diff(map[inbox.Verdict]int{inbox.Handled: events, inbox.Duplicate: events}, verdicts); diff != "" {
			t.Error(diff)
		}
	})
}

// Several processes may begin at once, beside a service in the same database or without
// one. Who only looks makes nothing.
func TestPrepare(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			d, err := db.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for range 2 {
				if there, err := balances.Kept(t.Context(), d); there || err != nil {
					t.Errorf("before: %t, %v", there, err)
				}
			}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					if err := balances.Prepare(t.Context(), d); err != nil {
						t.Error(err)
					}
					if i == 0 {
						if err := d.Migrate(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if there, err := balances.Kept(t.Context(), d); !there || err != nil {
				t.Errorf("afterwards: %t, %v", there, err)
			}
		})
	}
}

func TestKeeperNeedsDatabase(t *testing.T) {
	t.Parallel()
	if _, err := balances.NewKeeper(t.Context(), balances.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "DB") {
		t.Errorf("without a database: %v", err)
	}
}

// Run keeps house until it is told to stop.
func TestRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k keeper) {
		t.Helper()
		stop := k.run(t)
		k.handle(t, told(t, 1, event.ChargeSucceeded, of(1)), inbox.Handled)
		stop()
		k.handle(t, told(t, 1, event.ChargeSucceeded, of(1)), inbox.Duplicate) // what has not expired stays
	})
}

// run runs housekeeping, until the test stops it or ends.
func (k keeper) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// parkedOver parks an event that would overflow.
func (k keeper) parkedOver(t *testing.T, msg inbox.Message) {
	t.Helper()
	for {
		switch v, err := k.Process(t.Context(), msg); {
		case !errors.Is(err, balances.ErrOverflow):
			t.Fatalf("%v, %v", v, err)
		case v == inbox.Parked:
			return
		}
	}
}

// retry is what `onlyonce inbox retry` does.
func (k keeper) retry(t *testing.T, id string) {
	t.Helper()
	if _, err := inbox.Retry(t.Context(), k.db.Keys(), inbox.Act{Consumer: balances.Consumer, ID: id, Actor: "ana", Reason: "there is room"}); err != nil {
		t.Fatal(err)
	}
}

// A parked event for which somebody asks is tried again by Run, once for each time that
// they ask: in vain while what was wrong is not mended, then once for all. (I2)
func TestRetry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, plain keeper) {
		t.Helper()
		log := lines{lines: make(chan string, 100)}
		k := plain.with(t, balances.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		over := told(t, 2, event.ChargeSucceeded, of(5))
		k.handle(t, told(t, 1, event.ChargeSucceeded, of(math.MaxInt64)), inbox.Handled)
		k.parkedOver(t, over)
		stop := k.run(t)
		k.handle(t, over, inbox.Parked) // nobody has asked

		stop()
		k.retry(t, over.ID)
		stop = k.run(t) // which looks at once
		log.await(t, "level=ERROR", "parked again", "event="+over.ID, "64 bits")
		k.has(t, of(math.MaxInt64))
		stop()

		k.handle(t, told(t, 3, event.RefundSucceeded, of(10)), inbox.Handled)
		k.retry(t, over.ID)
		stop = k.run(t)
		log.await(t, "level=INFO", "parked event handled", "event="+over.ID)
		stop()
		k.has(t, of(math.MaxInt64-5))
		k.handle(t, over, inbox.Duplicate)
		if len(log.lines) > 0 {
			t.Errorf("it also says %s", <-log.lines)
		}
	})
}

// A look for parked events that fails is told of, and ends nothing.
func TestRunWithoutTables(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, plain keeper) {
		t.Helper()
		log := lines{lines: make(chan string, 100)}
		k := plain.with(t, balances.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err := k.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.Exec(ctx, "ALTER TABLE onlyonce_keys RENAME TO gone")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		k.run(t)
		log.await(t, "level=WARN", "parked events were not looked at", "error=")
	})
}

// with is another keeper on the same database.
func (k keeper) with(t *testing.T, cfg balances.Config) keeper {
	t.Helper()
	cfg.DB = k.db
	other, err := balances.NewKeeper(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return keeper{other, k.db}
}

// lines is a log.
type lines struct{ lines chan string }

func (l lines) Write(line []byte) (int, error) {
	l.lines <- string(line)
	return len(line), nil
}

// await waits for a line with all that is wanted in it; those before it are other tries'.
func (l lines) await(t *testing.T, wants ...string) {
	t.Helper()
	for {
		select {
		case line := <-l.lines:
			if !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(line, want) }) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("it never says %q", wants)
		}
	}
}

// A database that hangs parks no event, however often it is tried: it is handled when
// the database answers again.
func TestDatabaseHangs(t *testing.T) {
	t.Parallel()
	plain := open(t, testserver.Postgres(t))
	k := plain.with(t, balances.Config{Lease: 900 * time.Millisecond}) // so a run may take a third of it
	plain.handle(t, told(t, 1, event.ChargeSucceeded, of(1)), inbox.Handled)
	held, let := make(chan struct{}), make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		if err := k.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE merchant_balances SET amount = amount")
			close(held)
			<-let
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	<-held
	msg := told(t, 2, event.ChargeSucceeded, of(2))
	for try := range balances.MaxTries + 2 {
		msg.Deliveries = 1 + try%2 // by each of the two ways
		if v, err := k.Process(t.Context(), msg); v != inbox.Again || onlyonce.CodeOf(err) == onlyonce.CodeHandlerFailed {
			t.Errorf("try %d: %v, %v", try+1, v, err)
		}
	}
	close(let)
	holding.Wait()
	plain.handle(t, msg, inbox.Handled)
	plain.has(t, of(3))
}
