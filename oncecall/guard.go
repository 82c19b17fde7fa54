package oncecall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"
)

// guard watches one round trip and stops it. Its hooks are called by several
// goroutines of net/http, also after the round trip has ended.
type guard struct {
	call *call
	// cancel ends the round trip's context; nil outside of Effect.Send.
	cancel context.CancelCauseFunc

	mu sync.Mutex
	// asked: Base looked for a connection, so it does tell; got: it got one.
	asked, got bool
	conn       net.Conn
	// wrote: a whole header was handed over, and may have left.
	wrote bool
	// shared: the connection is one of HTTP/2, with the requests of others.
	shared bool
	// stopped is why nothing may leave any more.
	stopped error
}

func (g *guard) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:          func(string) { g.getConn() },
		GotConn:          func(info httptrace.GotConnInfo) { g.gotConn(info.Conn) },
		WroteHeaderField: func(name string, _ []string) { g.wroteHeaderField(name) },
		WroteHeaders:     g.wroteHeaders,
	}
}

func (g *guard) getConn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = true
}

// gotConn is called before anything is written. HTTP/2 looks at the context once
// more before it writes; HTTP/1.1 does not, and is stopped by wroteHeaders.
func (g *guard) gotConn(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.got, g.conn = true, conn
	if g.wrote && g.call.mutating {
		g.stop(g.call.refusal(CodeSentBefore,
			"the transport beneath was about to send it once more; switch its retries off, onlyonce.Call knows when a retry is safe"))
	}
	_ = g.check() // what follows looks at stopped
}

// wroteHeaderField is called for each field, and in HTTP/2 for the pseudo-header
// first, before any of it leaves.
func (g *guard) wroteHeaderField(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if strings.HasPrefix(name, ":") {
		g.shared = true
	}
}

// wroteHeaders is called in HTTP/1.1 when the header is written to a buffer, of
// which the end has not left. The connection is then this request's alone, and can
// be made to refuse what is written to it. In HTTP/2 the header has left.
func (g *guard) wroteHeaders() {
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
func (g *guard) check() error {
	if g.stopped == nil {
		if err := g.call.late(); err != nil {
			g.stop(err)
		}
	}
	return g.stopped
}

func (g *guard) stop(err error) {
	if g.stopped != nil {
		return
	}
	g.stopped = err
	if g.cancel != nil {
		g.cancel(err)
	}
}

// mayWrite is not nil when the body may not be handed over any more.
func (g *guard) mayWrite() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.check()
}

// unconnected tells whether it is proved that no connection was obtained.
func (g *guard) unconnected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked && !g.got
}

// explain says why the round trip failed, if it was stopped.
func (g *guard) explain(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped == nil || errors.Is(err, g.stopped) {
		return err
	}
	return fmt.Errorf("%w: %w", g.stopped, err)
}

// body is a request's body that can be had once.
type body struct {
	source io.ReadCloser // nil: an empty one
	guard  *guard

	closing sync.Once
	mu      sync.Mutex
	closed  bool
}

// Read fails when the body was closed, which whoever sends it does in the end, and
// when its time is over: looked at last, since what it returns is written next.
func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return 0, b.guard.call.refusal(CodeSentBefore, "its body was handed over before, and must not be again")
	}
	err = io.EOF
	if b.source != nil {
		n, err = b.source.Read(p)
	}
	if late := b.guard.mayWrite(); late != nil {
		return 0, late
	}
	return n, err
}

func (b *body) Close() (err error) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.closing.Do(func() {
		if b.source != nil {
			err = b.source.Close()
		}
	})
	return err
}
