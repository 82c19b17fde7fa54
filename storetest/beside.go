package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// besideRules are about what happens beside a transaction that is open.
func besideRules[Tx any]() []txRule[Tx] {
	return []txRule[Tx]{
		{"C2_simultaneous_retries_of_a_settled_key_all_hear_of_it", "retries of a key that nobody owns were told that it is busy, because of each other (case B03)", checkSettledStorm[Tx]},
		{"C2_nobody_is_busy_once_the_winner_is_done", "a retry that came after the answer was told that the key is busy (case B03)", checkLateContenders[Tx]},
		{"C6_the_callers_commit_is_fenced", "a business write of an attempt that had been taken over was committed in the caller's own transaction (case B16)", checkCompleteTxBeside[Tx]},
		{"C5_a_renewal_and_a_takeover_exclude_each_other", "a lease was renewed and the same key taken over: both think that they own it", checkRenewBesideAtomic[Tx]},
	}
}

// B03: whoever only looks at a key must not make it look owned. N retries at
// once, by claims and by transactions, hear what became of the key, every one.
func checkSettledStorm[Tx any](t *testing.T, b *txBench[Tx]) {
	done, doubt := request("done"), request("doubt")
	b.atomic(t, done, b.writes("done"))
	b.park(t, b.want(t, doubt, onlyonce.Won).Record.Owner(), false)
	other := request("done")
	other.Fingerprint = fingerprintOf("b")
	storms := map[string]struct {
		req  onlyonce.ClaimRequest
		want onlyonce.Verdict
	}{
		"completed":       {done, onlyonce.Replay},
		"in doubt":        {doubt, onlyonce.Doubtful},
		"another request": {other, onlyonce.Mismatch},
	}
	for name, s := range storms {
		const retries = 24
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range retries {
			wg.Go(func() {
				<-gate
				v, err := b.ask(again(s.req), i%2 == 0)
				if v != s.want || err != nil {
					t.Errorf("%s, one of %d retries at once: %v, %v; want %v", name, retries, v, err, s.want)
				}
			})
		}
		close(gate)
		wg.Wait()
	}
	b.count(t, "done", 1)
	b.count(t, "doubt", 0)
}

// ask claims by a transaction or by itself, again after a conflict.
func (b *txBench[Tx]) ask(req onlyonce.ClaimRequest, atomically bool) (onlyonce.Verdict, error) {
	for range 100 {
		var c onlyonce.Claim
		var err error
		if atomically {
			c, _, err = b.tx.Atomic(b.ctx, req, b.writes(req.Key.Value))
		} else {
			c, err = b.store.Claim(b.ctx, req)
		}
		if !errors.Is(err, onlyonce.ErrConflict) {
			return c.Verdict, err
		}
	}
	return 0, errors.New("a conflict every time")
}

// B03: from the moment the winner has come back with its answer, every retry is
// a replay, although contenders that began earlier are still on their way.
func checkLateContenders[Tx any](t *testing.T, b *txBench[Tx]) {
	for round := range 6 {
		req := request(fmt.Sprint(round))
		var committed atomic.Bool
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range 12 {
			wg.Go(func() {
				<-gate
				for range 3 {
					late := committed.Load()
					v, err := b.ask(again(req), !late || i%2 == 0)
					switch {
					case err != nil, late && v != onlyonce.Replay:
						t.Errorf("late %v: %v, %v", late, v, err)
					case v == onlyonce.Won:
						committed.Store(true)
					}
				}
			})
		}
		close(gate)
		wg.Wait()
		b.count(t, req.Key.Value, 1)
	}
}

// aside runs fn beside an open transaction. It gives fn the time to come back:
// some stores make it wait until the transaction has ended, others do not. What
// fn returned is on the channel sooner or later.
func aside[T any](ctx context.Context, fn func() T) <-chan T {
	result, back := make(chan T, 1), make(chan struct{})
	go func() {
		defer close(back)
		result <- fn()
	}()
	select {
	case <-back:
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	return result
}

// A takeover between CompleteTx and the caller's commit either waits for that
// and finds the answer, or the commit fails.
func checkCompleteTxBeside[Tx any](t *testing.T, b *txBench[Tx]) {
	if b.Do == nil {
		t.Skip("not given: a transaction of the caller's own")
	}
	stores := []onlyonce.Store{b.store}
	if b.Another != nil {
		stores = append(stores, b.Another)
	}
	for i, store := range stores {
		req := request(fmt.Sprint(i))
		owner := b.want(t, req, onlyonce.Won).Record.Owner()
		var takeover <-chan onlyonce.Verdict
		err := b.Do(b.ctx, b.Instance, func(tx Tx) error {
			if err := b.Write(b.ctx, tx, req.Key.Value); err != nil {
				return err
			}
			if s, err := b.tx.CompleteTx(b.ctx, tx, owner, created()); err != nil || !s.Held {
				return errors.Join(err, errBusiness)
			}
			b.watch(t, store, req)
			b.clock.Advance(lease)
			takeover = aside(b.ctx, func() onlyonce.Verdict {
				c, err := store.Claim(b.ctx, again(req))
				if err != nil {
					t.Errorf("takeover: %v", err)
				}
				return c.Verdict
			})
			return nil
		})
		if takeover == nil {
			t.Fatalf("complete in the caller's transaction: %v", err)
		}
		rows, want, state := 1, onlyonce.Replay, onlyonce.Completed
		if err != nil {
			rows, want, state = 0, onlyonce.Resumed, onlyonce.InProgress
		}
		if got := <-takeover; got != want {
			t.Errorf("the caller's commit: %v; the takeover beside it: %v, want %v", err, got, want)
		}
		b.count(t, req.Key.Value, rows)
		if rec := b.get(t, req.Key); rec.State != state || (err == nil) != (rec.Owner() == owner) {
			t.Errorf("the caller's commit: %v; the key is %q", err, rec.State)
		}
	}
}

// An owner that renews while a takeover of its key is open keeps it, or is told
// that it lost it.
func checkRenewBesideAtomic[Tx any](t *testing.T, b *txBench[Tx]) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(lease)
	var renewal <-chan bool
	_, s, err := b.tx.Atomic(b.ctx, again(req), func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
		renewal = aside(ctx, func() bool {
			held, err := b.store.Renew(b.ctx, owner, lease)
			if err != nil {
				t.Errorf("renew: %v", err)
			}
			return held
		})
		return b.writes("k")(ctx, tx)
	})
	if renewal == nil || (err != nil && !errors.Is(err, onlyonce.ErrConflict)) {
		t.Fatalf("atomic takeover: %+v, %v", s, err)
	}
	renewed := <-renewal
	if renewed == s.Held {
		t.Errorf("renewed: %v, taken over: %v; exactly one must succeed", renewed, s.Held)
	}
	rows := 1
	if renewed {
		rows = 0
	}
	b.count(t, "k", rows)
	if rec := b.get(t, req.Key); renewed != (rec.Owner() == owner) {
		t.Errorf("renewed: %v; the key is %q", renewed, rec.State)
	}
}
