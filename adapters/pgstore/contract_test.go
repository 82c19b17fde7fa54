package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// setting is one way of running the contract's suite.
type setting struct {
	name string
	cfg  pgstore.Config
	// url changes the URL that the stores get.
	url func(t *testing.T, dsn string) string
	// least: the stores' role has the rights on data only.
	least bool
	// alone: there is no second store.
	alone bool
	// tx: only transactions behave differently, so only they are looked at.
	tx bool
	// midnight: a period of the partitions ends just behind the moment at which the
	// suite's clock begins, so that whatever advances it crosses that.
	midnight bool
}

// daily has partitions for today and two days ahead.
func daily() pgstore.Partition { return pgstore.Partition{Every: 24 * time.Hour, Ahead: 2} }

// few has them for one day ahead: the suite empties them very often.
func few() pgstore.Partition { return pgstore.Partition{Every: 24 * time.Hour, Ahead: 1} }

func settings() []setting {
	return []setting{
		{name: "plain"},
		{name: "serializable", cfg: pgstore.Config{Isolation: pgx.Serializable}, tx: true},
		{name: "repeatable_read", cfg: pgstore.Config{Isolation: pgx.RepeatableRead}, tx: true},
		{name: "serializable_asynchronous_role", cfg: pgstore.Config{Isolation: pgx.Serializable}, url: func(t *testing.T, dsn string) string {
			t.Helper()
			return with(t, dsn, "default_transaction_isolation", "serializable", "synchronous_commit", "off")
		}},
		{name: "pool_of_one", alone: true, url: func(t *testing.T, dsn string) string {
			t.Helper()
			return with(t, dsn, "pool_max_conns", "1")
		}},
		{name: "pgbouncer", url: func(t *testing.T, dsn string) string {
			t.Helper()
			return with(t, testserver.PgBouncer(t, dsn), "default_query_exec_mode", "exec")
		}},
		{name: "simple_protocol", tx: true, url: func(t *testing.T, dsn string) string {
			t.Helper()
			return with(t, dsn, "default_query_exec_mode", "simple_protocol")
		}},
		{name: "least_privilege", least: true},
		{name: "partitions_at_midnight", cfg: pgstore.Config{Partition: few()}, midnight: true},
		{name: "partitions_repeatable_read", cfg: pgstore.Config{Partition: few(), Isolation: pgx.RepeatableRead}, midnight: true, tx: true},
		{name: "partitions_of_others", cfg: pgstore.Config{Partition: few()}, least: true, tx: true},
	}
}

// ground is a database in which every instance of the suite has a place of its
// own while it lasts; making a database or tables for each would take minutes.
type ground struct {
	setting
	owner, dsn string
	pool       *pgxpool.Pool
	t          *testing.T // the test whose end is the ground's, connections included

	mu     sync.Mutex
	free   []*place
	places int
}

// place is a schema with our tables and one of business data, and connections
// that carry its name.
type place struct {
	schema      string
	pool, other *pgxpool.Pool
}

func (c setting) ground(t *testing.T) *ground {
	t.Helper()
	g := &ground{setting: c, owner: testserver.Postgres(t), t: t}
	g.pool, g.dsn = admin(t, g.owner), g.owner
	if c.least {
		g.dsn = leastPrivilege(t, g.pool, g.owner)
	}
	if c.url != nil {
		g.dsn = c.url(t, g.dsn)
	}
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
		p.clear(g)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.free = append(g.free, p)
	})
	return p
}

// clear leaves the place as newPlace has made it.
func (p *place) clear(g *ground) {
	for _, table := range []string{"keys", "steps", "settings", "audit"} {
		p.empty(g, "onlyonce_"+table)
	}
	p.empty(g, "business")
	p.rewind(g)
}

func (p *place) empty(g *ground, table string) {
	if _, err := g.pool.Exec(context.Background(), `DELETE FROM `+p.table(table)); err != nil {
		panic(err)
	}
}

// rewind has the partitions empty, and in use for a time that is over by any clock.
func (p *place) rewind(g *ground) {
	if g.cfg.Partition.Every == 0 {
		return
	}
	p.empty(g, "onlyonce_answers")
	p.empty(g, "onlyonce_requests")
	_, err := g.pool.Exec(context.Background(), `UPDATE `+p.table("onlyonce_partitions")+` SET since = '2000-01-01 00:00+00', upto = '2000-01-02 00:00+00'`)
	if err != nil {
		panic(err)
	}
}

func (p *place) table(name string) string { return pgx.Identifier{p.schema, name}.Sanitize() }

func (g *ground) newPlace(schema string) *place {
	t, p := g.t, &place{schema: schema}
	_ = migrated(t, g.owner, pgstore.Config{Schema: schema, Partition: g.cfg.Partition}).Close() // a cluster has so many connections
	p.rewind(g)
	exec(t, g.pool, `CREATE TABLE `+p.table("business")+` (name text)`)
	if g.least {
		grant(t, g.pool, schema)
	}
	p.pool = admin(t, with(t, g.dsn, "application_name", schema))
	p.other = admin(t, with(t, g.dsn, "application_name", schema))
	return p
}

// backend opens stores on the ground.
func (g *ground) backend() storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		return g.open(t, g.take(t), now)
	}}
}

// open opens stores on a place, with partitions for the time they begin at unless
// their role may not make them.
func (g *ground) open(t *testing.T, p *place, now func() time.Time) storetest.Instance {
	t.Helper()
	cfg := g.cfg
	cfg.Schema, cfg.Now = p.schema, now
	switch {
	case g.midnight:
		exec(t, g.pool, `UPDATE `+p.table("onlyonce_partitions")+` SET since = $1::timestamptz + (slot - 2) * every, upto = $1::timestamptz + (slot - 1) * every`,
			now().Add(time.Millisecond))
	case cfg.Partition.Every > 0 && !g.least:
		if _, err := ready(t, g.pool, cfg).MaintainPartitions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Partition = pgstore.Partition{} // the tables say it
	in := storetest.Instance{Store: ready(t, p.pool, cfg)}
	if !g.alone {
		in.Another = ready(t, p.other, cfg)
	}
	return in
}

// ready makes a store on a pool and has it find its tables up to date.
func ready(t *testing.T, pool *pgxpool.Pool, cfg pgstore.Config) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(pool, cfg)
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

// C2, C9, B103: a storm of duplicates costs a read now and then, and no connection.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		waiters, ok := map[string]int{"plain": 1000, "serializable": 100, "pool_of_one": 100}[c.name]
		if !ok {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunWaiting(t, c.ground(t).txBackend(), waiters)
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
			p := place{schema: pgstore.SchemaOf(in.Store.(*pgstore.Store))}
			return one[int](t, g.pool, `SELECT count(*) FROM `+p.table("business")+` WHERE name = $1`, name)
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(pgx.Tx) error) error {
			pool := pgstore.PoolOf(in.Store.(*pgstore.Store))
			return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: g.cfg.Isolation}, fn)
		},
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		if c.name != "plain" && c.name != "partitions_at_midnight" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := c.ground(t)
			p := g.newPlace("model")
			storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
				t.Helper()
				p.clear(g)
				return g.open(t, p, now)
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
		if c.tx || c.least {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunHistory(t, c.ground(t).backend())
		})
	}
}
