package onceclient_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

func redirect(w http.ResponseWriter, status int, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(status)
}

// 307 and 308 are followed with the same request, and 303 is an answer.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{303, 307, 308} {
		overBoth(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/there" {
				redirect(w, status, "there")
			}
		}, func(t *testing.T, s *server, cfg onceclient.Config) {
			t.Helper()
			cfg.Authorize = func(_ context.Context, req *http.Request, _ bool) error {
				req.Header.Set("Authorization", "token")
				return nil
			}
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL+"/here"))
			wantKind(t, err, "answered")
			requests, answer := 1, status
			if status > 303 {
				requests, answer = 2, 200
			}
			s.wantOneKey(t, out.Key, requests)
			if out.Answer.Status != answer || out.Attempts != 1 {
				t.Errorf("%+v", out)
			}
			for _, a := range s.got() {
				if a.header.Get("Authorization") != "token" || a.header.Get("Content-Type") != "application/json" {
					t.Errorf("%v", a.header)
				}
			}
		})
	}
}

// L2: a redirect to https by whoever is in front, or to a form, is no answer: nothing was
// done, and it is told what to do. One that the operation is marked to have given is.
func TestRedirectsElsewhere(t *testing.T) {
	t.Parallel()
	for _, status := range []int{300, 301, 302, 304, 305} {
		for marked, want := range map[string]string{"": "refused", "refused": "refused", "executed": "answered", "replayed": "answered"} {
			t.Run(strconv.Itoa(status)+" "+marked, func(t *testing.T) {
				t.Parallel()
				s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					if marked != "" {
						w.Header().Set("Idempotency-Status", marked)
					}
					redirect(w, status, "/there")
				})
				j := memjournal.New()
				out, err := newClient(t, quick(j)).Do(t.Context(), charge("order-1", s.URL+"/here"))
				wantKind(t, err, want)
				s.wantOneKey(t, out.Key, 1)
				if out.Answer == nil || out.Answer.Status != status {
					t.Errorf("%+v", out)
				}
				if want == "answered" {
					return
				}
				wantState(t, j, "order-1", onceclient.Refused)
				if !errors.Is(err, &onlyonce.Error{Code: onceclient.CodeRedirect}) || !strings.Contains(err.Error(), "set the URL to where it leads") {
					t.Errorf("it is not told what to do: %v", err)
				}
			})
		}
	}
}

// Another origin gets the key and the request, and no credentials; back home they are
// sent again.
func TestRedirectToAnotherOrigin(t *testing.T) {
	t.Parallel()
	var home *server
	away := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			redirect(w, 307, home.URL+"/back")
		}
	})
	home = serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 0 {
			redirect(w, 308, strings.Replace(away.URL, "http://", "http://user:pass@", 1)+"/away#part")
		}
	})
	cfg := quick(memjournal.New())
	cfg.Credentials = []string{"X-Acme-Secret"}
	cfg.Authorize = func(_ context.Context, req *http.Request, _ bool) error {
		req.Header.Set("X-Signature", "of home")
		return nil
	}
	r := charge("order-1", home.URL)
	for _, name := range []string{"Authorization", "Cookie", "X-Acme-Secret", "X-Vendor-Token", "X-Session-Id"} {
		r.Header.Set(name, "s3cret")
	}
	r.Header.Set("Host", "acme.example")
	out, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "answered")
	home.wantOneKey(t, out.Key, 2)
	away.wantOneKey(t, out.Key, 1)
	for _, name := range []string{"Authorization", "Cookie", "X-Acme-Secret", "X-Signature", "X-Vendor-Token", "X-Session-Id"} {
		if v := away.got()[0].header.Get(name); v != "" {
			t.Errorf("another origin got %s: %s", name, v)
		}
		for _, a := range home.got() {
			if a.header.Get(name) == "" {
				t.Errorf("home did not get %s", name)
			}
		}
	}
	if away.got()[0].host == "acme.example" || home.got()[1].host != "acme.example" {
		t.Error("the name of the host went to another")
	}
}

// Redirects that are not followed: nothing was done, and it is told why.
func TestRedirectsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		to       func(n int) string
		requests int
		code     onlyonce.Code
	}{
		"for ever":     {func(n int) string { return "/" + strconv.Itoa(n) }, 6, onceclient.CodeRedirect},
		"to a file":    {func(int) string { return "file:///etc/passwd" }, 1, onceclient.CodeRedirect},
		"to nothing":   {func(int) string { return "" }, 1, onceclient.CodeRedirect},
		"to nonsense":  {func(int) string { return "http://[::1" }, 1, onceclient.CodeRedirect},
		"without host": {func(int) string { return "http:///x" }, 1, onceclient.CodeRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) { redirect(w, 307, tt.to(n)) })
			out, err := newClient(t, quick(memjournal.New())).Do(t.Context(), charge("order-1", s.URL))
			wantKind(t, err, "refused")
			s.wantOneKey(t, out.Key, tt.requests)
			if !errors.Is(err, &onlyonce.Error{Code: tt.code}) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("from https to http", func(t *testing.T) {
		t.Parallel()
		open := serve(t, func(int, http.ResponseWriter, *http.Request) { t.Error("the request arrived in the clear") })
		s := newServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { redirect(w, 308, open.URL) })
		cfg := quick(memjournal.New())
		cfg.Base = s.overHTTP2(t)
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
		wantKind(t, err, "refused")
	})
}

// A host is the same however it is written: credentials are not lost on the way home.
func TestRedirectToSameHost(t *testing.T) {
	t.Parallel()
	var to []string
	cfg := quick(memjournal.New())
	cfg.Base = tripper(func(r *http.Request) (*http.Response, error) {
		to = append(to, r.URL.Host)
		if len(to) == 1 {
			return &http.Response{
				StatusCode: 307, Header: http.Header{"Location": {"http://ACME.Example:80/there"}}, Body: http.NoBody, Request: r,
			}, nil
		}
		if r.Header.Get("Authorization") != "token" {
			t.Error("home got no credentials")
		}
		return &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	r := charge("order-1", "http://acme.example/here")
	r.Header.Set("Authorization", "token")
	_, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "answered")
	if len(to) != 2 {
		t.Errorf("it went to %q", to)
	}
}

// What was redirected has left: that the next server cannot be reached is no proof of
// nothing sent.
func TestRedirectToNowhere(t *testing.T) {
	t.Parallel()
	gone := serve(t, func(int, http.ResponseWriter, *http.Request) {})
	gone.Close()
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { redirect(w, 307, gone.URL) })
	cfg := quick(memjournal.New())
	cfg.Attempts = 2
	out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
	wantKind(t, err, "unknown")
	s.wantOneKey(t, out.Key, 2)
}

// A redirect for which there are no credentials is tried again.
func TestRedirectWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			redirect(w, 307, "/moved")
		}
	})
	cfg := quick(memjournal.New())
	asked := 0
	cfg.Authorize = func(context.Context, *http.Request, bool) error {
		if asked++; asked == 2 {
			return errLost
		}
		return nil
	}
	out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL+"/"))
	wantKind(t, err, "answered")
	s.wantOneKey(t, out.Key, 3)
}

// After an attempt that may have been carried out, a redirect that is not followed
// proves nothing of it.
func TestRedirectRefusedAfterLoss(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			drop(w)
			return
		}
		redirect(w, 307, "ftp://elsewhere")
	})
	_, err := newClient(t, quick(memjournal.New())).Do(t.Context(), charge("order-1", s.URL))
	wantKind(t, err, "unknown")
}
