package onlyonce_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

var errLost = errors.New("reply lost")

// provider is an outside service that may lose replies.
type provider struct {
	mu sync.Mutex
	// honours: a repeated key gets the first result instead of a second effect.
	honours bool
	// lose is how many replies are lost after the effect; drop how many
	// requests are lost before it; refuse how many are refused without effect.
	lose, drop, refuse int
	sends              []onlyonce.Sending
	effects            map[string]string // result by reference
	byKey              map[string]string
	charged            int
}

func newProvider() *provider {
	return &provider{honours: true, effects: map[string]string{}, byKey: map[string]string{}}
}

func (p *provider) send(_ context.Context, s onlyonce.Sending) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sends = append(p.sends, s)
	if p.refuse > 0 {
		p.refuse--
		return nil, onlyonce.NotAppliedError(errors.New("refused"))
	}
	if p.drop > 0 {
		p.drop--
		return nil, errLost
	}
	result, seen := p.byKey[s.Key]
	if !seen || !p.honours {
		p.charged++
		result = "charge for " + string(s.Request)
		p.byKey[s.Key], p.effects[s.Reference] = result, result
	}
	if p.lose > 0 {
		p.lose--
		return nil, errLost
	}
	return []byte(result), nil
}

func (p *provider) check(_ context.Context, s onlyonce.Sending) ([]byte, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	result, ok := p.effects[s.Reference]
	return []byte(result), ok, nil
}

// effect is the provider's charge as a step that can be checked and re-sent.
func (p *provider) effect(name string) onlyonce.Effect {
	return onlyonce.Effect{
		Name: name, Provider: "acme", Request: []byte("100 EUR"), Send: p.send, Check: p.check,
		Memory: 24 * time.Hour, Visible: time.Minute,
	}
}

// charges is a handler of one step, whose answer is the step's result.
func charges(e onlyonce.Effect) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		result, err := onlyonce.Call(ctx, e)
		if err != nil {
			return onlyonce.Answer{}, err
		}
		return answer(201, string(result)), nil
	}
}

func (p *provider) want(t *testing.T, charged int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.charged != charged {
		t.Errorf("the provider charged %d times, want %d", p.charged, charged)
	}
}

// D1: a derived key is a pure function, stored at providers: these values may
// never change.
func TestDerivedKey(t *testing.T) {
	t.Parallel()
	d := onlyonce.Derivation{Key: onlyonce.Key{Scope: "acct", Value: "k"}, Step: "charge", Provider: "acme"}
	if got := d.DerivedKey(); got != "e4a2bcf4-aca4-886c-8dff-478fa5436e63" {
		t.Errorf("derived key %s", got)
	}
	if got := d.Reference(); got != "oo_dfaba49633f842bc952e80c43cc6" {
		t.Errorf("reference %s", got)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(d.DerivedKey()) {
		t.Errorf("not a UUID of version 8: %s", d.DerivedKey())
	}
	// B106: another step, occurrence, provider, epoch or tenant has another key.
	others := []func(*onlyonce.Derivation){
		func(d *onlyonce.Derivation) { d.Step = "reserve" },
		func(d *onlyonce.Derivation) { d.Occurrence = 1 },
		func(d *onlyonce.Derivation) { d.Provider = "other" },
		func(d *onlyonce.Derivation) { d.Epoch = 1 },
		func(d *onlyonce.Derivation) { d.Key.Scope = "acct2" },
		func(d *onlyonce.Derivation) { d.Key.Value = "K" },
		func(d *onlyonce.Derivation) { d.Key.Scope, d.Key.Value = "acc", "tk" },
	}
	seen := map[string]int{d.DerivedKey(): -1}
	for i, change := range others {
		o := d
		change(&o)
		if j, dup := seen[o.DerivedKey()]; dup {
			t.Errorf("changes %d and %d have one derived key", i, j)
		}
		seen[o.DerivedKey()] = i
	}
	next := d
	next.Epoch = 7
	if next.Reference() != d.Reference() {
		t.Error("the reference must be the same over all epochs, or the provider cannot be asked by it")
	}
}

// D2: the intent is committed before the first byte leaves, with everything
// that resuming needs.
func TestIntentIsCommittedFirst(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	e := p.effect("charge")
	e.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
		steps, err := w.mem.Steps(ctx, onlyonce.Key{Scope: "acct", Value: "k"})
		if err != nil || len(steps) != 1 || steps[0].State != onlyonce.StepBegun {
			t.Fatalf("at the time of sending: %+v, %v", steps, err)
		}
		got := onlyonce.Sending{Key: steps[0].DerivedKey, Reference: steps[0].Reference, Request: steps[0].Request, Deadline: s.Deadline}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("recorded intent (-sent +recorded):\n%s", diff)
		}
		if steps[0].SendWithin <= 0 || steps[0].SendWithin >= onlyonce.DefaultLease {
			t.Errorf("send deadline %v: must be within the lease", steps[0].SendWithin)
		}
		return p.send(ctx, s)
	}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	p.want(t, 1)
}

// B53, C7: a retry after a crash resumes behind the last finished step.
func TestResumeBehindFinishedStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		receipts := 0
		handler := func(fail bool) onlyonce.HandlerFunc {
			return func(ctx context.Context) (onlyonce.Answer, error) {
				result, err := onlyonce.Call(ctx, p.effect("charge"))
				if err != nil {
					return onlyonce.Answer{}, err
				}
				receipts++
				if fail {
					panic("the receipt e-mail failed")
				}
				return answer(201, string(result)), nil
			}
		}
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler(true))
		if e := wantCode(t, err, onlyonce.CodeHandlerFailed); !strings.Contains(e.Hint, "goes on from there") {
			t.Errorf("a caller whose operation is half done is told %q", e.Hint)
		}
		w.wantState(t, "k", onlyonce.FailedRetryable) // no unfinished step: free, the charge stands
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler(false))
		wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
		p.want(t, 1)
		if receipts != 2 {
			t.Errorf("%d receipts", receipts)
		}
	})
}

// D3, D4, B14, B74: an outcome nobody knows is parked, asked for, re-sent under
// the same key while the provider remembers it, or left in doubt; never
// guessed.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		setup   func(*provider)
		change  func(*onlyonce.Effect)
		wait    time.Duration
		state   onlyonce.State // after the retry
		charged int
		sends   int
	}{
		"effect happened, provider can be asked": {
			setup: func(p *provider) { p.lose = 1 }, state: onlyonce.Completed, charged: 1, sends: 1,
		},
		"effect happened, key honoured": {
			setup:  func(p *provider) { p.lose = 1 },
			change: func(e *onlyonce.Effect) { e.Check = nil }, state: onlyonce.Completed, charged: 1, sends: 2,
		},
		"no effect, key honoured": {
			setup:  func(p *provider) { p.drop = 1 },
			change: func(e *onlyonce.Effect) { e.Check = nil }, state: onlyonce.Completed, charged: 1, sends: 2,
		},
		"no effect, not found too early to prove anything, key not honoured": {
			setup:  func(p *provider) { p.drop = 1 },
			change: func(e *onlyonce.Effect) { e.Memory = 0 }, state: onlyonce.InDoubt, charged: 0, sends: 1,
		},
		"no effect, not found late enough: proof, sent again under a new key": {
			setup:  func(p *provider) { p.drop = 1; p.honours = false },
			change: func(e *onlyonce.Effect) { e.Memory = 0 }, wait: onlyonce.DefaultLease + time.Minute,
			state: onlyonce.Completed, charged: 1, sends: 2,
		},
		"not found proves nothing where it never does": {
			setup:  func(p *provider) { p.drop = 1 },
			change: func(e *onlyonce.Effect) { e.Memory, e.Visible = 0, 0 }, wait: 48 * time.Hour,
			state: onlyonce.InDoubt, charged: 0, sends: 1,
		},
		"neither asked nor honoured": {
			setup:  func(p *provider) { p.lose = 1; p.honours = false },
			change: func(e *onlyonce.Effect) { e.Check, e.Memory = nil, 0 }, wait: 48 * time.Hour,
			state: onlyonce.InDoubt, charged: 1, sends: 1,
		},
		"the provider's memory has run out": {
			setup:  func(p *provider) { p.lose = 1; p.honours = false },
			change: func(e *onlyonce.Effect) { e.Check = nil }, wait: 24 * time.Hour,
			state: onlyonce.InDoubt, charged: 1, sends: 1,
		},
		"the provider cannot be asked now": {
			setup: func(p *provider) { p.lose = 1 },
			change: func(e *onlyonce.Effect) {
				e.Memory = 0
				e.Check = func(context.Context, onlyonce.Sending) ([]byte, bool, error) { return nil, false, errLost }
			},
			wait: 48 * time.Hour, state: onlyonce.InDoubt, charged: 1, sends: 1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, nil), newProvider()
				c.setup(p)
				e := p.effect("charge")
				if c.change != nil {
					c.change(&e)
				}
				_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
				wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				w.wantState(t, "k", onlyonce.InDoubt)
				<-time.After(c.wait)
				res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
				if c.state == onlyonce.Completed {
					wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
				} else {
					wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				}
				w.wantState(t, "k", c.state)
				p.want(t, c.charged)
				if len(p.sends) != c.sends {
					t.Errorf("%d sends, want %d", len(p.sends), c.sends)
				}
			})
		})
	}
}

// The process dies after the provider acted: the retry asks first.
func TestCrashAfterTheProviderActed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		w.crashSteps(t, charge(), keyed("k", "x"), charges(p.effect("charge")))
		p.want(t, 1)
		<-time.After(onlyonce.DefaultLease)
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
		wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
		p.want(t, 1)
		if len(p.sends) != 1 {
			t.Errorf("%d sends: the retry must ask, not send", len(p.sends))
		}
	})
}

// D1: a provider's documented refusal frees the step for a new derived key.
func TestRefusedSendIsProofOfNoEffect(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	p.refuse = 1
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	w.wantState(t, "k", onlyonce.FailedRetryable)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	if len(p.sends) != 2 || p.sends[0].Key == p.sends[1].Key || p.sends[0].Reference != p.sends[1].Reference {
		t.Errorf("sends: %+v", p.sends)
	}
}

// O: an unfinished step cannot be declared away, nor answered over.
func TestUnfinishedStepCannotBeDeclaredAway(t *testing.T) {
	t.Parallel()
	for _, a := range []onlyonce.Answer{answer(201, "fine"), {Status: 500, Outcome: onlyonce.NotApplied}, {Status: 200, Outcome: onlyonce.Final}, answer(402, "declined")} {
		w, p := newWorld(t, nil), newProvider()
		p.lose = 1
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := onlyonce.Call(ctx, p.effect("charge")); !errors.Is(err, onlyonce.ErrOutcomeUnknown) {
				t.Errorf("call: %v", err)
			}
			return a, nil
		})
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		if res.State != onlyonce.InDoubt {
			t.Errorf("state %q", res.State)
		}
		w.wantState(t, "k", onlyonce.InDoubt)
	}
}

// D2: a resumed step that would send something else is refused.
func TestChangedStepIsRefused(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	p.lose = 1
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	changed := p.effect("charge")
	changed.Request = []byte("200 EUR")
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), charges(changed))
	e := wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	if !errors.Is(e.Err, &onlyonce.Error{Code: onlyonce.CodeStepChanged}) {
		t.Errorf("cause: %v", e.Err)
	}
	p.want(t, 1)
}

// D2: no outside call while a transaction is open, nor outside a run of steps.
func TestCallNeedsItsPlace(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	_, err := onlyonce.Call(t.Context(), p.effect("charge"))
	wantCode(t, err, onlyonce.CodeConfig)
	_, err = w.Wrap(t.Context(), charge(), keyed("wrap", "x"), charges(p.effect("charge")))
	if e := wantCode(t, err, onlyonce.CodeOutcomeUnknown); !errors.Is(e.Err, &onlyonce.Error{Code: onlyonce.CodeConfig}) {
		t.Errorf("cause: %v", e.Err)
	}
	_, err = w.Atomic(t.Context(), charge(), keyed("atomic", "x"), func(ctx context.Context, _ tx) (onlyonce.Answer, error) {
		return charges(p.effect("charge"))(ctx)
	})
	if !errors.Is(err, onlyonce.ErrInTx) {
		t.Errorf("inside a transaction: %v", err)
	}
	_, err = w.Steps(t.Context(), charge(), keyed("finish", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		return w.Finish(ctx, func(ctx context.Context, _ tx) (onlyonce.Answer, error) { return charges(p.effect("charge"))(ctx) })
	})
	if !errors.Is(err, onlyonce.ErrInTx) {
		t.Errorf("inside the last transaction: %v", err)
	}
	p.want(t, 0)
}

// A name used in a loop is one step for each turn.
func TestStepsInALoop(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	turns := 0
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		for range 3 {
			if _, err := onlyonce.Call(ctx, p.effect("charge")); err != nil {
				return onlyonce.Answer{}, err
			}
		}
		n, err := onlyonce.Step(ctx, "count", func(context.Context) (int, error) { turns++; return 7 * turns, nil })
		if err != nil {
			return onlyonce.Answer{}, err
		}
		if turns == 1 {
			turns++
			return onlyonce.Answer{Status: 503}, nil
		}
		return answer(200, string('0'+rune(n))), nil
	})
	if err != nil || res.State != onlyonce.FailedRetryable {
		t.Fatalf("first run: %+v, %v", res, err)
	}
	res, err = w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		for range 3 {
			if _, err := onlyonce.Call(ctx, p.effect("charge")); err != nil {
				return onlyonce.Answer{}, err
			}
		}
		n, err := onlyonce.Step(ctx, "count", func(context.Context) (int, error) { t.Error("a finished step ran again"); return 0, nil })
		return answer(200, string('0'+rune(n))), err
	})
	wantResult(t, res, err, onlyonce.Executed, "7")
	p.want(t, 3)
}

// C6, D5: a worker that slept through its lease sends nothing.
func TestSleptThroughTheSendDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleep := func(context.Context) { <-time.After(40 * time.Second) }
		w, p := newWorld(t, faults{storefault.BeginStep: {{HoldReply: sleep}}, storefault.Renew: {{Hold: sleep}}}), newProvider()
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		p.want(t, 0)
		if len(p.sends) != 0 {
			t.Error("it sent after its lease was over")
		}
	})
}

// C6: a fenced attempt begins no step.
func TestFencedAttemptBeginsNoStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		slow := worldOn(t, w.mem, storefault.Script(faults{storefault.Renew: {{Before: storefault.ErrDown, Hold: func(context.Context) { <-time.After(time.Hour) }}}}), onlyonce.Config{})
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := slow.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				<-time.After(2 * onlyonce.DefaultLease)
				return charges(p.effect("charge"))(context.WithoutCancel(ctx))
			})
			wantResult(t, res, err, onlyonce.Replayed, "charge for 100 EUR")
		})
		<-time.After(onlyonce.DefaultLease + time.Second)
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
		wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
		wg.Wait()
		p.want(t, 1)
	})
}

// D5: a send never outlasts the lease it was recorded under, however long a
// connection takes and however often the lease is renewed meanwhile: whoever
// checks afterwards counts on it.
func TestSendEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		e := p.effect("charge")
		begun := time.Now()
		e.Send = func(ctx context.Context, _ onlyonce.Sending) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		if took := time.Since(begun); took >= onlyonce.DefaultLease {
			t.Errorf("the send was given %v", took)
		}
	})
}

// D3: "not applied" about a repeated send says nothing of the first one.
func TestRefusedResendProvesNothing(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	e := p.effect("charge")
	e.Check = nil
	p.lose = 1
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	p.refuse = 1
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantState(t, "k", onlyonce.InDoubt)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	p.want(t, 1)
}
