package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

func TestMain(m *testing.M) {
	runChild()
	goleak.VerifyTestMain(m)
}

// openAt opens a store on a file and closes it with the test.
func openAt(t *testing.T, path string, cfg sqlitestore.Config) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// open opens a store on a fresh file with a table of business data.
func open(t *testing.T) (s *sqlitestore.Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "once.db")
	s = openAt(t, path, sqlitestore.Config{})
	businessTable(t, s)
	return s, path
}

func businessTable(t *testing.T, s *sqlitestore.Store) {
	t.Helper()
	if _, err := s.Writer().ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS names (name TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, s *sqlitestore.Store, name string) int {
	t.Helper()
	var n int
	if err := s.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM names WHERE name = ?", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
