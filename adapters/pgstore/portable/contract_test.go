package portable_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// setting is one way of running the contract's suite.
type setting struct {
	name string
	cfg  portable.Config
	// params are added to the URL that the stores get.
	params []string
	// bouncer: PgBouncer, in transaction mode, stands between.
	bouncer bool
	// tx: only transactions behave differently, so only they are looked at.
	tx bool
}

// settings: every isolation level, with and without one clock, in every way that pgx
// sends statements, whatever the sessions' own default is. That is serializable, so that
// a transaction which forgets to say its level gets another than it should where it says
// read committed.
func settings() []setting {
	const level, mode = "default_transaction_isolation", "default_query_exec_mode"
	return []setting{
		{name: "serializable", params: []string{level, "serializable"}},
		{name: "serializable_one_clock_unprepared", cfg: portable.Config{OneClock: true}, params: []string{level, "serializable", mode, "exec"}},
		{name: "repeatable_read_simple_protocol", cfg: portable.Config{Isolation: pgx.RepeatableRead}, params: []string{level, "serializable", mode, "simple_protocol"}},
		{name: "read_committed_one_clock", cfg: portable.Config{Isolation: pgx.ReadCommitted, OneClock: true}, params: []string{level, "serializable"}},
		{name: "read_committed_pgbouncer", cfg: portable.Config{Isolation: pgx.ReadCommitted}, params: []string{mode, "exec"}, bouncer: true, tx: true},
		{name: "the_engines_level", cfg: portable.Config{EngineIsolation: true}, tx: true},
		{name: "pool_of_one", cfg: portable.Config{OneClock: true}, params: []string{"pool_max_conns", "1"}, tx: true},
	}
}

// ground is a database in which every instance of the suite has a place of its own
// while it lasts; making a database or tables for each would take minutes.
type ground struct {
	setting
	owner, dsn string
	pool       *pgxpool.Pool
	t          *testing.T // the test whose end is the ground's, connections included

	mu     sync.Mutex
	free   []*place
	places int
}

// place is a schema with our tables and one of business data, and connections that
// carry its name.
type place struct {
	schema      string
	pool, other *pgxpool.Pool
}

func (c setting) ground(t *testing.T) *ground {
	t.Helper()
	g := &ground{setting: c, owner: testserver.Postgres(t), t: t}
	g.pool, g.dsn = admin(t, g.owner), g.owner
	if c.bouncer {
		g.dsn = testserver.PgBouncer(t, g.owner)
	}
	g.dsn = with(t, g.dsn, c.params...)
	return g
}

// take gives an empty place, and has it emptied and given back after the test.
func (g *ground) take(t *testing.T) *place {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	var p *place
	if n := len(g.free); n > 0 {
		p, g.free = g.free[n-1], g.free[:n-1]
	} else {
		g.places++
		p = g.newPlace(fmt.Sprintf(`te"st_%d`, g.places))
	}
	t.Cleanup(func() {
		for _, table := range []string{"keys", "resources", "steps", "settings", "audit", "sweepers"} {
			p.empty(g, "onlyonce_portable_"+table)
		}
		p.empty(g, "business")
		g.mu.Lock()
		defer g.mu.Unlock()
		g.free = append(g.free, p)
	})
	return p
}

func (p *place) empty(g *ground, table string) {
	if _, err := g.pool.Exec(context.Background(), `DELETE FROM `+p.table(table)); err != nil {
		panic(err)
	}
}

func (p *place) table(name string) string { return pgx.Identifier{p.schema, name}.Sanitize() }

func (g *ground) newPlace(schema string) *place {
	t, p := g.t, &place{schema: schema}
	migrated(t, g.owner, portable.Config{Schema: schema}).Close()
	exec(t, g.pool, `CREATE TABLE `+p.table("business")+` (name text)`)
	p.pool = admin(t, with(t, g.dsn, "application_name", schema))
	p.other = admin(t, with(t, g.dsn, "application_name", schema))
	return p
}

// backend opens stores on the ground.
func (g *ground) backend() storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		p := g.take(t)
		cfg := g.cfg
		cfg.Schema, cfg.Now, cfg.LockTimeout, cfg.MaxClockSkew = p.schema, now, patient, -1
		return storetest.Instance{Store: ready(t, p.pool, cfg), Another: ready(t, p.other, cfg)}
	}}
}

// ready makes a store on a pool and has it find its tables up to date.
func ready(t *testing.T, pool *pgxpool.Pool, cfg portable.Config) *portable.Store {
	t.Helper()
	s, err := portable.New(pool, cfg)
	if err == nil {
		err = s.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		if c.tx {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, c.ground(t).backend())
		})
	}
}

func TestContractTx(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunTx(t, c.ground(t).txBackend())
		})
	}
}

// txBackend finds the table of business data by the name of the connection.
func (g *ground) txBackend() storetest.TxBackend[pgx.Tx] {
	table := func(c *pgx.Conn) string {
		return (&place{schema: c.Config().RuntimeParams["application_name"]}).table("business")
	}
	return storetest.TxBackend[pgx.Tx]{
		Open: g.backend().Open,
		Write: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, `INSERT INTO `+table(tx.Conn())+` VALUES ($1)`, name)
			return err
		},
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			t.Helper()
			p := place{schema: portable.SchemaOf(in.Store.(*portable.Store))}
			return one[int](t, g.pool, `SELECT count(*) FROM `+p.table("business")+` WHERE name = $1`, name)
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(pgx.Tx) error) error {
			pool := portable.PoolOf(in.Store.(*portable.Store))
			return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: g.cfg.Isolation}, fn)
		},
	}
}

// The same random operations on the store and on the reference, where one clock
// judges leases and where one handle has watched all of them.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]portable.Config{"one_clock": {OneClock: true}, "watching": {Isolation: pgx.RepeatableRead}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			pool := admin(t, dsn)
			migrated(t, dsn, portable.Config{})
			storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
				t.Helper()
				for _, table := range []string{"keys", "resources", "steps"} {
					exec(t, pool, `DELETE FROM onlyonce_portable_`+table)
				}
				cfg.Now, cfg.MaxClockSkew = now, -1
				s, err := portable.New(pool, cfg)
				if err != nil {
					t.Fatal(err)
				}
				return storetest.Instance{Store: s}
			}}, func(now func() time.Time) onlyonce.Store {
				s, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		if c.tx {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunHistory(t, c.ground(t).backend())
		})
	}
}
