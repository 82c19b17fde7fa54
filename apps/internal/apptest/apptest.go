// Package apptest is what the tests of several packages of this module share.
package apptest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// Exit ends a TestMain with the tests' exit code, or with 1 if they have left
// goroutines behind.
func Exit(code int) {
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Stores are what tests run on: functions that make an empty store, by the name
// of its kind, and return its URL. Without PostgreSQL its tests are skipped.
func Stores() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"sqlite":   SQLite,
		"postgres": func(t *testing.T) string { t.Helper(); return testserver.Postgres(t) },
	}
}

// SQLite is the URL of a file that is not there yet.
func SQLite(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "test.db")
}
