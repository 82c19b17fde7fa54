package testserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// superuser is the role that a private cluster belongs to.
const superuser = "postgres"

// statementTimeout bounds one statement that makes or drops a database.
const statementTimeout = time.Minute

// server is a PostgreSQL server on which databases are made. It is spoken to
// through psql, so that the module needs no driver.
type server struct {
	psql string
	dsn  string
}

// externalServer is the server that ONLYONCE_TEST_POSTGRES names.
func externalServer(dsn string) (*server, error) {
	if u, err := url.Parse(dsn); err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return nil, fmt.Errorf("read %s: not a URL of the form postgres://user:password@host:port/database", envPostgres)
	}
	psql, err := exec.LookPath("psql")
	if err != nil {
		return nil, &missingError{what: "psql not found", hint: "install postgresql-client; " + envPostgres + " needs it"}
	}
	return &server{psql: psql, dsn: dsn}, nil
}

// create makes an empty database. It copies template0, which nobody can have
// changed or be connected to.
func (s *server) create(ctx context.Context, name string) error {
	return s.run(ctx, `CREATE DATABASE "`+name+`" TEMPLATE template0`)
}

// drop removes a database, and the sessions that are still in it.
func (s *server) drop(ctx context.Context, name string) error {
	return s.run(ctx, `DROP DATABASE IF EXISTS "`+name+`" WITH (FORCE)`)
}

func (s *server) run(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.psql, "--no-psqlrc", "--quiet", "--no-password",
		"--set", "ON_ERROR_STOP=1", "--command", statement)
	// The URL may hold a password, which a command line would show to everybody.
	cmd.Env = append(cleanEnv(), postgresEnv(s.dsn)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %q: %w\n%s", statement, err, out)
	}
	return nil
}

// postgresEnv turns a URL into the variables that psql reads.
func postgresEnv(dsn string) []string {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil // externalServer has refused it
	}
	password, _ := u.User.Password()
	query := u.Query()
	var env []string
	for name, value := range map[string]string{
		"PGHOST":        u.Hostname(),
		"PGPORT":        u.Port(),
		"PGUSER":        u.User.Username(),
		"PGPASSWORD":    password,
		"PGDATABASE":    strings.TrimPrefix(u.Path, "/"),
		"PGSSLMODE":     query.Get("sslmode"),
		"PGSSLROOTCERT": query.Get("sslrootcert"),
	} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// database makes a database on a server of the user's own, drops it when the test
// ends, and returns its URL.
func (s *server) database(tb testing.TB) string {
	tb.Helper()
	name := databaseName()
	if err := s.create(tb.Context(), name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// The test's own context is over by then.
		if err := s.drop(context.WithoutCancel(tb.Context()), name); err != nil {
			tb.Errorf("drop database of the test: %v", err)
		}
	})
	return withDatabase(s.dsn, name)
}

// withDatabase returns the URL of another database on the same server.
func withDatabase(dsn, name string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn // externalServer has refused it
	}
	u.Path = "/" + name
	return u.String()
}

// databaseName is unique among all runs, since a server of the user's own may be
// shared by several.
func databaseName() string {
	return "onlyonce_test_" + strings.ToLower(rand.Text()[:16])
}

// external returns the URL of the user's own server, or "".
func external() string { return os.Getenv(envPostgres) }
