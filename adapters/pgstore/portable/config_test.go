package portable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// All that is wrong is said at once, by field, before anything is connected to.
func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	bad := portable.Config{Isolation: "chaos", EngineIsolation: true, Schema: strings.Repeat("x", 64), LockTimeout: time.Microsecond}
	_, err := portable.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none", bad)
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Fatalf("open: %v", err)
	}
	for _, field := range []string{"Isolation", "EngineIsolation", "Schema", "LockTimeout"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	if _, err := portable.Open(t.Context(), "postgres://%zz", portable.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a URL that cannot be read: %v", err)
	}
	if _, err := portable.New(nil, portable.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no pool: %v", err)
	}
	if err := (portable.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

// What is promised goes with the clocks.
func TestFeatures(t *testing.T) {
	t.Parallel()
	pool := admin(t, "postgres://nobody@127.0.0.1:1/none")
	for _, oneClock := range []bool{false, true} {
		s, err := portable.New(pool, portable.Config{OneClock: oneClock})
		if err != nil {
			t.Fatal(err)
		}
		if f := s.Features(); f.Observes == oneClock || !f.CommitDecides || !f.Durable {
			t.Errorf("one clock %v: %+v", oneClock, f)
		}
	}
}

// Transactions run at the level that was asked for, not at the sessions' default, and
// with the lock timeout, which ends with them.
func TestSettingsOfTransactions(t *testing.T) {
	t.Parallel()
	dsn := with(t, testserver.Postgres(t), "pool_max_conns", "1")
	migrated(t, dsn, portable.Config{}).Close()
	for _, tt := range []struct {
		cfg         portable.Config
		level, wait string
	}{
		{portable.Config{}, "serializable", "250ms"},
		{portable.Config{Isolation: pgx.RepeatableRead, LockTimeout: time.Second}, "repeatable read", "1s"},
		{portable.Config{Isolation: pgx.ReadCommitted, LockTimeout: -1}, "read committed", "0"},
		{portable.Config{EngineIsolation: true}, "read committed", "250ms"},
	} {
		s := migrated(t, dsn, tt.cfg)
		var level, wait string
		_, err := s.Finish(t.Context(), want(t, s, request(tt.level+tt.wait), onlyonce.Won).Record.Owner(), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
			err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation'), current_setting('lock_timeout')`).Scan(&level, &wait)
			return nil, err
		})
		if err != nil || level != tt.level || wait != tt.wait {
			t.Errorf("%+v: %q, lock timeout %q, %v", tt.cfg, level, wait, err)
		}
		if after := one[string](t, portable.PoolOf(s), `SELECT current_setting('lock_timeout')`); after != "0" {
			t.Errorf("a lock timeout of %s was left on the session", after)
		}
		s.Close()
	}
}

// An engine that does not begin transactions as we do is explained.
func TestEngineThatRefusesToBegin(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]onlyonce.Code{"42704": onlyonce.CodeConfig, "0A000": onlyonce.CodeConfig, "57P01": ""} {
		err := portable.RefusedToBegin(&pgconn.PgError{Code: code, Severity: "ERROR"})
		if onlyonce.CodeOf(err) != want {
			t.Errorf("SQLSTATE %s: %v", code, err)
		}
	}
	if err := portable.RefusedToBegin(errors.ErrUnsupported); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another error: %v", err)
	}
}

// K3, S1: should a database not compare text by its bytes, one key's answer is not
// given to another: that is an error.
func TestTextThatIsNotComparedByItsBytes(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, portable.Config{}), admin(t, dsn)
	if _, err := pool.Exec(t.Context(), `CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`); err != nil {
		t.Skip("this PostgreSQL has no collation that takes different texts for equal: ", err)
	}
	exec(t, pool, `ALTER TABLE onlyonce_portable_keys ALTER COLUMN key TYPE text COLLATE blind`)
	complete(t, s, want(t, s, request("KEY"), onlyonce.Won).Record.Owner())
	c, err := s.Claim(t.Context(), request("key"))
	if err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("claim of another key: %v, %v; want an error", c.Verdict, err)
	}
	if _, found, err := s.Get(t.Context(), request("key").Key); err == nil {
		t.Errorf("get of another key: found %v", found)
	}
	if c, err := s.Claim(t.Context(), request("KEY")); err != nil || c.Verdict != onlyonce.Replay {
		t.Errorf("the key itself: %v, %v", c.Verdict, err)
	}
}
