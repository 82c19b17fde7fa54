// Package singlesend lets an HTTP request leave once, and knows whether it can have
// left. It is the one place where this project stands up to net/http's own repeating.
//
// net/http sends a request again by itself when a kept connection turns out to be dead
// and the request looks repeatable: because it bears an Idempotency-Key, or, over
// HTTP/2, because it has no body. A request of [Prepare] that may have an effect has a
// body that cannot be had twice, an empty one too; over HTTP/1.1 a POST without a body
// therefore leaves as a chunked one of no length. What obtains a second connection
// after its header may have left is stopped.
//
// That nothing was sent is proved by one thing only: no connection was obtained. A body
// that somebody has asked for all the same went another way, of which nothing is known.
package singlesend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"
)

// Rules say what one request may do. The functions are called by goroutines of
// net/http, one at a time.
type Rules struct {
	// Effect: the request may have an effect, so it must not leave twice.
	Effect bool
	// Late says why nothing may leave any more, and nil while it may. Nil: it always may.
	Late func() error
	// Reconnected is the error of a request that is about to be sent a second time, on
	// another connection; Reread that of one whose body is asked for a second time.
	// Both are needed with Effect.
	Reconnected, Reread func() error
	// Cancel: the request's context is ended when it is stopped. Only for a request
	// whose context ends soon by itself.
	Cancel bool
}

// Guard watches one round trip and stops it. Its hooks are called by several
// goroutines of net/http, also after the round trip has ended.
type Guard struct {
	rules Rules
	// cancel ends the round trip's context; nil without Rules.Cancel.
	cancel context.CancelCauseFunc

	mu sync.Mutex
	// asked: the transport looked for a connection, so it does tell; got: it got one.
	asked, got bool
	conn       net.Conn
	// wrote: a whole header was handed over, and may have left.
	wrote bool
	// read: somebody has asked for the body.
	read bool
	// shared: the connection is one of HTTP/2, with the requests of others.
	shared bool
	// stopped is why nothing may leave any more.
	stopped error
}

// Prepare makes of req the request that a transport gets: watched by the guard, and
// with nothing by which it could be sent again. req is not changed; its body belongs to
// the request that is returned.
func Prepare(req *http.Request, rules Rules) (*http.Request, *Guard) {
	g := &Guard{rules: rules}
	ctx := req.Context()
	if rules.Cancel {
		ctx, g.cancel = context.WithCancelCause(ctx)
	}
	out := req.Clone(httptrace.WithClientTrace(ctx, g.trace()))
	if rules.Effect {
		out.Body, out.GetBody = &body{source: req.Body, guard: g}, nil
	}
	return out, g
}

func (g *Guard) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:          func(string) { g.getConn() },
		GotConn:          func(info httptrace.GotConnInfo) { g.gotConn(info.Conn) },
		WroteHeaderField: func(name string, _ []string) { g.wroteHeaderField(name) },
		WroteHeaders:     g.wroteHeaders,
	}
}

func (g *Guard) getConn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = true
}

// gotConn is called before anything is written. HTTP/2 looks at the context once
// more before it writes; HTTP/1.1 does not, and is stopped by wroteHeaders.
func (g *Guard) gotConn(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.got, g.conn = true, conn
	if g.wrote && g.rules.Effect {
		g.stop(g.rules.Reconnected())
	}
	_ = g.check() // what follows looks at stopped
}

// wroteHeaderField is called for each field, and in HTTP/2 for the pseudo-header
// first, before any of it leaves.
func (g *Guard) wroteHeaderField(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if strings.HasPrefix(name, ":") {
		g.shared = true
	}
}

// wroteHeaders is called in HTTP/1.1 when the header is written to a buffer, of
// which the end has not left. The connection is then this request's alone, and can
// be made to refuse what is written to it. In HTTP/2 the header has left.
func (g *Guard) wroteHeaders() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrote = true
	if g.shared || g.check() == nil || g.conn == nil {
		return
	}
	if g.conn.SetWriteDeadline(time.Unix(1, 0)) != nil {
		// It knows no deadlines. The request is given up either way.
		_ = g.conn.Close()
	}
}

// check stops the round trip if its time is over, and says why it was stopped.
func (g *Guard) check() error {
	if g.stopped == nil && g.rules.Late != nil {
		if err := g.rules.Late(); err != nil {
			g.stop(err)
		}
	}
	return g.stopped
}

// reading notes that somebody has the body, and may do with it what nobody is told.
func (g *Guard) reading() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = true
}

func (g *Guard) stop(err error) {
	if g.stopped != nil {
		return
	}
	g.stopped = err
	if g.cancel != nil {
		g.cancel(err)
	}
}

// mayWrite is not nil when the body may not be handed over any more.
func (g *Guard) mayWrite() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.check()
}

// Unconnected tells whether it is proved that no connection was obtained, by whomever.
func (g *Guard) Unconnected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked && !g.got && !g.read
}

// Explain says why the round trip failed, if it was stopped.
func (g *Guard) Explain(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped == nil || errors.Is(err, g.stopped) {
		return err
	}
	return fmt.Errorf("%w: %w", g.stopped, err)
}
