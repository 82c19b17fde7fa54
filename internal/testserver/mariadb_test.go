package testserver

import (
	"net/url"
	"os"
	"sync"
	"testing"
)

func mysqlQuery(t *testing.T, dsn, statement string) string {
	t.Helper()
	s, err := externalMySQL(dsn)
	if err != nil {
		unavailable(t, err)
	}
	out, err := s.query(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMySQL(t *testing.T) {
	t.Parallel()

	t.Run("each_call_makes_an_empty_database", func(t *testing.T) {
		t.Parallel()
		first, second := MySQL(t), MySQL(t)
		if first == second {
			t.Fatalf("both calls returned %s", first)
		}
		mysqlQuery(t, first, "CREATE TABLE money (amount decimal)")
		if got := mysqlQuery(t, second, "SHOW TABLES"); got != "" {
			t.Errorf("tables in the second database: %s, want none", got)
		}
	})

	t.Run("many_at_once_share_one_server", func(t *testing.T) {
		t.Parallel()
		hosts := make([]string, 8)
		var wg sync.WaitGroup
		for i := range hosts {
			wg.Go(func() {
				u, err := url.Parse(MySQL(t))
				if err != nil {
					t.Error(err)
					return
				}
				hosts[i] = u.Host
			})
		}
		wg.Wait()
		for _, h := range hosts {
			if h != hosts[0] {
				t.Errorf("servers %v, want one", hosts)
			}
		}
	})

	t.Run("commits_are_durable", func(t *testing.T) {
		t.Parallel()
		if os.Getenv(envMySQL) != "" {
			t.Skip("the environment chose another server")
		}
		if got := mysqlQuery(t, MySQL(t), "SELECT @@innodb_flush_log_at_trx_commit"); got != "1" {
			t.Errorf("innodb_flush_log_at_trx_commit = %s, want 1", got)
		}
	})
}

func TestMariaDBKill(t *testing.T) {
	t.Parallel()
	m := NewMariaDB(t, "--innodb-lock-wait-timeout=7")
	before := m.Database(t)
	mysqlQuery(t, before, "CREATE TABLE charge (id int); INSERT INTO charge VALUES (1)")
	if got := mysqlQuery(t, before, "SELECT @@innodb_lock_wait_timeout"); got != "7" {
		t.Errorf("a setting of the test's: %s, want 7", got)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if listens(t, before) {
		t.Fatal("the server still listens after Kill")
	}
	if err := m.Kill(); err != nil {
		t.Errorf("Kill of a dead server: %v", err)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(); err != nil {
		t.Errorf("Start of a running server: %v", err)
	}
	if got := mysqlQuery(t, before, "SELECT id FROM charge"); got != "1" {
		t.Errorf("committed row after a crash: %q, want 1", got)
	}
}

func TestMariaDBStartReportsItsLog(t *testing.T) {
	t.Parallel()
	if _, err := findMariaDB(); err != nil {
		unavailable(t, err)
	}
	_, err := startMariaDB([]string{"--no-such-setting"})
	if err == nil {
		t.Fatal("started with a broken setting")
	}
	wantContains(t, err.Error(), "ended before it was ready", "no-such-setting")
}

func TestExternalMySQLWantsAURL(t *testing.T) {
	t.Parallel()
	if _, err := externalMySQL("root@tcp(localhost)/test"); err == nil {
		t.Error("a name in the driver's own form was taken for a URL")
	}
}
