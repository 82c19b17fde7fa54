package tests_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// While no answer comes through, calls end as unknown, with key, reason and the way on.
// When the network is well again, --resume has every answer, and there was one effect
// an operation. (L4)
func TestClientUnknownThenResume(t *testing.T) {
	t.Parallel()
	c := newCaller(t, newTill(t, always(lost)), "journal")
	orders := []string{"order-1", "order-2", "order-3"}
	var intents []string
	for _, order := range orders {
		intents = append(intents, order+"/charge")
		out, log, code := c.call(t, append(c.charge(order), "--attempts", "2")...)
		if code != 3 || out != "" {
			t.Errorf("%s: exit code %d, printed %q", order, code, out)
		}
		for _, want := range []string{"attempt 1: ", "attempt 2 follows in ", "its key is ", "hint: ", "onlyonce call --intent " + order + "/charge"} {
			if !strings.Contains(log, want) {
				t.Errorf("%s: it does not say %q:\n%s", order, want, log)
			}
		}
	}
	c.wantOpen(t, intents...)
	out, log, code := c.call(t, "--resume", "https://127.0.0.1:1")
	if code != 0 || out != "" {
		t.Errorf("another host's: exit code %d\n%s%s", code, out, log)
	}
	c.wantOpen(t, intents...)

	c.till.become(always(delivered))
	out, log, code = c.call(t, "--resume")
	if code != 0 {
		t.Errorf("resume: exit code %d\n%s", code, log)
	}
	for _, intent := range intents {
		if !strings.Contains(out, intent+": answered 201 Created\n") {
			t.Errorf("resume does not say that %s is answered:\n%s", intent, out)
		}
	}
	c.wantOpen(t)
	n := c.till.requests(orders[0])
	for i, order := range orders {
		c.wantAnswer(t, order, "--intent", intents[i])
		c.till.judge(t, order)
	}
	if c.till.requests(orders[0]) != n {
		t.Error("the recorded answer was asked for")
	}
}

// Of two processes that do one intent at a time one works; the other says so, waits and
// has the same answer. When the first is killed, the other goes on. (L1)
func TestClientTwoAtOnce(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		for kind, journal := range journals(t) {
			t.Run(fmt.Sprintf("%s, the first is killed %t", kind, dies), func(t *testing.T) {
				t.Parallel()
				const order = "order-42"
				s := newTill(t, always(delivered))
				s.paused = make(chan struct{})
				release := sync.OnceFunc(func() { close(s.paused) })
				t.Cleanup(release) // else the server would not end
				c := newCaller(t, s, journal)
				first := c.start(t, c.charge(order)...)
				<-s.held
				second := c.start(t, c.charge(order)...)
				second.says(t, "another process is working on order-42/charge")
				if dies {
					first.kill()
				}
				release()
				if code := first.wait(); !dies && (code != 0 || first.out.String() != s.answer(order)) {
					t.Errorf("the first: exit code %d, printed %q", code, first.out.String())
				}
				if code := second.wait(); code != 0 || second.out.String() != s.answer(order) {
					t.Errorf("the second: exit code %d, printed %q", code, second.out.String())
				}
				s.judge(t, order)
				if n := s.requests(order); !dies && n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		}
	}
}

// The payments service under a merchant's API key: its answer is lost, the client is
// killed, and run again with a fresh key for the same account: one charge. Neither
// credential is in the journal or in a message. (L1, S3)
func TestClientPayments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, hashes := [2]string{}, [2]string{}
	for i := range keys {
		out, _, _ := run(t, "merchants", "key", "acme", "--json")
		var made struct{ Key, Hash string }
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatal(err)
		}
		keys[i], hashes[i] = made.Key, made.Hash
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("token%d", i)), []byte("Authorization: Bearer "+made.Key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, dir, "processor", "--listen", "127.0.0.1:0", "--journal", filepath.Join(dir, "processor.jsonl"))
	service := start(t, dir, "serve", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "payments.db"),
		"--processor", p.URL, "--merchant", "acme="+hashes[0], "--merchant", "acme="+hashes[1])
	proxy, answered := holdingProxy(t, service.URL)
	c := newCaller(t, &till{}, "")
	charge := []string{
		proxy + "/charges", "-d", `{"amount":1500,"currency":"ARS","source":"tok_visa"}`, "--intent", "order-42",
		"-H", "@" + filepath.Join(dir, "token0"),
	}
	first := c.start(t, charge...)
	<-answered // the card is charged, and the client does not know
	first.kill()

	second := append(charge[:len(charge)-1:len(charge)-1], "@"+filepath.Join(dir, "token1"), "-i")
	out, log, code := c.call(t, second...)
	if code != 0 || !strings.HasPrefix(out, "HTTP/1.1 201 Created\r\n") || !strings.Contains(out, `"amount":1500`) {
		t.Errorf("the second run: exit code %d\n%s%s", code, out, log)
	}
	var stats processorStats
	fetch(t, p.URL+"/v1/stats", &stats)
	if stats.Charges != 1 || len(stats.DuplicateCharges) != 0 {
		t.Errorf("%d charges, duplicates %v", stats.Charges, stats.DuplicateCharges)
	}
	kept := files(t, c.home)
	if !strings.Contains(kept, "order-42") {
		t.Error("the journal is somewhere else")
	}
	for _, secret := range keys {
		if strings.Contains(kept+out+log+first.log.String(), secret) {
			t.Error("a credential is in the journal or in a message")
		}
	}
}

// holdingProxy passes requests on, and keeps the first answer until its client is gone.
func holdingProxy(t *testing.T, to string) (at string, answered chan struct{}) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	answered = make(chan struct{})
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 1 {
			proxy.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		close(answered)
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL, answered
}

// fetch reads JSON.
func fetch(t *testing.T, url string, into any) {
	t.Helper()
	a, err := get(t.Context(), newClient(t), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatal(err)
	}
}
