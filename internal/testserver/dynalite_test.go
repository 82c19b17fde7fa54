package testserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask sends one request to DynamoDB's protocol; dynalite looks at the signature's
// form alone.
func ask(t *testing.T, endpoint, operation, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	req.Header.Set("X-Amz-Date", "20260301T120000Z")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=a/20260301/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=b")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestDynalite(t *testing.T) {
	t.Parallel()
	endpoint := Dynalite(t)
	if again := Dynalite(t); again != endpoint {
		t.Errorf("%s and %s, want one server", endpoint, again)
	}
	const table = `{"TableName":"charges","BillingMode":"PAY_PER_REQUEST",
		"AttributeDefinitions":[{"AttributeName":"id","AttributeType":"S"}],"KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}`
	if code, text := ask(t, endpoint, "CreateTable", table); code != http.StatusOK {
		t.Fatalf("create table: %d %s", code, text)
	}
	eventually(t, "the table is active", func() bool {
		_, text := ask(t, endpoint, "DescribeTable", `{"TableName":"charges"}`)
		return strings.Contains(text, "ACTIVE")
	})
	put := `{"TableName":"charges","Item":{"id":{"S":"1"}},"ConditionExpression":"attribute_not_exists(id)"}`
	for i, want := range []int{http.StatusOK, http.StatusBadRequest} {
		if code, text := ask(t, endpoint, "PutItem", put); code != want {
			t.Errorf("put %d: %d %s, want %d", i, code, text, want)
		}
	}
}

// A server of its own ends with close, and leaves nothing behind.
func TestDynaliteEnds(t *testing.T) {
	t.Parallel()
	d, err := startDynalite()
	if err != nil {
		unavailable(t, err)
	}
	folder := d.folder.path
	if !listens(t, d.endpoint()) {
		t.Error("it does not listen")
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if listens(t, d.endpoint()) {
		t.Error("it still listens")
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
}

// What is missing says what to do.
func TestDynaliteMissing(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	_, err := dynaliteIn(top)
	if m, ok := errors.AsType[*missingError](err); !ok || !strings.Contains(m.hint, "make servers") {
		t.Errorf("not installed: %v", err)
	}
	script := filepath.Join(top, filepath.FromSlash(dynaliteFolder), "node_modules", "dynalite", "cli.js")
	if err := os.MkdirAll(filepath.Dir(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := dynaliteIn(top); got != script || err != nil {
		t.Errorf("installed: %s, %v", got, err)
	}
}
