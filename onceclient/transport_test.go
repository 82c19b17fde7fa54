package onceclient_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

func send(ctx context.Context, c *http.Client, method, url string, header http.Header) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(`{"amount":100}`))
	if err != nil {
		return 0, "", err
	}
	maps.Copy(req.Header, header)
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// B101: which requests get a key, and whose.
func TestTransportKeys(t *testing.T) {
	t.Parallel()
	own := http.Header{"Idempotency-Key": {"own"}}
	lower := http.Header{"idempotency-key": {"own"}}
	intent := func(ctx context.Context) context.Context { return onceclient.WithIntent(ctx, "order-1") }
	for _, tt := range []struct {
		method string
		header http.Header
		mark   func(context.Context) context.Context
		want   string // "": none, "new": one that was made
		kept   bool
	}{
		{"POST", nil, nil, "new", true},
		{"PATCH", nil, nil, "new", true},
		{"POST", own, nil, "own", true},
		{"POST", lower, intent, "own", true},
		{"PUT", nil, nil, "", false},
		{"PUT", own, nil, "own", true},
		{"DELETE", nil, nil, "", false},
		{"DELETE", nil, intent, "new", true},
		{"DELETE", lower, nil, "own", true},
		{"GET", nil, intent, "", false},
		{"GET", own, nil, "own", false},
	} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
			s := newServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 0 && r.Method != http.MethodGet {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			j := newFaulty(failing(""))
			cfg := quick(j)
			if proto == "HTTP/2" {
				cfg.Base = s.overHTTP2(t)
			} else {
				s.Start()
			}
			ctx := t.Context()
			if tt.mark != nil {
				ctx = tt.mark(ctx)
			}
			c := &http.Client{Transport: newClient(t, cfg).Transport()}
			status, _, err := send(ctx, c, tt.method, s.URL, tt.header)
			all := s.got()
			if err != nil || len(all) != 1+map[bool]int{true: 1}[tt.kept] || (status == 503) == (tt.kept || tt.method == "GET") {
				t.Errorf("%s: %d, %v after %d requests", tt.method, status, err, len(all))
			}
			var keys []string
			for _, a := range all {
				keys = append(keys, a.header["Idempotency-Key"]...)
			}
			switch {
			case tt.want == "" && len(keys) != 0, tt.want != "" && len(keys) != len(all),
				tt.want == "own" && keys[0] != "own", len(keys) == 2 && keys[0] != keys[1]:
				t.Errorf("%s %v: the keys are %q", tt.method, tt.header, keys)
			}
			if kept := j.calls["begin"] == 1; kept != tt.kept {
				t.Errorf("%s %v: journaled: %t", tt.method, tt.header, kept)
			}
			c.CloseIdleConnections()
		}
	}
}

// Answers and refusals are responses; the rest are errors behind http.Client's.
func TestTransportEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			w.Header().Set("X-Answer", "yes")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "paid")
		case "/no":
			w.WriteHeader(http.StatusPaymentRequired)
			io.WriteString(w, "no money")
		case "/moved":
			redirect(w, 307, "ftp://elsewhere")
		case "/301", "/302":
			status, _ := strconv.Atoi(r.URL.Path[1:])
			redirect(w, status, "/ok")
		case "/seeother":
			redirect(w, 303, "/ok")
		case "/lost":
			drop(w)
		}
	})
	j := memjournal.New()
	cfg := quick(j)
	cfg.Attempts = 2
	c := &http.Client{Transport: newClient(t, cfg).Transport()}
	for _, tt := range []struct {
		path, kind, body string
		status           int
	}{
		{"/ok", "answered", "paid", 201},
		{"/no", "answered", "no money", 402},
		{"/moved", "refused", "", 0},
		{"/301", "refused", "", 0},
		{"/302", "refused", "", 0},
		{"/seeother", "answered", "paid", 201},
		{"/lost", "unknown", "", 0},
	} {
		before := len(s.got()) // http.Client makes a GET of a 301
		ctx := onceclient.WithIntent(t.Context(), "order"+tt.path)
		status, body, err := send(ctx, c, "POST", s.URL+tt.path, nil)
		wantKind(t, err, tt.kind)
		if status != tt.status || body != tt.body {
			t.Errorf("%s: %d %q", tt.path, status, body)
		}
		if _, ok := errors.AsType[*url.Error](err); err != nil && !ok {
			t.Errorf("%s: %T", tt.path, err)
		}
		if e, ok := errors.AsType[*onceclient.UnknownError](err); ok && (e.Intent != "order/lost" || e.Key == "") {
			t.Errorf("%+v", e)
		}
		if n := len(s.got()) - before; tt.kind == "refused" && n != 1 {
			t.Errorf("%s: %d requests", tt.path, n)
		}
		if tt.kind == "answered" && tt.status == 201 && tt.path == "/ok" {
			if status, body, err = send(ctx, c, "POST", s.URL+tt.path, nil); status != 201 || body != "paid" || err != nil {
				t.Errorf("again: %d %q, %v", status, body, err)
			}
			if n := len(s.got()) - before; n != 1 {
				t.Errorf("%d requests, want the recorded answer", n)
			}
		}
	}
	s.Close()
	_, _, err := send(t.Context(), c, "POST", s.URL+"/ok", nil)
	wantKind(t, err, "not sent")
	if !onlyonce.IsNotApplied(err) {
		t.Errorf("%v", err)
	}
}

// 307 and 308 are followed within, once each; http.Client repeats nothing.
func TestTransportFollows(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/here" {
			redirect(w, 308, "/there")
		}
	})
	j := newFaulty(failing(""))
	c := &http.Client{Transport: newClient(t, quick(j)).Transport()}
	if status, _, err := send(t.Context(), c, "POST", s.URL+"/here", nil); status != 200 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	s.wantOneKey(t, s.got()[0].header.Get("Idempotency-Key"), 2)
	if j.calls["begin"] != 1 {
		t.Errorf("there are %d operations", j.calls["begin"])
	}
}

// What http.Client's caller sees of time. Client.Timeout makes a text of the error, and
// with it of the type.
func TestTransportTimeout(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := &http.Client{Transport: newClient(t, quick(memjournal.New())).Transport()}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := send(ctx, c, "POST", s.URL, nil)
	wantKind(t, err, "unknown")
	if e, ok := errors.AsType[*url.Error](err); !ok || !e.Timeout() {
		t.Errorf("%v", err)
	}
	c.Timeout = 50 * time.Millisecond
	_, _, err = send(t.Context(), c, "POST", s.URL, nil)
	if err == nil || !strings.Contains(err.Error(), "outcome unknown") {
		t.Errorf("%v", err)
	}
}

// failingReader is a body that cannot be read.
type failingReader struct{ closed *bool }

func (f failingReader) Read([]byte) (int, error) { return 0, errDisk }
func (f failingReader) Close() error             { *f.closed = true; return nil }

// A body that is too long, or cannot be read: nothing is sent.
func TestTransportBody(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, http.ResponseWriter, *http.Request) {})
	j := newFaulty(failing(""))
	cfg := quick(j)
	cfg.MaxRequest = 14
	c := &http.Client{Transport: newClient(t, cfg).Transport()}
	if status, _, err := send(t.Context(), c, "POST", s.URL, nil); status != 200 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	cfg.MaxRequest = 13
	c = &http.Client{Transport: newClient(t, cfg).Transport()}
	_, _, err := send(t.Context(), c, "POST", s.URL, nil)
	wantKind(t, err, string(onlyonce.CodeBodyTooLarge))
	closed := false
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, failingReader{&closed})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(req); !errors.Is(err, errDisk) || !closed {
		t.Errorf("%v, closed: %t", err, closed)
	}
	req, err = http.NewRequestWithContext(t.Context(), "POST", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "acme.example"
	before := req.Header.Clone()
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if len(s.got()) != 2 || s.got()[1].host != "acme.example" || s.got()[1].body != "" {
		t.Errorf("%+v", s.got())
	}
	if diff := cmp.Diff(before, req.Header); diff != "" {
		t.Errorf("the request was changed: %s", diff)
	}
	if j.calls["begin"] != 2 {
		t.Errorf("there are %d operations", j.calls["begin"])
	}
}

// L1: a body that ends before it should is a part of another operation, and one that never
// ends is waited for no longer than the caller waits: nothing is sent of either.
func TestTransportBodyLies(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	rt := newClient(t, quick(memjournal.New())).Transport()
	for _, body := range []io.Reader{strings.NewReader("123"), strings.NewReader("12345"), http.NoBody} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		if body == http.NoBody {
			req.Body = http.NoBody
		}
		req.ContentLength = 4
		res, err := rt.RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		wantKind(t, err, string(onlyonce.CodeInvalidRequest))
	}
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL, read)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, _ = io.WriteString(write, "123")
		cancel()
		var err error
		for err == nil {
			_, err = io.WriteString(write, "4")
		}
		written <- err
	}()
	res, err := rt.RoundTrip(req)
	if err == nil {
		res.Body.Close()
	}
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("%v", err)
	}
	if err := <-written; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the body was not closed: %v", err)
	}
}
