package tests_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What serve prints works as printed: its three curl lines, run by a shell.
func TestPrintedCurlLines(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl not found: install curl")
	}
	p := start(t, t.TempDir(), "serve", "--listen", "127.0.0.1:0")
	lines := p.curlLines(t)
	wants := [][]string{
		{"HTTP/1.1 201 Created", "Idempotency-Status: executed", `"status":"succeeded"`},
		{"HTTP/1.1 201 Created", "Idempotent-Replayed: true", `"status":"succeeded"`},
		{"HTTP/1.1 422 Unprocessable Entity", `"error":"idempotency_key_reused"`, `"/amount"`},
	}
	bodies := make([]string, len(lines))
	for i, line := range lines {
		out, err := exec.Command("sh", "-c", line).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, want := range wants[i] {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %q in\n%s", line, want, out)
			}
		}
		_, bodies[i], _ = strings.Cut(string(out), "\r\n\r\n")
	}
	if bodies[0] != bodies[1] {
		t.Errorf("the replay differs:\n%s\n%s", bodies[0], bodies[1])
	}
}

// curlLines waits until the program has printed its three lines to try.
func (p *process) curlLines(t *testing.T) []string {
	t.Helper()
	for t.Context().Err() == nil {
		var lines []string
		for line := range strings.Lines(p.log.String()) {
			if strings.HasPrefix(line, "curl ") && strings.HasSuffix(line, "\n") {
				lines = append(lines, line)
			}
		}
		if len(lines) == 3 {
			return lines
		}
		pause(t.Context(), 10*time.Millisecond)
	}
	t.Fatal("the three curl lines never came")
	return nil
}

// The article's session, step by step, and what it leaves behind.
func TestSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "session.db")
	p := start(t, dir, "serve", "--listen", "127.0.0.1:0", "--store", store)
	client, url := newClient(t), p.URL+"/charges"
	steps := []struct {
		key, body string
		status    int
		has       []string
		replayed  string
	}{
		{"", `{"amount":1500,"currency":"ARS","source":"tok_visa"}`, 400, []string{`"error":"idempotency_key_required"`}, ""},
		{"k1", `{"amount":1500,"currency":"ARS","source":"tok_visa"}`, 201, []string{`"amount":1500`, `"currency":"ARS"`, `"status":"succeeded"`}, ""},
		{"k1", `{"currency":"ARS", "source":"tok_visa", "amount":1500}`, 201, []string{`"amount":1500`}, "true"},
		{"k1", `{"amount":15000,"currency":"ARS","source":"tok_visa"}`, 422, []string{`"error":"idempotency_key_reused"`, `"/amount"`}, ""},
		{"k2", `{"amount":1500,"currency":"ARS","source":"tok_chargeDeclined"}`, 402, []string{`declined`}, ""},
		{"k2", `{"amount":1500,"currency":"ARS","source":"tok_chargeDeclined"}`, 402, []string{`declined`}, "true"},
		{"k3", `{"amount":-1,"currency":"ARS","source":"tok_visa"}`, 400, []string{`amount`}, ""},
		{"k3", `{"amount":1,"currency":"ARS","source":"tok_visa"}`, 201, []string{`"amount":1`}, ""},
	}
	for i, s := range steps {
		a, err := post(t.Context(), client, url, s.key, s.body)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if a.status != s.status || a.header.Get("Idempotent-Replayed") != s.replayed {
			t.Errorf("step %d: status %d, replayed %q: %s", i, a.status, a.header.Get("Idempotent-Replayed"), a.body)
		}
		for _, want := range s.has {
			if !strings.Contains(a.body, want) {
				t.Errorf("step %d: no %s in %s", i, want, a.body)
			}
		}
	}
	out, errs, code := run(t, "keys", "list", "--store", store, "--state", "completed", "--json")
	if n := countKeys(t, out); code != 0 || n != 3 {
		t.Errorf("%d keys are completed, want 3 (exit %d: %s)", n, code, errs)
	}
}
