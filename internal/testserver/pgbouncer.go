package testserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// defaultPoolSize is small, so that a handful of clients already share sessions:
// what breaks in transaction mode breaks soon.
const defaultPoolSize = 5

// PgBouncerConfig says how a pooler is set up. The zero value is transaction mode
// without prepared statements over five sessions.
type PgBouncerConfig struct {
	// PoolSize is the number of sessions per database. Defaults to 5.
	PoolSize int
	// MaxPreparedStatements is PgBouncer's setting of that name. Zero, the
	// default, is off. Anything else needs PgBouncer 1.21; the test is skipped on
	// an older one.
	MaxPreparedStatements int
	// PoolMode is "transaction" (the default), "session" or "statement".
	PoolMode string
}

// WithDefaults returns a copy with every unset field filled in.
func (c PgBouncerConfig) WithDefaults() PgBouncerConfig {
	c.PoolSize = cmp.Or(c.PoolSize, defaultPoolSize)
	c.PoolMode = cmp.Or(c.PoolMode, "transaction")
	return c
}

// PgBouncer starts a pooler in transaction mode in front of the database that dsn
// names, and returns the URL to reach it by. It stops when the test ends. Without
// PgBouncer the test is skipped.
func PgBouncer(tb testing.TB, dsn string) string {
	tb.Helper()
	return PgBouncerWith(tb, dsn, PgBouncerConfig{})
}

// PgBouncerWith is [PgBouncer] with settings.
func PgBouncerWith(tb testing.TB, dsn string, config PgBouncerConfig) string {
	tb.Helper()
	b, err := newBouncer(dsn, config.WithDefaults())
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := b.close(); err != nil {
			tb.Errorf("stop pgbouncer: %v", err)
		}
	})
	return b.dsn()
}

// bouncer is a running PgBouncer.
type bouncer struct {
	config   PgBouncerConfig
	database *url.URL
	folder   *folder
	port     int
	proc     *process
}

// newBouncer starts PgBouncer on a free port.
func newBouncer(dsn string, config PgBouncerConfig) (*bouncer, error) {
	database, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("read the URL of the database behind pgbouncer: not a URL")
	}
	program, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask pgbouncer for its version: %w", err)
	}
	prepared, err := preparedLine(string(version), config.MaxPreparedStatements)
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	b := &bouncer{config: config, database: database, folder: f}
	for range startTries {
		if err = b.start(program, prepared); err == nil {
			return b, nil
		}
	}
	return nil, errors.Join(err, f.remove())
}

// start writes the configuration and starts the program with it.
func (b *bouncer) start(program, prepared string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	b.port = port
	files := map[string]string{
		"pgbouncer.ini": b.ini() + prepared,
		"users.txt":     quoted(b.user()) + ` ""` + "\n",
	}
	for name, text := range files {
		if err := b.write(name, text); err != nil {
			return fmt.Errorf("configure pgbouncer: %w", err)
		}
	}
	cmd := b.folder.command(context.Background(), program, "pgbouncer.ini")
	if b.proc, err = startProcess(cmd, b.folder.join("pgbouncer.log")); err != nil {
		return err
	}
	if err := b.proc.waitReady(b.ready); err != nil {
		return errors.Join(err, b.proc.stop(syscall.SIGKILL))
	}
	return nil
}

// write makes a file that only the server's account can read: one of them may hold
// the password of a server of the user's own.
func (b *bouncer) write(name, text string) error {
	path := b.folder.join(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return b.folder.account.own(path)
}

func (b *bouncer) ini() string {
	return strings.Join([]string{
		"[databases]",
		b.name() + " = " + b.target(),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(b.port),
		"unix_socket_dir =",
		"auth_type = trust",
		"auth_file = users.txt",
		"pool_mode = " + b.config.PoolMode,
		"default_pool_size = " + strconv.Itoa(b.config.PoolSize),
		"max_client_conn = " + strconv.Itoa(maxConnections),
		"ignore_startup_parameters = extra_float_digits",
		"server_tls_sslmode = " + cmp.Or(b.database.Query().Get("sslmode"), "prefer"),
		"",
	}, "\n")
}

// target is where PgBouncer finds the database.
func (b *bouncer) target() string {
	password, _ := b.database.User.Password()
	parts := []string{
		"host=" + b.database.Hostname(),
		"port=" + cmp.Or(b.database.Port(), "5432"),
		"dbname=" + b.name(),
		"user=" + b.user(),
	}
	if password != "" {
		parts = append(parts, "password='"+strings.ReplaceAll(password, "'", "''")+"'")
	}
	return strings.Join(parts, " ")
}

func (b *bouncer) name() string { return strings.TrimPrefix(b.database.Path, "/") }

func (b *bouncer) user() string { return cmp.Or(b.database.User.Username(), superuser) }

func (b *bouncer) dsn() string {
	return "postgres://" + url.PathEscape(b.user()) + "@" + address(b.port) + "/" + b.name() + "?sslmode=disable"
}

// ready reports whether something listens; PgBouncer does so last of all.
func (b *bouncer) ready() bool {
	conn, err := net.DialTimeout("tcp4", address(b.port), time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// close kills the program. It keeps nothing, and its orderly ends would wait for
// clients.
func (b *bouncer) close() error {
	return errors.Join(b.proc.stop(syscall.SIGKILL), b.folder.remove())
}

// preparedLine is the setting for prepared statements. PgBouncer knows it since
// 1.21 and refuses names that it does not know; since 1.24 its default is no
// longer off, so it is always spelled out where it exists.
func preparedLine(version string, n int) (string, error) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "PgBouncer %d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("read version of pgbouncer from %q: %w", version, err)
	}
	if major == 1 && minor < 21 {
		if n == 0 {
			return "", nil
		}
		return "", &missingError{
			what: fmt.Sprintf("pgbouncer %d.%d has no prepared statements", major, minor),
			hint: "install 1.21 or newer",
			old:  true,
		}
	}
	return "max_prepared_statements = " + strconv.Itoa(n) + "\n", nil
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
