package cli

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// An operation that nobody retries is finished by an operator's command, through
// the processor; one whose processor cannot be asked stays in doubt. (X1, X3)
func TestRecoverCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "processor", "--listen", "127.0.0.1:0", "--journal", filepath.Join(dir, "journal.jsonl"))
	store := "sqlite:" + filepath.Join(dir, "payments.db")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	s := launch(t, "serve", "--listen", "127.0.0.1:0", "--store", store, "--processor", p.url, "--retention", "48h")
	for key, path := range map[string]string{"k1": "/charges", "k2": "/checkout", "k3": "/charges"} {
		body := `{"amount":1500,"currency":"ARS","source":"tok_error_after"}`
		if path == "/checkout" {
			body = `{"lines":[{"product":"prod_mate","quantity":1}],"source":"tok_error_after"}`
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusConflict {
			t.Errorf("%s got %s", key, resp.Status)
		}
	}
	if code := s.stop(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}

	command := func(key, url string) []string {
		return []string{"keys", "recover", key, "--scope", "dev", "--store", store, "--processor", url, "--processor-memory", "23h", "--processor-lookup"}
	}
	if out, errs, code := run(t, command("k3", p.url)[:9]...); code != exitUsage || !strings.Contains(errs, "--processor needs --processor-memory") {
		t.Errorf("without promises: %d %s %s", code, out, errs)
	}
	if out, errs, code := run(t, command("k3", "http://127.0.0.1:1")...); code != exitUnknown {
		t.Errorf("without a processor: %d %s %s", code, out, errs)
	}
	if out, errs, code := run(t, command("k3", p.url)...); code != 0 || !strings.Contains(out, "is completed with status 201") {
		t.Errorf("keys recover: %d %s %s", code, out, errs)
	}
	for _, key := range []string{"k1", "k2"} {
		if out, errs, code := run(t, append(command(key, p.url), "--json")...); code != 0 || !strings.Contains(out, `"state": "completed"`) {
			t.Errorf("%s: %d %s %s", key, code, out, errs)
		}
	}
	out, _, _ := run(t, "keys", "show", "k1", "--scope", "dev", "--store", store, "--json")
	if !strings.Contains(out, `"sends": 1`) { // it was found, not sent again
		t.Errorf("the step is %s", out)
	}
	stats, err := (&processor.Client{BaseURL: p.url, HTTP: client}).Stats(t.Context())
	if err != nil || stats.Charges != 3 || len(stats.DuplicateCharges) != 0 {
		t.Errorf("the processor has %+v, %v", stats, err)
	}
}
