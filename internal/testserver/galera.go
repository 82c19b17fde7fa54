package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// galeraNodes is how many nodes a cluster has: the fewest that survive the death of
// one.
const galeraNodes = 3

// galeraProviders are where Debian's and Red Hat's packages put Galera's library.
func galeraProviders() []string {
	return []string{"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so", "/usr/lib64/galera/libgalera_smm.so"}
}

// Galera is a private cluster of three MariaDB nodes, each of which takes writes. Its
// methods may be called from several goroutines.
type Galera struct{ nodes []*MariaDB }

// SharedGalera gives the cluster that all tests of a binary share, and which [Run]
// stops. Without Galera the test is skipped.
func SharedGalera(tb testing.TB) *Galera {
	tb.Helper()
	g, err := start(&shared, "galera", startGalera)
	if err != nil {
		unavailable(tb, err)
	}
	return g
}

// NewGalera starts a cluster for one test, which may kill its nodes, and stops it when
// the test ends. Without Galera the test is skipped.
func NewGalera(tb testing.TB) *Galera {
	tb.Helper()
	g, err := startGalera()
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := g.close(); err != nil {
			tb.Errorf("stop galera: %v", err)
		}
	})
	return g
}

func findGalera() (string, error) {
	for _, path := range galeraProviders() {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", &missingError{what: "galera not found", hint: "install galera-4"}
}

func startGalera() (*Galera, error) {
	programs, err := findMariaDB()
	if err != nil {
		return nil, err
	}
	provider, err := findGalera()
	if err != nil {
		return nil, err
	}
	for range startTries {
		g := &Galera{}
		if err = g.make(programs); err == nil {
			err = g.start(provider)
		}
		if err == nil {
			return g, nil
		}
		err = errors.Join(err, g.close())
	}
	return nil, err
}

// make makes the nodes' folders. Only the first has data: the others get theirs from a
// node that has.
func (g *Galera) make(programs mariadbPrograms) error {
	for i := range galeraNodes {
		f, err := newFolder()
		if err != nil {
			return err
		}
		m := &MariaDB{programs: programs, folder: f}
		g.nodes = append(g.nodes, m)
		bring := m.empty
		if i == 0 {
			bring = m.install
		}
		if err := errors.Join(m.makeTemporary(), bring()); err != nil {
			return err
		}
	}
	return nil
}

// empty makes a data folder with nothing in it, for a server that gets its data and
// its accounts from another one.
func (m *MariaDB) empty() error {
	err := errors.Join(
		os.Mkdir(m.data(), 0o700),
		m.folder.account.own(m.data()),
		os.WriteFile(m.init(), nil, 0o644),
	)
	if err != nil {
		return fmt.Errorf("configure mariadb: %w", err)
	}
	return nil
}

// start starts the first node as a cluster of its own, has the others join it, and
// waits until all are one.
func (g *Galera) start(provider string) error {
	groups, receive := make([]string, len(g.nodes)), make([]int, len(g.nodes))
	for i, m := range g.nodes {
		group, err := freePort()
		if err == nil {
			receive[i], err = freePort()
		}
		if err == nil {
			m.port, err = freePort()
		}
		if err != nil {
			return err
		}
		groups[i] = address(group)
	}
	for i, m := range g.nodes {
		m.settings = galeraSettings(provider, i, groups)
		m.settings = append(m.settings, "--wsrep-sst-receive-address="+address(receive[i]))
	}
	g.nodes[0].settings = append(g.nodes[0].settings, "--wsrep-new-cluster")
	// One after the other: nodes that join at once may shut each other out.
	for i, m := range g.nodes {
		if err := m.Start(); err != nil {
			return err
		}
		if err := m.proc.waitReady(func() bool { return m.synced(i + 1) }); err != nil {
			return err
		}
	}
	for _, m := range g.nodes {
		if err := m.proc.waitReady(func() bool { return m.synced(len(g.nodes)) }); err != nil {
			return err
		}
	}
	return nil
}

// galeraSettings are the arguments of one node of a group. A node that is gone is
// given up after two seconds.
func galeraSettings(provider string, i int, groups []string) []string {
	_, port, _ := strings.Cut(groups[i], ":")
	return []string{
		"--wsrep-on=ON",
		"--wsrep-provider=" + provider,
		"--wsrep-cluster-name=onlyonce",
		"--wsrep-cluster-address=gcomm://" + strings.Join(groups, ","),
		"--wsrep-node-name=n" + strconv.Itoa(i),
		"--wsrep-node-address=127.0.0.1:" + port,
		"--wsrep-sst-method=rsync",
		"--wsrep-slave-threads=2",
		"--binlog-format=ROW",
		"--innodb-autoinc-lock-mode=2",
		"--wsrep-provider-options=base_port=" + port + ";gmcast.listen_addr=tcp://" + groups[i] +
			";gcache.size=16M;evs.keepalive_period=PT0.3S;evs.inactive_check_period=PT0.3S;evs.suspect_timeout=PT2S" +
			";evs.inactive_timeout=PT6S;evs.install_timeout=PT6S",
	}
}

// synced tells whether the node takes statements, in a cluster of at least so many.
func (m *MariaDB) synced(least int) bool {
	out, err := m.server().query(context.Background(), "SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_size')")
	if err != nil {
		return false
	}
	values := strings.Fields(out)
	if len(values) != 4 || values[3] != "ON" {
		return false
	}
	size, err := strconv.Atoi(values[1])
	return err == nil && size >= least
}

// Nodes is how many nodes the cluster began with.
func (g *Galera) Nodes() int { return len(g.nodes) }

// Database makes a fresh, empty database and returns its URL on each node. It goes
// with the cluster.
func (g *Galera) Database(tb testing.TB) []string {
	tb.Helper()
	first := g.nodes[0].Database(tb)
	u, err := url.Parse(first)
	if err != nil {
		tb.Fatal(err)
	}
	var urls []string
	for _, m := range g.nodes {
		urls = append(urls, m.dsn(strings.TrimPrefix(u.Path, "/")))
	}
	return urls
}

// Kill ends a node at once (SIGKILL). The others go on by themselves after some two
// seconds. It does not come back.
func (g *Galera) Kill(node int) error { return g.nodes[node].Kill() }

// close ends all nodes for good.
func (g *Galera) close() error {
	var errs []error
	for _, m := range g.nodes {
		errs = append(errs, m.end(syscall.SIGKILL), m.folder.remove())
	}
	return errors.Join(errs...)
}
