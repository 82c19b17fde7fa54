package onlyonce_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// A key that the store does not decide about is refused with where it lives, whatever
// the operation allows when its store is out of reach; nothing runs, and the store has
// not failed.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	elsewhere := &onlyonce.Error{Code: onlyonce.CodeMisdirected, Home: "eu", Address: "https://eu.example.com", Err: errors.New("the map says so")}
	down := storefault.Fault{Before: elsewhere}
	w := newWorld(t, faults{storefault.Claim: {down}, storefault.Atomic: {down}, storefault.Get: {down}})
	op := charge()
	op.FailOpen = true
	_, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
	if e := wantCode(t, err, onlyonce.CodeMisdirected); e.Home != "eu" || e.Address != "https://eu.example.com" || !onlyonce.SafeToRetry(e) {
		t.Errorf("got %+v", e)
	}
	op.FailOpen = false
	_, err = w.Atomic(t.Context(), op, keyed("k", "x"), func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	wantCode(t, err, onlyonce.CodeMisdirected)
	_, _, err = w.Peek(t.Context(), op, keyed("k", "x"))
	wantCode(t, err, onlyonce.CodeMisdirected)
	if n := w.events.count(onlyonce.EventStoreFailed); n > 0 {
		t.Errorf("%d events say that the store failed", n)
	}
	if n := w.events.count(onlyonce.EventRefused); n != 2 {
		t.Errorf("%d events of 2 refusals", n)
	}
	eff := &effect{}
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), eff.handler)
	wantResult(t, res, err, onlyonce.Executed, "run 1")
}

// A claim whose reply was lost is not sought for ever where the key has turned out not
// to live.
func TestMisdirectedAfterALostReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var claims atomic.Int32
		w := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m != storefault.Claim {
				return storefault.Fault{}
			}
			if claims.Add(1) == 1 {
				return storefault.Fault{Before: onlyonce.ErrUncertain}
			}
			return storefault.Fault{Before: &onlyonce.Error{Code: onlyonce.CodeMisdirected, Home: "eu"}}
		}, onlyonce.Config{})
		_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
		wantCode(t, err, onlyonce.CodeMisdirected)
		<-time.After(time.Hour)
		if n := claims.Load(); n != 3 {
			t.Errorf("%d claims; want the request's two, and one to give them back", n)
		}
	})
}
