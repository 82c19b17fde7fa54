package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// chaos fails a fifth of all calls to a store, in every way a store may fail.
type chaos struct {
	calm atomic.Bool
	mu   sync.Mutex
	rnd  *rand.Rand
}

func (c *chaos) inject(storefault.Method, onlyonce.Key) storefault.Fault {
	if c.calm.Load() {
		return storefault.Fault{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slow := func(context.Context) { <-time.After(time.Millisecond) }
	switch c.rnd.IntN(25) {
	case 0:
		return storefault.Fault{Before: storefault.ErrDown}
	case 1:
		return storefault.Fault{Before: onlyonce.ErrConflict, Hold: slow}
	case 2:
		return storefault.Fault{Before: onlyonce.ErrUncertain}
	case 3, 4:
		return storefault.Fault{After: onlyonce.ErrUncertain, HoldReply: slow}
	default:
		return storefault.Fault{}
	}
}

// outcomes is what became of the operations under each key.
type outcomes struct {
	mu      sync.Mutex
	runs    map[string]int
	effects map[string]int
	answers map[string]map[string]int // by key, how often each was given
}

func newOutcomes() *outcomes {
	return &outcomes{runs: map[string]int{}, effects: map[string]int{}, answers: map[string]map[string]int{}}
}

// handler has an effect or none, and ends as it likes.
func (o *outcomes) handler(key string, rnd *rand.Rand) onlyonce.HandlerFunc {
	return func(context.Context) (onlyonce.Answer, error) {
		o.mu.Lock()
		o.runs[key]++
		end := rnd.IntN(10)
		if end > 2 {
			o.effects[key]++
		}
		body := fmt.Sprintf("%s, run %d", key, o.runs[key])
		o.mu.Unlock()
		switch end {
		case 0:
			return answer(429, body), nil
		case 1, 2:
			return onlyonce.Answer{Status: 500, Outcome: onlyonce.NotApplied}, nil
		case 3:
			return onlyonce.Answer{}, errors.New("reply lost")
		case 4:
			panic("broken after the effect")
		case 5:
			return answer(503, body), nil
		default:
			return answer(201, body), nil
		}
	}
}

func (o *outcomes) answered(key string, res onlyonce.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers[key] == nil {
		o.answers[key] = map[string]int{}
	}
	o.answers[key][fmt.Sprintf("%d %v %s", res.Answer.Status, res.Answer.Header, res.Answer.Body)]++
}

// C1, C6, R2: whatever handlers and store do, under load, an effect happens at
// most once per key, and every answer to one key is the same.
func TestStress(t *testing.T) {
	t.Parallel()
	const keys, clients = 20, 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		c, o := &chaos{rnd: rand.New(rand.NewPCG(seed, 0))}, newOutcomes()
		w := newWorldWith(t, c.inject, onlyonce.Config{})
		other := worldOn(t, w.mem, c.inject, onlyonce.Config{})
		ask := func(w *world, key string, rnd *rand.Rand) error {
			res, err := w.Wrap(t.Context(), charge(), keyed(key, "x"), o.handler(key, rnd))
			if err == nil && res.State == onlyonce.Completed {
				o.answered(key, res)
			}
			if err != nil && !onlyonce.SafeToRetry(err) {
				t.Errorf("key %s: a retry was refused: %v", key, err)
			}
			return err
		}
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(client)+1))
				w := []*world{w, other}[client%2]
				for _, n := range rnd.Perm(keys) {
					_ = ask(w, fmt.Sprint("key-", n), rnd)
				}
			})
		}
		wg.Wait()
		c.calm.Store(true)
		<-time.After(time.Minute) // what is stored behind requests is stored now
		settled := map[onlyonce.State]int{}
		for n := range keys {
			key, rnd := fmt.Sprint("key-", n), rand.New(rand.NewPCG(seed, 1000+uint64(n)))
			for range 100 {
				err := ask(other, key, rnd)
				state := w.state(t, key)
				if state == onlyonce.FailedRetryable {
					continue // proved to be without effect: again
				}
				if (state == onlyonce.Completed && err != nil) || state == onlyonce.InProgress {
					t.Errorf("key %s is %s and answered with %v", key, state, err)
				}
				settled[state]++
				break
			}
			if o.effects[key] != 1 {
				t.Errorf("key %s: %d effects in %d runs", key, o.effects[key], o.runs[key])
			}
			if len(o.answers[key]) > 1 {
				t.Errorf("key %s was answered in %d ways: %v", key, len(o.answers[key]), o.answers[key])
			}
		}
		if settled[onlyonce.Completed]+settled[onlyonce.InDoubt] != keys {
			t.Errorf("settled: %v", settled)
		}
	})
}

// C8, O6: an engine that is closed under load waits for what is being stored,
// and leaves no goroutine and no key that looks freed.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		w := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m == storefault.Complete && !up.Load() {
				return storefault.Fault{Before: storefault.ErrDown}
			}
			return storefault.Fault{}
		}, onlyonce.Config{SettleTimeout: time.Second})
		effects := make([]effect, 30)
		var wg sync.WaitGroup
		for i := range effects {
			wg.Go(func() {
				<-time.After(time.Duration(i) * 50 * time.Millisecond)
				_, err := w.Wrap(t.Context(), charge(), keyed(fmt.Sprint(i), "x"), effects[i].handler)
				wantCode(t, err, onlyonce.CodeStoreUnavailable)
			})
		}
		<-time.After(2 * time.Second) // some wait for their answer to be stored, some have given up
		closed := make(chan error)
		go func() { closed <- w.Close(context.WithoutCancel(t.Context())) }()
		wg.Wait()
		up.Store(true)
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
		for i := range effects {
			effects[i].want(t, 1)
			w.wantState(t, fmt.Sprint(i), onlyonce.Completed)
		}
	})
}
