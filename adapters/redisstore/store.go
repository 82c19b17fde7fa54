package redisstore

import (
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// Store is an onlyonce store in Redis. It is safe for concurrent use, and so are
// several of them on the same servers. After a crash of the process all that a
// method has confirmed is there; after one of the server, what the server has
// kept of it: see Features.Durable and Notes.
type Store struct {
	client  redis.UniversalClient
	cfg     Config
	scripts scripts

	own    bool // Open made the client
	closed atomic.Bool

	// unfit is why no claim may be made at present: a server evicts keys.
	unfit atomic.Pointer[onlyonce.Error]
	// looked is when this store last asked the servers, in the process's time.
	looked atomic.Int64
	// process is the process's clock, for that alone.
	process func() time.Time
	// seen is what the servers said of themselves when the store was opened.
	seen   fitness
	opened sync.Once

	sweeping sync.Mutex
	// sweptTo is where the next sweep goes on.
	sweptTo position
}

var (
	_ onlyonce.Store         = (*Store)(nil)
	_ onlyonce.StepStore     = (*Store)(nil)
	_ onlyonce.SettingStore  = (*Store)(nil)
	_ onlyonce.OperatorStore = (*Store)(nil)
)

func newStore(client redis.UniversalClient, cfg Config) *Store {
	return &Store{process: time.Now, client: client, cfg: cfg, scripts: newScripts()}
}

// Features says what the store promises. Durable is true only where, when it was
// opened, every master flushed each write to disk before it confirmed it, and
// none had a replica that could take over without the last of them.
func (s *Store) Features() onlyonce.Features {
	return onlyonce.Features{Name: "redis", Durable: s.seen.durable(), Steps: true, Settings: true, Operators: true}
}

// The names of keys. Nothing in them comes from a caller, so that no brace of
// theirs decides about a cluster's slot.

func (s *Store) recordPrefix() string { return s.cfg.Prefix + "k:" }

func (s *Store) recordName(d onlyonce.Digest) string {
	return s.recordPrefix() + hex.EncodeToString(d[:])
}

func (s *Store) auditName(d onlyonce.Digest) string {
	return s.cfg.Prefix + "audit:" + hex.EncodeToString(d[:])
}

func (s *Store) settingsName() string { return s.cfg.Prefix + "settings" }

func (s *Store) sweeperName() string { return s.cfg.Prefix + "sweeper" }

// maxDuration is the longest lease or retention: with it, no sum of a time and a
// duration leaves the numbers that a script can count exactly.
const maxDuration = 100 * 365 * 24 * time.Hour

func checkDuration(name string, d time.Duration) error {
	if d > maxDuration {
		return configError("%s must be at most %v, got %v", name, maxDuration, d)
	}
	return nil
}

// micros is a duration in microseconds, rounded up: a lease or a retention is
// never shorter than it was asked for.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
