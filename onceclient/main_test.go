package onceclient_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

func TestMain(m *testing.M) {
	if os.Getenv(childJob) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// quick is a configuration whose pauses cost nothing, with as many retries as there are.
func quick(j onceclient.Journal) onceclient.Config {
	b, err := onceclient.NewBudget(onceclient.BudgetConfig{Least: 1 << 30})
	if err != nil {
		panic(err) // it is a constant
	}
	return onceclient.Config{Journal: j, Budget: b, BackoffBase: time.Microsecond, BackoffCap: time.Microsecond}
}

// newClient makes a client with connections of its own.
func newClient(t *testing.T, cfg onceclient.Config) *onceclient.Client {
	t.Helper()
	c, err := onceclient.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func charge(intent, url string) onceclient.Request {
	return onceclient.Request{
		Intent: intent, Method: http.MethodPost, URL: url, Body: []byte(`{"amount":100}`),
		Header: http.Header{"Content-Type": {"application/json"}},
	}
}

// arrival is a request as a server got it.
type arrival struct {
	method, path, host, body string
	header                   http.Header
}

// server writes down what it gets.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	arrivals []arrival
}

// serve starts a server of HTTP/1.1; fn answers the n-th request, counted from 0.
func serve(t *testing.T, fn func(n int, w http.ResponseWriter, r *http.Request)) *server {
	t.Helper()
	s := newServer(t, fn)
	s.Start()
	return s
}

func newServer(t *testing.T, fn func(n int, w http.ResponseWriter, r *http.Request)) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.arrivals = append(s.arrivals, arrival{r.Method, r.URL.Path, r.Host, string(body), r.Header.Clone()})
		n := len(s.arrivals) - 1
		s.mu.Unlock()
		fn(n, w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handlers hang up on purpose
	t.Cleanup(s.Close)
	return s
}

// overHTTP2 starts one of HTTP/2, and gives a transport to it.
func (s *server) overHTTP2(t *testing.T) *http.Transport {
	t.Helper()
	s.EnableHTTP2 = true
	s.StartTLS()
	base := s.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return base
}

func (s *server) got() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrival{}, s.arrivals...)
}

// wantOneKey checks that all requests were the same one, each with one key.
func (s *server) wantOneKey(t *testing.T, key string, requests int) {
	t.Helper()
	all := s.got()
	if len(all) != requests {
		t.Errorf("%d requests arrived, want %d", len(all), requests)
	}
	for i, a := range all {
		if got := a.header["Idempotency-Key"]; len(got) != 1 || got[0] != key || key == "" {
			t.Errorf("request %d bears the keys %q, want one of %q", i, got, key)
		}
		if a.method != all[0].method || a.body != all[0].body {
			t.Errorf("request %d is %s %q, and the first %s %q", i, a.method, a.body, all[0].method, all[0].body)
		}
	}
}

// drop ends the connection, or the stream, of a request without an answer.
func drop(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// script is a Sender that replies by a plan.
type script struct {
	mu   sync.Mutex
	sent []onceclient.Entry
	plan func(ctx context.Context, n int, e onceclient.Entry) onceclient.Reply
}

func (s *script) Send(ctx context.Context, e onceclient.Entry) onceclient.Reply {
	s.mu.Lock()
	s.sent = append(s.sent, e)
	n := len(s.sent) - 1
	s.mu.Unlock()
	return s.plan(ctx, n, e)
}

func (s *script) entries() []onceclient.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]onceclient.Entry{}, s.sent...)
}

func (s *script) want(t *testing.T, sends int) {
	t.Helper()
	if got := len(s.entries()); got != sends {
		t.Errorf("%d attempts were made, want %d", got, sends)
	}
}

// replies is a script that replies one after the other, and the last for ever.
func replies(all ...onceclient.Reply) *script {
	return &script{plan: func(_ context.Context, n int, _ onceclient.Entry) onceclient.Reply {
		return all[min(n, len(all)-1)]
	}}
}

var errLost = errors.New("connection lost")

func done(status int) onceclient.Reply {
	return onceclient.Reply{Verdict: onceclient.Done, Answer: &onceclient.Answer{Status: status, Body: []byte("paid")}}
}

func denied(status int) onceclient.Reply {
	return onceclient.Reply{Verdict: onceclient.Denied, Answer: &onceclient.Answer{Status: status}}
}

func beforeKey(status int) onceclient.Reply {
	r := denied(status)
	r.BeforeKey = true
	return r
}

func lost() onceclient.Reply { return onceclient.Reply{Verdict: onceclient.Again, Err: errLost} }

func unsent() onceclient.Reply { return onceclient.Reply{Verdict: onceclient.Unsent, Err: errLost} }

// kindOf names how an operation has ended, by the type of its error.
func kindOf(err error) string {
	var (
		refused    *onceclient.RefusedError
		notSent    *onceclient.NotSentError
		unknown    *onceclient.UnknownError
		unrecorded *onceclient.UnrecordedError
		usage      *onlyonce.Error
	)
	switch {
	case err == nil:
		return "answered"
	case errors.As(err, &refused):
		return "refused"
	case errors.As(err, &notSent):
		return "not sent"
	case errors.As(err, &unknown):
		return "unknown"
	case errors.As(err, &unrecorded):
		return "unrecorded"
	case errors.As(err, &usage):
		return string(usage.Code)
	default:
		return err.Error()
	}
}

func wantKind(t *testing.T, err error, want string) {
	t.Helper()
	if got := kindOf(err); got != want {
		t.Errorf("it ended as %q, want %q: %v", got, want, err)
	}
}

// stands reads an entry of a journal.
func stands(t *testing.T, j onceclient.Journal, intent string) onceclient.Entry {
	t.Helper()
	lock, e, err := j.Lock(t.Context(), intent)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	return e
}

func wantState(t *testing.T, j onceclient.Journal, intent string, want onceclient.State) {
	t.Helper()
	if e := stands(t, j, intent); e.State != want {
		t.Errorf("operation %q stands at %q, want %q", intent, e.State, want)
	}
}

// faulty is a journal whose n-th call of a method, counted from 0, fails or ends the
// process.
type faulty struct {
	*memjournal.Journal
	fault func(method string, n int) error

	mu    sync.Mutex
	calls map[string]int
}

func newFaulty(fault func(method string, n int) error) *faulty {
	return &faulty{Journal: memjournal.New(), fault: fault, calls: map[string]int{}}
}

func (f *faulty) at(method string) error {
	f.mu.Lock()
	n := f.calls[method]
	f.calls[method]++
	f.mu.Unlock()
	return f.fault(method, n)
}

func (f *faulty) Begin(ctx context.Context, e onceclient.Entry) (onceclient.Entry, bool, error) {
	if err := f.at("begin"); err != nil {
		return onceclient.Entry{}, false, err
	}
	was, made, err := f.Journal.Begin(ctx, e)
	if err := f.at("begun"); err != nil {
		return onceclient.Entry{}, false, err
	}
	return was, made, err
}

func (f *faulty) Lock(ctx context.Context, intent string) (onceclient.Lock, onceclient.Entry, error) {
	if err := f.at("lock"); err != nil {
		return nil, onceclient.Entry{}, err
	}
	l, e, err := f.Journal.Lock(ctx, intent)
	return faultyLock{l, f}, e, err
}

func (f *faulty) Pending(ctx context.Context, after string, limit int) ([]string, error) {
	if err := f.at("pending"); err != nil {
		return nil, err
	}
	intents, err := f.Journal.Pending(ctx, after, limit)
	return intents, errors.Join(err, f.at("half"))
}

func (f *faulty) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := f.at("prune"); err != nil {
		return 0, err
	}
	return f.Journal.Prune(ctx, before, limit)
}

type faultyLock struct {
	onceclient.Lock
	f *faulty
}

func (l faultyLock) Save(ctx context.Context, e onceclient.Entry) error {
	if err := l.f.at("save"); err != nil {
		return err
	}
	err := l.Lock.Save(ctx, e)
	if err := l.f.at("saved"); err != nil {
		return err
	}
	return err
}

var errDisk = errors.New("disk is full")

// failing is a fault at some calls of one method.
func failing(method string, calls ...int) func(string, int) error {
	return func(m string, n int) error {
		for _, c := range calls {
			if m == method && n == c {
				return errDisk
			}
		}
		return nil
	}
}

// inProcess runs fn as a process that may be killed in the midst, by kill: nothing of
// it runs then but what the system does, letting go of its locks.
func inProcess(fn func()) {
	var over sync.WaitGroup
	over.Go(fn)
	over.Wait()
}

func kill() { runtime.Goexit() }
