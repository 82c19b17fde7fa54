package testserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisCluster is a private cluster of three masters without replicas.
type RedisCluster struct {
	// Masters are its servers, in the order of their slots.
	Masters []*RedisServer
	ports   []int // of the bus between them
}

// NewRedisCluster starts a cluster for one test and stops it when the test ends.
// Settings are those of [NewRedis]; the append-only file is flushed once a second.
// Without Redis the test is skipped.
func NewRedisCluster(tb testing.TB, settings ...string) *RedisCluster {
	tb.Helper()
	c := &RedisCluster{}
	for range 3 {
		port, err := freePort()
		if err != nil {
			tb.Fatal(err)
		}
		s, err := startRedis(nil, append([]string{
			"cluster-enabled yes", "cluster-node-timeout 2000", "cluster-port " + strconv.Itoa(port),
			"appendonly yes", "appendfsync everysec",
		}, settings...)...)
		if err != nil {
			unavailable(tb, err)
		}
		s.stopWith(tb)
		c.Masters, c.ports = append(c.Masters, s), append(c.ports, port)
	}
	if err := c.join(); err != nil {
		tb.Fatal(err)
	}
	return c
}

// join gives each master a third of the slots and makes them known to each other.
func (c *RedisCluster) join() error {
	slots := []string{"0 5460", "5461 10922", "10923 16383"}
	first := c.Masters[0]
	for i, s := range c.Masters {
		from, to, _ := strings.Cut(slots[i], " ")
		for _, args := range [][]string{
			{"CLUSTER", "ADDSLOTSRANGE", from, to},
			{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
			{"CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(first.port), strconv.Itoa(c.ports[0])},
		} {
			if _, err := s.Do(args...); err != nil {
				return fmt.Errorf("join redis cluster: %w", err)
			}
		}
	}
	return until("the cluster agrees", func() bool {
		for _, s := range c.Masters { // each has to know: one alone may answer CLUSTERDOWN
			info, err := s.Do("CLUSTER", "INFO")
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return false
			}
		}
		return true
	})
}

// URL names all masters, for redisstore.
func (c *RedisCluster) URL() string {
	return "redis+cluster://" + c.Masters[0].Address() + "?addr=" + c.Masters[1].Address() + "&addr=" + c.Masters[2].Address()
}

// RedisFailover is a master with one replica, watched by three Sentinels, which
// promote the replica about a second after the master has died.
type RedisFailover struct {
	Master, Replica *RedisServer
	Sentinels       []*RedisServer
}

// redisMaster is the name under which Sentinel knows the master.
const redisMaster = "once"

// NewRedisFailover starts the servers for one test and stops them when the test
// ends. Settings are those of [NewRedis], for master and replica. Without Redis the
// test is skipped.
func NewRedisFailover(tb testing.TB, settings ...string) *RedisFailover {
	tb.Helper()
	f := &RedisFailover{Master: NewRedis(tb, settings...)}
	f.Replica = NewRedis(tb, append([]string{"replicaof 127.0.0.1 " + strconv.Itoa(f.Master.port)}, settings...)...)
	for range 3 {
		s, err := startRedis([]string{"--sentinel"},
			"sentinel monitor "+redisMaster+" 127.0.0.1 "+strconv.Itoa(f.Master.port)+" 2",
			"sentinel down-after-milliseconds "+redisMaster+" 500",
			"sentinel failover-timeout "+redisMaster+" 2000")
		if err != nil {
			unavailable(tb, err)
		}
		s.stopWith(tb)
		f.Sentinels = append(f.Sentinels, s)
	}
	if err := until("the sentinels know each other and the replica", f.ready); err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *RedisFailover) ready() bool {
	for _, s := range f.Sentinels {
		known, err := s.Do("SENTINEL", "MASTER", redisMaster)
		if err != nil || !strings.Contains(known, "num-other-sentinels\n2\n") || !strings.Contains(known, "num-slaves\n1\n") {
			return false
		}
		replicas, err := s.Do("SENTINEL", "REPLICAS", redisMaster)
		if err != nil || !strings.Contains(replicas, "master-link-status\nok\n") {
			return false
		}
	}
	return true
}

// HoldReplication breaks the replica's link to the master and keeps it from being
// made again, so that what the master confirms from now on it alone has. The
// replica stays fit to be promoted for a few seconds.
func (f *RedisFailover) HoldReplication() error {
	// A replica that is merely paused would still read what waits in its socket.
	if _, err := f.Master.Do("ACL", "SETUSER", "default", "-psync", "-sync"); err != nil {
		return err
	}
	if _, err := f.Master.Do("CLIENT", "KILL", "TYPE", "replica"); err != nil {
		return err
	}
	return until("the master has no replica", func() bool {
		info, err := f.Master.Do("INFO", "replication")
		return err == nil && strings.Contains(info, "connected_slaves:0")
	})
}

// URL names all sentinels, for redisstore.
func (f *RedisFailover) URL() string {
	return "redis+sentinel://" + f.Sentinels[0].Address() + "?master_name=" + redisMaster +
		"&addr=" + f.Sentinels[1].Address() + "&addr=" + f.Sentinels[2].Address()
}

// until polls until ok holds.
func until(what string, ok func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return errors.New("not in " + startTimeout.String() + ": " + what)
		}
	}
	return nil
}
