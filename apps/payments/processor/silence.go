package processor

import (
	"net"
	"net/http"
	"time"
)

// hang waits until the client has given up, the configured time is over or the
// server is closed.
func (s *Server) hang(r *http.Request) {
	var over <-chan time.Time
	if s.config.Hang > 0 {
		timer := time.NewTimer(s.config.Hang)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-r.Context().Done():
	case <-over:
	case <-s.closing:
	}
}

// reset ends the connection with a TCP reset where it can, so that the client
// cannot take it for an orderly end; otherwise (HTTP/2, in-memory connections)
// without an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	raw := conn
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = secure.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		// Closing with data unsent and no linger sends RST instead of FIN. If it
		// cannot be set, the client sees an early end of file: as good a fault.
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}
