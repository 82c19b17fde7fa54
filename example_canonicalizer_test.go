package onlyonce_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// message is a request that came over no HTTP: a JSON body. Package canon
// compares it by meaning.
type message []byte

func (m message) Version() int { return canon.Version }

func (m message) Form(version int, policy []byte) (onlyonce.Form, error) {
	if version != canon.Version {
		return nil, fmt.Errorf("canonical form %d is not known", version)
	}
	var p canon.Policy
	if len(policy) > 0 {
		var err error
		if p, err = canon.ParsePolicy(policy); err != nil {
			return nil, err
		}
	}
	compiled, err := canon.Compile(p)
	if err != nil {
		return nil, err
	}
	header := map[string][]string{"Content-Type": {"application/json"}}
	return compiled.Form(canon.Request{Method: "POST", Path: "/charges", Header: header, Body: m}), nil
}

// A transport of your own says what a request means. Here two messages under
// one key are the same request although their bytes differ, and a third is not.
func ExampleCanonicalizer() {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	op := onlyonce.Op{Name: "charge", Policy: []byte(`{"decimal":["/amount"]}`)}
	for _, body := range []string{`{"amount":"50.00","currency":"EUR"}`, `{"currency":"EUR","amount":50}`, `{"amount":51,"currency":"EUR"}`} {
		req := onlyonce.Request{Key: onlyonce.Key{Scope: "acct_1", Value: "k1"}, Canonical: message(body)}
		res, err := engine.Wrap(context.Background(), op, req, func(context.Context) (onlyonce.Answer, error) {
			return onlyonce.Answer{Status: 201, Body: []byte("charged")}, nil
		})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(res.Status, string(res.Answer.Body))
	}
	// Output:
	// executed charged
	// replayed charged
	// claim key: idempotency_key_reused (differs in /amount): the key was used for another request; send this one with a new key
}
