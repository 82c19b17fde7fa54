package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(childMain())
	}
	code := Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// query runs a statement through psql and returns its rows.
func query(t *testing.T, dsn, statement string) (string, error) {
	t.Helper()
	bin, err := findPostgres()
	if err != nil {
		unavailable(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin+"/psql", "--no-psqlrc", "--no-align", "--tuples-only",
		"--set", "ON_ERROR_STOP=1", "--command", statement, dsn)
	cmd.Env = cleanEnv()
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustQuery(t *testing.T, dsn, statement string) string {
	t.Helper()
	out, err := query(t, dsn, statement)
	if err != nil {
		t.Fatalf("query %q: %v\n%s", statement, err, out)
	}
	return out
}

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	deadline := time.After(stopTimeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", stopTimeout, what)
		}
	}
}
