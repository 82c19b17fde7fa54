package keystore_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// at is a URL to another database of the same server, or as another user.
func at(t *testing.T, text, database, user string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if database != "" {
		u.Path = "/" + database
	}
	if user != "" {
		u.User = url.UserPassword(user, "wrong-password")
	}
	return u.String()
}

// A server that answers is not said to be away: what it refuses is named. // X2
func TestRefusalIsNamed(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) string{
		"postgres": func(t *testing.T) string { t.Helper(); return testserver.Postgres(t) },
		"mysql":    func(t *testing.T) string { t.Helper(); return testserver.MySQL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := store(t)
			for what, text := range map[string]string{
				"no such database":      at(t, there, "nowhere_at_all", ""),
				"authentication failed": at(t, there, "", "nobody_of_ours"),
			} {
				_, err := keystore.Open(t.Context(), text)
				if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "does not answer") || strings.Contains(err.Error(), "wrong-password") {
					t.Errorf("%v, want %q", err, what)
				}
			}
		})
	}
}

// Taking the schema out of a URL leaves its other parameters as they were.
func TestSchemaLeavesSpaces(t *testing.T) {
	t.Parallel()
	text := testserver.Postgres(t)
	sep := "?"
	if strings.Contains(text, "?") {
		sep = "&"
	}
	text += sep + "schema=mine&options=-c%20search_path%3Dpublic"
	if err := keystore.Migrate(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	open(t, text)
}
