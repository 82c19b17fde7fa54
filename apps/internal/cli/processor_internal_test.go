package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// running is a command that runs until it is stopped.
type running struct {
	url  string
	stop func() int
}

// launch runs a command in this process until it says where it listens.
func launch(t *testing.T, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() {
		defer writer.Close()
		done <- Run(ctx, args, Streams{In: strings.NewReader(""), Out: writer, Err: io.Discard})
	}()
	out := bufio.NewReader(reader)
	line, err := out.ReadString('\n')
	if err != nil {
		cancel()
		t.Fatalf("%v ended with %d", args, <-done)
	}
	go io.Copy(io.Discard, out)
	_, url, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Errorf("the first line is %q", line)
	}
	stopped := false
	r := running{url: url, stop: func() int {
		if stopped {
			return 0
		}
		stopped = true
		cancel()
		return <-done
	}}
	t.Cleanup(func() { r.stop() })
	return r
}

// The processor as its own process keeps its charges over a restart, and one at
// a time has its journal.
func TestProcessorCommand(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal.jsonl")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	args := []string{"processor", "--listen", "127.0.0.1:0", "--journal", journal}
	p := launch(t, args...)
	client := processor.Client{BaseURL: p.url, HTTP: &http.Client{Transport: transport}}
	request := processor.ChargeRequest{Amount: 1500, Currency: "ARS", Source: "tok_visa", Reference: "r1"}
	if _, err := client.Charge(t.Context(), "k1", request.Encode()); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := run(t, args...); code != exitUsage || !strings.Contains(errs, "used by another process") || !strings.Contains(errs, "hint: ") {
		t.Errorf("a second processor on the journal: %d %s", code, errs)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	client.BaseURL = launch(t, args...).url
	if c, found, err := client.FindCharge(t.Context(), "r1"); err != nil || !found || c.Amount != 1500 {
		t.Errorf("after a restart: %+v, %t, %v", c, found, err)
	}
}

// A service, its processor and its operator as three commands.
func TestServeWithAnotherProcessor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "processor", "--listen", "127.0.0.1:0", "--journal", filepath.Join(dir, "journal.jsonl"))
	store := "sqlite:" + filepath.Join(dir, "payments.db")
	s := launch(t, "serve", "--listen", "127.0.0.1:0", "--store", store, "--processor", p.url, "--lease", "2s", "--log-format", "json", "--log-level", "debug")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/charges", strings.NewReader(`{"amount":1500,"currency":"ARS","source":"tok_visa"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", `"quoted key"`)
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("the charge got %s", resp.Status)
	}
	// The operator looks while the service runs.
	out, errs, code := run(t, "keys", "show", "quoted key", "--scope", "dev", "--store", store)
	if code != 0 || !strings.Contains(out, "completed") {
		t.Errorf("keys show: %d %s %s", code, out, errs)
	}
	if out, _, code := run(t, "sweep", "--store", store); code != 0 || !strings.Contains(out, "0 expired") {
		t.Errorf("sweep: %d %s", code, out)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
}
