package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Credentials go to the host they are for: not to where it sends the request on.
func TestCallRedirect(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	first := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, d.url+"/there", http.StatusTemporaryRedirect)
	})
	args := []string{"-d", `{"a":1}`, "-u", "ann:password", "-H", "X-Rapid-Key: secret", "-H", "X-Shop: berlin", first.url}
	if out, errs, code := p.call(t, args...); code != 0 || out != "{\"id\": 1}\n" {
		t.Fatalf("%d %q %s", code, out, errs)
	}
	was, is := first.seen()[0], d.seen()[0]
	if was.header.Get("Authorization") == "" || was.header.Get("X-Rapid-Key") != "secret" {
		t.Errorf("the first host: %v", was.header)
	}
	if is.path != "/there" || is.body != was.body || is.header.Get("X-Shop") != "berlin" || is.header.Get("Idempotency-Key") != was.header.Get("Idempotency-Key") {
		t.Errorf("the second host: %+v, the first: %+v", is, was)
	}
	if is.header.Get("Authorization") != "" || is.header.Get("X-Rapid-Key") != "" {
		t.Errorf("the second host has credentials: %v", is.header)
	}
	wantNotKept(t, p, "password", "secret")
}

// Credentials that are wrong are refused at once, and the operation is done under its
// key with the right ones. (L4)
func TestCallWrongCredentials(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user+password != "annright" {
			status(401, "who are you?\n")(w, r)
			return
		}
		status(201, "fine")(w, r)
	}
	out, errs, code := p.call(t, "-X", "POST", d.url, "-u", "ann:wrong", "--intent", "o")
	if code != exitWrong || out != "who are you?\n" || !strings.Contains(errs, "refused with status 401") || len(d.seen()) != 1 {
		t.Errorf("%d %q %s, %d requests", code, out, errs, len(d.seen()))
	}
	out, errs, code = p.call(t, "--intent", "o", "-u", "ann:right")
	if code != 0 || out != "fine" {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if got := d.seen(); len(got) != 2 || got[0].header.Get("Idempotency-Key") != got[1].header.Get("Idempotency-Key") {
		t.Errorf("arrived: %+v", got)
	}
}

// Servers are believed that a certificate vouches for, and see ours.
func TestCallTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.Organization[0])
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	own := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}))
	pair := write(t, ca+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	vouch, p := write(t, ca), newPhone(t)

	out, errs, code := p.call(t, "-X", "POST", server.URL, "--intent", "o", "--attempts", "1")
	if code != exitUnsent || !strings.Contains(errs, "certificate") {
		t.Errorf("a stranger: %d %q %s", code, out, errs)
	}
	out, errs, code = p.call(t, "--intent", "o", "--cacert", vouch, "-E", pair)
	if code != 0 || out != "Acme Co" {
		t.Errorf("%d %q %s", code, out, errs)
	}
}

// Nothing is sent when the server may have forgotten the key. (L4)
func TestCallRetention(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, status(500, "")), newPhone(t)
	p.call(t, "-X", "POST", d.url, "--intent", "o", "--attempts", "1")
	d.answer = nil
	for _, args := range [][]string{{"--intent", "o"}, {"--resume"}} {
		out, errs, code := p.call(t, append(args, "--retention", "1ms")...)
		if code != exitUnknown || !strings.Contains(out+errs, "the server may have forgotten the key") || !strings.Contains(out+errs, "set --retention to") {
			t.Errorf("%v: %d %q %s", args, code, out, errs)
		}
	}
	if len(d.seen()) != 1 {
		t.Errorf("%d requests", len(d.seen()))
	}
}

// An answer that is too long is not taken, and can be had by who takes longer ones.
func TestCallLongAnswer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1001)
	d, p := newDesk(t, status(201, long)), newPhone(t)
	out, errs, code := p.call(t, "-X", "POST", d.url, "--intent", "o", "--max-answer", "1KB")
	if code != exitUnknown || out != "" || !strings.Contains(errs, "raise --max-answer") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if out, errs, code := p.call(t, "--intent", "o"); code != 0 || out != long {
		t.Errorf("%d %q %s", code, out, errs)
	}
}

// A damaged entry is never sent; it keeps nobody from the others. (L1)
func TestCallDamagedJournal(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, status(500, "")), newPhone(t)
	p.call(t, "-X", "POST", d.url+"/a", "--intent", "a", "--attempts", "1")
	files, err := filepath.Glob(filepath.Join(p.journal, "entries", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("entries: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Replace(string(text), "/a", "/x", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.call(t, "-X", "POST", d.url+"/b", "--intent", "b", "--attempts", "1")
	d.answer = nil

	for name, args := range map[string][]string{"by its name": {"--intent", "a"}, "as it was": {"-X", "POST", d.url + "/a", "--intent", "a"}} {
		if out, errs, code := p.call(t, args...); code != exitUsage || out != "" || !strings.Contains(errs, files[0]) {
			t.Errorf("%s: %d %q %s", name, code, out, errs)
		}
	}
	out, errs, code := p.call(t, "--list")
	if code != exitUsage || !strings.Contains(out, d.url+"/b") || !strings.Contains(errs, files[0]) {
		t.Errorf("list: %d %q %s", code, out, errs)
	}
	out, errs, code = p.call(t, "--resume")
	if code != exitUnknown || out != "b: answered 201 Created\n" || !strings.Contains(errs, files[0]) || !strings.Contains(errs, "1 answered") {
		t.Errorf("resume: %d %q %s", code, out, errs)
	}
	for _, got := range d.seen() {
		if got.path == "/x" {
			t.Error("what is damaged was sent")
		}
	}
}
