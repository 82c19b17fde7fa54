package tests_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// fate is what the network does to a request.
type fate int

const (
	delivered  fate = iota
	lost            // the request arrives, its answer does not
	dropped         // the request does not arrive
	heldBefore      // it waits before the handler until its client is gone, and then runs
	heldAfter       // its answer waits until its client is gone
	turnedAway      // 503 and a Retry-After of a minute, in front of the handler
)

// asked is one request as it arrived.
type asked struct{ key, body string }

// till is a service that charges orders under oncehttp, behind a network that
// misbehaves as it is told. It counts effects from outside of what protects them.
type till struct {
	url, cacert string
	gate        *gate
	server      *httptest.Server

	mu      sync.Mutex
	count   int
	fate    func(n int) fate // of the n-th request, from 1
	asked   map[string][]asked
	effects map[string]int
	answers map[string]string
	held    chan struct{} // told of each request that is held, or runs while paused
	paused  chan struct{} // nil, or until when effects wait
}

// newTill starts one, with TLS, so that what a client has sent is plain: nothing before
// the handshake is over.
func newTill(t *testing.T, fate func(n int) fate) *till {
	t.Helper()
	s := &till{
		fate: fate, asked: map[string][]asked{}, effects: map[string]int{}, answers: map[string]string{}, held: make(chan struct{}, 100),
	}
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := oncehttp.New(engine, func(*http.Request) (string, error) { return "shop", nil })
	if err != nil {
		t.Fatal(err)
	}
	charges, err := guard.Wrap(oncehttp.Route{}, http.HandlerFunc(s.charge))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)
	s.server = httptest.NewUnstartedServer(s.network(mux))
	s.gate = &gate{Listener: s.server.Listener, came: make(chan net.Conn, 100)}
	s.server.Listener = s.gate
	s.server.StartTLS()
	t.Cleanup(func() {
		s.server.Close()
		_ = engine.Close(t.Context())
	})
	s.url, s.cacert = s.server.URL+"/charges", filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	if err := os.WriteFile(s.cacert, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// orderBody is the body of a charge, in a form that nobody would get by writing it anew.
func orderBody(order string) string {
	return fmt.Sprintf("{ \"amount\":1500.00,\n  \"order\":%q}\n", order)
}

type orderOf struct{ Order string }

// charge has the effect. A second one would have another answer.
func (s *till) charge(w http.ResponseWriter, r *http.Request) {
	var in orderOf
	_ = json.NewDecoder(r.Body).Decode(&in)
	if s.paused != nil {
		s.held <- struct{}{}
		<-s.paused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[in.Order]++
	s.answers[in.Order] = fmt.Sprintf("{\"id\": \"ch_%s_%d\"}\n\n", in.Order, s.effects[in.Order])
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, s.answers[in.Order])
}

// network does to each request what its fate is.
func (s *till) network(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		fate := s.note(r, string(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch fate {
		case delivered:
			next.ServeHTTP(w, r)
			return
		case dropped:
			panic(http.ErrAbortHandler)
		case turnedAway:
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case heldBefore:
			s.held <- struct{}{}
			<-r.Context().Done()
		case lost, heldAfter: // told below, when it has had its effect
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		if fate == heldAfter {
			s.held <- struct{}{}
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	})
}

// note counts a request, and gives its fate.
func (s *till) note(r *http.Request, body string) fate {
	var in orderOf
	_ = json.Unmarshal([]byte(body), &in)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.asked[in.Order] = append(s.asked[in.Order], asked{r.Header.Get("Idempotency-Key"), body})
	return s.fate(s.count)
}

// become changes what the network does from now on.
func (s *till) become(f func(n int) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.fate = 0, f
}

func always(f fate) func(int) fate { return func(int) fate { return f } }

// loseEveryThird is a network that loses every third answer, after the effect.
func loseEveryThird(n int) fate {
	if n%3 == 0 {
		return lost
	}
	return delivered
}

// judge checks that an order had one effect, and that all who asked for it did so with
// one key and the same bytes.
func (s *till) judge(t *testing.T, order string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.effects[order] != 1 {
		t.Errorf("%s had %d effects", order, s.effects[order])
	}
	for i, a := range s.asked[order] {
		if a.key == "" || a.key != s.asked[order][0].key || a.body != orderBody(order) {
			t.Errorf("%s, request %d: key %q and body %q; the first had the key %q", order, i+1, a.key, a.body, s.asked[order][0].key)
		}
	}
}

// requests is how often an order was asked for.
func (s *till) requests(order string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked[order])
}

// answer is what an order's callers have to get.
func (s *till) answer(order string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[order]
}

// gate is a listener that can keep connections from the server: they are made, and no
// byte of them is read.
type gate struct {
	net.Listener

	shut atomic.Bool
	came chan net.Conn
}

// Accept gives the server what it is to have.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil || !g.shut.Load() {
			return conn, err
		}
		g.came <- conn
	}
}
