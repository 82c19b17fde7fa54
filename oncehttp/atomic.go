package oncehttp

import (
	"context"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// AtomicRoute is an operation whose effects all live in the database of the
// store: key, business writes and answer are one transaction.
type AtomicRoute[Tx, In any] struct {
	Route
	// Decode makes the handler's input of a request; see StepsRoute.Decode.
	Decode func(r *http.Request, body []byte) (In, error)
	// Handle is the operation. It must not commit, keep tx, or call anything
	// outside the database. It may run more than once, with the same input; only
	// one run is committed. An error, and an answer of 5xx, 408, 401, 403, 425
	// or 429, rolls everything back and frees the key; any other answer, a
	// refusal like 402 included, is committed.
	Handle func(ctx context.Context, tx Tx, in In) (onlyonce.Answer, error)
}

// Atomic makes the handler of an AtomicRoute. engine is the one that g was made
// with. The route's key must be Required.
//
// The error is an *onlyonce.Error with CodeConfig, or several joined.
func Atomic[Tx, In any](g *Guard, engine *onlyonce.TxEngine[Tx], route AtomicRoute[Tx, In]) (http.Handler, error) {
	if engine == nil || engine.Engine != g.engine {
		return nil, configError("engine", "must be the one the Guard was made with")
	}
	if err := complete(route.Route, route.Decode != nil, route.Handle != nil); err != nil {
		return nil, err
	}
	if err := named(route.Op).ValidateAtomic(); err != nil {
		return nil, err
	}
	d, err := g.newDoor(route.Route)
	if err != nil {
		return nil, err
	}
	d.prepare = func(c *call) (workFunc, error) {
		in, err := route.Decode(c.request(c.r.Context()), c.body)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, op onlyonce.Op, req onlyonce.Request) (onlyonce.Result, error) {
			return engine.Atomic(ctx, c.storing(op), req, func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
				return c.returned(route.Handle(ctx, tx, in))
			})
		}, nil
	}
	return d, nil
}
