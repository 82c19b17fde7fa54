package tests_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// bearer stands for where a service has its credentials from.
func bearer(_ context.Context, r *http.Request, _ bool) error {
	r.Header.Set("Authorization", "Bearer sk_test")
	return nil
}

// settle is what the example's service does with what it learns.
func settle(out onceclient.Outcome, err error) {
	var refused *onceclient.RefusedError
	var unsent *onceclient.NotSentError
	switch {
	case err == nil:
		fmt.Printf("%s: %s, recorded: %t\n", out.Intent, out.Answer.Body, out.Recorded)
	case errors.As(err, &refused):
		fmt.Println(out.Intent, "is refused:", refused.Answer.Status)
	case errors.As(err, &unsent):
		fmt.Println(out.Intent, "may be done later")
	default:
		fmt.Println(out.Intent, "is open")
	}
}

// Example_client is the code of docs/CLIENTS.md.
func Example_client() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "charged with "+r.Header.Get("Authorization"))
	}))
	defer server.Close()
	ctx, api, body := context.Background(), server.URL, []byte(`{"amount":1500}`)
	jsonBody := http.Header{"Content-Type": {"application/json"}}
	dir, err := os.MkdirTemp("", "calls")
	check(err)
	defer os.RemoveAll(dir)

	journal, err := filejournal.Open(dir) // or sqljournal.New(ctx, db, …)
	check(err)
	client, err := onceclient.New(onceclient.Config{Journal: journal, Authorize: bearer})
	check(err)
	defer client.CloseIdleConnections()
	err = client.Resume(ctx, settle) // at start, and every few minutes: what a crash has left
	check(err)

	out, err := client.Do(ctx, onceclient.Request{
		Intent: "order-42/charge", Method: http.MethodPost, URL: api + "/charges", Header: jsonBody, Body: body,
	})
	settle(out, err) // by the type of err
	settle(client.Do(ctx, onceclient.Request{
		Intent: "order-42/charge", Method: http.MethodPost, URL: api + "/charges", Header: jsonBody, Body: body,
	}))
	// Output:
	// order-42/charge: charged with Bearer sk_test, recorded: false
	// order-42/charge: charged with Bearer sk_test, recorded: true
}

// The Go code of docs/CLIENTS.md is this file's, line by line.
func TestClientDocsAreCompiled(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "CLIENTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("client_docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(page), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	for line := range strings.Lines(code) {
		if line != "\n" && !strings.Contains(string(source), "\t"+line) {
			t.Errorf("this line of docs/CLIENTS.md is not in the example that runs: %s", line)
		}
	}
	if !found {
		t.Error("docs/CLIENTS.md has no Go code")
	}
}

// What the README prints of `onlyonce call` is what it prints.
func TestClientReadme(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	service := start(t, dir, "serve", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "payments.db"))
	c := newCaller(t, &till{}, "")
	first, log, code := c.call(t, service.URL+"/charges", "-d", `{"amount":1500,"currency":"ARS","source":"tok_error_after"}`, "--intent", "order-42/charge")
	want := regexp.MustCompile(`^onlyonce: attempt 1: 409 Conflict; attempt 2 follows in 5[.0-9]*s\nonlyonce: 201 Created, by attempt 2\n$`)
	if code != 0 || !want.MatchString(log) || !strings.Contains(first, `"status":"succeeded"`) {
		t.Errorf("exit code %d\n%s%s", code, first, log)
	}
	second, log, code := c.call(t, "--intent", "order-42/charge")
	if code != 0 || second != first || log != "onlyonce: 201 Created, the recorded answer of order-42/charge; nothing was sent\n" {
		t.Errorf("exit code %d\n%s%s", code, second, log)
	}
	readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), log) {
		t.Errorf("README.md does not say %s", log)
	}
}
