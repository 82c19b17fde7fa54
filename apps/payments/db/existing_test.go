package db_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// Whoever only looks makes nothing: a database of something else is an error, and
// is still without our tables afterwards.
func TestOpenExistingMakesNothing(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			t.Helper()
			path := filepath.Join(t.TempDir(), "other.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return "sqlite:" + path
		},
		"postgres": func(t *testing.T) string {
			t.Helper()
			return testserver.Postgres(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := url(t)
			for range 2 {
				if _, err := db.OpenExisting(t.Context(), u); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
					t.Fatalf("a database without keys: %v", err)
				}
			}
			made, err := db.Open(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			if err := made.Close(); err != nil {
				t.Fatal(err)
			}
			seen, err := db.OpenExisting(t.Context(), u)
			if err != nil {
				t.Fatalf("a database with keys: %v", err)
			}
			if _, found, err := seen.Keys().Get(t.Context(), onlyonce.Key{Scope: "a", Value: "k"}); found || err != nil {
				t.Errorf("read a key: found %v, %v", found, err)
			}
			if err := seen.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
