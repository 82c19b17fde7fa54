package keystore_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// others are the kinds of store that the payments service does not use. Without their
// server their tests are skipped.
func others() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"mysql": func(t *testing.T) string { t.Helper(); return testserver.MySQL(t) },
		"postgres+portable": func(t *testing.T) string {
			t.Helper()
			return strings.Replace(testserver.Postgres(t), "postgres", "postgres+portable", 1)
		},
		"redis": func(t *testing.T) string { t.Helper(); return testserver.Redis(t) },
	}
}

// Every kind is made ready by several at once, holds keys, and is swept.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	for kind, store := range others() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			for _, m := range status(t, url) {
				if m.Applied || !m.Known() {
					t.Errorf("of an empty store: %+v", m)
				}
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if err := keystore.Migrate(t.Context(), url); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			list := status(t, url)
			for _, m := range list {
				if !m.Applied {
					t.Errorf("pending: %+v", m)
				}
			}
			if (kind == "redis") != (len(list) == 0) {
				t.Errorf("%d migrations", len(list))
			}
			s := open(t, url)
			if s.Kind != kind {
				t.Errorf("kind %q", s.Kind)
			}
			useAndSweep(t, s)
		})
	}
}

// useAndSweep takes a key through its life, and another one to its end.
func useAndSweep(t *testing.T, s *keystore.Store) {
	t.Helper()
	for value, retention := range map[string]time.Duration{"kept": time.Hour, "old": time.Millisecond} {
		req := claim(value)
		req.Retention = retention
		settled, err := s.Complete(t.Context(), mustClaim(t, s, req, onlyonce.Won).Record.Owner(), onlyonce.Answer{Status: 201, Body: []byte("b")})
		if err != nil || !settled.Held {
			t.Errorf("complete: %+v, %v", settled, err)
		}
	}
	for found := true; found; { // until it has expired by the store's clock
		var err error
		if _, found, err = s.Get(t.Context(), claim("old").Key); err != nil {
			t.Fatal(err)
		}
	}
	quiet, err := s.Rounds(t.Context())
	if err != nil || quiet != 1 {
		t.Errorf("%d rounds, %v", quiet, err)
	}
	if sum, err := (onlyonce.Sweeper{Store: s, Quiet: quiet}).Once(t.Context()); err != nil || sum.Deleted != 1 || sum.Parked+sum.Freed+sum.Steps != 0 || sum.More {
		t.Errorf("sweep: %+v, %v", sum, err)
	}
	mustClaim(t, s, claim("kept"), onlyonce.Replay)
	mustClaim(t, s, claim("old"), onlyonce.Won)
}

// A table of DynamoDB is made by Migrate alone.
func TestDynamoDB(t *testing.T) {
	endpoint := testserver.Dynalite(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "none")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "none")
	t.Setenv("AWS_CA_BUNDLE", "") // for somebody else's servers
	url := "dynamodb://keystore-" + onlyonce.NewToken().String() + "?region=eu-central-1&sweep=expired&endpoint=" + endpoint
	if _, err := keystore.Status(t.Context(), strings.Replace(url, "=expired", "=all", 1)); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a parameter that is wrong: %v", err)
	}
	if _, err := keystore.Status(t.Context(), url); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("status without a table: %v", err)
	}
	migrate(t, url)
	migrate(t, url)
	if list := status(t, url); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	s := open(t, url)
	mustClaim(t, s, claim("k"), onlyonce.Won)
	if !s.Features().Observes || s.Kind != "dynamodb" {
		t.Errorf("kind %q, %+v", s.Kind, s.Features())
	}
	if _, err := s.Size(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("size: %v", err)
	}
}

// Keys with another prefix are another store's.
func TestRedisPrefix(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t)
	mustClaim(t, open(t, url+"?prefix=mine:"), claim("k"), onlyonce.Won)
	mustClaim(t, open(t, url+"?prefix=theirs:"), claim("k"), onlyonce.Won)
	mustClaim(t, open(t, url+"?prefix=mine:"), claim("k"), onlyonce.Busy)
	if _, err := keystore.Open(t.Context(), url+"?prefix=%z"); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a prefix that cannot be read: %v", err)
	}
}

// MySQL's URL is the store's own; what is wrong with it is said without the password,
// and the table tells its size.
func TestMySQL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"mysql://u:secret@h", "mysql://u:secret@h/", "mysql://u:sec ret@h:x/d", "mysql://u:secret@h/d?tls=none-such"} {
		_, err := keystore.Open(t.Context(), url)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := keystore.Open(t.Context(), "mysql://u:secret@127.0.0.1:1/d"); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
	url := testserver.MySQL(t)
	migrate(t, url)
	s := open(t, url)
	fill(t, s, "k", 3, 100)
	if size, err := s.Size(t.Context()); err != nil || size.Keys != 3 || size.Table <= 0 {
		t.Errorf("size %+v, %v", size, err)
	}
	if _, err := keystore.Scratch(t.Context(), url); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("scratch: %v", err)
	}
}
