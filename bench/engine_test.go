package bench_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// charge is the request of the benchmarks.
type charge struct{ policy *canon.Compiled }

func (c charge) Version() int { return canon.Version }

func (c charge) Form(int, []byte) (onlyonce.Form, error) {
	return c.policy.Form(canon.Request{
		Method: "POST", Path: "/charges", Header: map[string][]string{"Content-Type": {"application/json"}},
		Body: []byte(`{"amount":1500,"currency":"ARS","source":"tok_visa","description":"order 42","metadata":{"order":"42"}}`),
	}), nil
}

func newEngine(b *testing.B) (*onlyonce.Engine, charge) {
	b.Helper()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		b.Fatal(err)
	}
	policy, err := canon.Compile(canon.Policy{})
	if err != nil {
		b.Fatal(err)
	}
	return engine, charge{policy}
}

func handler(context.Context) (onlyonce.Answer, error) {
	return onlyonce.Answer{Status: 201, Body: []byte(`{"id":"ch_1"}`)}, nil
}

// BenchmarkBare is the handler without protection: what the others are a
// multiple of.
func BenchmarkBare(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := handler(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstRun is a key's first request, on the memory store.
func BenchmarkFirstRun(b *testing.B) {
	engine, c := newEngine(b)
	op := onlyonce.Op{Name: "POST /charges"}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		req := onlyonce.Request{Key: onlyonce.Key{Scope: "acct", Value: strconv.Itoa(n)}, Canonical: c}
		if _, err := engine.Wrap(b.Context(), op, req, handler); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplay is every later request with the key, on the memory store.
func BenchmarkReplay(b *testing.B) {
	engine, c := newEngine(b)
	op := onlyonce.Op{Name: "POST /charges"}
	req := onlyonce.Request{Key: onlyonce.Key{Scope: "acct", Value: "k"}, Canonical: c}
	if _, err := engine.Wrap(b.Context(), op, req, handler); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		res, err := engine.Wrap(b.Context(), op, req, handler)
		if err != nil || res.Status != onlyonce.Replayed {
			b.Fatal(res.Status, err)
		}
	}
}
