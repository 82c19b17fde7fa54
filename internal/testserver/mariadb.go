package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// mysqlUser is the account that tests use, with all rights and no password. It may
// come from 127.0.0.1 only, where the servers listen.
const mysqlUser = "onlyonce"

// MariaDB is a private MariaDB server with its own data folder and port. Its methods
// may be called from several goroutines.
type MariaDB struct {
	programs mariadbPrograms
	folder   *folder
	settings []string

	mu   sync.Mutex
	port int
	proc *process // nil while the server is down
}

// MySQL makes a fresh, empty database for the test and returns its URL, of the form
// mysql://user@host:port/database. All tests of a binary share one MariaDB server,
// which [Run] stops; with ONLYONCE_TEST_MYSQL set, that server takes its place.
// Without any server the test is skipped.
func MySQL(tb testing.TB) string {
	tb.Helper()
	if dsn := os.Getenv(envMySQL); dsn != "" {
		s, err := externalMySQL(dsn)
		if err != nil {
			unavailable(tb, err)
		}
		return s.temporary(tb)
	}
	m, err := start(&shared, "mariadb", func() (*MariaDB, error) { return startMariaDB(nil) })
	if err != nil {
		unavailable(tb, err)
	}
	return m.Database(tb)
}

// NewMariaDB starts a server for one test and stops it when the test ends. Each
// setting is an argument of the server that wins over ours, such as
// "--innodb-lock-wait-timeout=1". Without an installation of MariaDB the test is
// skipped.
func NewMariaDB(tb testing.TB, settings ...string) *MariaDB {
	tb.Helper()
	m, err := startMariaDB(settings)
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := m.close(); err != nil {
			tb.Errorf("stop mariadb: %v", err)
		}
	})
	return m
}

// startMariaDB makes a server and starts it on a free port.
func startMariaDB(settings []string) (*MariaDB, error) {
	programs, err := findMariaDB()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	m := &MariaDB{programs: programs, folder: f, settings: settings}
	if err := errors.Join(m.makeTemporary(), m.install()); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	for range startTries {
		if m.port, err = freePort(); err != nil {
			break
		}
		if err = m.Start(); err == nil {
			return m, nil
		}
	}
	return nil, errors.Join(err, f.remove())
}

// install makes the data folder, and the file of statements that the server runs
// whenever it starts.
func (m *MariaDB) install() error {
	account := "'" + mysqlUser + "'@'127.0.0.1'"
	text := "CREATE USER IF NOT EXISTS " + account + ";\nGRANT ALL ON *.* TO " + account + " WITH GRANT OPTION;\n"
	if err := os.WriteFile(m.init(), []byte(text), 0o644); err != nil {
		return fmt.Errorf("configure mariadb: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := m.folder.command(ctx, m.programs.install, "--no-defaults", "--datadir="+m.data(),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0")
	// It runs a server, to which the same applies as to ours.
	cmd.Env = append(cmd.Env, "TMPDIR="+m.temporary())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run mariadb-install-db: %w\n%s", err, out)
	}
	return nil
}

// makeTemporary makes the folder of temporary tables. A server that starts deletes
// what it finds there, so that no two may share one.
func (m *MariaDB) makeTemporary() error {
	return errors.Join(os.Mkdir(m.temporary(), 0o700), m.folder.account.own(m.temporary()))
}

func (m *MariaDB) temporary() string { return m.folder.join("tmp") }

func (m *MariaDB) data() string { return m.folder.join("data") }
func (m *MariaDB) init() string { return m.folder.join("init.sql") }

// DSN is the URL of the server's own database "mysql". It stays the same over Kill
// and Start.
func (m *MariaDB) DSN() string { return m.dsn("mysql") }

func (m *MariaDB) dsn(database string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "mysql://" + mysqlUser + "@" + address(m.port) + "/" + database
}

// Database makes a fresh, empty database and returns its URL. It goes with the
// server.
func (m *MariaDB) Database(tb testing.TB) string {
	tb.Helper()
	name := databaseName()
	if err := m.server().run(tb.Context(), "CREATE DATABASE `"+name+"`"); err != nil {
		tb.Fatal(err)
	}
	return m.dsn(name)
}

func (m *MariaDB) server() *mysqlServer {
	return &mysqlServer{client: m.programs.client, dsn: m.DSN()}
}

// Start starts the server on its data and its port, and returns when it takes
// connections; after Kill that is when it has recovered. Starting a running server
// does nothing.
func (m *MariaDB) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil && !m.proc.ended() {
		return nil
	}
	cmd := m.folder.command(context.Background(), m.programs.server, m.arguments()...)
	proc, err := startProcess(cmd, m.folder.join("mariadb.log"))
	if err != nil {
		return err
	}
	if err := proc.waitReady(func() bool { return greets(m.port) }); err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	m.proc = proc
	return nil
}

// greets tells whether a server speaks at the port: it does when the statements of
// its start have run.
func greets(port int) bool {
	conn, err := net.DialTimeout("tcp4", address(port), pollInterval*50)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Read(make([]byte, 1))
	return err == nil
}

// arguments are the server's command line: our settings first, the test's last,
// because the last one counts.
func (m *MariaDB) arguments() []string {
	return slices.Concat([]string{
		"--no-defaults",
		"--datadir=" + m.data(),
		"--init-file=" + m.init(),
		"--tmpdir=" + m.temporary(),
		"--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(m.port),
		"--socket=" + m.socket(),
		"--pid-file=" + m.folder.join("pid"),
		"--skip-name-resolve",
		"--skip-log-bin",
		"--max-connections=1000",
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size=64M",
		"--innodb-log-file-size=32M",
		"--performance-schema=OFF",
	}, m.settings)
}

// socket is in the server's folder, or in its data folder under a name that is
// always short enough. URLs go over TCP either way.
func (m *MariaDB) socket() string {
	if path := m.folder.join("s.sock"); len(path) <= 100 {
		return path
	}
	return "s.sock"
}

// Kill ends the server at once (SIGKILL), as a crash does: what was committed is in
// its log, everything else is lost. It returns when the server is gone. Killing a
// dead server does nothing.
func (m *MariaDB) Kill() error { return m.end(syscall.SIGKILL) }

// Restart kills the server and starts it again on the same data and port.
func (m *MariaDB) Restart() error {
	if err := m.Kill(); err != nil {
		return err
	}
	return m.Start()
}

func (m *MariaDB) end(sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil {
		return nil
	}
	err := m.proc.stop(sig)
	m.proc = nil
	return err
}

// close ends the server for good. Nobody wants its data any more.
func (m *MariaDB) close() error {
	return errors.Join(m.Kill(), m.folder.remove())
}

// mariadbPrograms are the paths of an installation.
type mariadbPrograms struct{ server, install, client string }

func findMariaDB() (mariadbPrograms, error) {
	p := mariadbPrograms{
		server:  findProgram("mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd"),
		install: findProgram("mariadb-install-db"),
		client:  findProgram("mariadb"),
	}
	if p.server == "" || p.install == "" || p.client == "" {
		return p, &missingError{what: "mariadb not found", hint: "install mariadb-server and mariadb-client or set " + envMySQL}
	}
	return p, nil
}

// findProgram returns the first of these that is there, or "".
func findProgram(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// mysqlServer is a server on which databases are made. It is spoken to through the
// client program, so that the module needs no driver.
type mysqlServer struct{ client, dsn string }

// externalMySQL is the server that ONLYONCE_TEST_MYSQL names.
func externalMySQL(dsn string) (*mysqlServer, error) {
	if u, err := url.Parse(dsn); err != nil || u.Scheme != "mysql" {
		return nil, fmt.Errorf("read %s: not a URL of the form mysql://user:password@host:port/database", envMySQL)
	}
	client := findProgram("mariadb", "mysql")
	if client == "" {
		return nil, &missingError{what: "mariadb client not found", hint: "install mariadb-client; " + envMySQL + " needs it"}
	}
	return &mysqlServer{client: client, dsn: dsn}, nil
}

// run runs a statement and returns an error that holds what the client says.
func (s *mysqlServer) run(ctx context.Context, statement string) error {
	_, err := s.query(ctx, statement)
	return err
}

// query runs a statement and returns its rows, without their header.
func (s *mysqlServer) query(ctx context.Context, statement string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	u, err := url.Parse(s.dsn)
	if err != nil {
		return "", errors.New("read the URL of the server: not a URL")
	}
	args := []string{
		"--no-defaults", "--batch", "--skip-column-names", "--protocol=tcp",
		"--host=" + u.Hostname(), "--user=" + u.User.Username(), "--execute=" + statement,
	}
	if port := u.Port(); port != "" {
		args = append(args, "--port="+port)
	}
	cmd := exec.CommandContext(ctx, s.client, append(args, strings.TrimPrefix(u.Path, "/"))...)
	cmd.Env = cleanEnv()
	if password, ok := u.User.Password(); ok {
		cmd.Env = append(cmd.Env, "MYSQL_PWD="+password) // a command line would show it to everybody
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %q: %w\n%s", statement, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// temporary makes a database on a server of the user's own, drops it when the test
// ends, and returns its URL.
func (s *mysqlServer) temporary(tb testing.TB) string {
	tb.Helper()
	name := databaseName()
	if err := s.run(tb.Context(), "CREATE DATABASE `"+name+"`"); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// The test's own context is over by then.
		if err := s.run(context.WithoutCancel(tb.Context()), "DROP DATABASE IF EXISTS `"+name+"`"); err != nil {
			tb.Errorf("drop database of the test: %v", err)
		}
	})
	return withDatabase(s.dsn, name)
}

// envMySQL names a server of the user's own.
const envMySQL = "ONLYONCE_TEST_MYSQL"
