package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C11: FailOpen is for a store that cannot be reached. A caller that hangs up
// before the claim is no such store: it will ask again, and the handler would
// run twice.
func TestFailOpenIsNotForACallerThatHangsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	op := charge()
	op.FailOpen = true
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	_, err := w.Wrap(ctx, op, keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
}

// C11, F6: a store that has told of a record has been reached: what cannot be
// read of it, or written to it, is no licence to run beside it.
func TestFailOpenNeverRunsBesideAKnownRecord(t *testing.T) {
	t.Parallel()
	op := charge()
	op.FailOpen = true
	t.Run("damaged parts", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		res, err := w.Wrap(t.Context(), op, keyed("k", "x"), responds(201, "done"))
		wantResult(t, res, err, onlyonce.Executed, "done")
		damaged, err := onlyonce.New(damagedParts{storefault.New(w.mem, noFaults)}, onlyonce.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = damaged.Wrap(t.Context(), op, keyed("k", "another"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
	})
	t.Run("crashed attempt that cannot be parked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, eff := newWorld(t, faults{storefault.Park: {{Before: storefault.ErrDown}}}), &effect{}
			w.crash(t, op, keyed("k", "x"), eff.handler)
			<-time.After(onlyonce.DefaultLease)
			_, err := w.Wrap(t.Context(), op, keyed("k", "x"), eff.handler)
			wantCode(t, err, onlyonce.CodeStoreUnavailable)
			eff.want(t, 1)
		})
	})
	t.Run("secret that cannot be read", func(t *testing.T) {
		t.Parallel()
		first := newWorld(t, nil)
		res, err := first.Wrap(t.Context(), op, keyed("k", "x"), responds(201, "done"))
		wantResult(t, res, err, onlyonce.Executed, "done")
		rotated := worldOn(t, first.mem, storefault.Script(faults{storefault.Setting: {{Before: storefault.ErrDown}}}), onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("n")}})
		_, err = rotated.Wrap(t.Context(), op, keyed("k", "x"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
	})
}

// damagedParts is a store whose rows are damaged.
type damagedParts struct{ *storefault.Store }

func (d damagedParts) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	claim, err := d.Store.Claim(ctx, req)
	if claim.Verdict == onlyonce.Mismatch {
		claim.Record.Fingerprint.Parts = []byte{200}
	}
	return claim, err
}

// C11: only Wrap can do without the store; and what an unprotected handler's
// failure leaves behind is recorded nowhere, so it is no "safe, nothing done".
func TestFailOpenUnprotected(t *testing.T) {
	t.Parallel()
	open := charge()
	open.FailOpen = true
	down := func(storefault.Method, onlyonce.Key) storefault.Fault {
		return storefault.Fault{Before: storefault.ErrDown}
	}
	w := newWorldWith(t, down, onlyonce.Config{})
	_, err := w.Steps(t.Context(), open, keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	_, err = w.Atomic(t.Context(), open, keyed("k", "x"), func(context.Context, tx) (onlyonce.Answer, error) {
		t.Error("a transaction ran without its store")
		return answer(500, ""), nil
	})
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	_, err = w.Wrap(t.Context(), open, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		if onlyonce.AttemptFrom(ctx) != nil {
			t.Error("an unprotected run has no attempt")
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("an unprotected run has a deadline, too")
		}
		panic("broken")
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
}

// C11: a store that has been reached and refuses is not out of reach.
func TestFailOpenIsForAnUnreachableStoreOnly(t *testing.T) {
	t.Parallel()
	open := charge()
	open.FailOpen = true
	for name, failure := range map[string]error{
		"another error": errors.New("disk full"),
		"conflict":      onlyonce.ErrConflict,
		"uncertain":     onlyonce.ErrUncertain,
	} {
		for _, m := range []storefault.Method{storefault.Claim, storefault.AddSetting} {
			script := make([]storefault.Fault, 10)
			for i := range script {
				script[i].Before = failure
			}
			w := newWorld(t, faults{m: script})
			_, err := w.Wrap(t.Context(), open, keyed("k", "x"), never(t))
			if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
				t.Errorf("%s, %s: %v", m, name, err)
			}
		}
	}
}
