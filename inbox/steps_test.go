package inbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// mailer is a provider outside: it remembers what it was sent by its key.
type mailer struct {
	keys []string
	// lose makes it lose so many replies.
	lose int
}

var errTimeout = errors.New("timeout")

func (m *mailer) send(_ context.Context, s onlyonce.Sending) ([]byte, error) {
	m.keys = append(m.keys, s.Key)
	if m.lose--; m.lose >= 0 {
		return nil, errTimeout
	}
	return []byte("sent"), nil
}

// sent is what it did: one mail a key.
func (m *mailer) sent() int {
	return len(slices.Compact(slices.Sorted(slices.Values(m.keys))))
}

// notify sends a mail as a step.
func (m *mailer) notify(ctx context.Context, memory time.Duration, msg inbox.Message) error {
	_, err := onlyonce.Call(ctx, onlyonce.Effect{Name: "notify", Provider: "mailer", Request: msg.Payload, Memory: memory, Send: m.send})
	return err
}

func newInbox(t *testing.T, w *world) *inbox.Inbox {
	t.Helper()
	in, err := inbox.New(w.engine.Engine, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// B117, D1: what a handler calls is called once over all deliveries, crashes and
// consumers that are alive: the claim comes before the call, the recorded step before a
// second one, and the provider's key is of consumer, message and step.
func TestStepsOfAMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &mailer{}
		dying := worldOn(t, w.mem)
		_, err := newInbox(t, dying).Process(t.Context(), message("m1", "5 EUR"), func(ctx context.Context, msg inbox.Message) error {
			if err := m.notify(ctx, 0, msg); err != nil {
				t.Error(err)
			}
			dying.down()
			return errBroken
		})
		if err == nil {
			t.Fatal("the dying process has handled it")
		}
		dying.end(t, 0)

		handler := func(ctx context.Context, msg inbox.Message) error {
			if err := m.notify(ctx, 0, msg); err != nil {
				return err
			}
			_, err := w.engine.Finish(ctx, func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
				return onlyonce.Answer{Status: 201}, nil
			})
			return err
		}
		for _, consumer := range []string{"balances", "receipts"} {
			w.cfg.Consumer = consumer
			in := newInbox(t, w)
			verdict, err := in.Process(t.Context(), message("m1", "5 EUR"), handler)
			if consumer == "balances" {
				wantCode(t, err, onlyonce.CodeInProgress)
				pass(onlyonce.DefaultLease)
				verdict, err = in.Process(t.Context(), redelivered("m1", "5 EUR", 2), handler)
			}
			if verdict != inbox.Handled {
				t.Fatalf("%s: %v, %v", consumer, verdict, err)
			}
		}
		var want []string
		for _, consumer := range []string{"balances", "receipts"} {
			want = append(want, onlyonce.Derivation{Key: inbox.KeyOf(consumer, "m1"), Step: "notify", Provider: "mailer"}.DerivedKey())
		}
		if !slices.Equal(m.keys, want) || want[0] == want[1] {
			t.Errorf("sent under %q, want %q", m.keys, want)
		}
	})
}

// D4: a call whose outcome is not known is asked for, or sent again under the same key,
// by the next delivery; nothing is parked meanwhile.
func TestUnknownCallIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &mailer{lose: 2}
		in := newInbox(t, w)
		handler := func(ctx context.Context, msg inbox.Message) error { return m.notify(ctx, time.Hour, msg) }
		for n := range 2 {
			verdict, err := in.Process(t.Context(), redelivered("m1", "5 EUR", n+1), handler)
			if verdict != inbox.Again || onlyonce.CodeOf(err) != onlyonce.CodeOutcomeUnknown {
				t.Fatalf("%v, %v", verdict, err)
			}
		}
		if verdict, err := in.Process(t.Context(), redelivered("m1", "5 EUR", 3), handler); verdict != inbox.Handled {
			t.Errorf("%v, %v", verdict, err)
		}
		if m.sent() != 1 || len(m.keys) != 3 {
			t.Errorf("sent under %q", m.keys)
		}
	})
}

// D4, X3: one that stays unknown is parked after its tries; a retry asks again, and goes
// on where it can.
func TestUnknownCallIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &mailer{lose: 1}
		in := newInbox(t, w)
		memory := time.Duration(0) // it cannot be asked, nor sent again
		handler := func(ctx context.Context, msg inbox.Message) error { return m.notify(ctx, memory, msg) }
		for n, want := range []inbox.Verdict{inbox.Again, inbox.Again, inbox.Parked, inbox.Parked} {
			if verdict, err := in.Process(t.Context(), redelivered("m1", "5 EUR", n+1), handler); verdict != want {
				t.Fatalf("delivery %d: %v, %v", n+1, verdict, err)
			}
		}
		entry, err := inbox.Retry(t.Context(), w.mem, inbox.Act{Consumer: "balances", ID: "m1", Actor: "ana"})
		if err != nil || !entry.Kept {
			t.Fatalf("%+v, %v", entry, err)
		}
		if sum, err := in.Recoverer(handler).Once(t.Context()); err != nil || sum.Pending != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		memory = time.Hour
		if _, err := inbox.Retry(t.Context(), w.mem, inbox.Act{Consumer: "balances", ID: "m1", Actor: "ana"}); err != nil {
			t.Fatal(err)
		}
		if sum, err := in.Recoverer(handler).Once(t.Context()); err != nil || sum.Completed != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		if m.sent() != 1 {
			t.Errorf("sent under %q", m.keys)
		}
	})
}

// X3: the result of a call that somebody has found out is recorded by a settlement, and
// the message goes on from there without its source.
func TestSettledStepGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.MaxTries = 1
		m := &mailer{lose: 1}
		in := newInbox(t, w)
		handler := func(ctx context.Context, msg inbox.Message) error { return m.notify(ctx, 0, msg) }
		if verdict, err := in.Process(t.Context(), message("m1", "5 EUR"), handler); verdict != inbox.Parked {
			t.Fatalf("%v, %v", verdict, err)
		}
		_, err := w.engine.Settle(t.Context(), onlyonce.Settlement{
			Key: inbox.KeyOf("balances", "m1"), Actor: "ana", Reason: "seen at the mailer",
			Results: []onlyonce.StepResult{{Name: "notify", Result: []byte("sent")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := in.Recoverer(handler).Once(t.Context()); err != nil || sum.Completed != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		if verdict, err := in.Process(t.Context(), message("m1", "5 EUR"), handler); verdict != inbox.Duplicate || len(m.keys) != 1 {
			t.Errorf("%v, %v, sent %q", verdict, err, m.keys)
		}
	})
}

// O4: a handler that says itself that it does not know is parked at once, with its
// message: no redelivery finds out.
func TestDeclaredUnknownIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := newInbox(t, w)
	leaving, leave := context.WithCancel(t.Context())
	verdict, err := in.Process(leaving, message("m1", "5 EUR"), func(ctx context.Context, _ inbox.Message) error {
		leave() // its consumer does not wait for it
		onlyonce.Declare(ctx, onlyonce.Unknown)
		return errBroken
	})
	if verdict != inbox.Parked || !errors.Is(err, errBroken) {
		t.Fatalf("%v, %v", verdict, err)
	}
	entry, err := inbox.Show(t.Context(), w.mem, "balances", "m1")
	if err != nil || !entry.Kept || entry.Record.Reason != "held: parked since its outcome is not known: the account is closed" {
		t.Errorf("%+v, %v", entry, err)
	}

	tx, err := inbox.NewTx(w.engine, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []inbox.Verdict{inbox.Parked, inbox.Parked} {
		verdict, err := tx.Process(t.Context(), redelivered("m2", "5 EUR", n+1), func(ctx context.Context, _ *memstore.Tx, _ inbox.Message) error {
			onlyonce.Declare(ctx, onlyonce.Unknown)
			return errBroken
		})
		if verdict != want || (err == nil) != (n == 1) {
			t.Errorf("%v, %v", verdict, err)
		}
	}
}
