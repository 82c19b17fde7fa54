package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// either is a charge and a refund, for what holds for both.
func either() map[string]func(p provider.Provider) func(ctx context.Context) (provider.Outcome, error) {
	return map[string]func(p provider.Provider) func(ctx context.Context) (provider.Outcome, error){"charge": charging, "refund": refunding}
}

// D1, D2: what moves money is a step under a derived key, with our reference in
// its bytes and its outcome for its result.
func TestChargeAndRefund(t *testing.T) {
	t.Parallel()
	b, s := newBank(t), newShop(t)
	res, err := s.pay(t, func(ctx context.Context) (provider.Outcome, error) {
		out, err := charging(b.adapter())(ctx)
		if err != nil {
			return out, err
		}
		return refunding(b.adapter())(ctx)
	})
	out := ends(t, res, err, onlyonce.Completed, 201)
	if diff := cmp.Diff(provider.Outcome{Status: provider.Succeeded, ID: "id_2", Amount: 400, Currency: "EUR"}, out); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	for i, step := range []string{"charge", "refund"} {
		d := onlyonce.Derivation{Key: key(), Step: step, Provider: "bank"}
		if got, want := b.asked[i], "/"+step+"s "+d.DerivedKey(); got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
		if got := b.booked[i].Reference; got != d.Reference() {
			t.Errorf("booked under %q, want %q", got, d.Reference())
		}
	}
	if e := b.booked[1]; e.Charge != "id_1" || e.Amount != 400 {
		t.Errorf("refunded: %+v", e)
	}
	steps, err := s.store.Steps(t.Context(), key())
	if err != nil || len(steps) != 2 || steps[0].Provider != "bank" {
		t.Fatalf("steps %+v, %v", steps, err)
	}
	var recorded provider.Outcome
	if err := json.Unmarshal(steps[1].Result, &recorded); err != nil || recorded != out {
		t.Errorf("recorded %s, %v", steps[1].Result, err)
	}
	again, err := s.pay(t, charging(b.adapter()))
	if err != nil || again.Status != onlyonce.Replayed || string(again.Answer.Body) != string(res.Answer.Body) {
		t.Errorf("the retry got %+v, %v", again, err)
	}
	b.want(t, 2, 2)
}

// D3: a decline is the bank's answer, and ours: stored, replayed, and no second
// card is tried under the key.
func TestDecline(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		for _, script := range [][]string{{"decline"}, {"lose"}} {
			b, s := newBank(t, script...), newShop(t)
			if script[0] == "lose" {
				_, err := s.pay(t, move(b.adapter()))
				doubts(t, err)
				b.misbook(func(e *entry) { e.Declined = "insufficient_funds" }) // its lost answer was a decline
			}
			res, err := s.pay(t, move(b.adapter()))
			out := ends(t, res, err, onlyonce.Completed, 402)
			if out.Status != provider.Declined || out.Code != "insufficient_funds" || out.Message == "" {
				t.Errorf("%s after %q: %+v", name, script, out)
			}
			res, err = s.pay(t, move(b.adapter()))
			if ends(t, res, err, onlyonce.Completed, 402); res.Status != onlyonce.Replayed {
				t.Errorf("%s after %q: %s", name, script, res.Status)
			}
			b.want(t, 1, 1)
		}
	}
}

// D3, D4: an answer that was lost is found by our reference, or asked for again
// under the same key; there is one entry either way.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		for how, c := range map[string]struct {
			script []string
			lookup bool
			asked  int
		}{
			"found":              {[]string{"lose"}, true, 1},
			"sent again":         {[]string{"lose"}, false, 2},
			"not booked, sent":   {[]string{"drop"}, true, 2},
			"not booked, unseen": {[]string{"drop"}, false, 2},
		} {
			b, s := newBank(t, c.script...), newShop(t)
			p := b.adapter()
			p.traits.Lookup = c.lookup
			_, err := s.pay(t, move(p))
			doubts(t, err)
			res, err := s.pay(t, move(p))
			if out := ends(t, res, err, onlyonce.Completed, 201); out.ID != "id_1" {
				t.Errorf("%s, %s: %+v", name, how, out)
			}
			b.want(t, 1, c.asked)
			if (b.looked > 0) != c.lookup {
				t.Errorf("%s, %s: looked up %d times", name, how, b.looked)
			}
		}
	}
}

// D5: a provider that promises nothing is never sent anything twice, nor asked.
func TestProviderThatPromisesNothing(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		b, s := newBank(t, "lose"), newShop(t)
		p := b.adapter()
		p.traits = provider.Traits{Name: "bank"}
		for range 3 {
			_, err := s.pay(t, move(p))
			doubts(t, err)
		}
		if b.want(t, 1, 1); b.looked > 0 {
			t.Errorf("%s: it was asked", name)
		}
	}
}

// D3: the refusal of the first send is the operation's answer, since nothing
// happened; that of a later one proves nothing, and the charge is found.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		b, s := newBank(t, "refuse"), newShop(t)
		res, err := s.pay(t, move(b.adapter()))
		out := ends(t, res, err, onlyonce.Completed, 422)
		want := provider.Outcome{Status: provider.Refused, Code: "unprocessable", Message: "no such currency"}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if step := s.step(t); step.State != onlyonce.StepNotApplied {
			t.Errorf("%s: recorded as %s", name, step.State)
		}
		b.want(t, 0, 1)

		b, s = newBank(t, "lose", "refuse"), newShop(t)
		p := b.adapter()
		p.traits.Lookup = false
		_, err = s.pay(t, move(p))
		doubts(t, err)
		_, err = s.pay(t, move(p))
		if _, refused := errors.AsType[*provider.RefusedError](doubts(t, err).Err); !refused {
			t.Errorf("%s: the cause of doubt is lost: %v", name, err)
		}
		if step := s.step(t); step.State != onlyonce.StepBegun || step.Epoch != 0 {
			t.Errorf("%s: recorded as %s, epoch %d", name, step.State, step.Epoch)
		}
		res, err = s.pay(t, move(b.adapter())) // it can be asked after all
		ends(t, res, err, onlyonce.Completed, 201)
		b.want(t, 1, 2)
	}
}

// D4: something else under our reference is for a person to look at. Nothing is
// sent again, though the provider would remember the key.
func TestDiffers(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		for what, change := range map[string]func(*entry){
			"amount":   func(e *entry) { e.Amount++ },
			"currency": func(e *entry) { e.Currency = "USD" },
		} {
			b, s := newBank(t, "lose"), newShop(t)
			_, err := s.pay(t, move(b.adapter()))
			doubts(t, err)
			b.misbook(change)
			for range 2 {
				_, err = s.pay(t, move(b.adapter()))
				if doubts(t, err); !errors.Is(err, provider.ErrDiffers) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
			b.want(t, 1, 1)
			if step := s.step(t); step.State != onlyonce.StepBegun {
				t.Errorf("%s, %s: recorded as %s", name, what, step.State)
			}
		}
	}
}

// D1, D3: where nobody listens nothing has left. The handler may say so, the key
// is free, and the next attempt sends under a new key.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		b, down, s := newBank(t), newBank(t), newShop(t)
		away := down.adapter()
		down.server.Close()
		res, err := s.pay(t, move(away))
		ends(t, res, err, onlyonce.FailedRetryable, 503)
		if step := s.step(t); step.State != onlyonce.StepNotApplied {
			t.Errorf("%s: recorded as %s", name, step.State)
		}
		res, err = s.pay(t, move(b.adapter()))
		ends(t, res, err, onlyonce.Completed, 201)
		if step := s.step(t); step.Epoch != 1 || !strings.HasSuffix(b.asked[0], step.DerivedKey) {
			t.Errorf("%s: epoch %d under %s, asked %q", name, step.Epoch, step.DerivedKey, b.asked)
		}
	}
}

// X3: what a person records for a step must be an outcome; anything else is said
// to be none, and answers nobody.
func TestResultThatIsNoOutcome(t *testing.T) {
	t.Parallel()
	for name, move := range either() {
		b, s := newBank(t, "lose"), newShop(t)
		p := b.adapter()
		p.traits = provider.Traits{Name: "bank"}
		_, err := s.pay(t, move(p))
		doubts(t, err)
		_, err = s.Settle(t.Context(), onlyonce.Settlement{
			Key: key(), Actor: "ann", Reason: "a telephone call",
			Results: []onlyonce.StepResult{{Name: name, Result: []byte("paid, they say")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.pay(t, move(p))
		if !errors.Is(err, onlyonce.ErrStepChanged) {
			t.Errorf("%s: %v", name, err)
		}
		b.want(t, 1, 1)
	}
}

// D2: what cannot be asked at all is refused before anything is recorded; and a
// step needs its place.
func TestNothingIsBegun(t *testing.T) {
	t.Parallel()
	b, s := newBank(t), newShop(t)
	p := b.adapter()
	_, err := charging(p)(t.Context())
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("outside of a handler: %v", err)
	}
	for name, none := range map[string]func(ctx context.Context) (provider.Outcome, error){
		"charge": func(ctx context.Context) (provider.Outcome, error) {
			return provider.Charge(ctx, p, "charge", provider.ChargeRequest{Currency: "EUR"})
		},
		"refund": func(ctx context.Context) (provider.Outcome, error) {
			return provider.Refund(ctx, p, "refund", provider.RefundRequest{Currency: "EUR"})
		},
	} {
		_, err = s.pay(t, none)
		if !errors.Is(err, errNoAmount) || onlyonce.CodeOf(err) != onlyonce.CodeHandlerFailed || !strings.Contains(err.Error(), "encode "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if steps, err := s.store.Steps(t.Context(), key()); err != nil || len(steps) != 0 {
		t.Errorf("recorded: %+v, %v", steps, err)
	}
	b.want(t, 0, 0)
}

// D1: the reference is of its use: two charges of one operation have their own.
func TestTwoChargesOfOneOperation(t *testing.T) {
	t.Parallel()
	b, s := newBank(t), newShop(t)
	res, err := s.pay(t, func(ctx context.Context) (provider.Outcome, error) {
		if out, err := charging(b.adapter())(ctx); err != nil {
			return out, err
		}
		return charging(b.adapter())(ctx)
	})
	ends(t, res, err, onlyonce.Completed, 201)
	if b.want(t, 2, 2); b.booked[0].Reference == b.booked[1].Reference || b.asked[0] == b.asked[1] {
		t.Errorf("booked: %+v", b.booked)
	}
}

// A refusal says what the provider said, and what the adapter had.
func TestRefusedError(t *testing.T) {
	t.Parallel()
	cause := errors.New("status 422")
	err := &provider.RefusedError{Code: "bad_currency", Message: "no such currency", Err: cause}
	if err.Error() != "refused: bad_currency: no such currency" || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
