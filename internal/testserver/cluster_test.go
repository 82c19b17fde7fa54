package testserver

import (
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"
)

func listens(t *testing.T, dsn string) bool {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp4", u.Host, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func TestPostgres(t *testing.T) {
	t.Parallel()

	t.Run("each_call_makes_an_empty_database", func(t *testing.T) {
		t.Parallel()
		first, second := Postgres(t), Postgres(t)
		if first == second {
			t.Fatalf("both calls returned %s", first)
		}
		mustQuery(t, first, "CREATE TABLE money (amount numeric)")
		const tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
		if got := mustQuery(t, second, tables); got != "0" {
			t.Errorf("tables in the second database: %s, want 0", got)
		}
	})

	t.Run("commits_are_durable_by_default", func(t *testing.T) {
		t.Parallel()
		if external() != "" || os.Getenv(envFsync) == "off" {
			t.Skip("the environment chose other settings")
		}
		dsn := Postgres(t)
		for name, want := range map[string]string{
			"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "1000",
		} {
			if got := mustQuery(t, dsn, "SHOW "+name); got != want {
				t.Errorf("%s = %s, want %s", name, got, want)
			}
		}
	})

	t.Run("many_at_once_share_one_cluster", func(t *testing.T) {
		t.Parallel()
		if external() != "" {
			t.Skip("a server of the user's own is used")
		}
		hosts := make([]string, 8)
		var wg sync.WaitGroup
		for i := range hosts {
			wg.Go(func() {
				u, err := url.Parse(Postgres(t))
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
}

func TestClusterKill(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	before := c.DSN()
	mustQuery(t, before, "CREATE TABLE charge (id int); INSERT INTO charge VALUES (1)")

	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if listens(t, before) {
		t.Fatal("the server still listens after Kill")
	}
	if err := c.Kill(); err != nil {
		t.Errorf("Kill of a dead server: %v", err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Errorf("Start of a running server: %v", err)
	}
	if got := c.DSN(); got != before {
		t.Errorf("DSN after a restart: %s, want %s", got, before)
	}
	if got := mustQuery(t, before, "SELECT id FROM charge"); got != "1" {
		t.Errorf("committed row after a crash: %q, want 1", got)
	}
}

// A crash is a crash: the session that was in a transaction is gone, and so is
// what it had written.
func TestClusterRestartLosesOpenTransactions(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	mustQuery(t, c.DSN(), "CREATE TABLE charge (id int)")
	broken := make(chan error, 1)
	go func() {
		_, err := query(t, c.DSN(), "BEGIN; INSERT INTO charge VALUES (1); SELECT pg_sleep(600)")
		broken <- err
	}()
	eventually(t, "the session sleeps", func() bool {
		return mustQuery(t, c.DSN(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	})
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-broken; err == nil {
		t.Error("the session ended well, want a broken connection")
	}
	if got := mustQuery(t, c.DSN(), "SELECT count(*) FROM charge"); got != "0" {
		t.Errorf("uncommitted rows after a crash: %s, want 0", got)
	}
}

func TestClusterStopAndSettings(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, "fsync=off", "max_connections=20")
	dsn := c.Database(t)
	if got := mustQuery(t, dsn, "SELECT current_setting('fsync') || current_setting('max_connections')"); got != "off20" {
		t.Errorf("settings of the test: %s, want off20", got)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if listens(t, dsn) {
		t.Error("the server still listens after Stop")
	}
}

func TestClusterStartReportsItsLog(t *testing.T) {
	t.Parallel()
	if _, err := findPostgres(); err != nil {
		unavailable(t, err)
	}
	_, err := startCluster([]string{"shared_buffers=nonsense"})
	if err == nil {
		t.Fatal("started with a broken setting")
	}
	wantContains(t, err.Error(), "ended before it was ready", "shared_buffers")
}
