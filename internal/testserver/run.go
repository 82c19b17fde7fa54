package testserver

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// owner holds the cluster that the tests of one binary share.
type owner struct {
	mu      sync.Mutex
	running bool // inside Run
	tried   bool
	cluster *Cluster
	err     error
}

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
		fmt.Fprintf(os.Stderr, "testserver: stop the shared cluster: %v\n", err)
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
	c, err := shared.start()
	if err != nil {
		unavailable(tb, err)
	}
	return c.Database(tb)
}

func (o *owner) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = true
}

// start starts the cluster for the first test that asks; the others wait for it.
// A failure is remembered: what did not start once is not tried for every test.
func (o *owner) start() (*Cluster, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.running {
		return nil, fmt.Errorf("nobody would stop the server: add func TestMain(m *testing.M) " +
			"{ os.Exit(testserver.Run(m)) }, or use NewCluster")
	}
	if !o.tried {
		o.tried = true
		o.cluster, o.err = startCluster(sharedSettings())
	}
	return o.cluster, o.err
}

func (o *owner) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = false
	if o.cluster == nil {
		return nil
	}
	c := o.cluster
	o.cluster = nil
	return c.close()
}

// sharedSettings are what the environment says about the shared cluster.
func sharedSettings() []string {
	if os.Getenv(envFsync) == "off" {
		return []string{"fsync=off"}
	}
	return nil
}
