package pgstore_test

import (
	"errors"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// C11: a server that is there and lets nobody in is not out of reach: a bad setting
// must not switch the protection off.
func TestServerLetsNobodyIn(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	exec(t, pool, `CREATE ROLE `+roleOf(pool)+` LOGIN CONNECTION LIMIT 0`)
	for name, dsn := range map[string]string{
		"no such role": with(t, dsn, "user", "nobody_of_this_name"),
		"no database":  with(t, dsn, "dbname", "none_of_this_name"),
		"no TLS":       with(t, dsn, "sslmode", "require"),
		"too many":     with(t, dsn, "user", roleOf(pool)),
	} {
		_, err := pgstore.Open(t.Context(), dsn, pgstore.Config{})
		if err == nil || errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("%s: %v, want another error than unreachable", name, err)
		}
	}
}

// openTo has the cluster ask role app for a password, and everybody else for none.
func openTo(t *testing.T, pool *pgxpool.Pool, password string) {
	t.Helper()
	exec(t, pool, `CREATE ROLE app SUPERUSER LOGIN PASSWORD '`+password+`'`)
	var file string
	if err := pool.QueryRow(t.Context(), `SHOW hba_file`).Scan(&file); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `COPY (VALUES ('local all app scram-sha-256'), ('host all app samehost scram-sha-256'), ('local all all trust'), ('host all all samehost trust')) TO '`+file+`'`)
	exec(t, pool, `SELECT pg_reload_conf()`)
}

// as is the URL with another user and password.
func as(t *testing.T, dsn, user, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// claims claims a key of its own until it is known what became of it: a connection that
// was ended may seem to be alive once.
func claims(t *testing.T, s *pgstore.Store, value string) error {
	t.Helper()
	for {
		if _, err := s.Claim(t.Context(), request(value)); !errors.Is(err, onlyonce.ErrUncertain) {
			return err
		}
	}
}

// C11: a password that is no longer right is no outage.
func TestWrongPasswordIsNoOutage(t *testing.T) {
	t.Parallel()
	c := testserver.NewCluster(t)
	dsn := c.Database(t)
	pool := admin(t, dsn)
	openTo(t, pool, "first")
	waitFor(t, func() bool {
		s, err := pgstore.Open(t.Context(), as(t, dsn, "app", "wrong"), pgstore.Config{})
		if err == nil {
			s.Close()
		}
		if errors.Is(err, onlyonce.ErrUnreachable) || (err != nil && !strings.Contains(err.Error(), "password")) {
			t.Fatalf("open with a wrong password: %v", err)
		}
		return err != nil // the server has read its settings
	})
	s := migrated(t, as(t, dsn, "app", "first"), pgstore.Config{})
	if err := claims(t, s, "before"); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `ALTER ROLE app PASSWORD 'second'`)
	exec(t, pool, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'app'`)
	if err := claims(t, s, "after"); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "password") {
		t.Errorf("claim with an old password: %v, want unavailable", err)
	}
}

// C11: a server that says that it shuts down is out of reach, as one is that is gone.
func TestServerShutsDown(t *testing.T) {
	t.Parallel()
	c := testserver.NewCluster(t)
	dsn := c.Database(t)
	pool := admin(t, dsn)
	s := migrated(t, dsn, pgstore.Config{})
	stays, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Release()
	var pid int
	if err := stays.QueryRow(t.Context(), `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	pgstore.PoolOf(s).Reset() // the next claim needs a new connection
	// It lets nobody in any more, and waits for the session that stays.
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		err := claims(t, s, "k")
		if err != nil && !errors.Is(err, onlyonce.ErrUnreachable) {
			t.Fatalf("claim while the server shuts down: %v, want unreachable", err)
		}
		pgstore.PoolOf(s).Reset()
		return err != nil && strings.Contains(err.Error(), "57P03")
	})
}

// waitFor asks until it is so.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for !so() {
		select {
		case <-t.Context().Done():
			t.Fatal("it did not come")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
