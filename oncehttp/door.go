package oncehttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// door is the handler of one protected operation.
type door struct {
	guard    *Guard
	route    Route
	op       onlyonce.Op
	compiled *canon.Compiled
	keep     keepSet
	carriers []string
	// byPattern: the method that the matched pattern begins with is honoured.
	byPattern bool
	// plain runs the handler without a key; nil: it cannot run without one.
	plain http.Handler
	// prepare checks the request by pure syntax and makes what is then run
	// under the key. It reads no state.
	prepare func(c *call) (workFunc, error)
	// kept are the request headers that are kept with the key; nil: the request
	// is not kept.
	kept []string
}

// workFunc runs an operation under its key.
type workFunc func(ctx context.Context, op onlyonce.Op, req onlyonce.Request) (onlyonce.Result, error)

// call is one request at the door.
type call struct {
	door  *door
	w     http.ResponseWriter
	r     *http.Request
	op    onlyonce.Op
	key   sentKey
	keyed bool
	scope string
	raw   []byte // body as sent
	body  []byte // body decoded
	// full is the answer of the handler's last run; nil: it did not run.
	full *full
}

func (g *Guard) newDoor(route Route) (*door, error) {
	if err := route.Validate(); err != nil {
		return nil, err
	}
	byPattern := route.Methods == nil
	route = route.WithDefaults()
	if route.MaxBody == 0 {
		route.MaxBody = g.set.maxBody
	}
	compiled, err := canon.Compile(route.Policy)
	if err != nil {
		return nil, configError("Route.Policy", err.Error())
	}
	keep, err := newKeepSet(route.KeepHeaders)
	if err != nil {
		return nil, err
	}
	d := &door{guard: g, route: route, op: route.Op, compiled: compiled, keep: keep, byPattern: byPattern}
	d.op.Policy = route.Policy.Marshal()
	d.carriers = append([]string{HeaderKey}, g.set.carriers...)
	g.mu.Lock()
	g.doors = append(g.doors, d)
	g.mu.Unlock()
	return d, nil
}

// ServeHTTP answers one request.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{door: d, w: w, r: disbelieve(r), op: d.op}
	if c.op.Name == "" {
		c.op.Name = nameOf(r)
	}
	c.enter() //nolint:contextcheck // the call holds the request and its context
}

// enter decides whether the request's key counts.
func (c *call) enter() {
	d := c.door
	key, present, err := d.headerKey(c.r.Header)
	c.key, c.keyed = key, present && err == nil
	switch {
	case !d.honours(c.r):
		c.unprotected(StatusIgnored, present)
	default:
		c.serve(err)
	}
}

// disbelieve drops what only the server may say (rule K7).
func disbelieve(r *http.Request) *http.Request {
	for _, name := range []string{HeaderReplayed, HeaderStatus, HeaderExpires, HeaderHome} {
		if _, sent := r.Header[name]; !sent {
			continue
		}
		clean := r.WithContext(r.Context())
		clean.Header = r.Header.Clone()
		for _, name := range []string{HeaderReplayed, HeaderStatus, HeaderExpires, HeaderHome} {
			clean.Header.Del(name)
		}
		return clean
	}
	return r
}

// honours tells whether keys count for the request (rule K5).
func (d *door) honours(r *http.Request) bool {
	if d.route.Key == Off || !honourable(r.Method) {
		return false
	}
	return slices.Contains(d.route.Methods, r.Method) || (d.byPattern && methodOf(r.Pattern) == r.Method)
}

// unprotected runs the handler as if there were no guard.
func (c *call) unprotected(status string, say bool) {
	if c.door.plain == nil {
		c.w.Header().Set("Allow", strings.Join(c.door.route.Methods, ", "))
		c.refuse("", &onlyonce.Error{Code: CodeMethod, Hint: "The operation is not offered under this method."})
		return
	}
	if say {
		c.w.Header().Set(HeaderStatus, status)
		c.echo()
	}
	c.door.plain.ServeHTTP(c.w, c.r)
}

// serve answers a request whose key counts. keyErr is what is wrong with the
// key in its headers.
func (c *call) serve(keyErr error) {
	req, err := c.identify(keyErr)
	if err == nil && !c.keyed {
		// Its syntax is checked all the same: leaving the key out lifts no limit.
		if err = c.checkSyntax(); err == nil {
			c.r = c.request(c.r.Context())
			c.unprotected(StatusUnprotected, true)
			return
		}
		err = malformed(err)
	}
	var res onlyonce.Result
	if err == nil {
		res, err = c.run(req)
	}
	switch {
	case errors.Is(err, http.ErrAbortHandler):
		panic(http.ErrAbortHandler)
	case err != nil:
		c.refuse(string(res.Status), err)
	default:
		c.respond(res)
	}
}

// identify decides whose request it is and under which key, in the order of
// rule O1. On an optional route a request may turn out to have no key.
func (c *call) identify(keyErr error) (onlyonce.Request, error) {
	if onlyonce.AttemptFrom(c.r.Context()) != nil {
		return onlyonce.Request{}, configError("route", "is inside another protected handler; protect an operation once")
	}
	if err := c.readBody(); err != nil {
		return onlyonce.Request{}, err
	}
	if keyErr != nil {
		return onlyonce.Request{}, keyErr
	}
	if err := c.bodyKey(); err != nil {
		return onlyonce.Request{}, err
	}
	if !c.keyed {
		if c.door.route.Key == Optional {
			return onlyonce.Request{}, nil
		}
		return onlyonce.Request{}, keyRequired()
	}
	scope, err := c.door.guard.scope(c.request(c.r.Context()))
	if err != nil {
		return onlyonce.Request{}, unauthenticated(err)
	}
	c.scope = scope
	key := onlyonce.Key{Scope: scope, Value: c.key.value}
	req := onlyonce.Request{Key: key, Canonical: c.canonical(), Wait: preferredWait(c.r.Header)}
	if err := key.Validate(); err != nil {
		return req, err
	}
	req.Keep, err = c.keepRequest()
	return req, err
}

// unauthenticated keeps what a ScopeFunc says of its error, if it says any.
func unauthenticated(err error) error {
	if _, ok := errors.AsType[*Problem](err); ok || onlyonce.CodeOf(err) != "" {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeUnauthenticated, Op: "find scope", Err: err,
		Hint: "The request names no account. Its key was not used.",
	}
}

// run checks the syntax, then runs the operation under its key.
func (c *call) run(req onlyonce.Request) (onlyonce.Result, error) {
	ctx, engine := c.r.Context(), c.door.guard.engine
	work, err := c.check()
	if err != nil {
		// A late retry is answered by its record, not by a stricter deploy.
		res, found, peekErr := engine.Peek(ctx, c.op, req)
		switch {
		case peekErr != nil:
			return c.vet(req, res, peekErr)
		case found:
			return c.vet(req, res, nil)
		}
		return onlyonce.Result{}, malformed(err)
	}
	res, err := work(ctx, c.op, req)
	if res.State == onlyonce.InDoubt {
		c.door.guard.set.logger.LogAttrs(ctx, slog.LevelWarn, "key is in doubt: whether the operation took effect is not known",
			slog.String("route", c.op.Name), slog.String("operation", req.Key.Operation()))
	}
	return c.vet(req, res, err)
}

func (c *call) check() (workFunc, error) {
	if err := c.checkSyntax(); err != nil {
		return nil, err
	}
	return c.door.prepare(c)
}

func (c *call) checkSyntax() error {
	if check := c.door.route.CheckSyntax; check != nil {
		return check(c.request(c.r.Context()), c.body)
	}
	return nil
}

func malformed(err error) error {
	if _, ok := errors.AsType[*Problem](err); ok {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeInvalidRequest, Op: "check syntax", Err: err,
		Hint: "The request is not one this operation understands. Its key was not used: a corrected request may use it.",
	}
}
