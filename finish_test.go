package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// lateFinish is a store whose first Finish commits and loses its reply, and
// whose second finds that out only after fn has run: what that wrote is rolled
// back and Held is true, as TxStore.Finish allows.
type lateFinish struct {
	*memstore.Store
	calls int
}

func (s *lateFinish) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*memstore.Tx]) (onlyonce.Settled, error) {
	if s.calls++; s.calls == 1 {
		if _, err := s.Store.Finish(ctx, owner, fn); err != nil {
			return onlyonce.Settled{}, err
		}
		return onlyonce.Settled{}, onlyonce.ErrUncertain
	}
	_, _ = fn(ctx, &memstore.Tx{})
	return s.Store.Finish(ctx, owner, fn)
}

// R2, C10: the caller of a Finish that ran twice gets the answer that was
// committed, the one that every retry gets.
func TestFinishAnswersWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]int{"another answer": 201, "a failure": 503} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem, err := memstore.New(memstore.Config{SingleProcess: true})
			if err != nil {
				t.Fatal(err)
			}
			e, err := onlyonce.NewTx(&lateFinish{Store: mem}, onlyonce.Config{})
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			handler := func(ctx context.Context) (onlyonce.Answer, error) {
				a, err := e.Finish(ctx, func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
					if runs++; runs > 1 {
						return answer(second, fmt.Sprint("order ", runs)), nil
					}
					return answer(201, "order 1"), nil
				})
				if err != nil || string(a.Body) != "order 1" {
					t.Errorf("finish: %+v, %v", a, err)
				}
				return a, err
			}
			res, err := e.Steps(t.Context(), charge(), keyed("k", "x"), handler)
			wantResult(t, res, err, onlyonce.Executed, "order 1")
			res, err = e.Steps(t.Context(), charge(), keyed("k", "x"), never(t))
			wantResult(t, res, err, onlyonce.Replayed, "order 1")
		})
	}
}

// O5: what a handler declares counts for Finish too: an answer that would not
// be stored rolls the last transaction back.
func TestFinishHeedsDeclare(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t, nil), &ledger{}
	_, _ = w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		return w.Finish(ctx, func(ctx context.Context, tx tx) (onlyonce.Answer, error) {
			onlyonce.Declare(ctx, onlyonce.NotApplied)
			return l.insert(201)(ctx, tx)
		})
	})
	l.want(t, 0)
	w.wantState(t, "k", onlyonce.FailedRetryable)
}

// C11: that the store could not commit is no failure of the handler, whose own error is.
func TestFinishTellsWhoFailed(t *testing.T) {
	t.Parallel()
	broken := errors.New("the account is closed")
	for name, tt := range map[string]struct {
		fault   storefault.Fault
		handler error
		want    onlyonce.Code
	}{
		"the store":   {storefault.Fault{Before: storefault.ErrDown}, nil, onlyonce.CodeStoreUnavailable},
		"the handler": {storefault.Fault{}, broken, onlyonce.CodeHandlerFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
				if m == storefault.Finish {
					return tt.fault
				}
				return storefault.Fault{}
			}, onlyonce.Config{})
			_, err := w.Steps(t.Context(), charge(), keyed("k", "pay"), func(ctx context.Context) (onlyonce.Answer, error) {
				return w.Finish(ctx, func(context.Context, *memstore.Tx) (onlyonce.Answer, error) { return answer(201, "done"), tt.handler })
			})
			if onlyonce.CodeOf(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
