package storetest

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// RunWaiting has many requests of one process wait for an attempt of another one
// (rule C2, case B103): each gets its answer, the attempt needs the store meanwhile, and
// all of them together cost it a read now and then.
func RunWaiting[Tx any](t *testing.T, backend TxBackend[Tx], waiters int) {
	t.Helper()
	t.Run("leased", func(t *testing.T) {
		runWaiting(t, backend, storm[Tx]{waiters: waiters, run: func(ctx context.Context, e *onlyonce.TxEngine[Tx], work func(context.Context) error) (onlyonce.Result, error) {
			return e.Wrap(ctx, patientOp(), waitingRequest(), func(ctx context.Context) (onlyonce.Answer, error) {
				if err := work(ctx); err != nil {
					return onlyonce.Answer{}, err
				}
				return e.Finish(ctx, func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
					return created(), backend.Write(ctx, tx, "k")
				})
			})
		}})
	})
	t.Run("atomic", func(t *testing.T) {
		runWaiting(t, backend, storm[Tx]{waiters: waiters, inTx: true, run: func(ctx context.Context, e *onlyonce.TxEngine[Tx], work func(context.Context) error) (onlyonce.Result, error) {
			return e.Atomic(ctx, patientOp(), waitingRequest(), func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
				if err := backend.Write(ctx, tx, "k"); err != nil {
					return onlyonce.Answer{}, err
				}
				return created(), work(ctx)
			})
		}})
	})
}

// storm is many requests under one key.
type storm[Tx any] struct {
	waiters int
	// inTx: the work is done in a transaction.
	inTx bool
	// run makes one of them; the one that gets the key does the work.
	run func(ctx context.Context, e *onlyonce.TxEngine[Tx], work func(context.Context) error) (onlyonce.Result, error)
}

func patientOp() onlyonce.Op {
	return onlyonce.Op{Name: "POST /charges", Lease: 5 * time.Minute, Wait: 5 * time.Minute}
}

func waitingRequest() onlyonce.Request {
	return onlyonce.Request{Key: request("k").Key, Canonical: oneRequest{}}
}

func runWaiting[Tx any](t *testing.T, backend TxBackend[Tx], s storm[Tx]) {
	t.Helper()
	in := backend.Open(t, NewClock().Now)
	other := in.Another
	if other == nil && s.inTx {
		t.Skip("no second handle: a transaction may hold the only connection")
	}
	if other == nil {
		other = in.Store
	}
	seen := &counted[Tx]{TxStore: other.(onlyonce.TxStore[Tx])} //nolint:forcetypeassert // TxBackend says so
	running, waiting := waitingEngine(t, in.Store.(onlyonce.TxStore[Tx])), waitingEngine[Tx](t, seen)

	entered, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		res, err := s.run(t.Context(), running, func(context.Context) error { close(entered); <-leave; return nil })
		if err != nil || res.Status != onlyonce.Executed {
			t.Errorf("the first got %q, %v", res.Status, err)
		}
	})
	<-entered
	for range s.waiters {
		all.Go(func() {
			res, err := s.run(t.Context(), waiting, func(context.Context) error { t.Error("a second run"); return nil })
			if err != nil || res.Status != onlyonce.Replayed {
				t.Errorf("a waiter got %q, %v", res.Status, err)
			}
		})
	}
	for seen.claims.Load() < int64(s.waiters) {
		<-time.After(10 * time.Millisecond)
	}
	seen.gets.Store(0)
	begun, claims := time.Now(), seen.claims.Load()
	for seen.gets.Load() < 6 {
		<-time.After(10 * time.Millisecond)
	}
	// The pauses begin at 10 ms, and grow to half a second at the least.
	gets, most := seen.gets.Load(), int64(8+2*time.Since(begun).Seconds())
	if asked := seen.claims.Load() - claims; gets > most || asked > most {
		t.Errorf("%d waiters cost %d reads and %d claims in %v", s.waiters, gets, asked, time.Since(begun))
	}
	close(leave)
	all.Wait()
	if n := backend.Count(t, in, "k"); n != 1 {
		t.Errorf("written %d times", n)
	}
	if n := seen.claims.Load() - claims; n > int64(3*s.waiters) {
		t.Errorf("%d waiters asked %d times", s.waiters, n)
	}
}

func waitingEngine[Tx any](t *testing.T, store onlyonce.TxStore[Tx]) *onlyonce.TxEngine[Tx] {
	t.Helper()
	e, err := onlyonce.NewTx(store, onlyonce.Config{
		Secrets:      onlyonce.Keyring{Current: onlyonce.Secret{ID: "s1", Key: make([]byte, 32)}},
		StoreTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e
}

// counted counts what a store is asked.
type counted[Tx any] struct {
	onlyonce.TxStore[Tx]
	gets, claims atomic.Int64
}

func (c *counted[Tx]) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	c.gets.Add(1)
	return c.TxStore.Get(ctx, key)
}

func (c *counted[Tx]) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	defer c.claims.Add(1)
	return c.TxStore.Claim(ctx, req)
}

func (c *counted[Tx]) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	defer c.claims.Add(1)
	return c.TxStore.Atomic(ctx, req, fn)
}

// oneRequest is the canonical form of a request that is always the same.
type oneRequest struct{}

func (oneRequest) Version() int                            { return 1 }
func (oneRequest) Form(int, []byte) (onlyonce.Form, error) { return oneRequest{}, nil }
func (oneRequest) Sum() [32]byte                           { return sha256.Sum256(nil) }
func (oneRequest) Parts() []onlyonce.Part                  { return nil }

func (oneRequest) Differs([]string, func(int, [32]byte) bool) []string { return nil }
