package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// master is a server that takes writes. The address is empty where there is only
// one.
type master struct {
	address string
	client  *redis.Client
}

// masters are all servers that take writes, by address.
func (s *Store) masters(ctx context.Context) ([]master, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return []master{{client: c}}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex
		var all []master
		err := c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master{node.Options().Addr, node})
			return nil
		})
		slices.SortFunc(all, func(a, b master) int { return cmp.Compare(a.address, b.address) })
		return all, classify(ctx, call{op: "find the cluster's masters", reads: true}, err, fateOf(err, 0))
	default:
		return nil, configError("no client of type %T", c) // New has refused it
	}
}

// fitness is what the servers say of themselves.
type fitness struct {
	// flushed: every master flushes each write before it confirms it.
	flushed bool
	// replicated: a master has a replica that may take over.
	replicated bool
}

func (f fitness) durable() bool { return f.flushed && !f.replicated }

// inspect asks all masters whether they may be used. The first look decides what
// Features and Notes say; later ones, made by every sweep, whether claims may
// go on.
func (s *Store) inspect(ctx context.Context) error {
	all, err := s.masters(ctx)
	if err != nil {
		return err
	}
	seen := fitness{flushed: true}
	for _, m := range all {
		info, err := s.info(ctx, m)
		if err != nil {
			return err
		}
		if err := s.usable(ctx, m, info); err != nil {
			return err
		}
		seen.replicated = seen.replicated || info["connected_slaves"] != "0"
		seen.flushed = seen.flushed && flushes(ctx, m, info)
	}
	s.opened.Do(func() { s.seen = seen })
	s.looked.Store(s.process().UnixNano())
	s.unfit.Store(nil)
	return nil
}

// lookEvery is how often a store that claims asks the servers about themselves.
const lookEvery = time.Minute

// lookAgain has one claim a minute inspect the servers. What it cannot learn changes
// nothing: the claim itself will tell.
func (s *Store) lookAgain(ctx context.Context) {
	now, last := s.process().UnixNano(), s.looked.Load()
	if time.Duration(now-last) >= lookEvery && s.looked.CompareAndSwap(last, now) {
		_ = s.inspect(ctx)
	}
}

// info is what INFO says, by name; empty where it is refused and the
// configuration does without.
func (s *Store) info(ctx context.Context, m master) (map[string]string, error) {
	v, err := ask(ctx, m.client, "ask the server about itself", "info", "default")
	if err != nil {
		if code, _ := replyCode(err); s.cfg.AssumeNoEviction && (code == "NOPERM" || code == "ERR") {
			return map[string]string{}, nil
		}
		return nil, err
	}
	text, _ := v.(string)
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts, nil
}

// usable refuses a server on which claims would not be safe.
func (s *Store) usable(ctx context.Context, m master, info map[string]string) error {
	where := "the server"
	if m.address != "" {
		where += " " + m.address
	}
	if _, cluster := s.client.(*redis.ClusterClient); info["cluster_enabled"] == "1" && !cluster {
		return configError("%s belongs to a cluster: use redis+cluster:// or a *redis.ClusterClient", where)
	}
	if info["role"] == "slave" {
		return configError("%s is a replica: name its master, or use redis+sentinel:// to follow it", where)
	}
	if major, _, _ := strings.Cut(info["redis_version"], "."); major != "" {
		if n, err := strconv.Atoi(major); err == nil && n < 5 {
			return configError("%s is Redis %s: 5.0 or later is needed", where, info["redis_version"])
		}
	}
	if s.cfg.AssumeNoEviction {
		return nil
	}
	policy := info["maxmemory_policy"]
	if policy == "" {
		policy = configured(ctx, m, "maxmemory-policy")["maxmemory-policy"]
	}
	switch policy {
	case "noeviction":
		return nil
	case "":
		return configError("%s does not tell its maxmemory-policy: allow INFO, or see to it that it is noeviction and set AssumeNoEviction", where)
	default:
		err := configError("%s has maxmemory-policy %s and may drop claims and answers, whose keys would then run again: "+
			"CONFIG SET maxmemory-policy noeviction, there and in its configuration file, or use a server of its own", where, policy)
		s.unfit.Store(err)
		return err
	}
}

// flushes tells whether the server has each write on its disk before it confirms
// it. One that does not say is taken for one that does not.
func flushes(ctx context.Context, m master, info map[string]string) bool {
	if info["aof_enabled"] != "1" {
		return false
	}
	conf := configured(ctx, m, "*append*")
	return conf["appendfsync"] == "always" && conf["no-appendfsync-on-rewrite"] == "no"
}

// configured is what CONFIG GET says; nothing where it is refused, as managed
// services do.
func configured(ctx context.Context, m master, pattern string) map[string]string {
	conf, err := m.client.ConfigGet(ctx, pattern).Result()
	if err != nil {
		return nil
	}
	return conf
}

// Notes says in words what the servers, as they were when the store was opened,
// may lose. It is worth a line in the log of whoever opens the store: see
// Config.Logger.
func (s *Store) Notes() []string {
	notes := []string{
		"Redis confirms a write before its replicas have it: a failover may lose a claim or an answer that was confirmed, " +
			"and that key may run a second time. Keep the records in a SQL store and use Redis as a cache before it, or accept this.",
	}
	if n := s.cfg.WaitReplicas; n > 0 {
		notes = append(notes, fmt.Sprintf("Waiting for %d replicas makes such a loss rarer and does not rule it out.", n))
	}
	if !s.seen.flushed {
		notes = append(notes, "A master does not flush every write to disk before it confirms it (appendonly yes, appendfsync always, "+
			"no-appendfsync-on-rewrite no): a crash may lose the last of them, in the same way.")
	}
	return notes
}
