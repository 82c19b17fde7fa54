package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// writes is a handler of one step in a transaction, whose answer is its result.
func writes(w *world, l *ledger, result string) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		got, err := onlyonce.StepTx(ctx, w.TxEngine, "row", l.step(result))
		if err != nil {
			return onlyonce.Answer{}, err
		}
		return answer(201, got), nil
	}
}

// O3, D2: what a step writes and its result are one transaction; later attempts
// get the result and write nothing.
func TestStepTx(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	type seat struct{ Row, Number int }
	runs := 0
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		s, err := onlyonce.StepTx(ctx, w.TxEngine, "seat", func(ctx context.Context, tx tx) (seat, error) {
			if !onlyonce.AttemptFrom(ctx).InTx() {
				t.Error("a transport is not told of the transaction")
			}
			runs++
			_, err := l.step("")(ctx, tx)
			return seat{7, 12}, err
		})
		if err != nil {
			return onlyonce.Answer{}, err
		}
		if diff := cmp.Diff(seat{7, 12}, s); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if onlyonce.AttemptFrom(ctx).InTx() {
			t.Error("the transaction is over")
		}
		if _, err := doing(p, "charge")(ctx); err != nil {
			return onlyonce.Answer{}, err
		}
		return writes(w, l, "receipt")(ctx)
	}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(handler))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler)
	wantResult(t, res, err, onlyonce.Executed, "receipt")
	l.want(t, 2)
	p.want(t, 1)
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
	var names []string
	for _, s := range w.steps(t, "k") {
		names = append(names, s.Name+" by "+s.Provider)
	}
	if diff := cmp.Diff([]string{"seat by store", "charge by acme", "row by store"}, names); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// O3: an error or a panic rolls a step back: nothing is recorded of it, the key
// is free, and the next attempt runs it.
func TestStepTxRollsBack(t *testing.T) {
	t.Parallel()
	failing := errors.New("constraint violated")
	for name, fail := range map[string]func() error{
		"error": func() error { return failing },
		"panic": func() error { panic(failing) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, l := newWorld(t, nil), &ledger{}
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				_, err := onlyonce.StepTx(ctx, w.TxEngine, "row", func(ctx context.Context, tx tx) (string, error) {
					_, _ = l.step("1")(ctx, tx)
					return "", fail()
				})
				if err != failing { //nolint:errorlint // it comes back as it is
					t.Errorf("the step's error came back as %v", err)
				}
				return onlyonce.Answer{}, err
			})
			if wantCode(t, err, onlyonce.CodeHandlerFailed); !errors.Is(err, failing) {
				t.Errorf("cause: %v", err)
			}
			l.want(t, 0)
			rec := w.record(t, "k")
			if rec.State != onlyonce.FailedRetryable || len(w.steps(t, "k")) != 0 {
				t.Errorf("key %+v, steps %+v", rec, w.steps(t, "k"))
			}
			if rec.ExpiresAt.Sub(rec.CreatedAt) > 2*onlyonce.DefaultRetention {
				t.Error("a key that left nothing is kept as if it had")
			}
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), writes(w, l, "2"))
			wantResult(t, res, err, onlyonce.Executed, "2")
			l.want(t, 1)
		})
	}
}

// C10: a commit whose reply is lost is repeated and found; one that did not
// happen is done; none is done twice.
func TestStepTxRepeats(t *testing.T) {
	t.Parallel()
	for name, f := range map[string][]storefault.Fault{
		"reply lost":    {{After: onlyonce.ErrUncertain}, {After: onlyonce.ErrUncertain}},
		"request lost":  {{Before: onlyonce.ErrUncertain}, {After: onlyonce.ErrUncertain}},
		"conflict":      {{Before: onlyonce.ErrConflict}, {Before: onlyonce.ErrConflict}},
		"conflict, too": {{After: onlyonce.ErrUncertain}, {Before: onlyonce.ErrConflict}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, l := newWorld(t, faults{storefault.StepTx: f}), &ledger{}
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), writes(w, l, "1"))
			wantResult(t, res, err, onlyonce.Executed, "1")
			l.want(t, 1)
			if n := w.events.count(onlyonce.EventStoreRetried); n != 2 {
				t.Errorf("%d repeats", n)
			}
		})
	}
}

// C10: a step whose every reply is lost may stand: the caller comes again, and
// whoever comes finds out.
func TestStepTxStaysUncertain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault storefault.Fault
		first string // the result of the run that counts
	}{
		"committed":     {storefault.Fault{After: onlyonce.ErrUncertain}, "1"},
		"not committed": {storefault.Fault{Before: onlyonce.ErrUncertain}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, l := newWorld(t, faults{storefault.StepTx: six(c.fault)}), &ledger{}
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), writes(w, l, "1"))
			if wantCode(t, err, onlyonce.CodeStoreUnavailable); !errors.Is(err, onlyonce.ErrUncertain) {
				t.Errorf("cause: %v", err)
			}
			w.wantState(t, "k", onlyonce.FailedRetryable)
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), writes(w, l, "2"))
			wantResult(t, res, err, onlyonce.Executed, c.first)
			l.want(t, 1)
		})
	}
}

// C6: a step of an attempt that lost its key, before it or in the middle of it,
// writes nothing; the owner's does.
func TestStepTxIsFenced(t *testing.T) {
	t.Parallel()
	for name, inside := range map[string]bool{"asleep before": false, "asleep inside": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, l := newWorld(t, nil), &ledger{}
				down := func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
					if m == storefault.Renew {
						return storefault.Fault{Before: storefault.ErrDown}
					}
					return storefault.Fault{}
				}
				slow := worldOn(t, w.mem, down, onlyonce.Config{})
				asleep, wake := make(chan struct{}), make(chan struct{})
				nap := func() { close(asleep); <-wake }
				var wg sync.WaitGroup
				wg.Go(func() {
					res, err := slow.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
						if !inside {
							nap()
						}
						_, err := onlyonce.StepTx(context.WithoutCancel(ctx), slow.TxEngine, "row", func(ctx context.Context, tx tx) (string, error) {
							if inside {
								nap()
							}
							return l.step("slow")(ctx, tx)
						})
						if !errors.Is(err, onlyonce.ErrLeaseLost) {
							t.Errorf("the step of a fenced attempt: %v", err)
						}
						return answer(201, "slow"), nil // whatever it answers
					})
					wantResult(t, res, err, onlyonce.Replayed, "owner")
				})
				<-asleep
				<-time.After(onlyonce.DefaultLease)
				res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), writes(w, l, "owner"))
				wantResult(t, res, err, onlyonce.Executed, "owner")
				close(wake)
				wg.Wait()
				l.want(t, 1)
			})
		})
	}
}

// D2: no network inside a transaction, and no transaction inside another; the
// refusals send and write nothing.
func TestNothingBeginsInsideAStepTx(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(outer context.Context) (onlyonce.Answer, error) {
		tries := func(ctx context.Context) {
			_, err := onlyonce.Call(ctx, p.effect("charge"))
			wantIs(t, err, onlyonce.ErrInTx)
			_, err = onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { t.Error("it ran"); return 0, nil })
			wantIs(t, err, onlyonce.ErrInTx)
			_, err = onlyonce.StepTx(ctx, w.TxEngine, "inner", l.step("inner"))
			wantIs(t, err, onlyonce.ErrInTx)
			_, err = w.Finish(ctx, l.insert(201))
			wantIs(t, err, onlyonce.ErrInTx)
		}
		_, err := onlyonce.StepTx(outer, w.TxEngine, "row", func(ctx context.Context, tx tx) (string, error) {
			tries(ctx)
			tries(outer) // the attempt is the same
			return l.step("1")(ctx, tx)
		})
		if err != nil {
			return onlyonce.Answer{}, err
		}
		return w.Finish(outer, func(ctx context.Context, tx tx) (onlyonce.Answer, error) {
			tries(ctx)
			return l.insert(201)(ctx, tx)
		})
	})
	wantResult(t, res, err, onlyonce.Executed, "row")
	p.wantSends(t, 0)
	l.want(t, 2)
	if steps := w.steps(t, "k"); len(steps) != 1 || steps[0].Name != "row" {
		t.Errorf("recorded: %+v", steps)
	}
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// A step in a transaction needs a run of steps, by the engine that has the
// transactions, and a name that a store can keep.
func TestStepTxNeedsItsPlace(t *testing.T) {
	t.Parallel()
	w, other, l := newWorld(t, nil), newWorld(t, nil), &ledger{}
	try := func(ctx context.Context, e *onlyonce.TxEngine[tx], name string) error {
		_, err := onlyonce.StepTx(ctx, e, name, l.step("1"))
		return err
	}
	wantCode(t, try(t.Context(), w.TxEngine, "row"), onlyonce.CodeConfig)
	res, err := w.Wrap(t.Context(), charge(), keyed("wrap", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		wantCode(t, try(ctx, w.TxEngine, "row"), onlyonce.CodeConfig)
		return answer(200, "wrapped"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "wrapped")
	res, err = w.Atomic(t.Context(), charge(), keyed("atomic", "x"), func(ctx context.Context, _ tx) (onlyonce.Answer, error) {
		wantIs(t, try(ctx, w.TxEngine, "row"), onlyonce.ErrInTx)
		return answer(200, "atomic"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "atomic")
	res, err = w.Steps(t.Context(), charge(), keyed("steps", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		wantCode(t, try(ctx, other.TxEngine, "row"), onlyonce.CodeConfig)
		for _, name := range []string{"", "a\nb", "\xff", strings.Repeat("x", 256)} {
			wantCode(t, try(ctx, w.TxEngine, name), onlyonce.CodeConfig)
		}
		return answer(200, "steps"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "steps")
	l.want(t, 0)
}

// D2: a step that was a call and is a write now, or the other way round, is not
// the recorded one: nothing is sent or written, and a person decides.
func TestStepChangesItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after func(*world, *provider, *ledger) onlyonce.HandlerFunc
		says          string
	}{
		"a call, now a write": {callsRow, writesRow, "writes to the store, the recorded one called acme"},
		"a write, now a call": {writesRow, callsRow, "calls acme, the recorded one called store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p, l := newWorld(t, nil), newProvider(), &ledger{}
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(c.before(w, p, l)))
			wantCode(t, err, onlyonce.CodeHandlerFailed)
			sends, rows := len(p.sends), l.rows
			_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), c.after(w, p, l))
			if wantCode(t, err, onlyonce.CodeOutcomeUnknown); !errors.Is(err, onlyonce.ErrStepChanged) {
				t.Errorf("cause: %v", err)
			}
			w.wantParked(t, "k", onlyonce.ReasonChangedSteps, c.says)
			p.wantSends(t, sends)
			l.want(t, rows)
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), c.before(w, p, l))
			if err != nil || res.State != onlyonce.Completed {
				t.Errorf("the right code got %+v, %v", res, err)
			}
		})
	}
}

func callsRow(_ *world, p *provider, _ *ledger) onlyonce.HandlerFunc { return doing(p, "row") }

func writesRow(w *world, _ *provider, l *ledger) onlyonce.HandlerFunc { return writes(w, l, "1") }

// A recorded result that no longer fits its type is said to be so.
func TestStepTxResultNoLongerFits(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t, nil), &ledger{}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(writes(w, l, "text")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		n, err := onlyonce.StepTx(ctx, w.TxEngine, "row", func(context.Context, *memstore.Tx) (int, error) {
			t.Error("a finished step ran again")
			return 0, nil
		})
		if e := wantCode(t, err, onlyonce.CodeStepChanged); n != 0 || !strings.Contains(e.Op, "row") {
			t.Errorf("%d, %v", n, err)
		}
		return onlyonce.Answer{}, err
	})
	if err == nil {
		t.Error("an operation whose step has changed was answered")
	}
	l.want(t, 1)
}

// O3: a process that dies behind a step in a transaction leaves it done: the next
// attempt goes on from there.
func TestCrashBehindAStepTx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, l := newWorld(t, nil), newProvider(), &ledger{}
		dying := w.dying(t)
		_, err := dying.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := writes(dying, l, "1")(ctx); err != nil {
				return onlyonce.Answer{}, err
			}
			return doing(p, "charge")(ctx)
		})
		if err == nil {
			t.Fatal("the dying process answered")
		}
		<-time.After(onlyonce.DefaultLease)
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := writes(w, l, "2")(ctx); err != nil {
				return onlyonce.Answer{}, err
			}
			return doing(p, "charge")(ctx)
		})
		wantResult(t, res, err, onlyonce.Executed, "charge for charge")
		l.want(t, 1)
		p.want(t, 1)
	})
}

// D1: an operation that is begun inside the send of another has no part in that
// send: its own calls do not get the outer one's derived key.
func TestSendEndsWhereAnOperationBegins(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	e := p.effect("outer")
	e.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
		if got, ok := onlyonce.SendingFrom(ctx); !ok || got.Key != s.Key {
			t.Errorf("the send's context has %v, %v", got, ok)
		}
		_, err := w.Steps(ctx, charge(), keyed("inner", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			if got, ok := onlyonce.SendingFrom(ctx); ok {
				t.Errorf("the inner operation is in the send of %s", got.Reference)
			}
			return onlyonce.Answer{Status: 201}, nil
		})
		return nil, err
	}
	_, err := w.Steps(t.Context(), charge(), keyed("outer", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, e)
		return onlyonce.Answer{Status: 201}, err
	})
	if err != nil {
		t.Fatal(err)
	}
}
