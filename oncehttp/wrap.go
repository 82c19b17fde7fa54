package oncehttp

import (
	"context"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// Wrap protects any handler: next runs at most once for each key, unless it is
// proved that an earlier run had no effect. What a crash, an error status or a
// panic of next leaves behind is held in doubt, and retries get 409
// outcome_unknown, unless the route's Op says otherwise (On5xx, AfterCrash,
// Recover). Inside next, onlyonce.Declare says what a status cannot.
//
// next runs with a context that is detached from the caller's connection and
// bounded by Op.Deadline. Its answer is buffered; see the package's comment for
// what a handler under a key cannot do. http.ErrAbortHandler is raised again
// after the key is settled; any other panic is logged and answered.
//
// The error is an *onlyonce.Error with CodeConfig, or several joined.
func (g *Guard) Wrap(route Route, next http.Handler) (http.Handler, error) {
	if f, ok := next.(http.HandlerFunc); next == nil || (ok && f == nil) {
		return nil, configError("next", "must not be nil")
	}
	d, err := g.newDoor(route)
	if err != nil {
		return nil, err
	}
	d.plain = next
	d.prepare = func(c *call) (workFunc, error) {
		return func(ctx context.Context, op onlyonce.Op, req onlyonce.Request) (onlyonce.Result, error) {
			return g.engine.Wrap(ctx, op, req, func(ctx context.Context) (onlyonce.Answer, error) {
				return c.captured(ctx, next)
			})
		}, nil
	}
	return d, nil
}

// captured runs a handler and makes an answer of what it writes.
func (c *call) captured(ctx context.Context, next http.Handler) (onlyonce.Answer, error) {
	c.full = nil
	w := newCapture(c.w, c.door.route.MaxSpool)
	defer w.abandon() // also when the handler panics or ends its goroutine
	next.ServeHTTP(w, c.request(ctx))
	f, err := w.finish()
	if err != nil {
		return onlyonce.Answer{}, err
	}
	return c.keep(f, onlyonce.ByStatus), nil
}
