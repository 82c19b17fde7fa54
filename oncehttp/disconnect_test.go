package oncehttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/oncehttp"
)

func contextWith(r *http.Request, k, v any) context.Context {
	return context.WithValue(r.Context(), k, v)
}

// dial opens a connection and sends bytes on it.
func (s *service) dial(raw string) *net.TCPConn {
	s.t.Helper()
	if s.server == nil {
		s.start(false)
	}
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, raw); err != nil {
		s.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func raw(length int, header, body string) string {
	return "POST /charges HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/1\r\nContent-Type: application/json\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n", length) + header + "\r\n" + body
}

func read(t *testing.T, conn net.Conn) reply {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{status: res.StatusCode, header: res.Header, body: string(body)}
}

// C8, O10, B69, B70, B72: a client that resets the connection aborts nothing;
// its retry gets the answer.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered := make(chan struct{})
	done := make(chan struct{})
	type outside struct{}
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(contextWith(r, outside{}, r.Context())))
			select {
			case <-done:
			default:
				close(done)
			}
		})
	}
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Value(outside{}).(context.Context).Done() // the server knows that the client is gone
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with the connection: %v", err)
		}
		created(w, r)
	})
	conn := s.dial(raw(len(pay(100)), "Idempotency-Key: k1\r\n", pay(100)))
	<-entered
	conn.SetLinger(0)
	conn.Close()
	<-done
	again := s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
	if again.body != `{"id":"ch_1"}` {
		t.Errorf("body is %s", again.body)
	}
	s.ran(1)
}

// F8: an upload that is cut off claims nothing.
func TestTruncatedUpload(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	conn := s.dial(raw(100, "Idempotency-Key: k1\r\n", `{"amount":1`))
	conn.CloseWrite()
	read(t, conn).problem(t, 400, "invalid_request")
	s.ran(0)
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
}

// F8: a body that says that it is too large is not waited for.
func TestTooLargeAtOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	conn := s.dial(raw(2<<20, "Idempotency-Key: k1\r\n", ""))
	read(t, conn).problem(t, 413, "request_body_too_large")
	s.ran(0)
}

// K2, B31: two lines on the wire, whatever the case of their names.
func TestDuplicateLines(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	for _, header := range []string{
		"Idempotency-Key: k1\r\nIdempotency-Key: k1\r\n",
		"Idempotency-Key: k1\r\nidempotency-key: k2\r\n",
		"Idempotency-Key: \"k1\"\r\nX-Other: 1\r\nIDEMPOTENCY-KEY: k1\r\n",
		"Idempotency-Key: \r\n",
		"Idempotency-Key: sch\xc3\xbcssel\r\n",
	} {
		conn := s.dial(raw(len(pay(100)), header, pay(100)))
		got := read(t, conn)
		got.problem(t, 400, "idempotency_key_invalid")
		if strings.Contains(fmt.Sprint(got.header), "k2") {
			t.Errorf("a malformed key is echoed: %v", got.header)
		}
	}
	s.ran(0)
	conn := s.dial(raw(len(pay(100)), "Idempotency-Key:   k1  \r\n", pay(100)))
	read(t, conn).expect(t, 201, "executed")
	s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
	s.ran(1)
}
