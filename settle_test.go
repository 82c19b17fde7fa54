package onlyonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func settlement(applied *onlyonce.Answer) onlyonce.Settlement {
	return onlyonce.Settlement{Key: onlyonce.Key{Scope: "acct", Value: "k"}, Applied: applied, Actor: "ann", Reason: "seen in the report"}
}

// X3: an operator settles a key in doubt as applied or not applied, audited.
func TestSettle(t *testing.T) {
	t.Parallel()
	applied := answer(201, "as the report says")
	for name, s := range map[string]onlyonce.Settlement{"applied": settlement(&applied), "not applied": settlement(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, nil), newProvider()
			p.drop = 1
			e := p.effect("charge")
			e.Check, e.Memory = nil, 0
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			rec, err := w.Settle(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			audit, err := w.mem.Audit(t.Context(), s.Key)
			if err != nil || len(audit) != 1 || audit[0].Actor != "ann" || audit[0].Reason != s.Reason || audit[0].Fence != rec.Fence {
				t.Errorf("audit: %+v, %v", audit, err)
			}
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			if s.Applied != nil {
				wantResult(t, res, err, onlyonce.Replayed, "as the report says")
				p.want(t, 0)
				return
			}
			wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
			if p.sends[0].Key == p.sends[1].Key {
				t.Error("proof of no effect must raise the epoch")
			}
			p.want(t, 1)
		})
	}
}

// X3: only what is in doubt can be settled; there is no way to change the rest.
func TestSettleRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		_, err := w.Settle(t.Context(), settlement(nil))
		wantCode(t, err, onlyonce.CodeNotFound)
		for _, status := range []int{0, 101, 401, 408, 429, 500, 600} {
			senseless := settlement(&onlyonce.Answer{Status: status})
			_, err = w.Settle(t.Context(), senseless)
			wantCode(t, err, onlyonce.CodeConfig)
		}
		for name, value := range map[string]string{"Content-Type": "a\x00b", "Bad Name": "x", "": "x"} {
			unsendable := settlement(&onlyonce.Answer{Status: 201, Header: map[string][]string{name: {value}}})
			_, err = w.Settle(t.Context(), unsendable)
			wantCode(t, err, onlyonce.CodeConfig)
		}
		nameless := settlement(nil)
		nameless.Reason = ""
		_, err = w.Settle(t.Context(), nameless)
		wantCode(t, err, onlyonce.CodeConfig)
		_, err = w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(429, "later"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Settle(t.Context(), settlement(nil))
		wantCode(t, err, onlyonce.CodeNotInDoubt)
		w.crash(t, charge(), keyed("k", "x"), responds(200, "lost"))
		_, err = w.Settle(t.Context(), settlement(nil))
		wantCode(t, err, onlyonce.CodeNotInDoubt)
		<-time.After(onlyonce.DefaultLease)
		// An abandoned attempt is as good as in doubt.
		if _, err = w.Settle(t.Context(), settlement(nil)); err != nil {
			t.Fatal(err)
		}
		w.wantState(t, "k", onlyonce.FailedRetryable)
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(200, "done"))
		wantResult(t, res, err, onlyonce.Executed, "done")
		_, err = w.Settle(t.Context(), settlement(nil))
		wantCode(t, err, onlyonce.CodeNotInDoubt)
		res, err = w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
		wantResult(t, res, err, onlyonce.Replayed, "done")
	})
}

// T3, B92: a sweeper works in batches until nothing is left.
func TestSweeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if _, err := w.Wrap(t.Context(), charge(), keyed(key, "x"), responds(200, "x")); err != nil {
				t.Fatal(err)
			}
		}
		batches := 0
		s := onlyonce.Sweeper{Store: w.mem, Batch: 2, Swept: func(onlyonce.SweepResult, error) { batches++ }}
		if sum, err := s.Once(t.Context()); err != nil || sum.Deleted != 0 {
			t.Errorf("swept %+v, %v", sum, err)
		}
		<-time.After(24 * time.Hour)
		if sum, err := s.Once(t.Context()); err != nil || sum.Deleted != 5 || batches < 3 {
			t.Errorf("swept %+v in %d batches, %v", sum, batches, err)
		}
	})
}
