package testserver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// owner holds the servers that the tests of one binary share.
type owner struct {
	mu      sync.Mutex
	running bool // inside Run
	servers map[string]*sharedServer
}

// sharedServer is a server of the binary's tests, or why there is none.
type sharedServer struct {
	server closer
	err    error
}

// closer is a server that ends for good.
type closer interface{ close() error }

// shared is the one global of this package: a test is handed nothing but its
// testing.TB, so what TestMain started has to be found by name.
var shared owner

// Run runs the tests of a binary and then stops the servers that they started. It
// returns the code to exit with. A TestMain that also looks for leaked goroutines
// does so after Run.
func Run(m *testing.M) int {
	shared.open()
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintf(os.Stderr, "testserver: stop the shared servers: %v\n", err)
		return max(code, 1)
	}
	return code
}

// Postgres makes a fresh, empty database for the test and returns its URL. All
// tests of a binary share one cluster, which [Run] stops; with
// ONLYONCE_TEST_POSTGRES set, that server takes its place. Without any server the
// test is skipped.
func Postgres(tb testing.TB) string {
	tb.Helper()
	if dsn := external(); dsn != "" {
		s, err := externalServer(dsn)
		if err != nil {
			unavailable(tb, err)
		}
		return s.database(tb)
	}
	c, err := start(&shared, "postgres", func() (*Cluster, error) { return startCluster(sharedSettings()) })
	if err != nil {
		unavailable(tb, err)
	}
	return c.Database(tb)
}

func (o *owner) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running, o.servers = true, map[string]*sharedServer{}
}

// start starts the named server for the first test that asks; the others wait for
// it. A failure is remembered: what did not start once is not tried for every test.
func start[T closer](o *owner, name string, run func() (T, error)) (server T, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.running {
		return server, fmt.Errorf("nobody would stop the server: add func TestMain(m *testing.M) " +
			"{ os.Exit(testserver.Run(m)) }, or use one of the test's own")
	}
	if known := o.servers[name]; known != nil {
		server, _ = known.server.(T)
		return server, known.err
	}
	server, err = run()
	o.servers[name] = &sharedServer{err: err}
	if err == nil {
		o.servers[name].server = server
	}
	return server, err
}

func (o *owner) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = false
	var errs []error
	for _, s := range o.servers {
		if s.server != nil {
			errs = append(errs, s.server.close())
		}
	}
	o.servers = nil
	return errors.Join(errs...)
}

// sharedSettings are what the environment says about the shared cluster.
func sharedSettings() []string {
	if os.Getenv(envFsync) == "off" {
		return []string{"fsync=off"}
	}
	return nil
}
