package oncehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a real server on loopback whose routes are under guard.
type service struct {
	t      *testing.T
	store  *faultyStore
	engine *onlyonce.TxEngine[*memstore.Tx]
	guard  *oncehttp.Guard
	mux    *http.ServeMux
	outer  func(http.Handler) http.Handler // a middleware around everything; nil: none
	log    *logBuffer
	ahead  atomic.Int64 // how far the store's clock is ahead
	server *httptest.Server
	runs   atomic.Int64
}

// account is the scope: what stands before the slash in the credential.
func account(r *http.Request) (string, error) {
	credential, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", errors.New("no credential")
	}
	name, _, _ := strings.Cut(credential, "/")
	return name, nil
}

func newService(t *testing.T, opts ...oncehttp.Option) *service {
	t.Helper()
	s := &service{t: t, mux: http.NewServeMux(), log: &logBuffer{}}
	mem, err := memstore.New(memstore.Config{SingleProcess: true, Now: func() time.Time {
		return time.Now().Add(time.Duration(s.ahead.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.store = &faultyStore{Store: mem}
	s.engine, err = onlyonce.NewTx(s.store, onlyonce.Config{SettleTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.guard, err = oncehttp.New(s.engine.Engine, account, append([]oncehttp.Option{oncehttp.Logger(logger)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.server != nil {
			s.server.Close()
		}
		s.store.heal()
		s.engine.Close(context.WithoutCancel(t.Context()))
	})
	return s
}

// wrap puts a handler under guard and counts its runs.
func (s *service) wrap(pattern string, route oncehttp.Route, h http.HandlerFunc) {
	s.t.Helper()
	wrapped, err := s.guard.Wrap(route, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		h(w, r)
	}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.mux.Handle(pattern, wrapped)
}

func (s *service) start(http2 bool) {
	s.t.Helper()
	var h http.Handler = s.mux
	if s.outer != nil {
		h = s.outer(h)
	}
	s.server = httptest.NewUnstartedServer(h)
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if http2 {
		s.server.EnableHTTP2 = true
		s.server.StartTLS()
		return
	}
	s.server.Start()
}

// ask is one request. Zero values: POST /charges by acme with a charge of 100.
type ask struct {
	method, path, body string
	keys               []string
	as                 string // credential; "-": none
	header             http.Header
	chunked            bool // the body's length is not announced
}

type reply struct {
	status int
	header http.Header
	body   string
	proto  string

	trailer http.Header
}

func (s *service) do(a ask) reply {
	s.t.Helper()
	got, err := s.try(a)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func (s *service) try(a ask) (reply, error) {
	if s.server == nil {
		s.start(false)
	}
	if a.method == "" {
		a.method = http.MethodPost
	}
	if a.path == "" {
		a.path = "/charges"
	}
	if a.as == "" {
		a.as = "acme/1"
	}
	if a.body == "" && a.method == http.MethodPost {
		a.body = pay(100)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), a.method, s.server.URL+a.path, strings.NewReader(a.body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, a.header)
	if a.keys != nil {
		req.Header["Idempotency-Key"] = a.keys
	}
	if a.as != "-" {
		req.Header.Set("Authorization", "Bearer "+a.as)
	}
	// Go's transport repeats requests that bear a key by itself on a stale
	// connection: a test must see each attempt.
	req.GetBody = nil
	if a.chunked {
		req.ContentLength = -1
	}
	res, err := s.server.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(body), proto: res.Proto, trailer: res.Trailer}, err
}

// record is what the store holds of a key.
func (s *service) record(scope, value string) onlyonce.Record {
	s.t.Helper()
	rec, found, err := s.store.Get(s.t.Context(), onlyonce.Key{Scope: scope, Value: value})
	if err != nil || !found {
		s.t.Fatalf("record of %s: %v, %v", value, found, err)
	}
	return rec
}

func key(values ...string) []string { return values }

func pay(amount int) string { return fmt.Sprintf(`{"amount":%d,"currency":"EUR"}`, amount) }

// expect checks status and Idempotency-Status.
func (r reply) expect(t *testing.T, status int, how string) reply {
	t.Helper()
	if r.status != status || r.header.Get("Idempotency-Status") != how {
		t.Fatalf("got %d %q, want %d %q\n%v\n%s", r.status, r.header.Get("Idempotency-Status"), status, how, r.header, r.body)
	}
	return r
}

// problem checks that the reply is a problem of this code and gives its members.
func (r reply) problem(t *testing.T, status int, code string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatalf("not a problem: %v\n%d %v\n%s", err, r.status, r.header, r.body)
	}
	if r.status != status || m["error"] != code || r.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got %d %v, want %d %s\n%v\n%s", r.status, m["error"], status, code, r.header, r.body)
	}
	return m
}

func (r reply) replayOf(t *testing.T, first reply) {
	t.Helper()
	r.expect(t, first.status, "replayed")
	if r.body != first.body {
		t.Errorf("replay's body is %q, first one's %q", r.body, first.body)
	}
	if r.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("Idempotent-Replayed: replay %q, first %q", r.header.Get("Idempotent-Replayed"), first.header.Get("Idempotent-Replayed"))
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Location", "Etag", "Idempotency-Key", "Idempotency-Expires", "X-Should-Retry"} {
		if fmt.Sprint(r.header[name]) != fmt.Sprint(first.header[name]) {
			t.Errorf("%s: replay %q, first %q", name, r.header[name], first.header[name])
		}
	}
}

func (s *service) ran(n int64) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// created answers as a charge does.
func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/charges/ch_1")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"id":"ch_1"}`)
}

// faultyStore fails on demand.
type faultyStore struct {
	*memstore.Store

	mu                      sync.Mutex
	claim, complete, lookUp error
	// seen, where set, is what Get makes of what is there.
	seen func(onlyonce.Record) (onlyonce.Record, bool)
}

// show changes what Get sees.
func (s *faultyStore) show(seen func(onlyonce.Record) (onlyonce.Record, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = seen
}

func (s *faultyStore) fail(claim, complete, lookUp error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claim, s.complete, s.lookUp = claim, complete, lookUp
}

func (s *faultyStore) heal() { s.fail(nil, nil, nil) }

func (s *faultyStore) fault(which *error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *which
}

func (s *faultyStore) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if err := s.fault(&s.claim); err != nil {
		return onlyonce.Claim{}, err
	}
	return s.Store.Claim(ctx, req)
}

func (s *faultyStore) Complete(ctx context.Context, owner onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
	if err := s.fault(&s.complete); err != nil {
		return onlyonce.Settled{}, err
	}
	return s.Store.Complete(ctx, owner, a)
}

func (s *faultyStore) Get(ctx context.Context, k onlyonce.Key) (onlyonce.Record, bool, error) {
	if err := s.fault(&s.lookUp); err != nil {
		return onlyonce.Record{}, false, err
	}
	rec, found, err := s.Store.Get(ctx, k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen != nil && found && err == nil {
		rec, found = s.seen(rec)
	}
	return rec, found, err
}

// logBuffer is a log that tests may read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
