package redisstore_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a server and loses replies to scripts on
// demand, after the server has given them.
type proxy struct {
	upstream string
	listener net.Listener

	mu    sync.Mutex
	lose  int  // replies yet to be lost
	die   bool // take no connection after that
	lost  int
	conns []net.Conn
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, upstream string) *proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{upstream: upstream, listener: l}
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url(parameters string) string {
	return "redis://" + p.listener.Addr().String() + "?" + parameters
}

// loseReplies has the next n replies to scripts lost, each with its connection.
func (p *proxy) loseReplies(n int, die bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.die = n, die
}

// count is how many replies were lost.
func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp4", p.upstream)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		asked := &asked{}
		p.wg.Go(func() { p.copy(server, client, func(b []byte) bool { asked.note(b); return true }) })
		p.wg.Go(func() { p.copy(client, server, func([]byte) bool { return !asked.script() || p.keep() }) })
	}
}

// copy passes on what pass lets through; after the first that it does not, or at
// the end, both sides are closed.
func (p *proxy) copy(to, from net.Conn, pass func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// keep tells whether a reply to a script is passed on.
func (p *proxy) keep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == 0 {
		return true
	}
	p.lose--
	p.lost++
	if p.lose == 0 && p.die {
		p.listener.Close()
	}
	return false
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// asked remembers whether a connection's last request was a script.
type asked struct {
	mu  sync.Mutex
	yes bool
}

func (a *asked) note(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.yes = bytes.Contains(bytes.ToLower(b), []byte("\r\nevalsha\r\n"))
}

func (a *asked) script() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.yes
}
