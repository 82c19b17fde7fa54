package pgstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// leastPrivilege makes a role with rights on data only, and the URL to be it.
// The role is named after its database; roles of a cluster outlive databases.
func leastPrivilege(t *testing.T, pool *pgxpool.Pool, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	role := roleOf(pool)
	exec(t, pool, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'x'`, role))
	exec(t, pool, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	u.User = url.UserPassword(role, "x")
	return u.String()
}

func roleOf(pool *pgxpool.Pool) string { return "least_" + pool.Config().ConnConfig.Database }

// grant gives that role the rights on data in a schema.
func grant(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	name := pgx.Identifier{cmp.Or(schema, "public")}.Sanitize()
	exec(t, pool, fmt.Sprintf(`GRANT USAGE ON SCHEMA %s TO %s`, name, roleOf(pool)))
	exec(t, pool, fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s`, name, roleOf(pool)))
}

// A role that may not create tables runs Migrate as well, once they are there,
// and is told what to do before.
func TestMigrateWithRightsOnDataOnly(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	least := leastPrivilege(t, pool, dsn)
	s := open(t, least, pgstore.Config{})
	err := s.Migrate(t.Context())
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" {
		t.Fatalf("migrate without the right: %v", err)
	}
	if _, err := s.Claim(t.Context(), request("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("claim without tables: %v", err)
	}
	migrated(t, dsn, pgstore.Config{})
	if _, err := s.Claim(t.Context(), request("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("claim without rights: %v", err)
	}
	grant(t, pool, "")
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("migrate with nothing to do: %v", err)
	}
	complete(t, s, want(t, s, request("k"), onlyonce.Won).Record.Owner())
}
