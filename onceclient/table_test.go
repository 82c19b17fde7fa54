package onceclient_test

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// failure is a first answer, and what a client makes of it by the server's directive.
type failure struct {
	status int
	header [2]string
	// breaks is how a request without an answer ends.
	breaks func(w http.ResponseWriter, r *http.Request)
	// patience is how long an attempt may take; 0: as by default.
	patience time.Duration
	// ends, for a directive of true, false and none, and how many requests it takes.
	yes, no, none end
}

type end struct {
	kind     string
	requests int
}

// failures is the table: each is the server's first answer, and the second is 201.
func failures() map[string]failure {
	retried, refused, unknown := end{"answered", 2}, end{"refused", 1}, end{"unknown", 1}
	final := failure{yes: retried, no: refused, none: refused}
	passing := failure{yes: retried, no: refused, none: retried}
	broken := failure{yes: retried, no: unknown, none: retried}
	of := func(f failure, status int, header ...string) failure {
		f.status = status
		copy(f.header[:], header)
		return f
	}
	return map[string]failure{
		"400":             of(final, 400),
		"401":             of(final, 401),
		"402":             of(final, 402),
		"404":             of(final, 404),
		"408":             of(broken, 408),
		"409 in progress": of(passing, 409, "Idempotency-Status", "refused"),
		"409 later":       of(passing, 409, "Retry-After", "0"),
		"409 domain":      of(final, 409),
		"410":             of(final, 410),
		"422":             of(final, 422),
		"425":             of(passing, 425),
		"429":             of(passing, 429),
		"500":             of(broken, 500),
		"502":             of(broken, 502),
		"503":             of(broken, 503),
		"504":             of(broken, 504),
		// Where nothing comes, there is no directive.
		"reset": {yes: retried, no: retried, none: retried, breaks: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		}},
		"timeout": {yes: retried, no: retried, none: retried, patience: 100 * time.Millisecond, breaks: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	}
}

// L2, B101: each failure, with each kind of body and each directive, against a server.
func TestTable(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{"application/json": `{"error":"no"}`, "text/html": "<h1>no</h1>", "": ""}
	for name, f := range failures() {
		for kind, body := range bodies {
			for directive, want := range map[string]end{"true": f.yes, "false": f.no, "": f.none} {
				t.Run(name+" "+kind+" "+directive, func(t *testing.T) {
					t.Parallel()
					s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
						if n > 0 {
							w.WriteHeader(http.StatusCreated)
							return
						}
						if f.breaks != nil {
							f.breaks(w, r)
							return
						}
						for name, value := range map[string]string{"Content-Type": kind, "X-Should-Retry": directive, f.header[0]: f.header[1]} {
							if value != "" {
								w.Header().Set(name, value)
							}
						}
						w.WriteHeader(f.status)
						w.Write([]byte(body))
					})
					f.run(t, s, want, body)
				})
			}
		}
	}
}

func (f failure) run(t *testing.T, s *server, want end, body string) {
	t.Helper()
	j := memjournal.New()
	cfg := quick(j)
	if f.patience > 0 {
		cfg.AttemptTimeout = f.patience
	}
	c := newClient(t, cfg)
	out, err := c.Do(t.Context(), charge("order-1", s.URL+"/charges"))
	if f.patience > 0 {
		want.requests = max(want.requests, len(s.got())) // a slow machine's second answer comes too late, too
	}
	wantKind(t, err, want.kind)
	s.wantOneKey(t, out.Key, want.requests)
	if out.Attempts != want.requests || out.Answer == nil {
		t.Fatalf("the outcome is %+v", out)
	}
	status, text := f.status, body
	if want.kind == "answered" {
		status, text = http.StatusCreated, ""
	}
	if out.Answer.Status != status || string(out.Answer.Body) != text {
		t.Errorf("the answer is %d %q, want %d %q", out.Answer.Status, out.Answer.Body, status, text)
	}
	kept := stands(t, j, "order-1").Answer
	if kept == nil || kept.Status != status || string(kept.Body) != text {
		t.Errorf("the journal has kept %+v", kept)
	}
}

// A refusal by somebody who may never have looked at the key, after an attempt that may
// have been carried out, proves nothing of that; one by the operation does.
func TestRefusalAfterLoss(t *testing.T) {
	t.Parallel()
	unknown := []int{300, 301, 302, 303, 304, 305, 400, 401, 403, 404, 405, 406, 407, 409, 410, 411, 413, 414, 415, 417, 421, 426, 428, 431, 451}
	refused := []int{402, 422}
	for _, marked := range []string{"", "refused", "executed", "replayed"} {
		for _, status := range append(append([]int{}, unknown...), refused...) {
			want, requests := "refused", 2
			switch looked := marked == "executed" || marked == "replayed"; {
			case !looked && slices.Contains(unknown, status), status == 422 && marked == "refused":
				want = "unknown"
			case status < 400:
				want = "answered"
			}
			if status == 409 && want == "unknown" {
				requests = 12 // it may be in progress
			}
			t.Run(strconv.Itoa(status)+" "+marked, func(t *testing.T) {
				t.Parallel()
				s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
					if n == 0 {
						drop(w)
						return
					}
					if marked != "" {
						w.Header().Set("Idempotency-Status", marked)
					}
					w.WriteHeader(status)
				})
				j := memjournal.New()
				out, err := newClient(t, quick(j)).Do(t.Context(), charge("order-1", s.URL))
				wantKind(t, err, want)
				s.wantOneKey(t, out.Key, requests)
				state := map[string]onceclient.State{"unknown": onceclient.Open, "refused": onceclient.Refused, "answered": onceclient.Answered}[want]
				wantState(t, j, "order-1", state)
			})
		}
	}
}
