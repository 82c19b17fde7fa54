package sqljournal_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/journaltest"
)

func TestMain(m *testing.M) {
	runChild()
	code := testserver.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// place is a fresh, empty database.
type place struct {
	dialect     sqljournal.Dialect
	driver, dsn string
}

// dialects are how a fresh database of each kind is made.
func dialects() map[string]func(t *testing.T) place {
	return map[string]func(t *testing.T) place{"sqlite": sqlite, "postgres": postgres, "mysql": mariadb}
}

func sqlite(t *testing.T) place {
	t.Helper()
	return place{sqljournal.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "journal.db") + sqliteSettings}
}

const sqliteSettings = "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(20000)"

func postgres(t *testing.T) place {
	t.Helper()
	return place{sqljournal.Postgres, "pgx", testserver.Postgres(t)}
}

func mariadb(t *testing.T) place {
	t.Helper()
	u, err := url.Parse(testserver.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
	cfg.Passwd, _ = u.User.Password()
	return place{sqljournal.MySQL, "mysql", cfg.FormatDSN()}
}

// pool opens a pool, and closes it with the test.
func (p place) pool(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open(p.driver, p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (p place) config() sqljournal.Config {
	return sqljournal.Config{Dialect: p.dialect, Lease: time.Minute}
}

// open opens a journal with a pool of its own.
func (p place) open(t *testing.T) *sqljournal.Journal {
	t.Helper()
	return newJournal(t, p.pool(t), p.config())
}

func newJournal(t *testing.T, db *sql.DB, cfg sqljournal.Config) *sqljournal.Journal {
	t.Helper()
	j, err := sqljournal.New(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Every actor has a pool of its own, as other processes have.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journaltest.RunShared(t, func(t *testing.T) func() onceclient.Journal {
				t.Helper()
				p := fresh(t)
				return func() onceclient.Journal { return p.open(t) }
			})
		})
	}
}

func moment() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func entryOf(intent string) onceclient.Entry {
	return onceclient.Entry{
		Intent: intent, Key: "key of " + intent, Method: http.MethodPost, Target: "https://api.example.com/charges",
		Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"amount":1999}`), CreatedAt: moment(),
	}
}

func answered(e onceclient.Entry) onceclient.Entry {
	e.State, e.EndedAt, e.Attempts = onceclient.Answered, moment(), 1
	e.Answer = &onceclient.Answer{Status: http.StatusCreated, Body: []byte("answer of " + e.Intent)}
	return e
}

func begin(t *testing.T, j *sqljournal.Journal, intent string) {
	t.Helper()
	if _, made, err := j.Begin(t.Context(), entryOf(intent)); err != nil || !made {
		t.Fatalf("begin %q: made %v, %v", intent, made, err)
	}
}

// stands is an entry as it is.
func stands(t *testing.T, j *sqljournal.Journal, intent string) onceclient.Entry {
	t.Helper()
	other := entryOf(intent)
	other.Key = "another key"
	e, made, err := j.Begin(t.Context(), other)
	if err != nil || made {
		t.Fatalf("begin %q again: made %v, %v", intent, made, err)
	}
	return e
}

func lock(t *testing.T, j *sqljournal.Journal, intent string) (onceclient.Lock, onceclient.Entry) {
	t.Helper()
	l, e, err := j.Lock(t.Context(), intent)
	if err != nil {
		t.Fatalf("lock %q: %v", intent, err)
	}
	t.Cleanup(func() { l.Unlock() })
	return l, e
}

func run(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// one reads one value.
func one[T any](t *testing.T, db *sql.DB, query string) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// until tries something again until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// wantCode checks an error's code, and that it says what to do.
func wantCode(t *testing.T, err error, code onlyonce.Code) {
	t.Helper()
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || e.Code != code || (code == onlyonce.CodeConfig && e.Hint == "") {
		t.Errorf("error %v, want %s with a hint", err, code)
	}
}
