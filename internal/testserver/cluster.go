package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// maxConnections is far above PostgreSQL's default, because concurrency tests
// open a connection per contender.
const maxConnections = 1000

// startTries bounds how often another port is tried when the first one was taken
// between looking and listening.
const startTries = 3

// Cluster is a private PostgreSQL server with its own data folder and port. Its
// methods may be called from several goroutines.
type Cluster struct {
	bin      string // folder of the installation
	folder   *folder
	settings []string

	mu   sync.Mutex
	port int
	proc *process // nil while the server is down
}

// NewCluster starts a cluster for one test and stops it when the test ends. Each
// setting is a line "name=value" of postgresql.conf that wins over ours, such as
// "fsync=off". Without an installation of PostgreSQL the test is skipped.
func NewCluster(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	c, err := startCluster(settings)
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := c.close(); err != nil {
			tb.Errorf("stop cluster: %v", err)
		}
	})
	return c
}

// startCluster makes a cluster and starts it on a free port.
func startCluster(settings []string) (*Cluster, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, folder: f, settings: settings}
	if err := c.initdb(); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	for range startTries {
		if c.port, err = freePort(); err != nil {
			break
		}
		if err = c.Start(); err == nil {
			return c, nil
		}
	}
	return nil, errors.Join(err, f.remove())
}

// initdb makes the data folder. Its files are not flushed: it is ours alone, and
// a machine that crashes now takes the test with it.
func (c *Cluster) initdb() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := c.folder.command(ctx, c.bin+"/initdb", "--pgdata", c.data(), "--username", superuser,
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb: %w\n%s", err, out)
	}
	return nil
}

func (c *Cluster) data() string { return c.folder.join("data") }

// DSN is the URL of the cluster's own database "postgres", as its superuser. It
// stays the same over Kill and Start.
func (c *Cluster) DSN() string { return c.dsn("postgres") }

func (c *Cluster) dsn(database string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "postgres://" + superuser + "@" + address(c.port) + "/" + database + "?sslmode=disable"
}

// Database makes a fresh, empty database and returns its URL. It goes with the
// cluster.
func (c *Cluster) Database(tb testing.TB) string {
	tb.Helper()
	name := databaseName()
	if err := c.server().create(tb.Context(), name); err != nil {
		tb.Fatal(err)
	}
	return c.dsn(name)
}

func (c *Cluster) server() *server {
	return &server{psql: c.bin + "/psql", dsn: c.DSN()}
}

// Start starts the server on its data and its port, and returns when it takes
// connections; after Kill that is when it has recovered. Starting a running
// server does nothing.
func (c *Cluster) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil && !c.proc.ended() {
		return nil
	}
	cmd := c.folder.command(context.Background(), c.bin+"/postgres", c.arguments()...)
	proc, err := startProcess(cmd, c.folder.join("postgres.log"))
	if err != nil {
		return err
	}
	if err := proc.waitReady(func() bool { return c.ready(proc) }); err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	c.proc = proc
	return nil
}

// ready reads the file in which the server notes its state, as pg_ctl does: its
// first line is the process, its eighth the state. A file with another process is
// what a killed server left behind.
func (c *Cluster) ready(proc *process) bool {
	text, err := os.ReadFile(c.data() + "/postmaster.pid")
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(proc.cmd.Process.Pid) &&
		slices.Contains([]string{"ready", "standby"}, strings.TrimSpace(lines[7]))
}

// arguments are the server's command line: our settings first, the test's last,
// because the last one counts.
func (c *Cluster) arguments() []string {
	settings := slices.Concat([]string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(c.port),
		"unix_socket_directories=" + c.socketFolder(),
		"max_connections=" + strconv.Itoa(maxConnections),
		"synchronous_commit=on",
		"fsync=on",
		"logging_collector=off",
		// In files, because a killed server never removes its shared memory.
		"dynamic_shared_memory_type=mmap",
	}, c.settings)
	args := []string{"-D", c.data()}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// socketFolder is the cluster's folder, or none where its path would make the
// socket's name longer than systems allow. URLs go over TCP either way.
func (c *Cluster) socketFolder() string {
	const longest = 103 // on macOS; 107 on Linux
	if len(c.folder.path)+len("/.s.PGSQL.65535") > longest {
		return ""
	}
	return c.folder.path
}

// Kill ends the server at once, as a crash does: no checkpoint, every connection
// broken, every open transaction lost, what was committed kept in the log. It
// returns when the server is gone. Killing a dead server does nothing.
//
// It is PostgreSQL's immediate shutdown rather than SIGKILL: that one would leave
// sessions that go on for a while without their parent and keep the next start
// out.
func (c *Cluster) Kill() error { return c.end(syscall.SIGQUIT) }

// Stop ends the server in order: it breaks connections, rolls back and writes a
// checkpoint. Stopping a dead server does nothing.
func (c *Cluster) Stop() error { return c.end(syscall.SIGINT) }

// Restart kills the server and starts it again on the same data and port.
func (c *Cluster) Restart() error {
	if err := c.Kill(); err != nil {
		return err
	}
	return c.Start()
}

func (c *Cluster) end(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		return nil
	}
	err := c.proc.stop(sig)
	c.proc = nil
	return err
}

// close ends the server for good. Nobody wants its data any more, so there is no
// reason to wait for a checkpoint.
func (c *Cluster) close() error {
	return errors.Join(c.Kill(), c.folder.remove())
}
