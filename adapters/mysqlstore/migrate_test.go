package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// apply runs a migration's statements as a person's own tool would.
func apply(t *testing.T, db *sql.DB, file string) {
	t.Helper()
	text, err := fs.ReadFile(mysqlstore.Migrations(), file)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range strings.SplitAfter(string(text), ";\n") {
		if strings.TrimSpace(statement) != "" {
			exec(t, db, statement)
		}
	}
}

// schema is all that the server says of our tables.
func schema(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range names {
		var text string
		if err := db.QueryRowContext(t.Context(), `SHOW CREATE TABLE `+name).Scan(new(string), &text); err != nil {
			t.Fatal(err)
		}
		found[name] = text
	}
	return found
}

// Down removes everything, up makes it again; what a person's tool makes is what
// Migrate makes, and nothing in it has a collation.
func TestMigrationsDownUp(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	db := admin(t, dsn)
	s := open(t, dsn, mysqlstore.Config{})
	first := schema(t, db)
	for name, text := range first {
		if !strings.Contains(text, "CHARSET=binary") || strings.Contains(text, "COLLATE") {
			t.Errorf("%s compares letters:\n%s", name, text)
		}
	}
	for range 2 { // each may be run again
		apply(t, db, "0001_init.down.sql")
	}
	if left := schema(t, db); len(left) != 0 {
		t.Errorf("down left %v", left)
	}
	if _, err := s.Claim(t.Context(), request("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("claim without tables: %v", err)
	}
	for range 2 {
		apply(t, db, "0001_init.up.sql")
	}
	if diff := cmp.Diff(first, schema(t, db)); diff != "" {
		t.Errorf("up again (-first +second):\n%s", diff)
	}
	want(t, open(t, dsn, mysqlstore.Config{SkipMigrate: true}), request("k"), onlyonce.Won)
}

// A migration that a crash has cut off is taken up where it stands, with what is in
// the tables that were made.
func TestMigrationIsTakenUp(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	db := admin(t, dsn)
	req := request("k")
	complete(t, open(t, dsn, mysqlstore.Config{}), want(t, open(t, dsn, mysqlstore.Config{}), req, onlyonce.Won).Record.Owner())
	whole := schema(t, db)
	exec(t, db, `DROP TABLE onlyonce_audit, onlyonce_kept`)
	exec(t, db, `DELETE FROM onlyonce_migrations`)
	s := open(t, dsn, mysqlstore.Config{})
	want(t, s, again(req), onlyonce.Replay)
	if diff := cmp.Diff(whole, schema(t, db)); diff != "" {
		t.Errorf("taken up (-whole +now):\n%s", diff)
	}
}

// Any number of programs may start on an empty database at once.
func TestMigratorsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := mysqlstore.Open(t.Context(), dsn, mysqlstore.Config{MaxConns: 2})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, _, err := s.Get(t.Context(), request("k").Key); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A migrator waits for another one for as long as it may.
func TestMigratorWaits(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s := open(t, dsn, mysqlstore.Config{})
	exec(t, s.DB(), `DELETE FROM onlyonce_migrations`)
	conn, err := admin(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `DO GET_LOCK(?, 0)`, mysqlstore.MigrateLock(s)); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Migrate(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("migrate beside another one: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Migrate(t.Context()) }()
	if _, err := conn.ExecContext(t.Context(), `DO RELEASE_LOCK(?)`, mysqlstore.MigrateLock(s)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("migrate behind another one: %v", err)
	}
}

// A program does not touch tables that are newer than it.
func TestLaterTablesAreRefused(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	open(t, dsn, mysqlstore.Config{})
	exec(t, admin(t, dsn), `INSERT INTO onlyonce_migrations VALUES (99, 'later', 1)`)
	for _, skip := range []bool{false, true} {
		_, err := mysqlstore.Open(t.Context(), dsn, mysqlstore.Config{SkipMigrate: skip})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "99") {
			t.Errorf("opened: %v", err)
		}
	}
}

// A user with rights on data only can do everything once the tables are there.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	m := testserver.NewMariaDB(t)
	dsn := m.Database(t)
	open(t, dsn, mysqlstore.Config{})
	db := admin(t, dsn)
	exec(t, db, `CREATE USER app@'127.0.0.1' IDENTIFIED BY 's3:cr/et@'`)
	exec(t, db, `GRANT SELECT, INSERT, UPDATE, DELETE ON `+one[string](t, db, `SELECT DATABASE()`)+`.* TO app@'127.0.0.1'`)
	s := open(t, strings.Replace(dsn, "onlyonce@", "app:s3%3Acr%2Fet%40@", 1), mysqlstore.Config{})
	req := request("k")
	req.Resource, req.Keep, req.Lease = "r", []byte("x"), 1
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if due, err := s.Due(t.Context(), onlyonce.DueRequest{Limit: 1}); err != nil || len(due) != 1 {
		t.Errorf("due: %v, %v", due, err)
	}
	if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); err != nil || r.Freed != 1 {
		t.Errorf("sweep: %+v, %v", r, err)
	}
	if _, settled, err := s.Atomic(t.Context(), request("atomic"), answers); err != nil || !settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
	if held, err := s.Release(t.Context(), owner, "r"); !held || err != nil {
		t.Errorf("release of what a sweeper has freed: %v, %v", held, err)
	}
}
