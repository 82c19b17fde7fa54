package onlyonce_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// sendTime is how long a fresh attempt's bytes may still leave: its lease less
// the margin in which it is taken for lost.
const sendTime = onlyonce.DefaultLease - 2*time.Second

// kept is a request that a recoverer can run again: its body is kept.
func kept(value, body string) onlyonce.Request {
	req := keyed(value, body)
	req.Keep = []byte(body)
	return req
}

// resumes runs kept requests again with the handler.
func resumes(w *world, h onlyonce.HandlerFunc) map[string]onlyonce.ResumeFunc {
	return map[string]onlyonce.ResumeFunc{charge().Name: func(ctx context.Context, due onlyonce.Due) (onlyonce.Result, error) {
		return w.Steps(ctx, charge(), kept(due.Record.Key.Value, string(due.Keep)), h)
	}}
}

// again is every way in which an operation is run once more.
func again() map[string]func(ctx context.Context, w *world, h onlyonce.HandlerFunc) {
	return map[string]func(ctx context.Context, w *world, h onlyonce.HandlerFunc){
		"retry": func(ctx context.Context, w *world, h onlyonce.HandlerFunc) {
			_, _ = w.Steps(ctx, charge(), kept("k", "x"), h)
		},
		"recoverer": func(ctx context.Context, w *world, h onlyonce.HandlerFunc) {
			_, _ = onlyonce.Recoverer{Engine: w.Engine, Resume: resumes(w, h), Grace: time.Second}.Once(ctx)
		},
		"operator": func(ctx context.Context, w *world, h onlyonce.HandlerFunc) {
			_, _ = onlyonce.Recoverer{Engine: w.Engine, Resume: resumes(w, h)}.Key(ctx, onlyonce.Key{Scope: "acct", Value: "k"})
		},
	}
}

// D4, D5: the same bytes go out again under the same key for as long as the
// provider remembers it, less a margin and the time they may still take; never
// later, whoever asks.
func TestSentAgainOnlyWithinTheMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		memory, most time.Duration
	}{
		"a day":   {24 * time.Hour, 24*time.Hour - time.Minute - sendTime},
		"minutes": {100 * time.Second, 90*time.Second - sendTime},
		"less":    {sendTime, 0},
		"none":    {0, 0},
	} {
		for by, run := range again() {
			for _, late := range []time.Duration{-time.Microsecond, 0} {
				if c.most+late < 0 {
					continue
				}
				t.Run(name+" by "+by, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w, p := newWorld(t, nil), newProvider()
						p.lose, p.honours = 1, late < 0 // beyond its memory it would charge again
						e := p.effect("charge")
						e.Check, e.Memory = nil, c.memory
						_, err := w.Steps(t.Context(), charge(), kept("k", "x"), charges(e))
						wantCode(t, err, onlyonce.CodeOutcomeUnknown)
						<-time.After(c.most + late)
						run(t.Context(), w, charges(e))
						p.want(t, 1)
						if late == 0 {
							p.wantSends(t, 1)
							w.wantState(t, "k", onlyonce.InDoubt)
							return
						}
						p.wantSends(t, 2)
						w.wantState(t, "k", onlyonce.Completed)
						if keys := p.keys(); keys[0] != keys[1] {
							t.Errorf("sent under two keys: %q", keys)
						}
					})
				})
			}
		}
	}
}

// D5: an operator's proof begins a new epoch, whose memory begins anew; without
// proof nothing does.
func TestMemoryCountsFromTheEpochsFirstSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		e := p.effect("charge")
		e.Check, e.Memory = nil, time.Hour
		try := func() {
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		}
		p.drop = 10
		try()
		<-time.After(30 * time.Minute)
		try() // a later send does not prolong it
		<-time.After(30 * time.Minute)
		try()
		p.wantSends(t, 2)
		if _, err := w.Settle(t.Context(), settlement(nil)); err != nil {
			t.Fatal(err)
		}
		try()
		<-time.After(50 * time.Minute)
		try()
		p.wantSends(t, 4)
		first := onlyonce.Derivation{Key: onlyonce.Key{Scope: "acct", Value: "k"}, Step: "charge", Provider: "acme"}
		second := first
		second.Epoch = 1
		for i, want := range []string{first.DerivedKey(), first.DerivedKey(), second.DerivedKey(), second.DerivedKey()} {
			if p.keys()[i] != want {
				t.Errorf("send %d went out under %s, want %s", i, p.keys()[i], want)
			}
			if p.sends[i].Reference != first.Reference() {
				t.Errorf("send %d has the reference %s", i, p.sends[i].Reference)
			}
		}
	})
}

// D4: "not found" proves something only later than the last send may have left
// plus the time that the provider takes to show it: to the microsecond.
func TestNotFoundIsProofOnlyLateEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		e := p.effect("charge")
		e.Memory = time.Minute + sendTime // one more send is allowed, then none
		e.Visible = time.Minute
		p.drop = 2
		try := func(sends int) {
			t.Helper()
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			p.wantSends(t, sends)
		}
		try(1)
		<-time.After(50 * time.Second)
		try(2)
		<-time.After(40 * time.Second) // late enough for the first send, but the second counts
		try(2)
		<-time.After(sendTime + 20*time.Second) // the last moment at which it may not be seen yet
		try(2)
		<-time.After(time.Microsecond)
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
		wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
		p.wantSends(t, 3)
		keys := p.keys()
		if keys[0] != keys[1] || keys[1] == keys[2] {
			t.Errorf("the epoch must rise with the proof, and only then: %q", keys)
		}
		if p.sends[0].Reference != p.sends[2].Reference {
			t.Error("the reference must not change")
		}
	})
}

// D4: what Check finds is the result; nothing is sent, however often it is asked.
func TestFoundIsTheResult(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	p.lose = 1
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	asked := 0
	e := p.effect("charge")
	e.Check = func(ctx context.Context, s onlyonce.Sending) ([]byte, bool, error) {
		asked++
		if _, sending := onlyonce.SendingFrom(ctx); sending || !s.Deadline.IsZero() {
			t.Error("a check sends nothing, and has no deadline for it")
		}
		return p.check(ctx, s)
	}
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(charges(e)))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e)) // now it is recorded
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	if p.wantSends(t, 1); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// D4: a provider that cannot be asked is sent the same once more, if it remembers
// the key; what it shows and must not be, is left to a person.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	strange := &onlyonce.Error{Code: onlyonce.CodeOutcomeUnknown, Err: errors.New("another amount")}
	for name, c := range map[string]struct {
		err    error
		memory time.Duration
		sends  int
		state  onlyonce.State
	}{
		"remembers":               {errLost, time.Hour, 2, onlyonce.Completed},
		"does not remember":       {errLost, 0, 1, onlyonce.InDoubt},
		"shows something else":    {strange, time.Hour, 1, onlyonce.InDoubt},
		"its refusal to be asked": {onlyonce.NotAppliedError(errLost), 0, 1, onlyonce.InDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, nil), newProvider()
			p.lose = 1
			e := p.effect("charge")
			e.Memory = c.memory
			e.Check = func(context.Context, onlyonce.Sending) ([]byte, bool, error) { return nil, false, c.err }
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			if c.state == onlyonce.InDoubt && !errors.Is(err, c.err) {
				t.Errorf("the cause is lost: %v", err)
			}
			w.wantState(t, "k", c.state)
			p.wantSends(t, c.sends)
			p.want(t, 1)
		})
	}
}

// D1: the epoch rises on recorded proof alone. Neither lost replies nor the
// refusal of a later send are any.
func TestEpochRisesOnProofOnly(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	e := p.effect("charge")
	e.Check = nil
	p.drop = 3
	for range 3 {
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	}
	p.refuse = 2
	for range 2 {
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
		if wantCode(t, err, onlyonce.CodeOutcomeUnknown); onlyonce.IsNotApplied(err) {
			t.Error("the refusal of a later send is no proof")
		}
	}
	if steps := w.steps(t, "k"); len(steps) != 1 || steps[0].Epoch != 0 || steps[0].Sends != 5 || steps[0].State != onlyonce.StepBegun {
		t.Errorf("recorded: %+v", steps)
	}
	if _, err := w.Settle(t.Context(), settlement(nil)); err != nil {
		t.Fatal(err)
	}
	p.refuse = 1 // the first of a new epoch: proof, and the next one
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	if wantCode(t, err, onlyonce.CodeHandlerFailed); w.steps(t, "k")[0].State != onlyonce.StepNotApplied {
		t.Errorf("recorded: %+v", w.steps(t, "k"))
	}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	epochs := map[string]bool{}
	for i, key := range p.keys() {
		if epochs[key] = true; len(epochs) != max(i-3, 1) {
			t.Errorf("send %d is of epoch %d", i, len(epochs)-1)
		}
	}
}

// D2: a begun step whose request or provider is not the recorded one sends
// nothing, in whatever state it is resumed.
func TestChangedIntentSendsNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*onlyonce.Effect){
		"other bytes":    func(e *onlyonce.Effect) { e.Request = []byte("200 EUR") },
		"other provider": func(e *onlyonce.Effect) { e.Provider = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, nil), newProvider()
			p.drop = 1
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			e := p.effect("charge")
			e.Check = func(context.Context, onlyonce.Sending) ([]byte, bool, error) {
				t.Error("the provider was asked about something else")
				return nil, false, nil
			}
			change(&e)
			_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
			if wantCode(t, err, onlyonce.CodeOutcomeUnknown); !errors.Is(err, onlyonce.ErrStepChanged) {
				t.Errorf("cause: %v", err)
			}
			w.wantParked(t, "k", onlyonce.ReasonChangedSteps, `step "charge"`)
			p.wantSends(t, 1)
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
			wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
		})
	}
}

// D1: when our own record is lost, or has expired, the same key is derived again,
// so that the provider stops the second charge.
func TestDerivedKeyOutlivesTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProvider()
		w := newWorld(t, nil)
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), doing(p, "charge charge"))
		wantResult(t, res, err, onlyonce.Executed, "charge for charge, charge for charge")
		<-time.After(onlyonce.DefaultRetention) // a new life in the same store
		res, err = w.Steps(t.Context(), charge(), keyed("k", "x"), doing(p, "charge charge"))
		wantResult(t, res, err, onlyonce.Executed, "charge for charge, charge for charge")
		res, err = newWorld(t, nil).Steps(t.Context(), charge(), keyed("k", "x"), doing(p, "charge charge"))
		wantResult(t, res, err, onlyonce.Executed, "charge for charge, charge for charge")
		p.wantSends(t, 6)
		p.want(t, 2)
	})
}

// D5: the send deadline is said, lies within the lease, counts from before the
// intent was written, and is the context's.
func TestSendDeadline(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context) { <-time.After(5 * time.Second) }
	for name, c := range map[string]struct {
		before time.Duration // the handler takes this long before the call
		script faults
		left   time.Duration
	}{
		"at once":                  {0, nil, sendTime},
		"after some work":          {4 * time.Second, nil, sendTime - 4*time.Second},
		"after a renewal":          {12 * time.Second, nil, sendTime - 2*time.Second},
		"the intent is slow":       {0, faults{storefault.BeginStep: {{HoldReply: slow}}}, sendTime - 5*time.Second},
		"a lease that is not kept": {20 * time.Second, faults{storefault.Renew: six(storefault.Fault{Before: storefault.ErrDown})}, sendTime - 20*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, c.script), newProvider()
				e := p.effect("charge")
				e.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
					if left := time.Until(s.Deadline); left != c.left {
						t.Errorf("%v are left to send, want %v", left, c.left)
					}
					if end, ok := ctx.Deadline(); !ok || !end.Equal(s.Deadline) {
						t.Errorf("the context ends at %v, the send at %v", end, s.Deadline)
					}
					if from, ok := onlyonce.SendingFrom(ctx); !ok || from.Key != s.Key || !from.Deadline.Equal(s.Deadline) {
						t.Errorf("a transport sees %+v, %v", from, ok)
					}
					step := w.steps(t, "k")[0]
					if recorded := step.SendWithin - step.Idle; recorded < time.Until(s.Deadline) {
						t.Errorf("recorded as over in %v, in truth in %v", recorded, time.Until(s.Deadline))
					}
					if lease := time.Until(w.record(t, "k").LeaseEnd); lease <= time.Until(s.Deadline) {
						t.Errorf("the lease ends in %v, before the send in %v", lease, time.Until(s.Deadline))
					}
					return p.send(ctx, s)
				}
				res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
					<-time.After(c.before)
					return charges(e)(ctx)
				})
				wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
			})
		})
	}
}

// C6, D5: a process that sleeps between its intent and the send, longer than its
// deadline, sends nothing when it wakes, be it the first send or a later one;
// and whoever has taken over meanwhile is the only one that charged.
func TestSleptBetweenIntentAndSend(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]int{"first send": 0, "later send": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, nil), newProvider()
				e := p.effect("charge")
				e.Check = nil
				for range lost {
					p.drop = 1
					_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
					wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				}
				asleep, wake := make(chan struct{}), make(chan struct{})
				sleep := storefault.Fault{HoldReply: func(context.Context) { close(asleep); <-wake }}
				down := storefault.Fault{Before: storefault.ErrDown}
				slow := worldOn(t, w.mem, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
					switch m {
					case storefault.BeginStep:
						return sleep
					case storefault.Renew:
						return down
					default:
						return storefault.Fault{}
					}
				}, onlyonce.Config{})
				var wg sync.WaitGroup
				wg.Go(func() {
					res, err := slow.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
						return charges(e)(context.WithoutCancel(ctx)) // deaf to the lease
					})
					wantResult(t, res, err, onlyonce.Replayed, "charge for 100 EUR")
				})
				<-asleep
				<-time.After(onlyonce.DefaultLease)
				res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
				wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
				close(wake)
				wg.Wait()
				p.want(t, 1)
				p.wantSends(t, lost+1)
			})
		})
	}
}
