package portable_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func migrationFile(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(portable.Migrations(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Migrating twice, after half of it, from files, and down and up again comes to the same.
func TestMigrateIsRepeatable(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	const shape = `SELECT string_agg(x, E'\n' ORDER BY x) FROM (
		SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable) FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT concat_ws(' ', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace) a (x)`
	s := migrated(t, dsn, portable.Config{})
	made := one[string](t, pool, shape)
	up, down := migrationFile(t, "0001_init.up.sql"), migrationFile(t, "0001_init.down.sql")
	for name, prepare := range map[string]func(){
		"twice": func() {},
		"half": func() {
			exec(t, pool, `DROP TABLE onlyonce_portable_steps`)
			exec(t, pool, `DELETE FROM onlyonce_portable_schema`)
		},
		"no index": func() {
			exec(t, pool, `DROP INDEX onlyonce_portable_keys_due`)
			exec(t, pool, `DELETE FROM onlyonce_portable_schema`)
		},
		"down":       func() { exec(t, pool, down) },
		"down twice": func() { exec(t, pool, down); exec(t, pool, down) },
		"by hand":    func() { exec(t, pool, down); exec(t, pool, up) },
	} {
		prepare()
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := one[string](t, pool, shape); got != made {
			t.Errorf("%s: the tables are\n%s\nwant\n%s", name, got, made)
		}
	}
	want(t, s, request("k"), onlyonce.Won)
}

// Several programs that start at once all find the tables made.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]portable.Config{"public": {}, "schema": {Schema: `o"nce`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			each(6, func(int) {
				s, err := portable.Open(t.Context(), dsn, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if _, err := s.Claim(t.Context(), request("k")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A program that is older than the tables says so.
func TestMigrateRefusesNewerTables(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s := migrated(t, dsn, portable.Config{})
	exec(t, admin(t, dsn), `INSERT INTO onlyonce_portable_schema VALUES (2)`)
	if err := s.Migrate(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("migrate: %v", err)
	}
	if _, err := portable.Open(t.Context(), dsn, portable.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("open: %v", err)
	}
}

// A role with rights on data alone can do everything once the tables are there, and
// is told what to do before.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	role := pgx.Identifier{"role_of_" + pool.Config().ConnConfig.Database}.Sanitize()
	exec(t, pool, `CREATE ROLE `+role+` LOGIN`)
	exec(t, pool, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	least := with(t, dsn, "user", strings.Trim(role, `"`))
	if _, err := portable.Open(t.Context(), least, portable.Config{}); err == nil {
		t.Fatal("it made tables without the right to")
	}
	s, err := portable.Open(t.Context(), least, portable.Config{SkipMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var e *onlyonce.Error
	if _, err := s.Claim(t.Context(), request("k")); !errors.As(err, &e) || e.Code != onlyonce.CodeStoreUnavailable || !strings.Contains(e.Hint, "Migrate") {
		t.Errorf("without tables: %v", err)
	}
	migrated(t, dsn, portable.Config{})
	exec(t, pool, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	full := migrated(t, least, portable.Config{})
	owner := want(t, full, request("k"), onlyonce.Won).Record.Owner()
	complete(t, full, owner)
	if _, err := full.Sweep(t.Context(), batch); err != nil {
		t.Error(err)
	}
}
