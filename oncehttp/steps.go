package oncehttp

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// StepsRoute is an operation whose outside effects go through onlyonce.Call, so
// that a retry resumes behind the last finished one.
type StepsRoute[In any] struct {
	Route
	// Decode makes the handler's input of a request. It is pure syntax: it runs
	// before the key is used, reads no state, and must give the same input for
	// the same request. body has its Content-Encoding undone. Errors are
	// answered as those of CheckSyntax, which runs before it.
	Decode func(r *http.Request, body []byte) (In, error)
	// Handle is the operation. An error is a failed run; a refusal that is to be
	// kept is an Answer. ctx is detached from the caller's connection.
	Handle func(ctx context.Context, in In) (onlyonce.Answer, error)
	// Resource names what the operation works on, such as the order it pays; nil
	// or an empty name: nothing. While one key's attempt is live or in doubt,
	// every other key of the scope gets 409 resource_busy for the same resource
	// (rule C12).
	Resource func(in In) string
	// Recoverable keeps the request and its principal with the key until it is
	// settled, so that Guard.Resumers can run the operation again when its caller
	// has gone (rules D6, X1). Op.Name must be set: it is how it is found again.
	// What Decode reads of the request is its method, URL, path values, body,
	// Content-Type, the headers of the policy and those of RequestHeaders.
	Recoverable bool
	// RequestHeaders are kept with a recoverable request besides those. Nothing
	// that is a credential may be among them.
	RequestHeaders []string
}

// Steps makes the handler of a StepsRoute. Its key must be Required: without a
// key there is nothing to record the steps under.
//
// The error is an *onlyonce.Error with CodeConfig, or several joined.
func Steps[In any](g *Guard, route StepsRoute[In]) (http.Handler, error) {
	if err := complete(route.Route, route.Decode != nil, route.Handle != nil); err != nil {
		return nil, err
	}
	if _, ok := onlyonce.StepsOf(g.engine.Store()); !ok {
		return nil, configError("engine", "has a store that keeps no steps: "+g.engine.Store().Features().Name)
	}
	if route.Resource != nil && !g.engine.Store().Features().Resources {
		return nil, configError("engine", "has a store that guards no resources: "+g.engine.Store().Features().Name)
	}
	d, err := g.newDoor(route.Route)
	if err != nil {
		return nil, err
	}
	if route.Recoverable {
		if d.kept, err = keptHeaders(route.Policy.Headers, route.RequestHeaders); err != nil {
			return nil, err
		}
		if err := g.addResumer(d); err != nil {
			return nil, err
		}
	}
	d.prepare = func(c *call) (workFunc, error) {
		in, err := route.Decode(c.request(c.r.Context()), c.body)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, op onlyonce.Op, req onlyonce.Request) (onlyonce.Result, error) {
			if route.Resource != nil {
				req.Resource = route.Resource(in)
			}
			return g.engine.Steps(ctx, c.storing(op), req, func(ctx context.Context) (onlyonce.Answer, error) {
				return c.returned(route.Handle(ctx, in))
			})
		}, nil
	}
	return d, nil
}

// complete checks what Steps and Atomic need.
func complete(route Route, decode, handle bool) error {
	switch {
	case !decode:
		return configError("Decode", "must not be nil")
	case !handle:
		return configError("Handle", "must not be nil")
	case route.Key != Required:
		return configError("Route.Key", "must be Required: the operation cannot run without a key")
	}
	return nil
}

// returned refuses what is no answer. The engine then asks stored what is kept
// of it.
func (c *call) returned(a onlyonce.Answer, err error) (onlyonce.Answer, error) {
	if err == nil && (a.Status < 200 || a.Status > 599) {
		return onlyonce.Answer{}, fmt.Errorf("read answer: status %d is not one from 200 to 599", a.Status)
	}
	return a, err
}

// storing returns the operation with a say in what is kept of a
// returned answer: the allowed headers, the body up to its limit.
func (c *call) storing(op onlyonce.Op) onlyonce.Op {
	c.full = nil
	op.Stored = func(a onlyonce.Answer) onlyonce.Answer {
		kept := c.keep(full{status: a.Status, header: a.Header, body: a.Body}, a.Outcome)
		kept.NotRetained = kept.NotRetained || a.NotRetained
		return kept
	}
	return op
}
